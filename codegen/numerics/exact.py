"""The requantization reference in integers only: the numpy twin of `rt_requantize_exact`.

A positive normal float32 is mantissa * 2^-shift with a 24-bit mantissa. The product of two such numbers and its
rounding to 24 bits and to an integer need shifts, adds and one 24x24-bit multiply: no float arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


class NumericsError(ValueError):
    """A scale, zero point or bound for which no exact integer form is defined; the caller names the node."""


def check_scale(scale: float | np.float32) -> np.float32:
    """The scale as a float32. Raises NumericsError unless it is finite, positive, normal and exactly a float32."""
    value = float(scale)
    if not math.isfinite(value) or value <= 0.0:
        raise NumericsError(f"scale {value} found; it must be finite and above 0")
    if value < SMALLEST_NORMAL:
        raise NumericsError(f"scale {value} is denormal; the smallest allowed is {SMALLEST_NORMAL:.9g}")
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    if float(narrow) != value:
        raise NumericsError(f"scale {value!r} is not a float32 number")
    return narrow


def scale_bits(scale: np.float32) -> int:
    """The 32 bits of a float32, as the C tables and the certificate hold a scale."""
    return int(np.asarray(scale, np.float32).view(np.uint32))


def multiplier(scale: float | np.float32) -> tuple[int, int]:
    """(mantissa, shift) with scale = mantissa * 2^-shift exactly and 2^23 <= mantissa < 2^24.

    Source: IEEE 754 binary32, 1.f * 2^(e-127) = (2^23 + f) * 2^(e-150). Raises NumericsError as `check_scale`.
    """
    bits = scale_bits(check_scale(scale))
    return (bits & 0x7FFFFF) | 0x800000, 150 - (bits >> 23)


def fraction(scale: float | np.float32) -> Fraction:
    """The exact rational value of a stored float32 scale. Raises NumericsError as `check_scale`."""
    return Fraction(float(check_scale(scale)))


def round_even(high: Int64Array, rest: Int64Array, bits: Int64Array) -> Int64Array:
    """high + rest / 2^bits rounded half to even, 0 <= rest < 2^bits (bits 0: rest is 0)."""
    half = (np.int64(1) << bits) >> 1
    up = (rest > half) | ((rest == half) & (high & 1 == 1) & (bits > 0))
    result: Int64Array = high + up
    return result


def _bit_length(values: Int64Array) -> Int64Array:
    """Bits of each value in 0..2^53 (exact in float64)."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def requantize_exact(acc: Int64Array, bits: NDArray[np.uint32] | Int64Array | int) -> Int64Array:
    """rint(f32(f32(acc) * S)) saturated to int32; acc int32 values, `bits` the float32 pattern of S, broadcast.

    Step by step as rt_requantize.c: acc to 24 bits, product to 24 bits, product to an integer, each half to even.
    Pattern 0 marks a constant channel and gives 0.
    """
    acc = np.asarray(acc, np.int64)
    pattern: Int64Array = np.asarray(bits, np.int64)
    acc, pattern = np.broadcast_arrays(acc, pattern)
    mantissa = (pattern & 0x7FFFFF) | 0x800000
    size: Int64Array = np.abs(acc)
    drop = np.maximum(_bit_length(size) - 24, 0)
    kept = round_even(size >> drop, size & ((np.int64(1) << drop) - 1), drop)
    product: Int64Array = kept * mantissa  # below 2^24 * 2^24
    cut = np.maximum(_bit_length(product) - 24, 0)
    product = round_even(product >> cut, product & ((np.int64(1) << cut) - 1), cut)
    exponent = drop + cut + (pattern >> 23) - 150
    up = np.clip(exponent, 0, 8)  # 2^23 * 2^8 saturates, and cut > 0 keeps smaller products out of this branch
    down = np.clip(-exponent, 0, 62)
    whole = round_even(product >> down, product & ((np.int64(1) << down) - 1), down) << up
    whole = np.where((exponent > 8) & (product > 0), np.int64(2**31), whole)
    whole = np.where((acc == 0) | (pattern == 0), 0, whole)
    return np.clip(np.where(acc < 0, -whole, whole), INT32_MIN, INT32_MAX)
