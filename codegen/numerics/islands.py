"""Real functions of two codes: y = Q(f(a) op g(b)) as sums or products of two small integer tables.

The literal float32 formula on all 65,536 pairs is the reference; the tables are fitted to it, and the few pairs that a
fit misses are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from codegen.codes import INT8
from codegen.numerics.exact import NumericsError
from codegen.numerics.pairs import pair_codes
from codegen.numerics.reference import Int8Array, Int64Array, Quant, quantize

MAX_EXCEPTIONS = 256
UNBOUNDED = 1 << 40


@dataclass(frozen=True)
class IslandParams:
    """y = clamp(t >> shift), t = A[a] op B[b] + rounding, op + or *.

    t loses `parity` where bit `shift` of it is 1 - flip: ties to even. Tables by code + 128; every sum or product fits
    int32. exceptions: ((a + 128) * 256 + b + 128, code), ascending.
    """

    product: bool
    table_a: Int64Array
    table_b: Int64Array
    rounding: int
    parity: int
    flip: int
    shift: int
    lo: int
    hi: int
    exceptions: tuple[tuple[int, int], ...] = ()

    def apply(self, a: Int64Array, b: Int64Array) -> Int8Array:
        """Codes of two code arrays; equal to rt_island_s8."""
        left, right = self.table_a[a - INT8.low], self.table_b[b - INT8.low]
        return pair_codes(self, (left * right if self.product else left + right) + self.rounding, a, b)


def pair_table(
    kind: str, left: NDArray[np.float32], right: NDArray[np.float32], qy: Quant, lo: int, hi: int
) -> Int8Array:
    """Reference codes [256, 256] of f(a) kind g(b), float32 throughout; `left`, `right` are f and g of all codes."""
    a, b = left[:, None].astype(np.float32), right[None, :].astype(np.float32)
    with np.errstate(all="ignore"):
        value = {"Add": a + b, "Sub": a - b, "Mul": a * b}[kind]
    return quantize(np.asarray(value, np.float32), qy, lo, hi)


def fit_island(
    kind: str, left: NDArray[np.float32], right: NDArray[np.float32], qy: Quant, lo: int = INT8.low, hi: int = INT8.high
) -> IslandParams:
    """Tables equal to `pair_table` on every pair. Raises NumericsError where more than MAX_EXCEPTIONS pairs differ."""
    wanted = pair_table(kind, left, right, qy, lo, hi)
    f, g = left.astype(np.float64), right.astype(np.float64) * (-1.0 if kind == "Sub" else 1.0)
    if not (np.isfinite(f).all() and np.isfinite(g).all()):
        raise NumericsError("a function that is infinite or undefined for some codes")
    best: IslandParams | None = None
    codes = INT8.values()
    for table_a, table_b, shift in _tables(kind == "Mul", f, g, qy[0]):
        rounding, parity, flip = _constants(kind == "Mul", table_a, table_b, wanted, shift, qy[1])
        params = IslandParams(kind == "Mul", table_a, table_b, rounding, parity, flip, shift, lo, hi)
        got = params.apply(np.repeat(codes, INT8.count), np.tile(codes, INT8.count)).reshape(INT8.count, INT8.count)
        wrong = np.argwhere(got != wanted)[: MAX_EXCEPTIONS + 1]
        found = replace(params, exceptions=tuple((int(i) * INT8.count + int(j), int(wanted[i, j])) for i, j in wrong))
        if best is None or len(found.exceptions) < len(best.exceptions):
            best = found
        if not best.exceptions:
            break
    if best is None or len(best.exceptions) > MAX_EXCEPTIONS:
        raise NumericsError(f"no integer form of {kind} fits all pairs of codes")
    return best


def _constants(
    product: bool, table_a: Int64Array, table_b: Int64Array, wanted: Int8Array, shift: int, zero: int
) -> tuple[int, int, int]:
    """(rounding, parity, flip): one constant for the boundaries of even codes and one for those of odd codes.

    Each is in the middle of what all pairs allow, or of the smallest violation where none satisfies all.
    """
    total = (table_a[:, None] * table_b if product else table_a[:, None] + table_b).reshape(-1)
    places = wanted.reshape(-1).astype(np.int64) - INT8.low
    least, most = np.full(INT8.count, UNBOUNDED), np.full(INT8.count, -UNBOUNDED)
    np.minimum.at(least, places, total)
    np.maximum.at(most, places, total)
    above = np.minimum.accumulate(least[::-1])[::-1]
    below = np.maximum.accumulate(most)
    half = (1 << (shift - 1)) + (zero << shift)
    chosen = []
    for odd in (0, 1):
        codes = [
            v
            for v in range(INT8.low + 1, INT8.high + 1)
            if v % 2 == odd and above[v - INT8.low] < UNBOUNDED and below[v - 1 - INT8.low] > -UNBOUNDED
        ]
        low = max(((v << shift) - int(above[v - INT8.low]) for v in codes), default=half)
        high = min(((v << shift) - 1 - int(below[v - 1 - INT8.low]) for v in codes), default=half)
        chosen.append((low + high) // 2)
    even, odd_constant = chosen
    if even >= odd_constant:
        return even, even - odd_constant, 0
    return odd_constant, odd_constant - even, 1


def _tables(
    product: bool, f: NDArray[np.float64], g: NDArray[np.float64], scale: float
) -> Iterator[tuple[Int64Array, Int64Array, int]]:
    """(A, B, shift) of falling precision that stay inside int32 (and int16 tables for products)."""
    if product:
        for first, second, swapped in ((f, g, False), (g, f, True)):
            yield from _linear_tables(first, second, scale, swapped)
        top_f, top_g = (max(float(np.abs(v).max(initial=0.0)), 1e-30) for v in (f, g))
        # y = f g / scale: A = f * 32767 / top_f, and B takes what is left, so that A * B = (f g / scale) 2^shift.
        for shift in range(22, 0, -1):
            factor = 2.0**shift / scale * (top_f / 32767.0)
            if top_g * factor <= 32767.0 and 32767.0 * top_g * factor < 2.0**30:
                yield _rounded(f * 32767.0 / top_f), _rounded(g * factor), shift
        return
    span = (np.abs(f).max(initial=0.0) + np.abs(g).max(initial=0.0)) / scale + 512.0
    most = min(22, int(np.floor(np.log2((2.0**30) / span))))
    for shift in range(most, max(most - 5, 0), -1):
        yield _rounded(f / scale * 2.0**shift), _rounded(g / scale * 2.0**shift), shift


def _linear_tables(
    f: NDArray[np.float64], g: NDArray[np.float64], scale: float, swapped: bool
) -> Iterator[tuple[Int64Array, Int64Array, int]]:
    """Products in which one side is the codes times a step: its few bits leave many for the other side."""
    step = (f[-1] - f[0]) / (INT8.count - 1)
    if step == 0.0 or np.abs(f / step - np.rint(f / step)).max() > 1e-3:
        return
    codes = _rounded(f / step)
    top = float(np.abs(g).max(initial=0.0)) * abs(step) / scale * float(np.abs(codes).max())
    for shift in range(22, 0, -1):
        if top * 2.0**shift < 2.0**30:
            other = _rounded(g * step / scale * 2.0**shift)
            yield (other, codes, shift) if swapped else (codes, other, shift)
            return


def _rounded(values: NDArray[np.float64]) -> Int64Array:
    result: Int64Array = np.rint(values).astype(np.int64)
    return result
