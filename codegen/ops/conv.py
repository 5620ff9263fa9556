"""Convolutions and products with constant weights: Conv, Gemm, MatMul, on reals (import) and on int8 codes (kernel)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.time import Reduce, Rule, Window
from codegen.ir.view import Axis, Piece, View, compact
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Op, Rounding, Stages, rounding_stages
from codegen.ops.geometry import Geometry, parse_windows, window_length

STAGE = "import"


@dataclass(frozen=True, eq=False)
class Conv(Op):
    """Real convolution of frames [D, W, Ci] with a constant [Co, kt, kd, kw, Ci/groups] and a bias [Co]."""

    geometry: Geometry
    weights: Const
    bias: Const | None
    groups: int = 1

    def rule(self) -> Rule:
        return self.geometry.time

    def macs(self) -> int:
        return conv_macs(self.geometry, self.weights.array.shape)

    def describe(self) -> str:
        return describe(self.geometry, self.groups)


@dataclass(frozen=True, eq=False)
class DenseOverTime(Op):
    """Real product of the whole sequence with constants [T, N, frame]."""

    weights: Const
    bias: Const | None

    def rule(self) -> Rule:
        return Reduce()

    def macs(self) -> int:
        """Per input frame."""
        return int(prod(self.weights.array.shape[1:]))


def conv_macs(geometry: Geometry, weights_shape: Sequence[int]) -> int:
    """Multiply-accumulates per output frame, padding included (what the offline model counts)."""
    return prod(geometry.size_out) * prod(weights_shape)


def describe(geometry: Geometry, groups: int) -> str:
    return geometry.describe() + (f" groups={groups}" if groups > 1 else "")


@dataclass(frozen=True, eq=False)
class Requantize:
    """int32 accumulators -> codes: per-channel float32 `scale`, `zero_point`, and the code bounds `lo`..`hi`.

    Relu and Clip live in the bounds. Formula and rounding: `codegen.numerics.reference.requantize`.
    """

    scale: npt.NDArray[np.float32]
    zero_point: int
    lo: int = -128
    hi: int = 127

    def over(self, interval: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> Rounding:
        """The rounding of accumulators in an interval per channel."""
        return Rounding(self.scale, *interval, self.zero_point, self.lo, self.hi)

    def stages(self, acc: npt.NDArray[np.int64]) -> Stages:
        return rounding_stages(acc, self.scale, self.zero_point, self.lo, self.hi)


@dataclass(frozen=True, eq=False)
class Convolution(KernelOp):
    """int32 accumulators acc = bias + sum((x - x_zero_point) * w).

    x [L, D, W, Ci], weights int8 or int16 [Co, kt, kd, kw, Ci/groups], bias int32 [Co]. Source: ONNX QLinearConv-10.
    """

    geometry: Geometry
    weights: npt.NDArray[np.integer[Any]]
    bias: npt.NDArray[np.int64]
    groups: int
    x_zero_point: int

    def rule(self) -> Rule:
        return self.geometry.time

    def pad_code(self) -> int:
        return self.x_zero_point

    def macs(self) -> int:
        return conv_macs(self.geometry, self.weights.shape)

    def describe(self) -> str:
        return describe(self.geometry, self.groups)

    @property
    def channels(self) -> tuple[int, int]:
        return self.weights.shape[4] * self.groups, self.weights.shape[0]

    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per channel the least and greatest accumulator that any int8 input can give, partial sums included."""
        w = self.weights.reshape(self.weights.shape[0], -1)
        return accumulator_bounds(w, self.bias, self.x_zero_point)

    def accumulate(self, x: Codes) -> npt.NDArray[np.int64]:
        """Accumulators [L', D', W', Co] with the zero point removed."""
        g, groups = self.geometry, self.groups
        length = window_length(x.shape[0], g.time)
        ci, co = self.channels
        x = x.reshape(x.shape[0], *g.size_in, ci)
        out = np.empty((length, *g.size_out, co), np.int64)
        weights = self.weights.astype(np.float64).reshape(groups, co // groups, -1)
        for start in range(0, length, 256):
            stop = min(start + 256, length)
            patches = _patches(g, x, self.x_zero_point, start, stop)
            patches = patches.reshape(*patches.shape[:-1], groups, ci // groups)
            patches = np.moveaxis(patches, -2, 3).reshape(stop - start, *g.size_out, groups, -1)
            # float64 holds every product and partial sum exactly: |acc| < 2^53.
            acc = np.einsum("ldwgk,gok->ldwgo", patches.astype(np.float64) - self.x_zero_point, weights, optimize=True)
            out[start:stop] = np.rint(acc).astype(np.int64).reshape(stop - start, *g.size_out, co)
        return out + self.bias


@dataclass(frozen=True, eq=False)
class ConvS8(Convolution):
    """int8 convolution: accumulators, then `requantize`."""

    requantize: Requantize

    def lead(self, operand: int) -> int:
        return self.geometry.lead(*self.channels)

    def lead_back(self, operand: int) -> int:
        return self.geometry.lead_back(*self.channels)

    def rounding(self) -> Rounding:
        return self.requantize.over(self.bounds())

    def reference(self, xs: Sequence[Codes]) -> Codes:
        r = self.requantize
        return numeric.requantize(self.accumulate(xs[0]), r.scale, r.zero_point, r.lo, r.hi)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return self.requantize.stages(self.accumulate(xs[0]))


@dataclass(frozen=True, eq=False)
class ConvAccS8(Convolution):
    """A convolution whose int32 accumulators are the result; real = float32(acc) * `scales` [Co]."""

    scales: npt.NDArray[np.float32]
    final = "accumulator"

    def reference(self, xs: Sequence[Codes]) -> Codes:
        accumulators: Any = self.accumulate(xs[0]).astype(np.int32)
        return accumulators  # type: ignore[no-any-return]


def accumulator_bounds(
    w: npt.NDArray[np.integer[Any]], bias: npt.NDArray[np.int64], x_zero_point: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Per row of w [Co, K] the least and greatest bias + sum((x - zero point) * w) over all int8 x and partial sums."""
    w = w.astype(np.int64)
    low, high = -128 - x_zero_point, 127 - x_zero_point
    least = np.minimum(w * low, w * high).sum(axis=1)
    most = np.maximum(w * low, w * high).sum(axis=1)
    return bias + least, bias + most


def _patches(g: Geometry, x: Codes, fill: int, start: int, stop: int) -> npt.NDArray[Any]:
    """Windows of the output frames start..stop-1 (patches of the whole clip would not fit in memory)."""
    time = replace(g.time, left=g.time.left - start * g.time.stride)
    return replace(g, time=time).patches(x, fill, stop - start)


def spatial_layout(node: OnnxNode, x: View, ctx: Lowering) -> tuple[View, list[int], int | None, tuple[int, int]]:
    """x [N, C, spatial...] as frames [D, W, C]: the arranged view, the spatial axes inside the frame, which of them
    is the stream (None: the stream is the batch axis, or there is none), and the sizes (D, W)."""
    rank = len(x.axes)
    if rank < 3 or rank > 5:
        raise unsupported(STAGE, node.title, f"an input of rank {rank}", "[N, C, 1 to 3 spatial axes] are supported")
    if not x.time_is_alone() or x.time_axis == 1:
        raise unsupported(
            STAGE, node.title, "the stream axis is part of its channels", "a spatial axis", "Name another with --stream"
        )
    at = x.time_axis
    stream = at - 2 if at is not None and at >= 2 else None
    inner = [i for i in range(2, rank) if i != at]
    lead = [0] if at != 0 and x.shape[0] > 1 else []
    frame_axes = lead + inner
    if len(frame_axes) > 2:
        found = f"{len(frame_axes)} axes inside a frame"
        raise unsupported(STAGE, node.title, found, "two besides channels", "Use a batch of 1")
    x = ctx.arrange(x, [*frame_axes, 1] if at == 0 or lead else [0, *frame_axes, 1], node)
    sizes = [1] * (2 - len(frame_axes)) + [x.shape[i] for i in frame_axes]
    return x, inner, stream, (sizes[0], sizes[1])


def build_geometry(
    windows: Sequence[Window], inner: Sequence[int], stream: int | None, sizes: tuple[int, int]
) -> Geometry:
    """Distribute the ONNX spatial windows over (stream, depth, width)."""
    frame = [windows[i - 2] for i in inner]
    pair = [Window()] * (2 - len(frame)) + frame
    time = Window() if stream is None else windows[stream]
    out = (window_length(sizes[0], pair[0]), window_length(sizes[1], pair[1]))
    return Geometry(time, pair[0], pair[1], sizes, out)


def output_view(name: str, x: View, geometry: Geometry, inner: Sequence[int], channels: int, length: int) -> View:
    """The ONNX axes of a [N, C, spatial...] result whose frames are [D', W', channels]."""
    rank = len(x.axes)
    at = x.time_axis
    frame = compact([*geometry.size_out, channels])
    axes: list[Axis] = [()] * rank
    axes[1] = frame[2]
    slots = [*([0] if at != 0 and x.shape[0] > 1 else []), *inner]
    for i, axis in zip(slots[::-1], frame[1::-1], strict=False):
        axes[i] = axis
    if at is not None:
        axes[at] = (Piece(length, None),)
    return View(name, tuple(axes))


def lower_conv(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, weights = args[0], args[1]
    bias = args[2] if len(args) > 2 else None
    assert isinstance(x, View)
    if not isinstance(weights, Const) or isinstance(bias, View):
        raise unsupported(STAGE, node.title, "weights or bias computed at run time", "constants are supported")
    groups = int(node.attrs.get("group", 1))
    shape = weights.array.shape
    ok = len(shape) == len(x.axes) and x.shape[1] == shape[1] * groups and groups > 0 and shape[0] % groups == 0
    if not ok:
        found = f"weights {list(shape)} with group {groups} for an input {list(x.shape)}"
        raise unsupported(STAGE, node.title, found, "weights [O, I/group, kernel...]", "Check with onnx.checker")
    declared = list(node.attrs.get("kernel_shape") or shape[2:])
    if declared != list(shape[2:]):
        raise unsupported(STAGE, node.title, f"kernel_shape {declared} but weights {list(shape)}")
    arranged, inner, stream, sizes = spatial_layout(node, x, ctx)
    endless = stream if ctx.endless else None
    windows = parse_windows(node.attrs, node.title, shape[2:], x.shape[2:], endless)
    geometry = build_geometry(windows, inner, stream, sizes)
    kernel = transpose_weights(node, weights, stream, inner)
    return [emit_conv(node, arranged, Conv(geometry, kernel, bias, groups), inner, ctx)]


def transpose_weights(node: OnnxNode, w: Const, stream: int | None, inner: Sequence[int]) -> Const:
    """[O, I, spatial...] -> [O, kt, kd, kw, I]; scales must be per output channel or per tensor."""
    if w.scale is not None and w.scale.size > 1 and w.axis != 0:
        found = f"weight scales along axis {w.axis}"
        raise unsupported(STAGE, node.title, found, "one scale, or one per output channel", "Quantize per channel")
    shape = w.array.shape
    taps = 1 if stream is None else shape[stream + 2]
    perm = [0, *([] if stream is None else [stream + 2]), *inner, 1]
    frame = [1] * (2 - len(inner)) + [shape[i] for i in inner]
    return Const(w.array.transpose(perm).reshape(shape[0], taps, *frame, shape[1]), w.scale, w.zero_point, 0)


def emit_conv(node: OnnxNode, x: View, op: Conv, inner: Sequence[int], ctx: Lowering) -> View:
    source = ctx.tensor(x)
    length = window_length(source.length, op.geometry.time)
    channels = op.weights.array.shape[0]
    if length == 0 or 0 in op.geometry.size_out:
        raise unsupported(STAGE, node.title, f"the window does not fit its input {list(x.shape)}: empty output")
    name = ctx.emit(op, [x.tensor], [*op.geometry.size_out, channels], length, node)
    return output_view(name, x, op.geometry, inner, channels, length)


def lower_gemm(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """alpha * A' B' + beta * C with constant B and C (ONNX Gemm-11)."""
    x, weights = args[0], args[1]
    bias = args[2] if len(args) > 2 else None
    assert isinstance(x, View)
    if isinstance(weights, View) and bias is None and float(node.attrs.get("alpha", 1.0)) == 1.0:
        return [_product_of_activations(node, x, weights, ctx)]
    if not isinstance(weights, Const) or isinstance(bias, View):
        found = "two operands computed at run time with a C or an alpha, or a C computed at run time"
        raise unsupported(STAGE, node.title, found, "constant weights and bias", "Use MatMul")
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    if node.attrs.get("transA"):
        x = x.transpose([1, 0])
    if not node.attrs.get("transB"):
        weights = _transposed(weights)
    weights = _scaled(weights, alpha)
    bias = None if bias is None or beta == 0.0 else _scaled(_one_row(node, bias), beta)
    return [dense(node, x, weights, bias, ctx)]


def _product_of_activations(node: OnnxNode, a: View, b: View, ctx: Lowering) -> View:
    """Gemm of two activations without C: A' B'."""
    from codegen.ops.einsum import product

    left = ["k", "m"] if node.attrs.get("transA") else ["m", "k"]
    right = ["n", "k"] if node.attrs.get("transB") else ["k", "n"]
    if len(a.axes) != 2 or len(b.axes) != 2 or a.shape[left.index("k")] != b.shape[right.index("k")]:
        raise unsupported(STAGE, node.title, f"operands of shapes {list(a.shape)} and {list(b.shape)}")
    return product(node, [(a, left), (b, right)], ["m", "n"], ctx)


def _one_row(node: OnnxNode, bias: Const) -> Const:
    """C of a Gemm as one value per column; a C that differs from row to row is refused."""
    array = bias.array
    if array.ndim < 2 or array.shape[0] == 1:
        return bias
    if not np.array_equal(array, np.broadcast_to(array[:1], array.shape)):
        found = f"a C of shape {list(array.shape)} that differs from row to row"
        raise unsupported(STAGE, node.title, found, "one value per column", "Use Add")
    return Const(array[0], bias.scale, bias.zero_point, 0)


def _scaled(c: Const, factor: float) -> Const:
    """factor * constant; quantized codes stay, their scale takes the factor (and a negative sign goes to the codes)."""
    if factor == 1.0:
        return c
    if c.scale is None or factor <= 0.0 or not np.isfinite(factor):
        return Const(np.asarray(c.real() * np.float32(factor), np.float32))
    return Const(c.array, (c.scale * np.float32(factor)).astype(np.float32), c.zero_point, c.axis)


def lower_matmul(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    from codegen.ops.einsum import lower_products

    x, weights = args[0], args[1]
    if not isinstance(x, View) or not isinstance(weights, Const) or weights.array.ndim != 2 or len(x.axes) < 1:
        return lower_products(node, args, ctx)
    return [dense(node, x, _transposed(weights), None, ctx)]


def _transposed(w: Const) -> Const:
    if w.array.ndim != 2:
        raise ValueError(f"weights of rank {w.array.ndim}")
    return Const(w.array.T, w.scale, w.zero_point, 1 - w.axis if w.scale is not None and w.scale.size > 1 else 0)


def dense(node: OnnxNode, x: View, weights: Const, bias: Const | None, ctx: Lowering) -> View:
    """x [..., K] times weights [N, K]: a 1-tap convolution over the positions of the leading axes.

    The columns of the weights are permuted to the order in which K lies in memory, so a Flatten never moves data.
    """
    last = len(x.axes) - 1
    if x.shape[last] != weights.array.shape[1]:
        raise unsupported(STAGE, node.title, f"{x.shape[last]} values times weights {list(weights.array.shape)}")
    if weights.scale is not None and weights.scale.size > 1 and weights.axis != 0:
        raise unsupported(STAGE, node.title, "weight scales along the summed axis", "one scale per output column")
    if any(piece.is_time for piece in x.axes[last]):
        return _dense_over_time(node, x, weights, bias, ctx)
    if not x.time_is_alone():
        raise unsupported(STAGE, node.title, "the stream axis is merged with another axis here", "an axis of its own")
    pieces = [piece for piece in x.axes[last] if piece.size > 1]
    order = sorted(range(len(pieces)), key=lambda i: -(pieces[i].stride or 0))
    array = weights.array.reshape(-1, *(p.size for p in pieces)).transpose(0, *(i + 1 for i in order))
    rows = View(x.tensor, (*x.axes[:-1], tuple(pieces[i] for i in order)))
    lead = [i for i in range(last) if i != x.time_axis]
    lead.sort(key=lambda i: -max((p.stride or 0 for p in x.axes[i]), default=1 << 60))
    rows = ctx.arrange(rows, [*lead, last], node)
    n, k = array.shape[0], x.shape[last]
    positions = prod(x.shape[i] for i in lead)
    geometry = Geometry(Window(), Window(), Window(), (1, positions), (1, positions))
    op = Conv(geometry, Const(array.reshape(n, 1, 1, 1, k), weights.scale, weights.zero_point, 0), bias)
    source = ctx.tensor(rows)
    name = ctx.emit(op, [rows.tensor], [1, positions, n], source.length, node)
    axes: list[Axis] = list(rows.axes)
    for i, axis in zip([*lead, last], compact([*(x.shape[i] for i in lead), n]), strict=True):
        axes[i] = axis
    return View(name, tuple(axes))


def _dense_over_time(node: OnnxNode, x: View, weights: Const, bias: Const | None, ctx: Lowering) -> View:
    """x [..., K] where K holds the stream axis: one result for the whole sequence, weights [T, N, frame]."""
    if ctx.endless:
        found = "it sums over the endless stream axis"
        raise unsupported(STAGE, node.title, found, "a fixed T", "Fix the length of the stream, or use a convolution")
    if any(n > 1 for n in x.shape[:-1]):
        found = f"it sums over the stream axis for each of {prod(x.shape[:-1])} positions"
        raise unsupported(STAGE, node.title, found, "one position", "Flatten everything before it")
    pieces = list(x.axes[-1])
    order = sorted(range(len(pieces)), key=lambda i: (not pieces[i].is_time, -(pieces[i].stride or 0)))
    frame = [pieces[i] for i in order[1:]]
    source = ctx.tensor(x)
    stride = 1
    for piece in frame[::-1]:
        if piece.stride != stride:
            raise unsupported(STAGE, node.title, "its input is not one whole frame", "a Flatten of whole frames")
        stride *= piece.size
    array = weights.array.reshape(-1, *(p.size for p in pieces)).transpose(0, *(i + 1 for i in order))
    n = array.shape[0]
    array = array.reshape(n, source.length, stride).transpose(1, 0, 2)
    op = DenseOverTime(Const(array, weights.scale, weights.zero_point, 1), bias)
    name = ctx.emit(op, [x.tensor], [n], 1, node)
    return View(name, (*((),) * (len(x.axes) - 1), compact([n])[0]))


LOWER = {("", "Conv"): lower_conv, ("", "Gemm"): lower_gemm, ("", "MatMul"): lower_matmul}
RULES = {
    "Conv": "1 to 3 spatial axes; constant weights with one scale or one per output channel; bias int32, float or none;"
    " groups, dilations, any pads; no auto_pad SAME_* with a stride on an endless stream axis",
    "Gemm": "constant weights and bias; transA, transB, alpha, beta; over the stream axis only in a clip, once",
    "MatMul": "constant 2-D weights (over a clip's stream axis too, once), or two operands with batches that broadcast;"
    " an Add of one constant per column becomes its bias",
}
