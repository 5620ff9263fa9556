"""Operators without the elements that were removed from their operands and results.

`x` and `y` are masks of the kept elements of a frame (True: stays), uniform as `channel_coupling` demands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.op import Op
from codegen.ir.view import Piece
from codegen.ops.conv import ConvAccS8, Convolution, ConvS8, Requantize
from codegen.ops.move import ConcatS8, Copy, LastS8, PadFrames, Truncate, UpsampleS8
from codegen.ops.pair import PairS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.reduce import DenseOverTimeS8, ReduceS8
from codegen.ops.table import LutChannelsS8, LutS8, channel_tables
from codegen.ops.transposed import ConvTransposeS8
from codegen.passes.channel_coupling import Mask
from codegen.passes.code_intervals import Interval


def without(op: Op, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Op | None:
    """The operator on what is kept; None where it cannot be expressed. `intervals` are those of the operands."""
    if y.all() and all(x.all() for x in xs):
        return op
    return RULES[type(op)](op, y, xs, intervals)


def shrunk(shape: tuple[int, ...], keep: Mask) -> tuple[int, ...]:
    """The frame shape of what is kept: the same axes where whole slices went, else one axis."""
    grid = keep.reshape(shape or (1,))
    axes = [grid.any(axis=tuple(j for j in range(grid.ndim) if j != i)) for i in range(grid.ndim)]
    whole = np.ones((), np.bool_)
    for axis in axes:
        whole = whole[..., None] & axis
    if np.array_equal(whole, grid):
        return tuple(int(axis.sum()) for axis in axes)
    return (int(keep.sum()),)


def _channels(keep: Mask, channels: int) -> Mask:
    return np.asarray(keep.reshape(-1, channels)[0])


def _requantized(r: Requantize, keep: Mask) -> Requantize:
    return replace(r, scale=r.scale[keep]) if r.scale.size == keep.size else r


def _product(
    op: Convolution | ConvTransposeS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]
) -> Convolution | ConvTransposeS8:
    """Weights [Co, ..., Ci / groups] of kept channels; removed constants move into the bias, whole groups go."""
    co, per = op.weights.shape[0], op.weights.shape[4]
    outs, ins = _channels(y, co), _channels(xs[0], per * op.groups)
    weights, bias, groups = op.weights, op.bias, op.groups
    if groups == 1:
        added = removed_constants(intervals[0].by_channel(per), ins, op.x_zero_point)
        bias = bias + weights.astype(np.int64).sum(axis=(1, 2, 3)) @ added
        weights = weights[..., ins]
    else:
        groups = int(ins.sum()) // per
    weights = np.ascontiguousarray(weights[outs])
    smaller = replace(op, weights=weights, bias=bias[outs], groups=groups)
    if isinstance(smaller, ConvAccS8):
        return replace(smaller, scales=smaller.scales[outs])
    assert isinstance(smaller, ConvS8 | ConvTransposeS8)
    return replace(smaller, requantize=_requantized(smaller.requantize, outs))


def removed_constants(x: Interval, keep: Mask, zero_point: int) -> npt.NDArray[np.int64]:
    """code - zero point of the constant channels that go; 0 for all others (no kept result has weights for them)."""
    return np.where(~keep & x.constant, x.low - zero_point, 0)


def _dense_time(op: DenseOverTimeS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> DenseOverTimeS8:
    added = removed_constants(intervals[0], xs[0], op.x_zero_point)
    bias = op.bias + op.weights.astype(np.int64).sum(axis=0) @ added
    weights = np.ascontiguousarray(op.weights[:, y][:, :, xs[0]])
    return replace(op, weights=weights, bias=bias[y], requantize=_requantized(op.requantize, y))


def _unchanged(op: Op, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Op:
    return op


def _lut_channels(op: LutChannelsS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> LutChannelsS8:
    used, index = np.unique(np.resize(op.table_of, y.size)[y], return_inverse=True)
    return channel_tables(list(op.tables[used]), index.reshape(-1))


def _concat(op: ConcatS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ConcatS8:
    widths = tuple(int(x.sum()) // op.outer for x in xs)
    return ConcatS8(op.outer, widths, 1)


def _pool(
    op: MaxPoolS8 | AveragePoolS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]
) -> MaxPoolS8 | AveragePoolS8:
    return replace(op, channels=int(_channels(y, op.channels).sum()))


def _reduce(op: ReduceS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ReduceS8:
    outer, n, inner = op.block
    if inner == 1:
        return replace(op, block=(int(y.sum()), n, 1))
    return replace(op, block=(outer, n, int(_channels(y, inner).sum())))


def _copy(op: Copy, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Copy | None:
    place = np.cumsum(xs[0]) - 1
    index = place[op.index()[y]]
    pieces = affine(index)
    return None if pieces is None else Copy(pieces, int(index[0]))


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


def _pad(op: PadFrames, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> PadFrames:
    kept = int(_channels(y, op.frame_in[-1]).sum())
    return replace(op, frame_in=(*op.frame_in[:-1], kept))


def _truncate(op: Truncate, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Truncate:
    return replace(op, size=int(y.sum()))


def _upsample(op: UpsampleS8, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> UpsampleS8:
    kept = int(_channels(y, op.frame_in[-1]).sum())
    return replace(op, frame_in=(*op.frame_in[:-1], kept), index=(*op.index[:-1], tuple(range(kept))))


RULES: dict[type, Callable[[Any, Mask, Sequence[Mask], Sequence[Interval]], Op | None]] = {
    ConvS8: _product,
    ConvAccS8: _product,
    ConvTransposeS8: _product,
    DenseOverTimeS8: _dense_time,
    LutS8: _unchanged,
    LutChannelsS8: _lut_channels,
    PairS8: _unchanged,
    LastS8: _unchanged,
    ConcatS8: _concat,
    MaxPoolS8: _pool,
    AveragePoolS8: _pool,
    ReduceS8: _reduce,
    Copy: _copy,
    PadFrames: _pad,
    Truncate: _truncate,
    UpsampleS8: _upsample,
}
