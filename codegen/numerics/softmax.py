"""Softmax and LogSoftmax over the last axis: the integer definition, its tables and its distance from the real value.

With d = largest code - code, T[d] = round(2^b * exp(-d * x scale)) and `sum` the row sum of T:
softmax = T[d] * 2^f / floor(sum * m / 2^16), rounded half to even, where y scale ~ m * 2^-(16 + f), 2^15 < m <= 2^16;
log-softmax = -(d * x scale + ln(sum / 2^b)) / y scale in fixed point, rounded half up, the logarithm by shifts, adds.
Both are declared deviations from a runtime's float path: within one code of it, `error_codes` says how close.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.codes import INT8
from codegen.numerics.exact import NumericsError
from codegen.numerics.reference import Int8Array, Int64Array, Quant, check_bounds, check_quant

MAX_TABLE_BITS = 20
LOG_STEPS = 20
LOG_FRACTION_BITS = 16
FLOAT_PATH_ERROR = 2.0**-20
"""Relative error granted to a runtime's own float32 softmax."""


def _exponentials(x_scale: np.float32, bits: int) -> Int64Array:
    """T[d], d = 0..255, by Python's math.exp: the same on every processor to the last unit of 2^-b."""
    return np.array([round(2**bits * math.exp(-d * float(x_scale))) for d in range(INT8.count)], np.int64)


def _table_bits(length: int) -> int:
    """The most bits with which a sum of `length` entries stays below 2^31."""
    if length < 1:
        raise NumericsError(f"softmax over {length} elements found; at least one is needed")
    return min(MAX_TABLE_BITS, 31 - length.bit_length())


def _row_sums(x: Int64Array, table: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(d, sum of T[d]) of rows int8 [..., n]."""
    difference: Int64Array = x.max(axis=-1, keepdims=True) - x
    total: Int64Array = table[difference].sum(axis=-1, keepdims=True)
    return difference, total


@dataclass(frozen=True)
class SoftmaxParams:
    """Fields of rt_softmax_t, and the largest distance from the real softmax in codes, before rounding (below 1)."""

    table: Int64Array
    scale_mantissa: int
    quotient_bits: int
    zero_point: int
    lo: int
    hi: int
    error_codes: float

    def apply(self, x: Int64Array) -> Int8Array:
        """Codes of rows int8 [..., n]; equal to rt_softmax_s8. Plain integer division, the C shifts and subtracts."""
        difference, total = _row_sums(np.asarray(x, np.int64), self.table)
        unit = (total * self.scale_mantissa) >> 16
        value, rest = np.divmod(self.table[difference] << self.quotient_bits, unit)
        value = value + (2 * rest + (value & 1) > unit)
        codes: Int8Array = np.clip(value + self.zero_point, self.lo, self.hi).astype(INT8.dtype)
        return codes


def fit_softmax(qx: Quant, qy: Quant, length: int, lo: int = INT8.low, hi: int = INT8.high) -> SoftmaxParams:
    """Tables for rows of `length` codes. Raises NumericsError unless the result is within one code of the real softmax.

    Error in codes, to first order: entry 2^-(b+1) / y scale; at most `span` codes times the relative errors of the sum
    (half a unit per entry), of the scale's 16 bits and of the dropped bits. Differences beyond the clamp do not count.
    """
    (x_scale, _), (y_scale, zero_point) = check_quant(qx), check_quant(qy)
    check_bounds(lo, hi)
    scale = float(y_scale)
    if scale > 1.0:
        raise NumericsError(f"softmax output scale {scale} found; probabilities need one of at most 1")
    bits = _table_bits(length)
    mantissa, exponent = math.frexp(scale)
    quotient_bits = -exponent if mantissa > 0.5 else 1 - exponent
    scale_mantissa = round(scale * 2 ** (16 + quotient_bits))
    span = min(1 / scale, float(INT8.count))
    relative = (length - 1) * 2.0 ** -(bits + 1) + abs(scale_mantissa * 2.0 ** -(16 + quotient_bits) / scale - 1)
    relative += 2.0 ** (1 - bits) + FLOAT_PATH_ERROR
    error = 2.0 ** -(bits + 1) / scale + 1.01 * span * relative
    if error >= 1.0:
        raise NumericsError(
            f"softmax over {length} elements with output scale {scale:.9g} would be {error:.3g} codes off"
        )
    return SoftmaxParams(_exponentials(x_scale, bits), scale_mantissa, quotient_bits, zero_point, lo, hi, error)


@dataclass(frozen=True)
class LogSoftmaxParams:
    """Fields of rt_log_softmax_t, and the largest distance from the real log-softmax in codes, before rounding."""

    table: Int64Array
    difference: Int64Array
    logs: Int64Array
    table_bits: int
    shift: int
    zero_point: int
    lo: int
    hi: int
    error_codes: float

    def apply(self, x: Int64Array) -> Int8Array:
        """Codes of rows int8 [..., n]; equal to rt_log_softmax_s8."""
        difference, total = _row_sums(np.asarray(x, np.int64), self.table)
        value = (1 << (self.shift - 1)) - self._log(total) - self.difference[difference]
        codes: Int8Array = np.clip((value >> self.shift) + self.zero_point, self.lo, self.hi).astype(INT8.dtype)
        return codes

    def _log(self, total: Int64Array) -> Int64Array:
        """ln(total / 2^table_bits) / y scale with `shift` fraction bits."""
        up = 31 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
        value, log = total << up, (31 - self.table_bits - up) * self.logs[0]
        for i in range(1, LOG_STEPS + 1):
            following = value + (value >> i)
            fits = following <= 2**31
            value, log = np.where(fits, following, value), log - np.where(fits, self.logs[i], 0)
        result: Int64Array = log
        return result


def fit_log_softmax(qx: Quant, qy: Quant, length: int, lo: int = INT8.low, hi: int = INT8.high) -> LogSoftmaxParams:
    """Tables for rows of `length` codes. Raises NumericsError unless within one code of the real log-softmax.

    Error in codes: relative error of the sum, and 2^-19 for the logarithm, over y scale; then half a unit of 2^-shift
    for each of the constants that are added.
    """
    (x_scale, _), (y_scale, zero_point) = check_quant(qx), check_quant(qy)
    check_bounds(lo, hi)
    bits, scale = _table_bits(length), float(y_scale)
    largest_log = (math.log(length) + 1) / scale
    shift = LOG_FRACTION_BITS
    while shift > 4 and largest_log * 2**shift >= 2**29:
        shift -= 1
    error = ((length - 1) * 2.0 ** -(bits + 1) + 2.0**-19 + FLOAT_PATH_ERROR * math.log(length + 1)) / scale
    error += 2.0**-shift * (LOG_STEPS + 32 + 2) / 2
    if error >= 1.0 or largest_log * 2**shift >= 2**29:
        raise NumericsError(
            f"log-softmax over {length} elements with output scale {scale:.9g} would be {error:.3g} codes off"
        )
    far = 2.0**29  # beyond every code (512 * 2^16), and sums of two stay inside int32
    difference = [round(min(d * float(x_scale) / scale * 2**shift, far)) for d in range(INT8.count)]
    logs = [round(math.log1p(2.0**-i) / scale * 2**shift) for i in range(LOG_STEPS + 1)]
    tables: list[NDArray[np.int64]] = [np.array(part, np.int64) for part in (difference, logs)]
    return LogSoftmaxParams(_exponentials(x_scale, bits), tables[0], tables[1], bits, shift, zero_point, lo, hi, error)
