"""Two-operand operators in integers, each checked on all 65,536 pairs of codes: Add and Sub here, Mul in linear.py.

y = (a * Ma + b * Mb + C) >> s, zero points and rounding in C. Boundaries of odd values may lie `parity` higher (ties
to even). The narrow form keeps everything in int32. The wide form has 22 more bits per multiplier, again in int32: a
second sum of the low parts whose carry joins the first, so no target needs a 64-bit product. Pairs that a form misses
become a sorted list of exceptions. Tried in this order: narrow, narrow with at most 2 exceptions, wide with any number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from codegen.codes import INT8
from codegen.numerics.exact import fraction
from codegen.numerics.linear import MulParams, fit_mul
from codegen.numerics.reference import CODES, Int8Array, Int64Array, Quant, add, check_bounds, check_quant

__all__ = ["AddParams", "MulParams", "fit_add", "fit_mul"]

LOW_BITS = 22
NARROW_EXCEPTIONS = 2
SATURATING_RATIO = Fraction(512)
LARGEST_RATIO = Fraction(2**19)
NO_LIMIT = 2**61


class PairRounding(Protocol):
    """The rounding and the listed pairs that AddParams and IslandParams share."""

    @property
    def shift(self) -> int: ...
    @property
    def parity(self) -> int: ...
    @property
    def flip(self) -> int: ...
    @property
    def lo(self) -> int: ...
    @property
    def hi(self) -> int: ...
    @property
    def exceptions(self) -> tuple[tuple[int, int], ...]: ...


def pair_codes(p: PairRounding, total: Int64Array, a: Int64Array, b: Int64Array) -> Int8Array:
    """Codes of totals with `shift` fraction bits, less `parity` where bit `shift` is 1 - flip; then the listed ones."""
    odd = ((total >> p.shift) ^ p.flip) & 1
    codes = np.clip((total - odd * p.parity) >> p.shift, p.lo, p.hi)
    for pair, code in p.exceptions:
        codes = np.where((a - INT8.low) * INT8.count + b - INT8.low == pair, code, codes)
    result: Int8Array = codes.astype(INT8.dtype)
    return result


@dataclass(frozen=True)
class AddParams:
    """Fields of rt_add_t. Full multipliers: the C tables hold them split at LOW_BITS where `wide` is set.

    shift counts all fraction bits; parity is subtracted where the cell's value (code - zero point) is odd; flip = 1
    turns that into an even code, for an odd zero point. exceptions: ((a + 128) * 256 + b + 128, code), ascending.
    """

    multiplier_a: int
    multiplier_b: int
    constant: int
    parity: int
    shift: int
    flip: int
    lo: int
    hi: int
    wide: bool
    exceptions: tuple[tuple[int, int], ...] = ()

    def apply(self, a: Int64Array, b: Int64Array) -> Int8Array:
        """Codes of two code arrays (broadcast); equal to rt_add_s8."""
        a, b = np.asarray(a, np.int64), np.asarray(b, np.int64)
        return pair_codes(self, a * self.multiplier_a + b * self.multiplier_b + self.constant, a, b)

    def split(self) -> dict[str, int]:
        """The int32 fields of rt_add_t by name; low parts are 0 in the narrow form."""
        bits = LOW_BITS if self.wide else 0
        numbers = {"a": self.multiplier_a, "b": self.multiplier_b, "constant": self.constant}
        high = {f"{name}_high": value >> bits for name, value in numbers.items()}
        low = {f"{name}_low": value & ((1 << bits) - 1) for name, value in numbers.items()}
        return {**high, **low, "parity": self.parity, "shift": self.shift - bits}


@dataclass(frozen=True)
class _Table:
    """All 65,536 pairs sorted by their reference code: what a form must reproduce.

    `even`: a code whose parity ties go to: the zero point, or 0 where it is added before the rounding.
    """

    qa: Quant
    qb: Quant
    zero_point: int
    even: int
    lo: int
    hi: int
    codes: Int64Array  # [256, 256]
    order: Int64Array  # [65536], stable, by code
    starts: Int64Array  # first position of each code in `order`
    present: Int64Array  # the codes that occur, ascending

    def total(self, multiplier_a: int, multiplier_b: int) -> Int64Array:
        """(a - za) * Ma + (b - zb) * Mb, [256, 256]."""
        return (CODES[:, None] - self.qa[1]) * multiplier_a + (CODES[None, :] - self.qb[1]) * multiplier_b


def _tabulate(qa: Quant, qb: Quant, qy: Quant, *, lo: int, hi: int, sign_b: int, total: bool) -> _Table:
    codes = add(CODES[:, None], CODES[None, :], qa, qb, qy, lo=lo, hi=hi, sign_b=sign_b, total=total).astype(np.int64)
    order = np.argsort(codes, axis=None, kind="stable")
    present, starts = np.unique(codes.reshape(-1)[order], return_index=True)
    return _Table(qa, qb, qy[1], 0 if total else qy[1], lo, hi, codes, order, starts, present)


def _limited_ratios(qa: Quant, qb: Quant, qy: Quant) -> tuple[Fraction, Fraction]:
    """sa / sy and sb / sy, reduced where a unit of one operand outweighs all else: the codes stay the same.

    Ratios of comparable size beyond LARGEST_RATIO are scaled down together; only pairs that nearly cancel can change,
    and those become exceptions.
    """
    ratio_a, ratio_b = fraction(qa[0]) / fraction(qy[0]), fraction(qb[0]) / fraction(qy[0])
    smaller, larger = sorted((ratio_a, ratio_b))
    if larger > SATURATING_RATIO + INT8.count * smaller:
        new_smaller = min(smaller, SATURATING_RATIO)
        limits = {larger: SATURATING_RATIO + INT8.count * new_smaller, smaller: new_smaller}
        return min(ratio_a, limits[ratio_a]), min(ratio_b, limits[ratio_b])
    factor = min(Fraction(1), LARGEST_RATIO / larger)
    return ratio_a * factor, ratio_b * factor


def _fraction_bits(table: _Table, ratio_a: Fraction, ratio_b: Fraction) -> int:
    """The most fraction bits, 1..22, with which every partial sum of the high part stays inside int32."""
    reach = (129 + abs(table.qa[1])) * ratio_a + (129 + abs(table.qb[1])) * ratio_b + abs(table.zero_point) + 2
    bits = LOW_BITS
    while bits > 1 and reach * 2**bits >= 2**31 - 2**12:
        bits -= 1
    return bits


def _round_constants(table: _Table, total: Int64Array, bits: int) -> tuple[int, int] | None:
    """(R, parity) that give every code, or None. R is what the boundaries of even values need.

    For each u the smallest total of the pairs coded >= u must reach u * 2^bits, the largest of the others must not.
    """
    flat = total.reshape(-1)[table.order]
    least = np.minimum.accumulate(np.minimum.reduceat(flat, table.starts)[::-1])[::-1]
    most = np.maximum.accumulate(np.maximum.reduceat(flat, table.starts))
    first, last = int(table.present[0]), int(table.present[-1])
    codes = np.arange(first + 1, last + 1)
    at = np.searchsorted(table.present, codes)
    low, high = codes * (1 << bits) - least[at], codes * (1 << bits) - 1 - most[at - 1]
    if first > table.lo:
        codes, low, high = (
            np.append(codes, first),
            np.append(low, (first << bits) - least[0]),
            np.append(high, NO_LIMIT),
        )
    if last < table.hi:
        codes, low = np.append(codes, last + 1), np.append(low, -NO_LIMIT)
        high = np.append(high, ((last + 1) << bits) - 1 - most[-1])
    odd = (codes - table.even) & 1 == 1
    even_low, even_high = _range(low[~odd], high[~odd])
    odd_low, odd_high = _range(low[odd], high[odd])
    if even_low > even_high or odd_low > odd_high or odd_low > even_high:
        return None
    low_both, high_both = max(even_low, odd_low), min(even_high, odd_high)
    if low_both <= high_both:
        nearest_half = min(max(_half(table, bits), low_both), high_both)
        return nearest_half, 0
    return even_low, even_low - odd_high


def _range(low: Int64Array, high: Int64Array) -> tuple[int, int]:
    return int(low.max(initial=-NO_LIMIT)), int(high.min(initial=NO_LIMIT))


def _half(table: _Table, bits: int) -> int:
    return (table.zero_point << bits) + (1 << (bits - 1))


def _candidates(table: _Table, ratios: tuple[Fraction, Fraction], bits: int) -> Iterator[tuple[int, int]]:
    """Multipliers near the exact ones; a small operand keeps at least 1, so that it still breaks ties."""
    nearest_a, nearest_b = (round(ratio * 2**bits) for ratio in ratios)
    for change_a, change_b in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1)):
        yield max(nearest_a + change_a, 1), max(nearest_b + change_b, 1)


def _fit(table: _Table, ratios: tuple[Fraction, Fraction], sign_b: int, *, wide: bool, limit: int) -> AddParams | None:
    """The first candidate without exceptions, or the one with the fewest if they are at most `limit`."""
    bits = _fraction_bits(table, *ratios) + (LOW_BITS if wide else 0)
    best: AddParams | None = None
    for multiplier_a, size_b in _candidates(table, ratios, bits):
        multiplier_b = sign_b * size_b
        total = table.total(multiplier_a, multiplier_b)
        found = _round_constants(table, total, bits)
        offset = -table.qa[1] * multiplier_a - table.qb[1] * multiplier_b
        half = _half(table, bits)
        for rounding, parity in (found,) if found else ((half, 1), (half, 0), (half - 1, 0)):
            if parity >= 1 << (29 if wide else bits):
                continue
            flip = table.even & 1
            numbers = (multiplier_a, multiplier_b, rounding + offset, parity, bits, flip)
            params = _add_exceptions(AddParams(*numbers, table.lo, table.hi, wide), table)
            if not params.exceptions:
                return params
            if best is None or len(params.exceptions) < len(best.exceptions):
                best = params
    return best if best is not None and len(best.exceptions) <= limit else None


def _add_exceptions(params: AddParams, table: _Table) -> AddParams:
    """`params` with the pairs that it misses, all 65,536 tried."""
    wrong = np.flatnonzero(params.apply(CODES[:, None], CODES[None, :]) != table.codes)
    return replace(params, exceptions=tuple((int(i), int(table.codes.reshape(-1)[i])) for i in wrong))


def fit_add(
    qa: Quant, qb: Quant, qy: Quant, lo: int = INT8.low, hi: int = INT8.high, *, sign_b: int = 1, total: bool = False
) -> AddParams:
    """Parameters equal to `reference.add` for all 65,536 pairs; sign_b = -1 subtracts, `total` as there.

    Always finds a form. Raises NumericsError on a bad scale, zero point or bound.
    """
    for quant in (qa, qb, qy):
        check_quant(quant)
    check_bounds(lo, hi)
    table = _tabulate(qa, qb, qy, lo=lo, hi=hi, sign_b=sign_b, total=total)
    ratios = _limited_ratios(qa, qb, qy)
    for wide, limit in ((False, 0), (False, NARROW_EXCEPTIONS), (True, 65536)):
        params = _fit(table, ratios, sign_b, wide=wide, limit=limit)
        if params is not None:
            return params
    raise AssertionError("the last form takes any number of exceptions")
