"""What passes ask of operators about the elements of a frame: which codes they take, and which go together.

A frame is seen as a flat array of elements. Elements carry labels: those of one label are kept or removed together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.codes import CodeType
from codegen.ir.view import Piece

Values = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Interval:
    """Least and greatest code of each element of a frame, int64 [elements]."""

    low: Values
    high: Values

    @property
    def constant(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.low == self.high)

    def by_channel(self, channels: int) -> Interval:
        """The hull over all positions of a channels-last frame: [channels]."""
        return Interval(self.low.reshape(-1, channels).min(axis=0), self.high.reshape(-1, channels).max(axis=0))

    def with_code(self, code: int) -> Interval:
        """The hull with one more code (padding)."""
        return Interval(np.minimum(self.low, code), np.maximum(self.high, code))

    def at(self, index: npt.NDArray[Any]) -> Interval:
        return Interval(self.low[index], self.high[index])

    def repeated(self, elements: int) -> Interval:
        """The intervals of the channels at every position of a frame of so many elements."""
        return Interval(np.resize(self.low, elements), np.resize(self.high, elements))


def full(elements: int, kind: CodeType) -> Interval:
    """Any code."""
    return Interval(np.full(elements, kind.low, np.int64), np.full(elements, kind.high, np.int64))


def hull(function: Callable[..., npt.NDArray[Any]], xs: Sequence[Interval], kind: CodeType) -> Interval:
    """Of a function of codes [1, elements] that is monotone in each operand: the hull over all corners of `xs`.

    No rounding is bounded, the function is executed at the ends.
    """
    ends = [[v.astype(kind.dtype)[None] for v in (x.low, x.high)] for x in xs]
    corners = [np.asarray(function(*corner).reshape(-1), np.int64) for corner in product(*ends)]
    return Interval(np.min(corners, axis=0), np.max(corners, axis=0))


@dataclass(frozen=True, eq=False)
class Coupling:
    """Labels of the result and of each operand. `needs` (None: linked) maps the kept labels of the result to the
    labels of the one operand that they need. `fixed`: everything must stay."""

    y: Labels
    xs: tuple[Labels, ...]
    needs: Callable[[Mask], Mask] | None = None
    fixed: bool = False


def fixed(size_y: int, xs: Sequence[Interval]) -> Coupling:
    """All elements of everything must stay."""
    return Coupling(one(size_y), tuple(one(x.low.size) for x in xs), None, True)


def one(size: int) -> Labels:
    """All elements together."""
    return np.zeros(size, np.int64)


def each(size: int) -> Labels:
    """Every element on its own."""
    return np.arange(size, dtype=np.int64)


def same(size_y: int, xs: Sequence[Interval], channels: int | None = None) -> Coupling:
    """Element (or of so many channels, channel) k of the result and of every operand go together."""
    n = channels or size_y
    return Coupling(each(size_y) % n, tuple(each(x.low.size) % n for x in xs))


def product_coupling(
    weights: npt.NDArray[Any],
    groups: int,
    channels: tuple[int, int],
    zero_point: int,
    can_fold: bool,
    size_y: int,
    x: Interval,
) -> Coupling:
    """Weights [Co, ..., Ci / groups]. An operand channel can go if it is constant and adds nothing (or, `can_fold`, the
    same to every window), or if no kept result has a weight for it. Of a grouped convolution whole groups can go."""
    ci, co = channels
    label_y, label_x = each(size_y) % co, each(x.low.size) % ci
    if groups > 1:
        return Coupling(label_y // (co // groups), (label_x // (ci // groups),))
    known = x.by_channel(ci)
    free = known.constant & (can_fold | (known.low == zero_point))
    used_by = np.asarray((weights != 0).reshape(co, -1, ci).any(axis=1))

    def needs(kept: Mask) -> Mask:
        return np.asarray(used_by[kept].any(axis=0) & ~free)

    return Coupling(label_y, (label_x,), needs)


def kept_channels(keep: Mask, channels: int) -> Mask:
    """Of a channels-last frame where all positions keep the same."""
    return np.asarray(keep.reshape(-1, channels)[0])


def removed_constants(x: Interval, keep: Mask, zero_point: int) -> npt.NDArray[np.int64]:
    """code - zero point of the constant channels that go; 0 for all others (no kept result has weights for them)."""
    return np.where(~keep & x.constant, x.low - zero_point, 0)


def affine(index: npt.NDArray[np.int64]) -> tuple[Piece, ...] | None:
    """(size, stride) loops, outermost first, that visit index - index[0] in order; None if there are none that only
    step forward."""
    pieces: list[Piece] = []
    rest = index - index[0]
    while rest.size > 1:
        stride = int(rest[1])
        breaks = np.flatnonzero(np.diff(rest) != stride)
        size = int(breaks[0]) + 1 if breaks.size else int(rest.size)
        if stride < 0 or rest.size % size:
            return None
        rows = rest.reshape(-1, size)
        if not np.array_equal(rows - rows[:, :1], np.broadcast_to(np.arange(size) * stride, rows.shape)):
            return None
        pieces.append(Piece(size, stride))
        rest = rows[:, 0]
    return tuple(pieces[::-1])
