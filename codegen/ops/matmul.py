"""Contractions of two operands inside a frame: MatMul and two-operand Einsum, on reals and on int8 codes (kernel).

A contraction is a loop nest: one loop per output axis and one per summed axis, each with its step through either
operand. Transposes, diagonals and broadcasts are steps of those loops (a broadcast steps by 0), so no operand is copied
to be read in another order. The output frame is row-major over the output loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const, QParams
from codegen.ir.view import Axis, Piece, View, compact
from codegen.numerics import reference as numeric
from codegen.numerics.exact import NumericsError
from codegen.ops.base import Codes, KernelOp, Op, Rounding, Stages, rounding_stages
from codegen.ops.weights import quantized_constant

STAGE = "import"
INT32_MAX = (1 << 31) - 1
MAX_LOOPS = 8
STREAM_HINT = "Fix the length of the stream and build with --plan whole, or name another --stream axis"


class Loop(NamedTuple):
    """`size` steps of `a` elements through the left operand's frame and of `b` through the right one's."""

    size: int
    a: int
    b: int


@dataclass(frozen=True, eq=False)
class Contract(Op):
    """Real y[out] = sum over `summed` of a * b. With `constant` the right operand is that constant, not a stream.

    Then it is [rows, K], and `channel` says how far each output loop steps through its rows, which have a scale each.
    """

    out: tuple[Loop, ...]
    summed: tuple[Loop, ...]
    constant: Const | None = None
    channel: tuple[int, ...] = ()

    def macs(self) -> int:
        return prod(loop.size for loop in (*self.out, *self.summed))

    def describe(self) -> str:
        return describe(self.out, self.summed)


def describe(out: Sequence[Loop], summed: Sequence[Loop]) -> str:
    """`2x3 of 4`: output loops, and how many products each sum has."""
    return f"{'x'.join(str(loop.size) for loop in out) or '1'} of {prod(loop.size for loop in summed)} products"


@dataclass(frozen=True, eq=False)
class MatMulS8(KernelOp):
    """int8 contraction: acc = sum((a - a zero point) * (b - b zero point)) in int32, exact, then one rounding.

    a [L, A], b [L, B] (or the constant `weights` int8 [B]), y [L, *out]; S = f32(f32(as * bs) / ys), one per channel:
    output loop i steps by channel[i] through `scale`. Source: ONNX QLinearMatMul-10 and NUMERICS.md section 1.
    """

    out: tuple[Loop, ...]
    summed: tuple[Loop, ...]
    zero_points: tuple[int, int]
    scale: npt.NDArray[np.float32]
    channel: tuple[int, ...]
    y_zero_point: int
    bounds: tuple[int, int]
    weights: npt.NDArray[np.int8] | None = None

    def macs(self) -> int:
        return prod(loop.size for loop in (*self.out, *self.summed))

    def describe(self) -> str:
        return describe(self.out, self.summed)

    @property
    def terms(self) -> int:
        """Products in each sum."""
        return prod(loop.size for loop in self.summed)

    def accumulate(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """Accumulators [L, outputs]."""
        length = xs[0].shape[0]
        right = xs[-1] if self.weights is None else np.broadcast_to(self.weights, (length, self.weights.size))
        return contracted(
            self.out, self.summed, centred(xs[0], self.zero_points[0]), centred(right, self.zero_points[1])
        )

    def channels(self) -> npt.NDArray[np.int64]:
        """The channel of each output."""
        return steps([Loop(loop.size, step, 0) for loop, step in zip(self.out, self.channel, strict=True)], "a")

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return numeric.requantize(self.accumulate(xs), self._scale(), self.y_zero_point, *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return rounding_stages(self.accumulate(xs), self._scale(), self.y_zero_point, *self.bounds)

    def _scale(self) -> npt.NDArray[np.float32]:
        """The scale of each output."""
        return self.scale[self.channels()] if self.scale.size > 1 else self.scale

    def interval(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per channel the least and greatest accumulator that any codes can give."""
        low, high = (np.asarray([end - zero for zero in self.zero_points], np.int64) for end in (-128, 127))
        if self.weights is None:
            corners = [x * y for x in (int(low[0]), int(high[0])) for y in (int(low[1]), int(high[1]))]
            return np.asarray([self.terms * min(corners)]), np.asarray([self.terms * max(corners)])
        w = self.weights.astype(np.int64) - self.zero_points[1]
        total = tuple(range(-len(self.summed), 0))
        ends = []
        for pick in (np.minimum, np.maximum):
            view = strided(pick(w * low[0], w * high[0]), (*self.out, *self.summed), "b")
            ends.append(view.sum(axis=total).reshape(-1) if self.summed else view.reshape(-1))
        least, most = np.full((2, self.scale.size), 1 << 62) * np.asarray([[1], [-1]])
        np.minimum.at(least, self.channels(), ends[0])
        np.maximum.at(most, self.channels(), ends[1])
        return least, most

    def rounding(self) -> Rounding:
        return Rounding(self.scale, *self.interval(), self.y_zero_point, *self.bounds)


def centred(codes: Codes, zero_point: int) -> npt.NDArray[np.float64]:
    """Frames [L, elements] without their zero point; float64 holds them and sums of their products exactly."""
    return codes.reshape(codes.shape[0], prod(codes.shape[1:])).astype(np.float64) - zero_point


def strided(values: npt.NDArray[Any], loops: Sequence[Loop], side: str) -> npt.NDArray[Any]:
    """Frames [..., elements] as [..., *loop sizes], each loop stepping through the frame; nothing is copied."""
    values = np.ascontiguousarray(values)
    inner = tuple(getattr(loop, side) * values.itemsize for loop in loops)
    shape = (*values.shape[:-1], *(loop.size for loop in loops))
    return np.lib.stride_tricks.as_strided(values, shape, (*values.strides[:-1], *inner), writeable=False)


def contracted(
    out: Sequence[Loop], summed: Sequence[Loop], a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Exact sums of products [L, outputs] of frames a [L, A] and b [L, B]; every partial sum is below 2^53."""
    loops = [*out, *summed]
    sides: list[Any] = []
    for values, side in ((a, "a"), (b, "b")):
        used = [i for i, loop in enumerate(loops) if getattr(loop, side)]
        sides += [strided(values, [loops[i] for i in used], side), [0, *(i + 1 for i in used)]]
    idle = prod(loop.size for loop in summed if not loop.a and not loop.b)
    kept = [i for i, loop in enumerate(out) if loop.a or loop.b]
    result = np.einsum(*sides, [0, *(i + 1 for i in kept)], optimize=True) * idle
    shape = [a.shape[0], *(loop.size if i in kept else 1 for i, loop in enumerate(out))]
    full = np.broadcast_to(result.reshape(shape), (a.shape[0], *(loop.size for loop in out)))
    totals: npt.NDArray[np.int64] = np.rint(full).astype(np.int64)
    return totals.reshape(a.shape[0], prod(loop.size for loop in out))


def steps(loops: Sequence[Loop], side: str) -> npt.NDArray[np.int64]:
    """Elements from the first one of an operand, one per pass of the nest, outermost loop slowest."""
    index = np.zeros((), np.int64)
    for loop in loops:
        index = index[..., None] + np.arange(loop.size) * getattr(loop, side)
    return index.reshape(-1)


def contract_s8(op: Contract, operands: Sequence[QParams], y: QParams, bounds: tuple[int, int]) -> MatMulS8:
    """The int8 form. Raises NumericsError where the accumulator may leave int32 or a constant has no int8 form."""
    a = operands[0]
    if op.constant is None:
        b, weights = operands[-1], None
        scale = numeric.scale_product(a.scale, np.asarray([b.scale], np.float32), y.scale)
        zeros, channel = (a.zero_point, b.zero_point), (0,) * len(op.out)
    else:
        constant = quantized_constant(op.constant, 0)
        weights, zero = int8_codes(constant)
        assert constant.scale is not None
        scale = numeric.scale_product(a.scale, constant.scale.astype(np.float32).reshape(-1), y.scale)
        zeros = (a.zero_point, zero)
        channel = op.channel if scale.size > 1 else (0,) * len(op.out)
    made = MatMulS8(op.out, op.summed, zeros, scale, channel, y.zero_point, bounds, weights)
    low, high = made.interval()
    if low.min() < -INT32_MAX - 1 or high.max() > INT32_MAX:
        found = f"its sums of {made.terms} products can reach {int(low.min())}..{int(high.max())}, beyond int32"
        raise NumericsError(found)
    return made


def int8_codes(constant: Const) -> tuple[npt.NDArray[np.int8], int]:
    """Flat int8 codes and the zero point of a quantized constant; unsigned codes move by 128.

    Zero points that differ by channel are taken off the codes where int8 holds the result.
    """
    codes, zeros = constant.array.astype(np.int64), np.asarray(constant.zero()).astype(np.int64)
    if constant.array.dtype == np.uint8:
        codes, zeros = codes - 128, zeros - 128
    if len(np.unique(zeros)) == 1:
        zero = int(zeros.ravel()[0])
    else:
        codes, zero = codes - constant.per_axis(zeros), 0
    if codes.min(initial=0) < -128 or codes.max(initial=0) > 127:
        raise NumericsError("weights whose zero points differ by channel leave the int8 range")
    return codes.astype(np.int8).reshape(-1), zero


@dataclass(frozen=True)
class Operand:
    """A view with one label per ONNX axis. Labels of one operand are distinct, or sizes 1 are dropped."""

    view: View
    labels: tuple[str, ...]

    def pieces(self, label: str) -> Axis | None:
        """The pieces of a label's axis; None where it is absent or has one step."""
        if label not in self.labels:
            return None
        return self.view.axes[self.labels.index(label)] or None

    @property
    def time_label(self) -> str | None:
        at = self.view.time_axis
        return None if at is None else self.labels[at]


def refine(axes: Sequence[Axis | None]) -> list[list[tuple[int, int]]] | None:
    """(size, stride) steps of every operand for one label, split at common places; None where they cannot be."""
    known = [axis for axis in axes if axis is not None]
    if not known:
        return [[] for _ in axes]
    rests = [None if axis is None else [(p.size, p.stride or 0) for p in axis if p.size > 1] for axis in axes]
    result: list[list[tuple[int, int]]] = [[] for _ in axes]
    while any(rest for rest in rests if rest is not None):
        if any(rest is not None and not rest for rest in rests):
            return None
        step = min(rest[-1][0] for rest in rests if rest)
        for out, rest in zip(result, rests, strict=True):
            if rest is None:
                out.insert(0, (step, 0))
                continue
            size, stride = rest.pop()
            if size % step:
                return None
            out.insert(0, (step, stride))
            if size > step:
                rest.append((size // step, stride * step))
    return result


def merged(loops: Sequence[Loop]) -> list[Loop]:
    """Neighbouring loops that walk both operands evenly become one."""
    result: list[Loop] = []
    for loop in loops:
        last = result[-1] if result else None
        if loop.size == 1:
            continue
        if last and last.a == loop.a * loop.size and last.b == loop.b * loop.size:
            result[-1] = Loop(last.size * loop.size, loop.a, loop.b)
        else:
            result.append(loop)
    return result


def label_loops(node: OnnxNode, a: Operand, b: Operand, label: str) -> list[Loop] | None:
    """The loops of one label, or None where the operands' layouts have no common steps."""
    pieces = refine([a.pieces(label), b.pieces(label)])
    if pieces is None:
        return None
    return [Loop(size, step, other) for (size, step), (_, other) in zip(*pieces, strict=True)]


def check_streams(node: OnnxNode, a: Operand, b: Operand, out: Sequence[str], ctx: Lowering) -> str | None:
    """The label of the stream axis: a batch label of both operands, or None where neither is a stream."""
    at_a, at_b = a.time_label, b.time_label
    if at_a is None and at_b is None:
        return None
    for operand in (a, b):
        if not operand.view.time_is_alone():
            raise unsupported(STAGE, node.title, "the stream axis is merged with another axis here", "one of its own")
    if at_a is not None and at_b is not None and at_a != at_b:
        found = f"every frame of one operand meets every frame of the other (stream axis: {at_a} and {at_b})"
        raise unsupported(STAGE, node.title, found, "one label for the stream axis", STREAM_HINT)
    if at_a is None or at_b is None:
        found = "one operand has one frame for the whole stream, the other one frame per step"
        raise unsupported(STAGE, node.title, found, "both change with the stream", STREAM_HINT)
    if at_a not in out:
        found = f"it sums over the {'endless ' if ctx.endless else ''}stream axis ({at_a})"
        raise unsupported(STAGE, node.title, found, "sums inside the frame", STREAM_HINT)
    return at_a


def contract(node: OnnxNode, a: Operand, b: Operand, out: Sequence[str], ctx: Lowering) -> View:
    """The contraction of two streams to the labels `out`; labels not in `out` are summed.

    A label of size 1 in one operand broadcasts. Copies an operand only where both have one axis in pieces that do not
    divide each other.
    """
    time = check_streams(node, a, b, out, ctx)
    labels = list(dict.fromkeys((*a.labels, *b.labels)))
    frame = [label for label in labels if label != time]
    if any(label_loops(node, a, b, label) is None for label in frame):
        order = [i for i in range(len(b.labels)) if b.labels[i] != time]
        b = Operand(_copied(b.view, order, node, ctx), b.labels)
        if any(label_loops(node, a, b, label) is None for label in frame):
            order = [i for i in range(len(a.labels)) if a.labels[i] != time]
            a = Operand(_copied(a.view, order, node, ctx), a.labels)
    loops = {}
    for label in frame:
        steps_of = label_loops(node, a, b, label)
        if steps_of is None:
            raise unsupported(
                STAGE, node.title, f"sizes of {label} do not fit: {list(a.view.shape)}, {list(b.view.shape)}"
            )
        loops[label] = steps_of
    nest = merged([loop for label in out for loop in loops.get(label, ())])
    summed = ordered_sums([loop for label in frame if label not in out for loop in loops[label]])
    check_depth(node, nest, summed)
    op = Contract(tuple(nest), tuple(summed))
    sizes = {label: prod(loop.size for loop in loops[label]) for label in frame}
    return emit_contract(node, op, [a.view, b.view], out, sizes, time, ctx)


def _copied(view: View, order: Sequence[int], node: OnnxNode, ctx: Lowering) -> View:
    """The view as a row-major copy over `order` (made where `arrange` would keep a frame that is in order)."""
    return ctx.arrange(view, order, node)


def ordered_sums(loops: Sequence[Loop]) -> list[Loop]:
    """Summed loops, the widest steps outermost: the innermost one walks neighbours where it can."""
    return merged(sorted(loops, key=lambda loop: -(loop.a + loop.b)))


def check_depth(node: OnnxNode, nest: Sequence[Loop], summed: Sequence[Loop]) -> None:
    if max(len(nest), len(summed)) > MAX_LOOPS:
        found = f"{max(len(nest), len(summed))} nested loops"
        raise unsupported(STAGE, node.title, found, f"at most {MAX_LOOPS}", "Merge axes with Reshape")


def emit_contract(
    node: OnnxNode,
    op: Op,
    views: Sequence[View],
    out: Sequence[str],
    sizes: Mapping[str, int],
    time: str | None,
    ctx: Lowering,
) -> View:
    """Append the operator; its frame is row-major over `out`, the stream axis `time` left out."""
    source = ctx.tensor(views[0])
    if any(ctx.tensor(view).length != source.length for view in views):
        raise unsupported(STAGE, node.title, "operands with different numbers of frames", "equal lengths")
    frame = [sizes.get(label, 1) for label in out if label != time]
    name = ctx.emit(op, [view.tensor for view in views], frame or [1], source.length, node)
    axes = iter(compact(frame))
    return View(name, tuple((Piece(source.length, None),) if label == time else next(axes) for label in out))


def matmul_labels(node: OnnxNode, a: Sequence[int], b: Sequence[int]) -> tuple[list[str], list[str], list[str]]:
    """Labels of A, B and A @ B (numpy's rules: 1-D operands lose their axis, leading axes broadcast)."""
    if not a or not b or a[-1] != b[0 if len(b) == 1 else -2]:
        found = f"operands of shapes {list(a)} and {list(b)}"
        raise unsupported(STAGE, node.title, found, "[..., M, K] times [..., K, N]")
    lead = max(len(a), len(b), 2) - 2
    batch = [f"b{i}" for i in range(lead)]
    left = ["k"] if len(a) == 1 else [*batch[lead - len(a) + 2 :], "m", "k"]
    right = ["k"] if len(b) == 1 else [*batch[lead - len(b) + 2 :], "k", "n"]
    return left, right, [*batch, *(["m"] if len(a) > 1 else []), *(["n"] if len(b) > 1 else [])]
