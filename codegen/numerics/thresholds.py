"""Where a monotone reference function changes its code: the smallest accumulator of every value, per channel.

A value is a code minus the output zero point. One channel's reference is a monotone step function of the accumulator:
its thresholds and its two end points describe it completely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.numerics.reference import Float32Array, Int64Array, requantize_value

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Thresholds:
    """Steps of C channels on their accumulator intervals [acc_lo, acc_hi]; all arrays are int64.

    first, last [C]: values at the two ends. value, acc [C, U]: value u is reached at acc and not before; U is the
    largest step count, shorter rows repeat their last step (row c has last[c] - first[c]). vmin, vmax: the clamp.
    """

    acc_lo: Int64Array
    acc_hi: Int64Array
    first: Int64Array
    last: Int64Array
    value: Int64Array
    acc: Int64Array
    vmin: int
    vmax: int

    @property
    def count(self) -> Int64Array:
        """Different steps per channel, 0 for a constant one."""
        return self.last - self.first

    def select(self, rows: BoolArray | Int64Array) -> Thresholds:
        """The same for some of the channels."""
        ends = self.acc_lo[rows], self.acc_hi[rows], self.first[rows], self.last[rows]
        return Thresholds(*ends, self.value[rows], self.acc[rows], self.vmin, self.vmax)


def _step_values(first: Int64Array, last: Int64Array) -> Int64Array:
    """[C, U] values first + 1 .. last, rows padded with their last one."""
    width = int(np.max(last - first, initial=0))
    result: Int64Array = np.minimum(first[:, None] + 1 + np.arange(width, dtype=np.int64), last[:, None])
    return result


def _bisect(
    reference: Callable[[Int64Array], Int64Array], value: Int64Array, low: Int64Array, high: Int64Array
) -> Int64Array:
    """Smallest accumulator with reference >= value, given reference(low) < value <= reference(high)."""
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        above = reference(middle) >= value
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return high


def float_thresholds(scale: Float32Array, acc_lo: Int64Array, acc_hi: Int64Array, vmin: int, vmax: int) -> Thresholds:
    """Thresholds of clamp(rint(f32(f32(acc) * S)), vmin, vmax) for scales float32 [C], found by bisection.

    The bracket around (u - 1/2) / S: both float32 roundings move a boundary by less than 2^-22 of itself.
    """
    column = scale[:, None]

    def reference(acc: Int64Array) -> Int64Array:
        return requantize_value(acc, column, vmin, vmax)

    first, last = reference(acc_lo[:, None])[:, 0], reference(acc_hi[:, None])[:, 0]
    value = _step_values(first, last)
    lowest, highest = np.broadcast_to(acc_lo[:, None], value.shape), np.broadcast_to(acc_hi[:, None], value.shape)
    moving = (last > first)[:, None]
    guess = np.where(moving, (value - 0.5) / column.astype(np.float64), 0.0)
    reach = np.abs(guess) * 2.0**-22 + 2
    limit = 2.0**33
    low = np.clip(np.floor(np.clip(guess - reach, -limit, limit)).astype(np.int64), lowest, highest)
    high = np.clip(np.ceil(np.clip(guess + reach, -limit, limit)).astype(np.int64), lowest, highest)
    low = np.where(reference(low) < value, low, lowest)  # never needed if the bracket argument holds; cheap to check
    high = np.where(reference(high) >= value, high, highest)
    acc = np.where(moving, _bisect(reference, value, low, high), acc_hi[:, None])
    return Thresholds(acc_lo, acc_hi, first, last, value, acc, vmin, vmax)


def ratio_thresholds(boundaries: Int64Array, acc_lo: int, acc_hi: int, vmin: int, vmax: int) -> Thresholds:
    """Thresholds of one function given by `boundaries` [vmax - vmin]: the smallest accumulators of vmin + 1 .. vmax."""
    first, last = (vmin + int(np.searchsorted(boundaries, acc, side="right")) for acc in (acc_lo, acc_hi))
    value = np.arange(first + 1, last + 1, dtype=np.int64)
    one = [np.array([number], np.int64) for number in (acc_lo, acc_hi, first, last)]
    acc = boundaries[value - vmin - 1]
    return Thresholds(one[0], one[1], one[2], one[3], value[None, :], acc[None, :], vmin, vmax)
