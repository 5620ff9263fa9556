"""Chooses and proves the integer form of a layer's requantization.

Every form computes p(acc) = floor((acc << k) * M / 2^32) + R, which never decreases, and compares it with multiples of
2^s. So a form equals the reference on the whole interval [lo, hi] iff it does at each threshold T (value u begins),
just before it, and at the two ends. With c = u + zero point and P = p - R that is one interval for R:

    lower points (T, c) and (lo, code at lo):          P(acc) + R >= c * 2^s           R >= max(c * 2^s - P)
    upper points (T - 1, c) and (hi, 1 + code at hi):  P(acc) + R <  c * 2^s + slack   R <= min(c * 2^s - 1 - P) + slack

A has slack 0. F has slack 2^j: there p lies in the window above the boundary and the exact routine decides. B has one R
for boundaries of even values and one for odd values. The width of the interval is concave in M (up to the floor), so a
bisection on its slope finds the best M. Ends that the clamp decides put no condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from codegen.codes import INT8
from codegen.numerics.exact import INT32_MAX, INT32_MIN, NumericsError, check_scale
from codegen.numerics.forms import RequantParams, exact_params, mul_high
from codegen.numerics.reference import Float32Array, Int64Array, check_bounds
from codegen.numerics.thresholds import BoolArray, Thresholds, float_thresholds

Float64Array = NDArray[np.float64]

MAX_FRACTION_BITS = 22
MIN_FRACTION_BITS = 1
NO_LIMIT = np.int64(2**60)
TARGETS = ("m4", "m0", "generic")
COST = {
    "m4": {"A": 5, "B": 7, "F": 7, "E": 119},
    "m0": {"A": 34, "B": 36, "F": 43, "E": 182},
    "generic": {"A": 10, "B": 13, "F": 13, "E": 124},
}
"""Instructions per output, clamp and store included, loads not (benchmarks/requantize.py; generic: Cortex-M3). F's slow
path is left out, so a tie goes to B, which has none: at power-of-two scales F would take it often."""


@dataclass(frozen=True)
class Points:
    """Conditions of one kind: p(acc) against code * 2^s, where `used` [C, N]."""

    acc: Int64Array
    code: Int64Array
    used: BoolArray


@dataclass(frozen=True)
class Layout:
    """Fixed point of a layer: s fraction bits for all channels, k and the exact multiplier S * 2^(s + 32 - k) each."""

    fraction_bits: int
    left_shift: Int64Array
    multiplier: Int64Array


@dataclass(frozen=True)
class Proof:
    """A layer's parameters, and what was checked: accumulator intervals and thresholds per channel, int64 [C]."""

    params: RequantParams
    scale: Float32Array
    acc_lo: Int64Array
    acc_hi: Int64Array
    thresholds: Int64Array
    constant: BoolArray
    target: str


def _points(t: Thresholds, zero_point: int) -> tuple[Points, Points]:
    """Lower and upper conditions: every threshold, and the ends unless the clamp decides there."""

    def join(acc: Int64Array, end: Int64Array, value: Int64Array, end_value: Int64Array, end_used: BoolArray) -> Points:
        used = np.ones((acc.shape[0], acc.shape[1] + 1), np.bool_)
        used[:, -1] = end_used
        codes = np.concatenate([value, end_value[:, None]], axis=1) + zero_point
        return Points(np.concatenate([acc, end[:, None]], axis=1), codes, used)

    lower = join(t.acc, t.acc_lo, t.value, t.first, t.first > t.vmin)
    upper = join(t.acc - 1, t.acc_hi, t.value, t.last + 1, t.last < t.vmax)
    return lower, upper


def choose_layout(slope: Float64Array, t: Thresholds, zero_point: int) -> Layout | None:
    """The most fraction bits with which acc << k, M and p stay below 2^31 in every channel, or None.

    slope * 2^(s + 32 - k) is exact in float64, so M is rounded once, half to even.
    """
    size = np.maximum(np.abs(t.acc_lo), np.abs(t.acc_hi))
    headroom = 31 - np.frexp(size.astype(np.float64))[1].astype(np.int64)
    reach = float(np.max(size * slope, initial=0.0)) + abs(zero_point) + 4
    for fraction_bits in range(MAX_FRACTION_BITS, MIN_FRACTION_BITS - 1, -1):
        if reach * 2.0**fraction_bits >= 2.0**31 - 2.0**18:
            continue
        left_shift = np.maximum(np.frexp(slope)[1].astype(np.int64) + fraction_bits + 1, 0)
        if np.all(left_shift <= headroom):
            exponent = (fraction_bits + 32 - left_shift).astype(np.int32)
            return Layout(fraction_bits, left_shift, np.rint(np.ldexp(slope, exponent)).astype(np.int64))
    return None


@dataclass(frozen=True)
class _Conditions:
    """What R must satisfy in one layout, for some channels."""

    lower: Points
    upper: Points
    layout: Layout
    zero_point: int

    def select(self, rows: BoolArray) -> _Conditions:
        """The same for some of the channels."""
        layout = Layout(self.layout.fraction_bits, self.layout.left_shift[rows], self.layout.multiplier[rows])
        lower, upper = (Points(p.acc[rows], p.code[rows], p.used[rows]) for p in (self.lower, self.upper))
        return _Conditions(lower, upper, layout, self.zero_point)

    def bounds(self, multiplier: Int64Array, classes: tuple[str, ...]) -> list[Bounds]:
        """R's interval for each class of boundaries ("all", or "even" and "odd" values)."""
        s, shift = self.layout.fraction_bits, self.layout.left_shift[:, None]
        need = (self.lower.code << s) - mul_high(self.lower.acc, multiplier[:, None], shift)
        allow = (self.upper.code << s) - 1 - mul_high(self.upper.acc, multiplier[:, None], shift)
        result = []
        for name in classes:
            low_used, high_used = self.lower.used, self.upper.used
            if name != "all":
                parity = int(name == "odd")
                low_used = low_used & ((self.lower.code - self.zero_point) & 1 == parity)
                high_used = high_used & ((self.upper.code - self.zero_point) & 1 == parity)
            low, high = np.where(low_used, need, -NO_LIMIT), np.where(high_used, allow, NO_LIMIT)
            i, j = np.argmax(low, axis=1)[:, None], np.argmin(high, axis=1)[:, None]
            picked = ((low, i), (high, j), (self.lower.acc, i), (self.upper.acc, j))
            result.append(Bounds(*(np.take_along_axis(part, at, axis=1)[:, 0] for part, at in picked)))
        return result


@dataclass(frozen=True)
class Bounds:
    """R must lie in low..high (int64 [C]); acc_low and acc_high are the accumulators that set the two ends."""

    low: Int64Array
    high: Int64Array
    acc_low: Int64Array
    acc_high: Int64Array

    def middle(self) -> Int64Array:
        """A value in the interval: its middle, or its finite end, or 0 without any condition."""
        open_low, open_high = self.low <= -NO_LIMIT, self.high >= NO_LIMIT
        inner = self.low + (self.high - self.low) // 2
        one_sided = np.where(open_low, np.where(open_high, 0, self.high), self.low)
        return np.where(open_low | open_high, one_sided, inner)


def _margin_a(conditions: _Conditions, multiplier: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Width of R's interval (A exists where it is >= 0) and the sign of its slope in M."""
    (r,) = conditions.bounds(multiplier, ("all",))
    return r.high - r.low, r.acc_low - r.acc_high


def _margin_b(conditions: _Conditions, multiplier: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The same for B: both classes need a value, and the even one's must not be smaller."""
    even, odd = conditions.bounds(multiplier, ("even", "odd"))
    pairs = ((even.low, even.high), (odd.low, odd.high), (odd.low, even.high))
    accs = ((even.acc_low, even.acc_high), (odd.acc_low, odd.acc_high), (odd.acc_low, even.acc_high))
    widths = np.stack([high - low for low, high in pairs])
    slopes = np.stack([acc_low - acc_high for acc_low, acc_high in accs])
    least = np.argmin(widths, axis=0)[None, :]
    return np.take_along_axis(widths, least, axis=0)[0], np.take_along_axis(slopes, least, axis=0)[0]


def _search_multiplier(
    conditions: _Conditions, margin: Callable[[_Conditions, Int64Array], tuple[Int64Array, Int64Array]]
) -> Int64Array | None:
    """Multipliers with margin >= 0 in every channel, nearest the exact ones, or None if a channel has none."""
    best = conditions.layout.multiplier.copy()
    width, slope = margin(conditions, best)
    rows = np.flatnonzero(width < 0)
    keep = width < 0
    span = (best[keep] >> 16) + 4
    low, high = np.maximum(best[keep] - span, 1), np.minimum(best[keep] + span, INT32_MAX)
    part, middle, slope = conditions.select(keep), best[keep], slope[keep]
    while len(rows):
        low, high = np.where(slope > 0, middle + 1, low), np.where(slope > 0, high, middle - 1)
        if np.any(low > high):
            return None
        middle = (low + high) // 2
        width, slope = margin(part, middle)
        best[rows] = middle
        keep = width < 0
        rows, low, high, middle, slope = rows[keep], low[keep], high[keep], middle[keep], slope[keep]
        part = part.select(keep)
    return best


@dataclass(frozen=True)
class _Fit:
    """Numbers of one form for the channels that are not constant."""

    form: str
    multiplier: Int64Array
    rounding: Int64Array
    parity: Int64Array
    window: int = 0


def _fit_a(conditions: _Conditions) -> _Fit | None:
    multiplier = _search_multiplier(conditions, _margin_a)
    if multiplier is None:
        return None
    (r,) = conditions.bounds(multiplier, ("all",))
    return _Fit("A", multiplier, r.middle(), np.zeros_like(multiplier))


def _fit_b(conditions: _Conditions) -> _Fit | None:
    """B's R is the even class's; the odd class's lies below it by as little as its conditions allow."""
    multiplier = _search_multiplier(conditions, _margin_b)
    if multiplier is None:
        return None
    even, odd = conditions.bounds(multiplier, ("even", "odd"))
    low, high = np.maximum(even.low, odd.low), np.minimum(even.high, odd.high)
    common = Bounds(low, high, even.acc_low, even.acc_high).middle()
    r_even, r_odd = np.where(low <= high, common, even.low), np.where(low <= high, common, odd.high)
    difference = r_even - r_odd
    s = conditions.layout.fraction_bits
    if np.any(difference >= 1 << (s - 1)):  # its table entry, difference << (32 - s), must fit int32
        return None
    return _Fit("B", multiplier, r_even, difference << (32 - s))


def _fit_f(conditions: _Conditions) -> _Fit | None:
    """F with the smallest window 2^j that has an R in every channel; j at most s - 3, else F would mostly be slow."""
    multiplier = conditions.layout.multiplier
    (r,) = conditions.bounds(multiplier, ("all",))
    missing = int(np.max(r.low - r.high, initial=0))
    bits = max(missing - 1, 0).bit_length() if missing > 0 else 0
    s = conditions.layout.fraction_bits
    if bits > s - 3:
        return None
    window_size = np.int64(1) << bits
    shifted = Bounds(r.low, np.where(r.high >= NO_LIMIT, r.high, r.high + window_size), r.acc_low, r.acc_high)
    window = ((1 << s) - 1) & ~(int(window_size) - 1)
    return _Fit("F", multiplier, shifted.middle(), np.zeros_like(multiplier), window)


FITS = {"A": _fit_a, "B": _fit_b, "F": _fit_f}


def _check_input(scale: Float32Array, acc_lo: Int64Array, acc_hi: Int64Array, target: str) -> None:
    if target not in TARGETS:
        raise NumericsError(f"target class {target!r} found; known are {', '.join(TARGETS)}")
    for value in scale:
        check_scale(value)
    outside = np.flatnonzero((acc_lo < INT32_MIN) | (acc_hi > INT32_MAX))
    if len(outside):
        c = int(outside[0])
        raise NumericsError(f"accumulator of channel {c} can reach {acc_lo[c]}..{acc_hi[c]}; int32 is the limit")
    if np.any(acc_lo > acc_hi):
        raise NumericsError(f"empty accumulator interval in channel {int(np.argmax(acc_lo > acc_hi))}")


def prove_steps(
    slope: Float64Array, steps: Thresholds, zero_point: int, forms: tuple[str, ...]
) -> RequantParams | None:
    """The first of `forms` that meets the thresholds in every channel, or None.

    For any monotone step function near slope * acc; slope [C] only starts the search. scale_bits (F) are left 0.
    """
    constant = steps.count == 0
    moving = steps.select(~constant)
    layout = choose_layout(slope[~constant], moving, zero_point)
    if layout is None:
        return None
    lower, upper = _points(moving, zero_point)
    conditions = _Conditions(lower, upper, layout, zero_point)
    for form in forms:
        fit = FITS[form](conditions)
        if fit is not None:
            return _params(fit, layout, steps, zero_point)
    return None


def _params(fit: _Fit, layout: Layout, steps: Thresholds, zero_point: int) -> RequantParams:
    """The numbers of all channels: a constant one has M = 0 and R half a cell above its code, never in a window."""
    constant, s = steps.count == 0, layout.fraction_bits

    def spread(values: Int64Array, elsewhere: Int64Array | int) -> Int64Array:
        result = np.broadcast_to(np.asarray(elsewhere, np.int64), constant.shape).copy()
        result[~constant] = values
        return result

    return RequantParams(
        fit.form,
        zero_point,
        steps.vmin + zero_point,
        steps.vmax + zero_point,
        s,
        fit.window,
        -(zero_point & 1) if fit.form == "B" else 0,
        spread(fit.multiplier, 0),
        spread(fit.rounding, ((steps.first + zero_point) << s) + (1 << (s - 1))),
        spread(layout.left_shift, 0),
        spread(fit.parity, 0),
        np.zeros(len(constant), np.int64),
    )


def verify_points(params: RequantParams, steps: Thresholds) -> bool:
    """True if the form's own integers give the reference's code at every threshold, just before it and at both ends."""
    checks = (
        (steps.acc, steps.value),
        (steps.acc - 1, steps.value - 1),
        (steps.acc_lo[:, None], steps.first[:, None]),
        (steps.acc_hi[:, None], steps.last[:, None]),
    )
    moving = steps.count > 0
    for index, (acc, value) in enumerate(checks):
        code = params.apply(acc.T).T.astype(np.int64) - params.zero_point
        same = code <= value if index == 1 else code == value
        if index == 0:
            same = code >= value
        if not np.all(same[moving] if index < 2 else same):
            return False
    return True


def prove_layer(
    scale: Float32Array,
    acc_lo: Int64Array,
    acc_hi: Int64Array,
    zero_point: int,
    *,
    lo: int = INT8.low,
    hi: int = INT8.high,
    target: str = "generic",
) -> Proof:
    """The cheapest form that equals the reference for every accumulator of every channel.

    scale: float32 S [C]; acc_lo, acc_hi: int64 [C], the accumulators that can occur; lo, hi: code bounds. Form E
    needs no search and is the last resort. Raises NumericsError for a bad scale or an interval that leaves int32.
    """
    check_bounds(lo, hi)
    scale = np.atleast_1d(np.asarray(scale, np.float32))
    acc_lo, acc_hi = (np.broadcast_to(np.asarray(acc, np.int64), scale.shape).copy() for acc in (acc_lo, acc_hi))
    _check_input(scale, acc_lo, acc_hi, target)
    steps = float_thresholds(scale, acc_lo, acc_hi, lo - zero_point, hi - zero_point)
    order = tuple(sorted(("A", "B", "F"), key=lambda form: COST[target][form]))
    params = prove_steps(scale.astype(np.float64), steps, zero_point, order)
    if params is None:
        params = exact_params(scale, zero_point, lo, hi)
        params = replace(params, rounding=np.where(steps.count == 0, steps.first + zero_point, zero_point))
    bits = scale.view(np.uint32).astype(np.int64)
    params = replace(params, scale_bits=np.where(steps.count == 0, 0, bits))
    if not verify_points(params, steps):
        raise AssertionError(f"form {params.form} fails its own proof")
    return Proof(params, scale, acc_lo, acc_hi, steps.count, steps.count == 0, target)
