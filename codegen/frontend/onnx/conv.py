"""Conv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.frontend.onnx.windows import build_geometry, output_view, parse_windows, spatial_layout
from codegen.ir.geometry import window_length
from codegen.ir.graph import Const
from codegen.ir.real import Conv
from codegen.ir.view import View


def lower_conv(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, weights = args[0], args[1]
    bias = args[2] if len(args) > 2 else None
    assert isinstance(x, View)
    if not isinstance(weights, Const) or isinstance(bias, View):
        raise unsupported(IMPORT, node.title, "weights or bias computed at run time", "constants are supported")
    groups = int(node.attrs.get("group", 1))
    shape = weights.array.shape
    ok = len(shape) == len(x.axes) and x.shape[1] == shape[1] * groups and groups > 0 and shape[0] % groups == 0
    if not ok:
        found = f"weights {list(shape)} with group {groups} for an input {list(x.shape)}"
        raise unsupported(IMPORT, node.title, found, "weights [O, I/group, kernel...]", "Check with onnx.checker")
    declared = list(node.attrs.get("kernel_shape") or shape[2:])
    if declared != list(shape[2:]):
        raise unsupported(IMPORT, node.title, f"kernel_shape {declared} but weights {list(shape)}")
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
        raise unsupported(IMPORT, node.title, found, "one scale, or one per output channel", "Quantize per channel")
    shape = w.array.shape
    taps = 1 if stream is None else shape[stream + 2]
    perm = [0, *([] if stream is None else [stream + 2]), *inner, 1]
    frame = [1] * (2 - len(inner)) + [shape[i] for i in inner]
    return replace(w, array=w.array.transpose(perm).reshape(shape[0], taps, *frame, shape[1]), axis=0)


def emit_conv(node: OnnxNode, x: View, op: Conv, inner: Sequence[int], ctx: Lowering) -> View:
    source = ctx.tensor(x)
    length = window_length(source.length, op.geometry.time)
    channels = op.weights.array.shape[0]
    if length == 0 or 0 in op.geometry.size_out:
        raise unsupported(IMPORT, node.title, f"the window does not fit its input {list(x.shape)}: empty output")
    name = ctx.emit(op, [x.tensor], [*op.geometry.size_out, channels], length, node)
    return output_view(name, x, op.geometry, inner, channels, length)


LOWER = {
    ("", "Conv"): lower_conv,
}

RULES = {
    "Conv": (
        "1 to 3 spatial axes; constant weights with one scale or one per output channel; bias int32, float or none;"
        " groups, dilations, any pads; no auto_pad SAME_* with a stride on an endless stream axis"
    ),
}
