"""python -m codegen.numerics.recheck out/report.json: proves every requantization of a report again. Exit: 0 or 1.

Independent of the prover: it knows the float32 formula and what the four C forms compute (runtime_c/rt_requantize.h),
both written here once more, finds the thresholds by plain bisection over the whole interval, and believes no number of
the report. Both sides never decrease in the accumulator, so equality at every threshold, just before it and at the two
ends is equality everywhere between. Form E, and F's window, are the formula itself in integers (tests/numerics).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

COLUMNS = ("scale_bits", "acc_lo", "acc_hi", "multiplier", "rounding", "left_shift", "parity", "thresholds")
SCALARS = ("zero_point", "lo", "hi", "right_shift", "window", "flip")
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


class Refuted(Exception):
    """The entry does not prove what it claims; the text says where."""


def formula(acc: Ints, scale: NDArray[np.float32], entry: dict[str, Any]) -> Ints:
    """clamp(rint(f32(f32(acc) * S)), lo - zp, hi - zp) + zp: the code of each accumulator."""
    zero_point = entry["zero_point"]
    with np.errstate(over="ignore", under="ignore"):
        value = acc.astype(np.float32) * scale
    value = np.clip(value, np.float32(entry["lo"] - zero_point), np.float32(entry["hi"] - zero_point))
    codes: Ints = np.rint(value).astype(np.int64) + zero_point
    return codes


def fixed_point(acc: Ints, columns: dict[str, Ints]) -> Ints:
    """p = floor((acc << k) * M / 2^32) + R."""
    shifted = acc << columns["left_shift"][:, None]
    result: Ints = ((shifted * columns["multiplier"][:, None]) >> 32) + columns["rounding"][:, None]
    return result


def require(holds: bool | np.bool_, text: str) -> None:
    if not holds:
        raise Refuted(text)


def require_all(holds: NDArray[np.bool_], text: str) -> None:
    """Every channel: `holds` is [C] or [C, ...]."""
    rows = np.flatnonzero(~holds.reshape(len(holds), -1).all(axis=1))
    require(len(rows) == 0, f"channel {rows[0] if len(rows) else 0}: {text}")


def read_columns(entry: dict[str, Any]) -> dict[str, Ints]:
    """The per-channel numbers as int64, after the checks of types, sizes and the digest."""
    for name in SCALARS:
        require(type(entry.get(name)) is int, f"{name} is not an integer")
    channels = entry.get("channels", {})
    for name in COLUMNS:
        column = channels.get(name)
        require(isinstance(column, list) and all(type(n) is int for n in column), f"{name} is no list of integers")
        require(len(column) == len(channels["scale_bits"]), f"{name} has another length than scale_bits")
        require(all(abs(n) < 2**33 for n in column), f"{name} holds a number beyond 32 bits")
    body = {key: value for key, value in entry.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    require(hashlib.sha256(text.encode()).hexdigest() == entry.get("sha256"), "the digest does not fit the numbers")
    return {name: np.array(channels[name], np.int64) for name in COLUMNS}


def check_ranges(entry: dict[str, Any], columns: dict[str, Ints]) -> NDArray[np.float32]:
    """The scales, after the checks that keep the C's 32-bit arithmetic free of overflow."""
    require(-128 <= entry["lo"] <= entry["hi"] <= 127, "code bounds outside int8")
    require(-128 <= entry["zero_point"] <= 127, "zero point outside int8")
    require(1 <= entry["right_shift"] <= 22, "right shift outside 1..22")
    bits = columns["scale_bits"]
    require_all((bits >= 0x00800000) & (bits < 0x7F800000), "the scale is not positive, finite and normal")
    lo, hi, k = columns["acc_lo"], columns["acc_hi"], columns["left_shift"]
    require_all((lo >= INT32_MIN) & (lo <= hi) & (hi <= INT32_MAX), "accumulator interval empty or beyond int32")
    require_all((k >= 0) & (k <= 31), "left shift outside 0..31")
    require_all((columns["multiplier"] >= 0) & (columns["multiplier"] <= INT32_MAX), "multiplier outside int32")
    require_all((columns["parity"] >= 0) & (columns["parity"] <= INT32_MAX), "parity outside int32")
    if entry["form"] != "E":
        moving = columns["multiplier"] > 0
        ends = np.stack([lo, hi], axis=1)
        shifted = np.where(moving[:, None], ends << k[:, None], 0)
        require_all((shifted >= INT32_MIN) & (shifted <= INT32_MAX), "acc << k leaves int32")
        p = fixed_point(np.where(moving[:, None], ends, 0), columns)
        require_all((p > INT32_MIN + 2**17) & (p < INT32_MAX - 2**17), "the fixed-point sum leaves int32")
    return bits.astype(np.uint32).view(np.float32)


def thresholds(scale: NDArray[np.float32], entry: dict[str, Any], columns: dict[str, Ints]) -> tuple[Ints, Ints]:
    """(codes, accumulators), both [C, U]: the smallest accumulator with formula >= code, by bisection of [lo, hi].

    Rows with fewer than U codes repeat their last; rows without any hold acc_hi, to be masked by the caller.
    """
    column = scale[:, None]
    lo, hi = columns["acc_lo"][:, None], columns["acc_hi"][:, None]
    first, last = formula(lo, column, entry), formula(hi, column, entry)
    require_all(columns["thresholds"][:, None] == last - first, "another number of thresholds than stated")
    codes = np.minimum(first + 1 + np.arange(max(int(np.max(last - first)), 1)), last)
    low, high = np.broadcast_to(lo, codes.shape), np.broadcast_to(hi, codes.shape)
    while np.any(high - low > 1):
        middle = (low + high) >> 1
        reached = formula(middle, column, entry) >= codes
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return codes, high


def check_steps(entry: dict[str, Any], columns: dict[str, Ints], scale: NDArray[np.float32]) -> int:
    """Number of thresholds that were compared; raises Refuted at the first that fails."""
    codes, acc = thresholds(scale, entry, columns)
    constant = (columns["thresholds"] == 0)[:, None]
    check_constants(entry, columns, scale, constant[:, 0])
    if entry["form"] == "E":
        require_all((columns["rounding"][:, None] == entry["zero_point"]) | constant, "rounding is not the zero point")
        return int(columns["thresholds"].sum())
    form = {"A": code_a, "B": code_b, "F": None}[entry["form"]]
    s = entry["right_shift"]
    if form is not None:
        before, after = form(acc - 1, entry, columns), form(acc, entry, columns)
        require_all((after >= codes) | constant, "the form is below the formula at a threshold")
        require_all((before < codes) | constant, "the form is above the formula before a threshold")
        ends = np.stack([columns["acc_lo"], columns["acc_hi"]], axis=1)
        require_all((form(ends, entry, columns) == formula(ends, scale[:, None], entry)) | constant, "an end differs")
        return int(columns["thresholds"].sum())
    slack = (1 << s) - entry["window"]
    require(slack > 0 and slack & (slack - 1) == 0 and slack < 1 << s, "the window is no mask of high fraction bits")
    check_window(entry, columns, scale, codes, acc, slack)
    return int(columns["thresholds"].sum())


def check_window(
    entry: dict[str, Any],
    columns: dict[str, Ints],
    scale: NDArray[np.float32],
    codes: Ints,
    acc: Ints,
    slack: int,
) -> None:
    """Form F: outside [c * 2^s, c * 2^s + slack), where the formula itself decides, p must be on the right side."""
    s, constant = entry["right_shift"], (columns["thresholds"] == 0)[:, None]
    require_all((fixed_point(acc, columns) >= codes << s) | constant, "below the window at a threshold")
    require_all((fixed_point(acc - 1, columns) < (codes << s) + slack) | constant, "above the window before one")
    lo, hi = columns["acc_lo"][:, None], columns["acc_hi"][:, None]
    first, last = formula(lo, scale[:, None], entry), formula(hi, scale[:, None], entry)
    low_ok = (first == entry["lo"]) | (fixed_point(lo, columns) >= first << s)
    high_ok = (last == entry["hi"]) | (fixed_point(hi, columns) < ((last + 1) << s) + slack)
    require_all((low_ok & high_ok) | constant, "an end differs")


def check_constants(entry: dict[str, Any], columns: dict[str, Ints], scale: NDArray[np.float32], rows: Any) -> None:
    """Channels of one code: M = 0 and the rounding alone gives that code (form E: is that code)."""
    code = formula(columns["acc_lo"][:, None], scale[:, None], entry)[:, 0]
    rounding, s = columns["rounding"], entry["right_shift"]
    require_all((columns["multiplier"] == 0) | ~rows, "a constant channel multiplies")
    require_all((columns["parity"] == 0) | ~rows, "a constant channel has a parity")
    plain = rounding if entry["form"] == "E" else rounding >> s
    require_all((plain == code) | ~rows, "a constant channel has another code")
    if entry["form"] == "F":
        require_all(((rounding & entry["window"]) != 0) | ~rows, "a constant channel asks the slow routine")


def code_a(acc: Ints, entry: dict[str, Any], columns: dict[str, Ints]) -> Ints:
    codes: Ints = np.clip(fixed_point(acc, columns) >> entry["right_shift"], entry["lo"], entry["hi"])
    return codes


def code_b(acc: Ints, entry: dict[str, Any], columns: dict[str, Ints]) -> Ints:
    """Cells of odd code (of even code where flip is -1) end parity / 2^(32 - s) later."""
    s = entry["right_shift"]
    require(entry["flip"] in (0, -1), "flip is neither 0 nor -1")
    p = fixed_point(acc, columns)
    odd = ((p >> s) ^ entry["flip"]) & 1
    difference = columns["parity"][:, None] >> (32 - s)
    require_all(difference << (32 - s) == columns["parity"][:, None], "parity has bits below its unit")
    codes: Ints = np.clip((p - odd * difference) >> s, entry["lo"], entry["hi"])
    return codes


def recheck_entry(entry: dict[str, Any]) -> int:
    """Thresholds compared in one layer's certificate. Raises Refuted if any number is wrong."""
    require(entry.get("form") in ("A", "B", "F", "E"), "unknown form")
    columns = read_columns(entry)
    if not len(columns["scale_bits"]):
        return 0
    return check_steps(entry, columns, check_ranges(entry, columns))


def recheck_report(report: dict[str, Any]) -> list[str]:
    """One line per layer; a failing one starts with FAIL."""
    lines = []
    for index, node in enumerate(report.get("nodes", [])):
        entry = node.get("requantize")
        if entry is None:
            continue
        name = f"node {index} {node.get('name', '')}".rstrip()
        try:
            count = recheck_entry(entry)
            lines.append(
                f"ok   {name}: form {entry['form']}, {len(entry['channels']['acc_lo'])} channels, {count} thresholds"
            )
        except Refuted as reason:
            lines.append(f"FAIL {name}: {reason}")
    return lines


def main(arguments: list[str]) -> int:
    """Prints one line per layer. 0: all proved; 1: something is wrong, the file included."""
    if len(arguments) != 1:
        print("usage: python -m codegen.numerics.recheck out/report.json", file=sys.stderr)
        return 1
    try:
        report = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        lines = recheck_report(report)
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        print(f"{arguments[0]}: not a readable report ({error})", file=sys.stderr)
        return 1
    print("\n".join(lines))
    failed = sum(line.startswith("FAIL") for line in lines)
    print(f"{len(lines) - failed} of {len(lines)} layers proved")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
