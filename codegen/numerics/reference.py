"""The written reference: which int8 code each operator yields (docs/numbers.md). All else is checked against it.

Codes are int8; a `Quant` is (scale, zero point), the scale a stored float32. `lo`, `hi` bound the output code: the int8
range, narrowed by a folded Relu or Clip. Rounding is half to even everywhere, then the zero point is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from codegen.codes import INT8
from codegen.numerics.exact import NumericsError, check_scale, fraction

Int8Array = NDArray[np.int8]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]
Quant = tuple[float, int]
UnaryFunction = Callable[[float], float]

CODES: Int64Array = INT8.values()


def check_quant(quant: Quant) -> tuple[np.float32, int]:
    """The pair with its scale as float32. Raises NumericsError on a bad scale or a zero point outside int8."""
    scale, zero_point = quant
    if not INT8.holds(int(zero_point), int(zero_point)):
        raise NumericsError(f"zero point {zero_point} found; {INT8.name} allows {INT8.low}..{INT8.high}")
    return check_scale(scale), int(zero_point)


def check_bounds(lo: int, hi: int) -> None:
    """Raises NumericsError unless lo <= hi are codes."""
    if not (lo <= hi and INT8.holds(lo, hi)):
        raise NumericsError(f"code bounds {lo}..{hi} found; they must be ordered and inside {INT8.low}..{INT8.high}")


def scale_product(
    x_scale: float | np.float32, w_scale: Float32Array | float, y_scale: float | np.float32
) -> Float32Array:
    """S = f32(f32(xs * ws) / ys), per output channel; the result is float32 [C] (or a scalar array).

    Source: ONNX Runtime QLinearConv and QLinearMatMul (docs/numbers.md). Raises NumericsError if a scale or S is
    not finite and positive, or that of an activation not normal. Weights may have denormal scales, and the product may
    be denormal or 0. An S below the normal numbers becomes the smallest of them: with either one every int32
    accumulator rounds to 0, since |acc| * S < 2^-94.
    """
    weights = np.asarray(w_scale, np.float32)
    for scale in (x_scale, y_scale):
        check_scale(scale)
    for scale in weights.reshape(-1):
        if not 0 < scale < np.inf:
            check_scale(scale)
    with np.errstate(all="ignore"):
        product = np.float32(x_scale) * weights
        result = np.asarray(product / np.float32(y_scale), np.float32)
    for value in (*np.asarray(product).reshape(-1), *result.reshape(-1)):
        if not np.isfinite(value):
            check_scale(value)
    return np.maximum(result, np.finfo(np.float32).tiny)


def global_average_scale(x_scale: float | np.float32, y_scale: float | np.float32, count: int) -> np.float32:
    """S = f32(xs / f32(ys * f32(n))) for the mean of n codes; the accumulator is sum(code) - n * x zero point.

    Source: ONNX Runtime QLinearGlobalAveragePool (docs/numbers.md).
    """
    if count < 1:
        raise NumericsError(f"average over {count} elements found; at least one is needed")
    with np.errstate(all="ignore"):
        divisor = check_scale(y_scale) * np.float32(count)
        return check_scale(np.float32(check_scale(x_scale) / divisor))


def requantize_value(acc: Int64Array, scale: Float32Array | np.float32, low: int, high: int) -> Int64Array:
    """clamp(f32(f32(acc) * S), low, high) rounded half to even: the code before its zero point is added.

    acc: int64 [..., C] holding int32 values; scale: float32, broadcast against acc.
    """
    with np.errstate(over="ignore", under="ignore"):
        value = np.asarray(acc, np.int64).astype(np.float32) * np.asarray(scale, np.float32)
    clamped = np.minimum(np.maximum(value, np.float32(low)), np.float32(high))
    return np.rint(clamped).astype(np.int64)


def requantize(
    acc: Int64Array, scale: Float32Array | np.float32, zero_point: int, lo: int = INT8.low, hi: int = INT8.high
) -> Int8Array:
    """Codes of Conv, Gemm, MatMul and GlobalAveragePool accumulators.

    acc: int64 [..., C], each inside int32; scale: float32 [C] from `scale_product`. Raises NumericsError outside int32.
    """
    check_bounds(lo, hi)
    acc = np.asarray(acc, np.int64)
    if acc.size and (acc.min() < -(2**31) or acc.max() >= 2**31):
        raise NumericsError("accumulator outside int32")
    return (requantize_value(acc, scale, lo - zero_point, hi - zero_point) + zero_point).astype(INT8.dtype)


def ratio_boundaries(ratio: Fraction, low: int, high: int, tie: int = 0) -> Int64Array:
    """The smallest integers n with n * ratio, rounded half to even, >= u for u = low + 1 .. high; ratio > 0.

    n * ratio rounds to u or more iff 2 * n * num >= (2u - 1) * den (u + tie even: a tie goes up) or > (odd). Python
    integers; a boundary beyond 2^62 is stored as 2^62. `tie`: what is added before the rounding, which decides ties.
    """
    num, den = 2 * ratio.numerator, ratio.denominator
    boundaries = []
    for u in range(low + 1, high + 1):
        first = -((-(2 * u - 1) * den - ((u + tie) & 1)) // num)  # ceil; an odd one needs one more step at a tie
        boundaries.append(min(max(first, -(2**62)), 2**62))
    return np.asarray(boundaries, np.int64)


def round_ratio(numerator: Int64Array, ratio: Fraction, low: int, high: int, tie: int = 0) -> Int64Array:
    """numerator * ratio rounded half to even (of it + `tie`) and clamped to low..high, exactly, for ratio > 0."""
    below = np.searchsorted(ratio_boundaries(ratio, low, high, tie), np.asarray(numerator, np.int64), side="right")
    return low + np.asarray(below, np.int64)


def mul_ratio(a: Quant, b: Quant, y: Quant) -> Fraction:
    """Exact sa * sb / sy of the stored float32 scales."""
    return fraction(a[0]) * fraction(b[0]) / fraction(y[0])


def mul(
    a: Int64Array,
    b: Int64Array,
    qa: Quant,
    qb: Quant,
    qy: Quant,
    *,
    lo: int = INT8.low,
    hi: int = INT8.high,
    total: bool = False,
) -> Int8Array:
    """Codes of a * b: the exact real product, one rounding, then the zero point. a, b: codes, broadcast.

    `total`: the zero point is added before the rounding, which decides ties (com.microsoft QLinearMul).
    """
    (_, za), (_, zb), (_, zy) = check_quant(qa), check_quant(qb), check_quant(qy)
    check_bounds(lo, hi)
    product = (np.asarray(a, np.int64) - za) * (np.asarray(b, np.int64) - zb)
    return (round_ratio(product, mul_ratio(qa, qb, qy), lo - zy, hi - zy, zy * total) + zy).astype(INT8.dtype)


def add_integers(qa: Quant, qb: Quant, qy: Quant, sign_b: int = 1) -> tuple[int, int, int]:
    """Integers (A, B, D), D > 0, with (a-za)*sa/sy + sign_b*(b-zb)*sb/sy = ((a-za)*A + (b-zb)*B) / D exactly."""
    ratio_a, ratio_b = fraction(qa[0]) / fraction(qy[0]), sign_b * fraction(qb[0]) / fraction(qy[0])
    denominator = math.lcm(ratio_a.denominator, ratio_b.denominator)
    return int(ratio_a * denominator), int(ratio_b * denominator), denominator


def add(
    a: Int64Array,
    b: Int64Array,
    qa: Quant,
    qb: Quant,
    qy: Quant,
    *,
    lo: int = INT8.low,
    hi: int = INT8.high,
    sign_b: int = 1,
    total: bool = False,
) -> Int8Array:
    """Codes of a + b (sign_b = -1: a - b): the exact real sum, one rounding, then the zero point; codes broadcast.

    `total`: the zero point is added before the rounding, which decides ties (com.microsoft QLinearAdd).
    Python integers of any size where 62 bits do not hold the numerator: never float64.
    """
    (_, za), (_, zb), (_, zy) = check_quant(qa), check_quant(qb), check_quant(qy)
    check_bounds(lo, hi)
    step_a, step_b, denominator = add_integers(qa, qb, qy, sign_b)
    da, db = np.broadcast_arrays(np.asarray(a, np.int64) - za, np.asarray(b, np.int64) - zb)
    if 1024 * max(abs(step_a) + abs(step_b), denominator) < 2**62:
        both = da * step_a + db * step_b
        value, rest = np.divmod(both, denominator)
    else:
        both = da.astype(object) * step_a + db.astype(object) * step_b
        value, rest = both // denominator, both % denominator
    tie_or_above = 2 * rest + ((value + zy * total) & 1)  # half to even: above the half, or at it with an odd floor
    value = value + (tie_or_above > denominator).astype(np.int64)
    codes: Int64Array = np.clip(value, lo - zy, hi - zy).astype(np.int64) + zy
    return codes.astype(INT8.dtype)


def average_ratio(x: Quant, y: Quant, count: int) -> Fraction:
    """Exact sx / (n * sy) for the mean of n codes."""
    if count < 1:
        raise NumericsError(f"average over {count} elements found; at least one is needed")
    return fraction(x[0]) / fraction(y[0]) / count


def average(
    total: Int64Array, count: int, qx: Quant, qy: Quant, *, lo: int = INT8.low, hi: int = INT8.high
) -> Int8Array:
    """Codes of AveragePool: `total`, the sum of (code - x zero point) over a window, by `count`, one rounding.

    A padded element counts as 0; whether it is in `count` is the operator's count_include_pad. A declared deviation
    from runtimes that sum floats (docs/numbers.md).
    """
    (_, _), (_, zy) = check_quant(qx), check_quant(qy)
    check_bounds(lo, hi)
    return (round_ratio(total, average_ratio(qx, qy, count), lo - zy, hi - zy) + zy).astype(INT8.dtype)


def dequantize(codes: Int64Array, quant: Quant) -> Float32Array:
    """f32(code - zp) * scale in float32. Source: ONNX DequantizeLinear."""
    scale, zero_point = check_quant(quant)
    with np.errstate(over="ignore"):
        return (np.asarray(codes, np.int64) - zero_point).astype(np.float32) * scale


def quantize(values: Float32Array, quant: Quant, lo: int = INT8.low, hi: int = INT8.high) -> Int8Array:
    """clamp(rint(f32(x / scale)) + zp), the division in float32; no NaN. Source: ONNX QuantizeLinear."""
    scale, zero_point = check_quant(quant)
    check_bounds(lo, hi)
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.asarray(values, np.float32) / scale
    clamped = np.minimum(np.maximum(ratio, np.float32(lo - zero_point)), np.float32(hi - zero_point))
    codes: Int64Array = np.rint(clamped).astype(np.int64) + zero_point
    return codes.astype(INT8.dtype)


def chain(*functions: UnaryFunction) -> UnaryFunction:
    """The functions one after the other, each result rounded to float32, as a chain of float32 nodes computes it."""

    def composed(x: float) -> float:
        for function in functions:
            with np.errstate(over="ignore"):
                x = float(np.float32(function(x)))
        return x

    return composed


def unary_table(function: UnaryFunction, qx: Quant, qy: Quant, lo: int = INT8.low, hi: int = INT8.high) -> Int8Array:
    """int8 [256]: Q(f32(f(DQ(code)))) for code -128..127, entry code + 128.

    `function` works on Python floats with the math module (never numpy's vector functions: they change with the
    processor); an OverflowError of the math module counts as +inf. `float` itself gives the rescaling copy.
    Raises NumericsError where the function has no value (NaN or ValueError).
    """
    results = []
    for code, x in zip(CODES, dequantize(CODES, qx), strict=True):
        try:
            value = function(float(x))
        except OverflowError:
            value = math.inf
        except ValueError as error:
            raise NumericsError(f"the function has no value at code {code} (x = {float(x)}): {error}") from error
        if math.isnan(value):
            raise NumericsError(f"the function is NaN at code {code} (x = {float(x)})")
        results.append(value)
    with np.errstate(over="ignore"):
        return quantize(np.asarray(results, np.float64).astype(np.float32), qy, lo, hi)
