"""Integer times an exact ratio, rounded half to even: the multiply-and-shift form behind Mul and AveragePool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from codegen.codes import INT8
from codegen.numerics.exact import NumericsError
from codegen.numerics.forms import mul_high
from codegen.numerics.prover import choose_layout, prove_steps
from codegen.numerics.reference import (
    Int8Array,
    Int64Array,
    Quant,
    average_ratio,
    check_bounds,
    check_quant,
    mul_ratio,
    ratio_boundaries,
    round_ratio,
)
from codegen.numerics.thresholds import ratio_thresholds

SATURATING_RATIO = INT8.count


@dataclass(frozen=True)
class LinearParams:
    """Fields of rt_linear_t: form B on one integer (parity 0 where form A is enough), then a list of exceptions.

    exceptions: (input, code), ascending; empty but for ratios that no 31-bit multiplier serves.
    """

    multiplier: int
    rounding: int
    parity: int
    flip: int
    left_shift: int
    right_shift: int
    lo: int
    hi: int
    exceptions: tuple[tuple[int, int], ...] = ()

    def apply(self, values: Int64Array) -> Int8Array:
        """Codes of integers in the proved interval; equal to rt_linear_s8."""
        values = np.asarray(values, np.int64)
        p = mul_high(values, np.array(self.multiplier), np.array(self.left_shift)) + self.rounding
        odd = (p ^ self.flip) & (1 << self.right_shift)
        codes = np.clip((p - ((odd * self.parity) >> 32)) >> self.right_shift, self.lo, self.hi)
        for value, code in self.exceptions:
            codes = np.where(values == value, code, codes)
        result: Int8Array = codes.astype(INT8.dtype)
        return result


def fit_ratio(
    ratio: Fraction, first: int, last: int, zero_point: int, *, lo: int, hi: int, total: bool = False
) -> LinearParams:
    """Parameters equal to `round_ratio` for every integer in first..last, both within 2^31; ratio > 0.

    `total`: the zero point is added before the rounding: then codes are what is rounded, and their parity decides ties.
    A, then B, then B's nearest numbers with the inputs that they miss as exceptions, so it always ends.
    """
    if max(-first, last) >= 2**31:
        raise NumericsError(f"integer range {first}..{last} found; int32 is the limit")
    added, after = (zero_point, 0) if total else (0, zero_point)
    boundaries = ratio_boundaries(ratio, lo - zero_point, hi - zero_point, added)
    steps = ratio_thresholds(boundaries, first, last, lo - after, hi - after)
    # Above SATURATING_RATIO every integer but 0 saturates, so the ratio may be replaced by it.
    slope = np.array([float(min(ratio, Fraction(SATURATING_RATIO)))])
    params = prove_steps(slope, steps, after, ("A", "B"))
    if params is not None:
        m, r, d, k = (int(part[0]) for part in (params.multiplier, params.rounding, params.parity, params.left_shift))
        return LinearParams(m, r, d, params.flip, k, params.right_shift, lo, hi)
    layout = choose_layout(slope, steps, after)
    if layout is None:
        raise NumericsError(f"ratio {float(ratio):.9g} over {first}..{last} has no 32-bit form")
    s = layout.fraction_bits
    rounding = (zero_point << s) + (1 << (s - 1))
    plain = LinearParams(int(layout.multiplier[0]), rounding, 0, 0, int(layout.left_shift[0]), s, lo, hi)
    return _with_exceptions(plain, ratio, first, last, zero_point, added)


def _with_exceptions(
    plain: LinearParams, ratio: Fraction, first: int, last: int, zero_point: int, tie: int
) -> LinearParams:
    """`plain` with the inputs it misses. Misses lie near boundaries only, yet all inputs are tried."""
    missed: list[tuple[int, int]] = []
    for start in range(first, last + 1, 2**20):
        values = np.arange(start, min(start + 2**20, last + 1), dtype=np.int64)
        codes = round_ratio(values, ratio, plain.lo - zero_point, plain.hi - zero_point, tie) + zero_point
        wrong = np.flatnonzero(plain.apply(values) != codes)
        missed += [(int(values[i]), int(codes[i])) for i in wrong]
    return replace(plain, exceptions=tuple(missed))


@dataclass(frozen=True)
class MulParams:
    """Fields of rt_mul_t: y = linear((a - zero_a) * (b - zero_b))."""

    zero_a: int
    zero_b: int
    linear: LinearParams

    def apply(self, a: Int64Array, b: Int64Array) -> Int8Array:
        """Codes of the product of two code arrays (broadcast); equal to rt_mul_s8."""
        return self.linear.apply((np.asarray(a, np.int64) - self.zero_a) * (np.asarray(b, np.int64) - self.zero_b))


def fit_mul(
    qa: Quant, qb: Quant, qy: Quant, lo: int = INT8.low, hi: int = INT8.high, *, total: bool = False
) -> MulParams:
    """Parameters equal to `reference.mul` for all 65,536 pairs of codes. Raises NumericsError on a bad scale."""
    (_, za), (_, zb), (_, zy) = check_quant(qa), check_quant(qb), check_quant(qy)
    check_bounds(lo, hi)
    corners = [(a - za) * (b - zb) for a in INT8.bounds for b in INT8.bounds]
    fitted = fit_ratio(mul_ratio(qa, qb, qy), min(corners), max(corners), zy, lo=lo, hi=hi, total=total)
    return MulParams(za, zb, fitted)


def fit_average(qx: Quant, qy: Quant, count: int, lo: int = INT8.low, hi: int = INT8.high) -> LinearParams:
    """Parameters equal to `reference.average` for every sum of up to `count` elements (code - x zero point)."""
    (_, zx), (_, zy) = check_quant(qx), check_quant(qy)
    check_bounds(lo, hi)
    return fit_ratio(average_ratio(qx, qy, count), count * (INT8.low - zx), count * (INT8.high - zx), zy, lo=lo, hi=hi)
