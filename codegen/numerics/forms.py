"""Constants of one layer's requantization and their numpy twin: what runtime_c/rt_requantize.h computes from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.codes import INT8
from codegen.numerics.exact import check_scale, requantize_exact
from codegen.numerics.reference import Float32Array, Int8Array, Int64Array, check_bounds

FORM_CODES = {"E": 0, "A": 1, "B": 2, "F": 3}
"""Form name -> RT_FORM_* in rt_requantize.h."""

SLOW_LIMIT = 0x10000


def mul_high(acc: Int64Array, multiplier: Int64Array, left_shift: Int64Array) -> Int64Array:
    """floor((acc << k) * M / 2^32): the high word of a 32x32-bit product. |acc << k| and M are below 2^31."""
    result: Int64Array = ((acc << left_shift) * multiplier) >> 32
    return result


@dataclass(frozen=True)
class RequantParams:
    """Everything rt_requant_t holds; arrays are int64 [C] (C = output channels), all C-ready numbers.

    p = mul_high(acc, multiplier, left_shift) + rounding is the code with `right_shift` fraction bits.
    form E: rt_requantize_exact + rounding. B: cells of odd value lose parity / 2^(32 - right_shift) units; `flip` is 0,
    or -1 if the zero point is odd (a cell's value is its code minus the zero point). F: (p & window) == 0 asks form E.
    """

    form: str
    zero_point: int
    lo: int
    hi: int
    right_shift: int
    window: int
    flip: int
    multiplier: Int64Array
    rounding: Int64Array
    left_shift: Int64Array
    parity: Int64Array
    scale_bits: Int64Array

    @property
    def form_code(self) -> int:
        """The RT_FORM_* value of rt_requantize.h."""
        return FORM_CODES[self.form]

    def tables(self) -> dict[str, NDArray[np.generic]]:
        """Per-channel C arrays by the field name of rt_requant_t: the ones that this form reads, in C types."""
        result: dict[str, NDArray[np.generic]] = {"rounding": self.rounding.astype(np.int32)}
        if self.form != "E":
            result["multiplier"] = self.multiplier.astype(np.int32)
            result["left_shift"] = self.left_shift.astype(np.uint8)
        if self.form == "B":
            result["parity"] = self.parity.astype(np.int32)
        if self.form in ("E", "F"):
            result["scale_bits"] = self.scale_bits.astype(np.uint32)
        return result

    def apply(self, acc: Int64Array) -> Int8Array:
        """Codes of accumulators int64 [..., C]; equal to rt_requantize_s8."""
        acc = np.asarray(acc, np.int64)
        if self.form == "E":
            return self._limit(self._slow(acc, self.rounding))
        p = mul_high(acc, self.multiplier, self.left_shift) + self.rounding
        if self.form == "B":
            odd = (p ^ self.flip) & (1 << self.right_shift)
            p = p - ((odd * self.parity) >> 32)
        code = p >> self.right_shift
        if self.form == "F":
            code = np.where(p & self.window == 0, self._slow(acc, np.int64(self.zero_point)), code)
        return self._limit(code)

    def _slow(self, acc: Int64Array, offset: Int64Array | np.int64) -> Int64Array:
        value = requantize_exact(acc, self.scale_bits)
        result: Int64Array = np.clip(value, -SLOW_LIMIT, SLOW_LIMIT) + offset
        return result

    def _limit(self, code: Int64Array) -> Int8Array:
        return np.clip(code, self.lo, self.hi).astype(INT8.dtype)


def exact_params(scale: Float32Array, zero_point: int, lo: int = INT8.low, hi: int = INT8.high) -> RequantParams:
    """Form E for float32 scales [C]: right for every accumulator, slow. Raises NumericsError on a bad scale."""
    check_bounds(lo, hi)
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    for value in scales:
        check_scale(value)
    zeros = np.zeros(len(scales), np.int64)
    bits = scales.view(np.uint32).astype(np.int64)
    rounding = np.full(len(scales), zero_point, np.int64)
    return RequantParams("E", zero_point, lo, hi, 1, 0, 0, zeros, rounding, zeros, zeros, bits)
