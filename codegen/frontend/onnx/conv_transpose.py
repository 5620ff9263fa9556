"""ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.frontend.onnx.windows import check_sizes, output_view, spatial_layout
from codegen.ir.geometry import Geometry
from codegen.ir.graph import Const
from codegen.ir.real import ConvTranspose
from codegen.ir.time import Transposed, Window
from codegen.ir.view import View


def lower_conv_transpose(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """ConvTranspose-11: length (L-1)*s + k_eff - left - right + output_padding on every spatial axis."""
    x, weights = args[0], args[1]
    assert isinstance(x, View)
    bias = args[2] if len(args) > 2 else None
    if not isinstance(weights, Const) or isinstance(bias, View):
        raise unsupported(IMPORT, node.title, "weights computed at run time", "constant weights")
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
        raise unsupported(IMPORT, node.title, f"an empty output {sizes}")
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
        raise unsupported(IMPORT, node.title, f"group {groups} for {ci} input channels")
    per_axis = w.scale is not None and w.scale.size > 1
    if per_axis and (w.axis != 1 or groups > 1):
        found = f"weight scales along axis {w.axis} with group {groups}"
        raise unsupported(IMPORT, node.title, found, "one scale, or one per output channel (axis 1, group 1)")
    array = w.array.reshape(groups, ci // groups, per, *shape[2:])
    spatial = [*([] if stream is None else [stream + 2]), *inner]
    array = array.transpose(0, 2, *(i + 1 for i in spatial), 1)
    taps = 1 if stream is None else shape[stream + 2]
    frame = [1] * (2 - len(inner)) + [shape[i] for i in inner]
    array = array.reshape(groups * per, taps, *frame, ci // groups)
    return replace(w, array=array, axis=0)


LOWER = {
    ("", "ConvTranspose"): lower_conv_transpose,
}

RULES = {
    "ConvTranspose": (
        "1 to 3 spatial axes; constant weights with one scale or one per output channel; groups,"
        " dilations, output_padding"
    ),
}
