"""Operators that change the rate upwards or pick frames: ConvTranspose, Resize, Gather, Split, Expand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.time import Join, Last, Rule, Transposed, Upsample, Window
from codegen.ir.view import Axis, Piece, View, compact
from codegen.ops.base import Op
from codegen.ops.conv import spatial_layout
from codegen.ops.shape import _gather, _padded

STAGE = "import"


@dataclass(frozen=True, eq=False)
class Resample(Op):
    """A rate change known by its rule along the stream axis; `factors` act on (depth, width) of the frame."""

    kind: str
    time: Rule
    factors: tuple[int, int] = (1, 1)

    def rule(self) -> Rule:
        return self.time


@dataclass(frozen=True, eq=False)
class ConvTranspose(Op):
    """Real transposed convolution; weights [Ci, Co/groups, spatial...] as in the file."""

    time: Rule
    weights: Const
    bias: Const | None
    groups: int
    length_macs: int

    def rule(self) -> Rule:
        return self.time

    def macs(self) -> int:
        return self.length_macs


def lower_conv_transpose(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """ConvTranspose-11: length (L-1)*s + k_eff - left - right + output_padding on every spatial axis."""
    x, weights = args[0], args[1]
    assert isinstance(x, View)
    bias = args[2] if len(args) > 2 else None
    if not isinstance(weights, Const) or isinstance(bias, View):
        raise unsupported(STAGE, node.title, "weights computed at run time", "constant weights")
    arranged, inner, stream, _sizes = spatial_layout(node, x, ctx)
    kernel = weights.array.shape[2:]
    rank = len(kernel)
    attrs = node.attrs
    strides = list(attrs.get("strides") or [1] * rank)
    dilations = list(attrs.get("dilations") or [1] * rank)
    extra = list(attrs.get("output_padding") or [0] * rank)
    pads = list(attrs.get("pads") or [0] * (2 * rank))
    rules = []
    for i in range(rank):
        left, right = pads[i], pads[i + rank]
        extent = dilations[i] * (kernel[i] - 1) + 1
        if attrs.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER") or attrs.get("output_shape"):
            shape = attrs.get("output_shape")
            target = shape[i] if shape else x.shape[i + 2] * strides[i]
            total = (x.shape[i + 2] - 1) * strides[i] + extra[i] + extent - target
            left = total // 2 if attrs.get("auto_pad") != "SAME_LOWER" else total - total // 2
            right = total - left
        rules.append(Transposed(kernel[i], strides[i], dilations[i], left, right, extra[i]))
    sizes = [(x.shape[i + 2] - 1) * r.stride + r.extent - r.left - r.right + r.output_padding for i, r in enumerate(rules)]
    if min(sizes) < 1:
        raise unsupported(STAGE, node.title, f"an empty output {sizes}")
    groups = int(attrs.get("group", 1))
    channels = weights.array.shape[1] * groups
    time: Rule = Join() if stream is None else rules[stream]
    length = ctx.tensor(arranged).length if stream is None else sizes[stream]
    frame = [sizes[i - 2] for i in inner]
    lead = [0] if x.time_axis != 0 and x.shape[0] > 1 else []
    macs = int(np.prod(weights.array.shape)) * int(np.prod([x.shape[i] for i in inner], dtype=np.int64))
    op = ConvTranspose(time, weights, bias, groups, macs // (strides[stream] if stream is not None else 1))
    shape_out = [*(x.shape[i] for i in lead), *frame, channels]
    name = ctx.emit(op, [arranged.tensor], shape_out, length, node)
    axes: list[Axis] = [()] * len(x.axes)
    for i, axis in zip([*lead, *inner, 1], compact(shape_out), strict=True):
        axes[i] = axis
    if x.time_axis is not None:
        axes[x.time_axis] = (Piece(length, None),)
    return [View(name, tuple(axes))]


def lower_resize(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Nearest upsampling by whole factors: source floor((j + offset) / factor)."""
    x = args[0]
    assert isinstance(x, View)
    rank = len(x.axes)
    factors = _factors(node, args, x, rank)
    mode = node.attrs.get("mode", "nearest")
    mapping = node.attrs.get("coordinate_transformation_mode", "half_pixel" if node.op_type == "Resize" else "asymmetric")
    rounding = node.attrs.get("nearest_mode", "round_prefer_floor" if node.op_type == "Resize" else "floor")
    at = x.time_axis
    if mode != "nearest":
        where = "on the stream axis" if at is not None and factors[at] != 1 else "inside the frame"
        raise unsupported(STAGE, node.title, f"mode={mode} {where}", "mode=nearest with whole factors")
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    source = ctx.tensor(x)
    frame_axes = [i for i in order if i != at]
    factor = factors[at] if at is not None else 1
    offset = _offset(node, mapping, rounding, max(factors)) if max(factors) > 1 else 0
    sizes = [x.shape[i] * factors[i] for i in frame_axes]
    length = source.length * factor
    rule: Rule = Upsample(factor, offset) if factor > 1 else Join()
    name = ctx.emit(Resample(node.op_type, rule), [x.tensor], sizes or [1], length, node)
    axes: list[Axis] = [()] * rank
    for i, axis in zip(frame_axes, compact(sizes), strict=True):
        axes[i] = axis
    if at is not None:
        axes[at] = (Piece(length, None),)
    return [View(name, tuple(axes))]


def _factors(node: OnnxNode, args: Sequence[View | Const | None], x: View, rank: int) -> list[int]:
    constants = [a for a in args[1:] if isinstance(a, Const) and a.array.size]
    values: list[float]
    sizes = args[3] if len(args) > 3 else None
    if isinstance(sizes, Const) and sizes.array.size:
        values = [float(n) / x.shape[i] for i, n in enumerate(sizes.array.ravel().tolist())]
    elif "scales" in node.attrs:
        values = list(node.attrs["scales"])
    else:
        scales = [c for c in constants if c.array.dtype.kind == "f" and c.array.size == rank]
        if not scales:
            raise unsupported(STAGE, node.title, "scales or sizes computed at run time", "constant whole factors")
        values = [float(v) for v in scales[-1].array.ravel()]
    if len(values) != rank or any(v < 1 or v != int(v) for v in values):
        raise unsupported(STAGE, node.title, f"factors {values}", "whole factors of at least 1", "Resample by integers")
    return [int(v) for v in values]


def _offset(node: OnnxNode, mapping: str, rounding: str, factor: int) -> int:
    """The q of floor((j + q) / f) for a coordinate map and a rounding (ONNX Resize-19), found on one period."""
    if mapping not in ("asymmetric", "half_pixel", "pytorch_half_pixel"):
        found = f"coordinate_transformation_mode={mapping}"
        raise unsupported(STAGE, node.title, found, "asymmetric and half_pixel", "Resize by a whole factor")
    j = np.arange(4 * factor, dtype=np.float64)
    real = j / factor if mapping == "asymmetric" else (j + 0.5) / factor - 0.5
    index = {
        "floor": np.floor(real),
        "ceil": np.ceil(real),
        "round_prefer_floor": np.ceil(real - 0.5),
        "round_prefer_ceil": np.floor(real + 0.5),
    }[rounding]
    for offset in range(-factor, factor + 1):
        if np.array_equal(np.floor((j + offset) / factor), index):
            return offset
    raise unsupported(STAGE, node.title, f"{mapping} with {rounding} by {factor}", "a map of the form floor((j+q)/f)")


def lower_gather(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Gather of one constant index: the last frame, or one step inside the frame."""
    x, index = args[0], args[1]
    if not isinstance(x, View) or not isinstance(index, Const) or index.array.size != 1:
        raise unsupported(STAGE, node.title, "an index that is not one constant", "one constant index", "Use Slice")
    axis = int(node.attrs.get("axis", 0)) % len(x.axes)
    size = x.shape[axis]
    at = int(index.array.ravel()[0])
    at = at + size if at < 0 else at
    if not 0 <= at < size:
        raise unsupported(STAGE, node.title, f"index {int(index.array.ravel()[0])} of {size}")
    if any(piece.is_time for piece in x.axes[axis]):
        if at != size - 1 or not x.time_is_alone():
            raise unsupported(STAGE, node.title, f"frame {at} of the stream", "the last frame (index -1)")
        source = ctx.tensor(x)
        name = ctx.emit(Resample("Last", Last()), [x.tensor], source.frame_shape, 1, node)
        picked = View(name, tuple(() if i == axis else a for i, a in enumerate(x.axes)))
    else:
        picked = _gather(node, x, {axis: (at, 1, 1)}, ctx) if size > 1 else x
    if index.array.ndim == 0:
        picked = View(picked.tensor, tuple(a for i, a in enumerate(picked.axes) if i != axis))
    return [picked]


def lower_split(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Split inside the frame: one copy per part. Sizes are an attribute before opset 13, an input since."""
    x = args[0]
    assert isinstance(x, View)
    axis = int(node.attrs.get("axis", 0)) % len(x.axes)
    given = args[1] if len(args) > 1 else None
    size, parts = x.shape[axis], len(node.outputs)
    if isinstance(given, Const):
        sizes = [int(n) for n in given.array.ravel()]
    elif node.attrs.get("split"):
        sizes = [int(n) for n in node.attrs["split"]]
    else:
        step = -(-size // parts)
        sizes = [min(step, size - i * step) for i in range(parts)]
    if sum(sizes) != size or len(sizes) != parts or min(sizes) < 1:
        raise ValueError(f"split {sizes} of {size} into {parts}")
    if any(piece.is_time for piece in x.axes[axis]):
        raise unsupported(STAGE, node.title, "it splits the stream axis", "splits inside the frame")
    results: list[View | Const] = []
    start = 0
    for output, count in zip(node.outputs, sizes, strict=True):
        part = type(node)(**{**node.__dict__, "outputs": (output,)})
        results.append(_gather(part, x, {axis: (start, 1, count)}, ctx) if count < size else x)
        start += count
    return results


def lower_expand(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, target = args[0], args[1]
    if not isinstance(x, View) or not isinstance(target, Const):
        raise unsupported(STAGE, node.title, "a target computed at run time", "a constant target")
    wanted = [int(n) for n in target.array.ravel()]
    shape = np.broadcast_shapes(x.shape, tuple(wanted))
    x = View(x.tensor, ((),) * (len(shape) - len(x.axes)) + x.axes)
    if shape == x.shape:
        return [x]
    axes = [axis if n == m else (Piece(m, 0),) for axis, n, m in zip(x.axes, x.shape, shape, strict=True)]
    return [ctx.arrange(View(x.tensor, tuple(axes)), tuple(range(len(shape))), node)]


LOWER = {
    ("", "ConvTranspose"): lower_conv_transpose,
    ("", "Resize"): lower_resize,
    ("", "Upsample"): lower_resize,
    ("", "Gather"): lower_gather,
    ("", "Split"): lower_split,
    ("", "Expand"): lower_expand,
}
__all__ = ["LOWER", "Window", "_padded"]
