"""Which codes every element of a frame can take, whatever the input: interval analysis, exact at both ends.

A frame is seen as a flat array of elements; an interval is (low, high), inclusive, int64 [elements]. Every operator
here is monotone in each operand (a table is searched), so the ends of its operands' intervals give the ends of its own:
no rounding is bounded, the reference formulas (codegen.numerics.reference) are executed at the ends. Operators that are
not listed give -128..127.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8
from codegen.ir.geometry import Geometry
from codegen.ir.graph import Graph
from codegen.ir.time import Window
from codegen.numerics import reference as numeric
from codegen.ops.base import KernelOp
from codegen.ops.conv import ConvS8
from codegen.ops.move import ConcatS8, Copy, LastS8, PadFrames, Truncate, UpsampleS8
from codegen.ops.pair import PairS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.reduce import ReduceS8
from codegen.ops.table import LutChannelsS8, LutS8

Values = npt.NDArray[np.int64]


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


def full(elements: int) -> Interval:
    """Any code."""
    return Interval(np.full(elements, INT8.low, np.int64), np.full(elements, INT8.high, np.int64))


def analyse(graph: Graph) -> dict[str, Interval]:
    """The interval of every tensor of an int8 graph, for every input, every frame and every length."""
    made_here = {node.output for node in graph.nodes}
    known = {name: full(t.frame_elements) for name, t in graph.tensors.items() if name not in made_here}
    for node in graph.nodes:
        size = graph.tensors[node.output].frame_elements
        rule = RULES.get(type(node.op))
        sums_all = isinstance(node.op, ReduceS8) and node.op.over_time and node.op.kind in ("Mean", "Average", "Sum")
        if rule is None or (sums_all and graph.clip_length is None):
            known[node.output] = full(size)  # a sum over an endless stream has as many terms as it happens to have
            continue
        assert isinstance(node.op, KernelOp)
        made = rule(node.op, [known[name] for name in node.inputs])
        known[node.output] = made.repeated(size)
    return known


def reads_padding(geometry: Geometry) -> bool:
    """Whether some window may read outside its input: exact inside the frame, by the pads along the stream."""
    time = geometry.time
    if time.left > 0 or time.right > 0 or time.ceil_mode:
        return True
    axes = ((geometry.depth, 0), (geometry.width, 1))
    return any(_leaves(w, geometry.size_in[i], geometry.size_out[i]) for w, i in axes)


def _leaves(w: Window, size: int, out: int) -> bool:
    return w.left > 0 or (out - 1) * w.stride - w.left + w.extent > size


def _monotone(function: Callable[..., Values], ends: Sequence[Sequence[Values]]) -> Interval:
    """The hull of function(corner) over all corners of the operands' (low, high)."""
    corners = [np.asarray(function(*corner), np.int64) for corner in product(*ends)]
    return Interval(np.min(corners, axis=0), np.max(corners, axis=0))


def _int64(codes: npt.NDArray[np.int8]) -> Values:
    return np.asarray(codes.reshape(-1), np.int64)


def _conv(op: ConvS8, xs: Sequence[Interval]) -> Interval:
    """acc = bias + sum((x - zero point) * w): each product is least and greatest at the ends of x."""
    ci, co = op.channels
    x = xs[0].by_channel(ci)
    if reads_padding(op.geometry):
        x = x.with_code(op.x_zero_point)
    per = ci // op.groups
    low, high = ((v - op.x_zero_point).reshape(op.groups, 1, 1, per) for v in (x.low, x.high))
    w = op.weights.astype(np.int64).reshape(op.groups, co // op.groups, -1, per)
    least = op.bias + np.minimum(w * low, w * high).sum(axis=(2, 3)).reshape(co)
    most = op.bias + np.maximum(w * low, w * high).sum(axis=(2, 3)).reshape(co)
    r = op.requantize
    codes = [numeric.requantize(acc, r.scale, r.zero_point, r.lo, r.hi).astype(np.int64) for acc in (least, most)]
    return Interval(codes[0], codes[1])


def _lut(op: LutS8, xs: Sequence[Interval]) -> Interval:
    return _table_range(op.table[None], np.zeros(xs[0].low.size, np.int64), xs[0])


def _lut_channels(op: LutChannelsS8, xs: Sequence[Interval]) -> Interval:
    return _table_range(op.tables, np.resize(op.table_of.astype(np.int64), xs[0].low.size), xs[0])


def _table_range(tables: npt.NDArray[np.int8], which: Values, x: Interval) -> Interval:
    """Least and greatest entry of tables[which] over the codes low..high."""
    cases, back = np.unique(np.stack([which, x.low, x.high]), axis=1, return_inverse=True)
    parts = [tables[t, lo - INT8.low : hi - INT8.low + 1].astype(np.int64) for t, lo, hi in cases.T]
    low, high = np.asarray([p.min() for p in parts]), np.asarray([p.max() for p in parts])
    back = back.reshape(-1)
    return Interval(low[back], high[back])


def _pair(op: PairS8, xs: Sequence[Interval]) -> Interval:
    """Add and Sub are monotone in each operand, Mul is bilinear: the corners hold both ends."""

    def codes(a: Values, b: Values) -> Values:
        return _int64(op.reference([a.astype(INT8.dtype)[None], b.astype(INT8.dtype)[None]])[0])

    return _monotone(codes, [(x.low, x.high) for x in xs])


def _concat(op: ConcatS8, xs: Sequence[Interval]) -> Interval:
    def joined(parts: Sequence[Values]) -> Values:
        return np.concatenate([p.reshape(op.outer, -1) for p in parts], axis=1).reshape(-1)

    return Interval(joined([x.low for x in xs]), joined([x.high for x in xs]))


def _max_pool(op: MaxPoolS8, xs: Sequence[Interval]) -> Interval:
    return xs[0].by_channel(op.channels)


def _average_pool(op: AveragePoolS8, xs: Sequence[Interval]) -> Interval:
    x = xs[0].by_channel(op.channels)
    if op.count_include_pad and reads_padding(op.geometry):
        x = x.with_code(op.x.zero_point)
    qx, qy = (op.x.scale, op.x.zero_point), (op.y.scale, op.y.zero_point)
    lo, hi = op.bounds
    ends = [v - op.x.zero_point for v in (x.low, x.high)]
    cases = [
        [numeric.average(end * count, count, qx, qy, lo=lo, hi=hi).astype(np.int64) for count in op.counts()]
        for end in ends
    ]
    return Interval(np.min(cases[0], axis=0), np.max(cases[1], axis=0))


def _reduce(op: ReduceS8, xs: Sequence[Interval]) -> Interval:
    """All elements least, all greatest: the reference itself, on `frames` equal frames."""

    def codes(frame: Values) -> Values:
        frames = np.broadcast_to(frame.astype(INT8.dtype), (op.frames if op.over_time else 1, frame.size))
        return _int64(op.reference([frames])[0])

    return _monotone(codes, [(xs[0].low, xs[0].high)])


def _copy(op: Copy, xs: Sequence[Interval]) -> Interval:
    return xs[0].at(op.index())


def _pad(op: PadFrames, xs: Sequence[Interval]) -> Interval:
    def padded(values: Values) -> Values:
        moved = PadFrames((0, 0), op.frame_in, op.frame, op.value, op.code)
        return _int64(moved.reference([values.astype(INT8.dtype)[None]])[0])

    made = Interval(padded(xs[0].low), padded(xs[0].high))
    return made.with_code(op.code) if max(op.time) > 0 else made


def _truncate(op: Truncate, xs: Sequence[Interval]) -> Interval:
    return xs[0]


def _upsample(op: UpsampleS8, xs: Sequence[Interval]) -> Interval:
    return xs[0].at(upsample_index(op))


def upsample_index(op: UpsampleS8) -> npt.NDArray[np.int64]:
    """For each element of an output frame the element of the input frame."""
    index = np.arange(int(np.prod(op.frame_in, dtype=np.int64))).reshape(op.frame_in)
    for axis, source in enumerate(op.index):
        index = index.take(np.asarray(source), axis=axis)
    return index.reshape(-1)


def _last(op: LastS8, xs: Sequence[Interval]) -> Interval:
    return xs[0]


RULES: dict[type, Callable[[Any, Sequence[Interval]], Interval]] = {
    ConvS8: _conv,
    LutS8: _lut,
    LutChannelsS8: _lut_channels,
    PairS8: _pair,
    ConcatS8: _concat,
    MaxPoolS8: _max_pool,
    AveragePoolS8: _average_pool,
    ReduceS8: _reduce,
    Copy: _copy,
    PadFrames: _pad,
    Truncate: _truncate,
    UpsampleS8: _upsample,
    LastS8: _last,
}
