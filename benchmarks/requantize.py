"""Instructions per output of the requantization forms of runtime_c/rt_requantize.h; `python -m benchmarks.requantize`.

Clamp and store are included, loading the accumulator, the loop and the constants are not. The constants come from the
prover, and the codes of every form are compared with the reference.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import emulate
from benchmarks.targets import BOARD, TARGETS, BenchmarkError, Target
from codegen.numerics.forms import RequantParams
from codegen.numerics.prover import prove_steps, verify_points
from codegen.numerics.reference import requantize
from codegen.numerics.thresholds import float_thresholds

RUNTIME = Path(__file__).resolve().parents[1] / "runtime_c"
SCALE = np.float32(0.00387654)
TIES = np.float32(2**-8)
"""Form A is proved for SCALE. TIES puts every 256th accumulator between two codes: A cannot round all of those to even,
B can, and F asks E for each."""
ZERO_POINT = -4
ACC_SHIFT = 15
"""Accumulators are -2^16 .. 2^16 - 1, uniformly; codes saturate outside +-33,000."""
COUNT = 1000

ROWS = {
    "run_a": "A: multiply, round, shift",
    "run_a_bounds": "A, bounds other than int8 (Relu, Clip)",
    "run_b": "B: ties to even, even zero point",
    "run_b_odd": "B, odd zero point",
    "run_f": "F: A, and E next to a boundary",
    "run_e": "E: emulates the reference (slow path of F)",
    "run_twice": "two roundings, as TFLite's reference",
    "run_twice_fast": "two roundings, as optimized kernels",
}
TWICE = ("run_twice", "run_twice_fast")
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "m4": ("m4", ()),
    "m4, plain C": ("m4", ("-DRT_TARGET_PORTABLE",)),
    "m3": ("m3", ()),
    "m0": ("m0", ()),
    "rv32": ("rv32", ()),
}
"""Column: target and defines. m4 uses the instructions of rt_target.h; the others are its C twins."""


@dataclass(frozen=True)
class Cost:
    """instructions per output by row; wrong: codes of 1,000 that differ from the reference."""

    instructions: dict[str, float]
    wrong: dict[str, int]


def proven(form: str, scale: np.float32, zero_point: int) -> RequantParams:
    """The prover's constants for a form, every accumulator checked."""
    limit = np.array([1 << (31 - ACC_SHIFT)], np.int64)
    steps = float_thresholds(np.array([scale]), -limit, limit - 1, -128 - zero_point, 127 - zero_point)
    params = prove_steps(np.array([scale], np.float64), steps, zero_point, (form,))
    if params is None or (form != "F" and not verify_points(params, steps)):
        raise BenchmarkError(f"form {form} cannot be proved for scale {scale}")
    return params


def double_rounding(scale: np.float32) -> tuple[int, int, int]:
    """(multiplier in 2^30..2^31, left shift, right shift) of scale, as TFLite's QuantizeMultiplier."""
    mantissa, exponent = math.frexp(float(scale))
    multiplier = round(mantissa * 2**31)
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    return multiplier, max(exponent, 0), max(-exponent, 0)


def defines() -> list[str]:
    """All constants of requantize.c as compiler flags."""
    values = {"ACC_SHIFT": ACC_SHIFT, "ZERO_POINT": ZERO_POINT}
    values |= {"SCALE_BITS": int(SCALE.view(np.uint32)), "TIES_BITS": int(TIES.view(np.uint32))}
    for name, params in (
        ("A", proven("A", SCALE, ZERO_POINT)),
        ("B", proven("B", TIES, ZERO_POINT)),
        ("B1", proven("B", TIES, ZERO_POINT - 1)),
        ("F", proven("F", TIES, ZERO_POINT)),
    ):
        values |= {
            f"{name}_M": int(params.multiplier[0]),
            f"{name}_R": int(params.rounding[0]),
            f"{name}_K": int(params.left_shift[0]),
            f"{name}_S": params.right_shift,
            f"{name}_PARITY": int(params.parity[0]),
            f"{name}_WINDOW": params.window,
        }
    values["TWICE_M"], values["TWICE_LEFT"], values["TWICE_RIGHT"] = double_rounding(TIES)
    return [f"-D{name}=({value})" for name, value in values.items()]


def reference_checksum() -> int:
    """FNV-1a over the reference's codes of the accumulators that requantize.c makes."""
    x, checksum = 2463534242, 2166136261
    accumulators = np.empty((COUNT, 1), np.int64)
    for i in range(COUNT):
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
        accumulators[i] = (x - (x >> 31 << 32)) >> ACC_SHIFT
    for code in requantize(accumulators, np.array([TIES]), ZERO_POINT).ravel():
        checksum = ((checksum ^ (int(code) & 0xFF)) * 16777619) & 0xFFFFFFFF
    return checksum


def measure(target: Target, extra: tuple[str, ...], work: Path, optimize: str = "-O2") -> Cost:
    """Costs on one target. Raises BenchmarkError if forms A, B, F or E differ from the reference in any code."""
    emulate.require_tools(target)
    sources = [BOARD / "requantize.c", RUNTIME / "rt_requantize.c"]
    flags = [*optimize.split(), *extra, *defines()]
    objects = emulate.compile_objects(target, sources, work / "objects", [BOARD, RUNTIME], flags)
    objects += emulate.board_objects(target, work / "board")
    values = emulate.run(emulate.link(target, objects, work / "requantize.elf"))
    clock = emulate.calibrate(values)
    wrong = {name: values[f"wrong_{name}"] for name in ROWS}
    if values["checksum"] != reference_checksum() or any(wrong[name] for name in ROWS if name not in TWICE):
        raise BenchmarkError(f"{target.name}: codes differ from the reference: {wrong}")
    base = values["only_read"]
    costs = {name: clock.instructions(values[name] - base, 0) / COUNT for name in ROWS}
    return Cost(costs, wrong)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requantize", description=__doc__)
    parser.add_argument("--optimize", default="-O2", metavar="FLAGS", help="compiler flags")
    args = parser.parse_args(argv)
    columns: dict[str, Cost] = {}
    try:
        for title, (name, extra) in VARIANTS.items():
            with tempfile.TemporaryDirectory() as work:
                columns[title] = measure(TARGETS[name], extra, Path(work), args.optimize)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    table = Table(title=f"instructions per output, clamp and store included, {args.optimize}")
    table.add_column("form")
    for title in columns:
        table.add_column(title, justify="right")
    table.add_column("codes of 1,000 unlike the reference", justify="right")
    for name, title in ROWS.items():
        costs = [f"{cost.instructions[name]:.1f}" for cost in columns.values()]
        table.add_row(title, *costs, str(columns["m4"].wrong[name]))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
