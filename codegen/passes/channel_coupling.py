"""Which elements of an operator's operands and result can only be kept or removed together, and what it can do without.

Elements of a frame carry labels: elements of one label go together. In a *linked* operator label k of the result and
label k of every operand are one (a table, a pool, a depthwise convolution); an operator with weights is not linked: it
says which labels of its operand the kept results need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.op import Op
from codegen.ops.conv import ConvAccS8, Convolution, ConvS8
from codegen.ops.move import ConcatS8, Copy, LastS8, PadFrames, Truncate, UpsampleS8
from codegen.ops.pair import PairS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.reduce import DenseOverTimeS8, ReduceS8
from codegen.ops.table import LutChannelsS8, LutS8
from codegen.ops.transposed import ConvTransposeS8
from codegen.passes.code_intervals import Interval, reads_padding

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Coupling:
    """Labels of the result and of each operand. `needs` (None: linked) maps the kept labels of the result to the
    labels of the one operand that they need. `fixed`: everything must stay."""

    y: Labels
    xs: tuple[Labels, ...]
    needs: Callable[[Mask], Mask] | None = None
    fixed: bool = False


def coupling(op: Op, size_y: int, xs: Sequence[Interval]) -> Coupling:
    """The coupling of an operator with a result of `size_y` elements and operands of these intervals."""
    rule = RULES.get(type(op))
    made = rule(op, size_y, xs) if rule else None
    return made or fixed(size_y, xs)


def fixed(size_y: int, xs: Sequence[Interval]) -> Coupling:
    """All elements of everything must stay."""
    return Coupling(_one(size_y), tuple(_one(x.low.size) for x in xs), None, True)


def _one(size: int) -> Labels:
    return np.zeros(size, np.int64)


def _each(size: int) -> Labels:
    return np.arange(size, dtype=np.int64)


def _conv(op: Convolution, size_y: int, xs: Sequence[Interval]) -> Coupling:
    ci, co = op.channels
    can_fold = not reads_padding(op.geometry)
    return _product(op.weights, op.groups, (ci, co), op.x_zero_point, can_fold, size_y, xs[0])


def _conv_transpose(op: ConvTransposeS8, size_y: int, xs: Sequence[Interval]) -> Coupling:
    """The edges see fewer taps: only what adds nothing can go."""
    ci, co = op.weights.shape[4] * op.groups, op.weights.shape[0]
    return _product(op.weights, op.groups, (ci, co), op.x_zero_point, False, size_y, xs[0])


def _product(
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
    label_y, label_x = _each(size_y) % co, _each(x.low.size) % ci
    if groups > 1:
        return Coupling(label_y // (co // groups), (label_x // (ci // groups),))
    hull = x.by_channel(ci)
    free = hull.constant & (can_fold | (hull.low == zero_point))
    used_by = np.asarray((weights != 0).reshape(co, -1, ci).any(axis=1))

    def needs(kept: Mask) -> Mask:
        return np.asarray(used_by[kept].any(axis=0) & ~free)

    return Coupling(label_y, (label_x,), needs)


def _dense_time(op: DenseOverTimeS8, size_y: int, xs: Sequence[Interval]) -> Coupling:
    used_by = np.asarray((op.weights != 0).any(axis=0))
    free = xs[0].constant

    def needs(kept: Mask) -> Mask:
        return np.asarray(used_by[kept].any(axis=0) & ~free)

    return Coupling(_each(size_y), (_each(xs[0].low.size),), needs)


def _elementwise(op: Op, size_y: int, xs: Sequence[Interval]) -> Coupling:
    return Coupling(_each(size_y), tuple(_each(size_y) for _ in xs))


def _concat(op: ConcatS8, size_y: int, xs: Sequence[Interval]) -> Coupling:
    """Columns of [outer, columns]: the same ones in every row."""
    width = size_y // op.outer
    columns, at = [], 0
    for size in op.sizes:
        own = size * op.inner
        columns.append(at + _each(op.outer * own) % own)
        at += own
    return Coupling(_each(size_y) % width, tuple(columns))


def _pool(op: MaxPoolS8 | AveragePoolS8, size_y: int, xs: Sequence[Interval]) -> Coupling:
    return Coupling(_each(size_y) % op.channels, (_each(xs[0].low.size) % op.channels,))


def _reduce(op: ReduceS8, size_y: int, xs: Sequence[Interval]) -> Coupling:
    """[outer, n, inner] -> [outer, inner]: columns of inner, or where there is one, rows of outer."""
    _, n, inner = op.block
    if inner == 1:
        return Coupling(_each(size_y), (_each(xs[0].low.size) // n,))
    return Coupling(_each(size_y) % inner, (_each(xs[0].low.size) % inner,))


def _copy(op: Copy, size_y: int, xs: Sequence[Interval]) -> Coupling:
    index, size_x = op.index(), xs[0].low.size

    def needs(kept: Mask) -> Mask:
        read = np.zeros(size_x, np.bool_)
        read[index[kept]] = True
        return read

    return Coupling(_each(size_y), (_each(size_x),), needs)


def _pad(op: PadFrames, size_y: int, xs: Sequence[Interval]) -> Coupling | None:
    if not op.frame or op.frame[-1] != (0, 0):
        return None
    return Coupling(_each(size_y) % op.frame_in[-1], (_each(xs[0].low.size) % op.frame_in[-1],))


def _truncate(op: Truncate, size_y: int, xs: Sequence[Interval]) -> Coupling:
    """Of the second operand no element is read, only its length."""
    return Coupling(_each(size_y), (_each(size_y), _each(xs[1].low.size)), lambda kept: kept)


def _upsample(op: UpsampleS8, size_y: int, xs: Sequence[Interval]) -> Coupling | None:
    if not op.frame_in or op.index[-1] != tuple(range(op.frame_in[-1])):
        return None
    return Coupling(_each(size_y) % op.frame_in[-1], (_each(xs[0].low.size) % op.frame_in[-1],))


RULES: dict[type, Callable[[Any, int, Sequence[Interval]], Coupling | None]] = {
    ConvS8: _conv,
    ConvAccS8: _conv,
    ConvTransposeS8: _conv_transpose,
    DenseOverTimeS8: _dense_time,
    LutS8: _elementwise,
    LutChannelsS8: _elementwise,
    PairS8: _elementwise,
    LastS8: _elementwise,
    ConcatS8: _concat,
    MaxPoolS8: _pool,
    AveragePoolS8: _pool,
    ReduceS8: _reduce,
    Copy: _copy,
    PadFrames: _pad,
    Truncate: _truncate,
    UpsampleS8: _upsample,
}
