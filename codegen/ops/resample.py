"""Operators that change the rate upwards or pick frames: ConvTranspose, Resize, Gather, Split, Expand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.time import Join, Last, Rule, Transposed, Upsample, Window
from codegen.ir.view import Axis, Piece, View, compact
from codegen.ops.base import Op
from codegen.ops.conv import output_view, spatial_layout
from codegen.ops.geometry import Geometry, check_sizes
from codegen.ops.shape import gather_steps

STAGE = "import"


@dataclass(frozen=True, eq=False)
class Resample(Op):
    """Nearest upsampling of real frames; `index[i]` lists the source step of every output step along frame axis i."""

    time: Rule
    frame_in: tuple[int, ...]
    index: tuple[tuple[int, ...], ...]

    def rule(self) -> Rule:
        return self.time


@dataclass(frozen=True, eq=False)
class LastFrame(Op):
    """The last frame of the sequence."""

    def rule(self) -> Rule:
        return Last()


@dataclass(frozen=True, eq=False)
class ConvTranspose(Op):
    """Real transposed convolution of frames [D, W, Ci]; weights [Co, kt, kd, kw, Ci/groups]."""

    time: Transposed | None
    depth: Transposed
    width: Transposed
    size_in: tuple[int, int]
    size_out: tuple[int, int]
    weights: Const
    bias: Const | None
    groups: int

    def rule(self) -> Rule:
        return self.time or Join()

    def macs(self) -> int:
        return prod(self.size_in) * prod(self.weights.array.shape) // (self.time.stride if self.time else 1)


def lower_conv_transpose(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """ConvTranspose-11: length (L-1)*s + k_eff - left - right + output_padding on every spatial axis."""
    x, weights = args[0], args[1]
    assert isinstance(x, View)
    bias = args[2] if len(args) > 2 else None
    if not isinstance(weights, Const) or isinstance(bias, View):
        raise unsupported(STAGE, node.title, "weights computed at run time", "constant weights")
    arranged, inner, stream, frame_sizes = spatial_layout(node, x, ctx)
    kernel = weights.array.shape[2:]
    rank = len(kernel)
    attrs = node.attrs
    strides = list(attrs.get("strides") or [1] * rank)
    dilations = list(attrs.get("dilations") or [1] * rank)
    extra = list(attrs.get("output_padding") or [0] * rank)
    pads = list(attrs.get("pads") or [0] * (2 * rank))
    if any(len(v) != n for v, n in ((strides, rank), (dilations, rank), (extra, rank), (pads, 2 * rank))):
        raise ValueError(f"{rank} axes: strides {strides}, dilations {dilations}, pads {pads}, output_padding {extra}")
    if min(*kernel, *strides, *dilations) < 1 or min(extra) < 0:
        raise ValueError(f"kernel {list(kernel)}, strides {strides}, dilations {dilations}, output_padding {extra}")
    check_sizes(node.title, kernel, strides, dilations, [*pads, *extra])
    rules = []
    for i in range(rank):
        left, right = pads[i], pads[i + rank]
        extent = dilations[i] * (kernel[i] - 1) + 1
        if attrs.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER") or attrs.get("output_shape"):
            shape = attrs.get("output_shape")
            target = shape[i] if shape else x.shape[i + 2] * strides[i]
            total = (x.shape[i + 2] - 1) * strides[i] + extra[i] + extent - target
            # Where output_shape asks for more than the windows give, the rest is at the end.
            left = max(0, total // 2 if attrs.get("auto_pad") != "SAME_LOWER" else total - total // 2)
            right = total - left
        rules.append(Transposed(kernel[i], strides[i], dilations[i], left, right, extra[i]))
    sizes = [
        (x.shape[i + 2] - 1) * r.stride + r.extent - r.left - r.right + r.output_padding for i, r in enumerate(rules)
    ]
    if min(sizes) < 1:
        raise unsupported(STAGE, node.title, f"an empty output {sizes}")
    groups = int(attrs.get("group", 1))
    time = None if stream is None else rules[stream]
    length = ctx.tensor(arranged).length if stream is None else sizes[stream]
    frame = [rules[i - 2] for i in inner]
    pair = [Transposed(1)] * (2 - len(frame)) + frame
    outs = [sizes[i - 2] for i in inner]
    size_out = (frame_sizes[0] if len(inner) < 2 else outs[0], outs[-1] if inner else frame_sizes[1])
    kernel_const = _transposed_weights(node, weights, groups, stream, inner)
    op = ConvTranspose(time, pair[0], pair[1], frame_sizes, size_out, kernel_const, bias, groups)
    channels = kernel_const.array.shape[0]
    name = ctx.emit(op, [arranged.tensor], [*size_out, channels], length, node)
    geometry = Geometry(Window(), Window(), Window(), size_out, size_out)
    return [output_view(name, arranged, geometry, inner, channels, length)]


def _transposed_weights(node: OnnxNode, w: Const, groups: int, stream: int | None, inner: Sequence[int]) -> Const:
    """[Ci, Co/groups, spatial...] -> [Co, kt, kd, kw, Ci/groups]; scales per tensor or per output channel."""
    shape = w.array.shape
    ci, per = shape[0], shape[1]
    if groups < 1 or ci % groups:
        raise unsupported(STAGE, node.title, f"group {groups} for {ci} input channels")
    per_axis = w.scale is not None and w.scale.size > 1
    if per_axis and (w.axis != 1 or groups > 1):
        found = f"weight scales along axis {w.axis} with group {groups}"
        raise unsupported(STAGE, node.title, found, "one scale, or one per output channel (axis 1, group 1)")
    array = w.array.reshape(groups, ci // groups, per, *shape[2:])
    spatial = [*([] if stream is None else [stream + 2]), *inner]
    array = array.transpose(0, 2, *(i + 1 for i in spatial), 1)
    taps = 1 if stream is None else shape[stream + 2]
    frame = [1] * (2 - len(inner)) + [shape[i] for i in inner]
    array = array.reshape(groups * per, taps, *frame, ci // groups)
    return Const(array, w.scale, w.zero_point, 0)


def lower_resize(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Nearest upsampling by whole factors: source floor((j + offset) / factor)."""
    x = args[0]
    assert isinstance(x, View)
    rank = len(x.axes)
    factors = _factors(node, args, x, rank)
    mode = node.attrs.get("mode", "nearest")
    mapping = node.attrs.get(
        "coordinate_transformation_mode", "half_pixel" if node.op_type == "Resize" else "asymmetric"
    )
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
    offsets = {f: _offset(node, mapping, rounding, f) for f in set(factors) if f > 1}
    frame_in = tuple(x.shape[i] for i in frame_axes)
    index = tuple(_sources(x.shape[i], factors[i], offsets.get(factors[i], 0)) for i in frame_axes)
    length = source.length * factor
    rule: Rule = Upsample(factor, offsets[factor]) if factor > 1 else Join()
    sizes = [len(steps) for steps in index]
    name = ctx.emit(Resample(rule, frame_in, index), [x.tensor], sizes or [1], length, node)
    axes: list[Axis] = [()] * rank
    for i, axis in zip(frame_axes, compact(sizes), strict=True):
        axes[i] = axis
    if at is not None:
        axes[at] = (Piece(length, None),)
    return [View(name, tuple(axes))]


def _sources(size: int, factor: int, offset: int) -> tuple[int, ...]:
    """Source step of every output step inside a frame, kept inside the frame at both ends."""
    return tuple(min(max((j + offset) // factor, 0), size - 1) for j in range(size * factor))


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
    """Gather of constant indices: steps inside the frame, in any order, or the last frame of the stream."""
    x, index = args[0], args[1]
    if not isinstance(x, View) or not isinstance(index, Const):
        raise unsupported(STAGE, node.title, "indices computed at run time", "constant indices", "Use Slice")
    axis = int(node.attrs.get("axis", 0)) % len(x.axes)
    size = x.shape[axis]
    steps = [int(i) + size if i < 0 else int(i) for i in index.array.ravel()]
    if not steps or min(steps) < 0 or max(steps) >= size:
        raise unsupported(STAGE, node.title, f"indices {index.array.ravel().tolist()[:8]} of {size}")
    if any(piece.is_time for piece in x.axes[axis]):
        if steps != [size - 1] or not x.time_is_alone():
            found = f"frames {steps[:8]} of the stream"
            raise unsupported(STAGE, node.title, found, "the last frame (index -1)", "Build with --plan whole")
        source = ctx.tensor(x)
        name = ctx.emit(LastFrame(), [x.tensor], source.frame_shape, 1, node)
        picked = View(name, tuple(() if i == axis else a for i, a in enumerate(x.axes)))
    elif len(steps) == 1:
        picked = gather_steps(node, x, {axis: (steps[0], 1, 1)}, ctx) if size > 1 else x
    else:
        picked = _gather_many(node, x, axis, steps, ctx)
    (axes,) = [View("", (picked.axes[axis],)).reshape(index.array.shape)]
    assert axes is not None
    return [View(picked.tensor, (*picked.axes[:axis], *axes.axes, *picked.axes[axis + 1 :]))]


def _gather_many(node: OnnxNode, x: View, axis: int, steps: Sequence[int], ctx: Lowering) -> View:
    """The frame with `steps` of one axis, in that order."""
    order = [i for i in x.storage_order() if i != x.time_axis]
    x = ctx.arrange(x, order, node)
    sizes = tuple(x.shape[i] for i in order)
    index = tuple(tuple(steps) if i == axis else tuple(range(x.shape[i])) for i in order)
    source = ctx.tensor(x)
    frame = [len(part) for part in index]
    name = ctx.emit(Resample(Join(), sizes, index), [x.tensor], frame, source.length, node)
    axes = list(x.axes)
    for i, made in zip(order, compact(frame), strict=True):
        axes[i] = made
    return View(name, tuple(axes))


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
        results.append(gather_steps(part, x, {axis: (start, 1, count)}, ctx) if count < size else x)
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
RULES = {
    "ConvTranspose": "1 to 3 spatial axes; constant weights with one scale or one per output channel; groups,"
    " dilations, output_padding",
    **dict.fromkeys(
        ("Resize", "Upsample"),
        "mode nearest by whole factors; asymmetric or half_pixel maps of the form floor((j+q)/f)",
    ),
    "Gather": "one constant index inside the frame, or the last frame of the stream",
    "Split": "inside the frame",
    "Expand": "constant target, inside the frame",
}
