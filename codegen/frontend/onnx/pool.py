"""MaxPool, AveragePool and LpPool."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.errors import IMPORT, printable, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.frontend.onnx.windows import build_geometry, output_view, parse_windows, spatial_layout
from codegen.ir.geometry import window_length
from codegen.ir.graph import Const
from codegen.ir.real import Pool
from codegen.ir.view import View


def lower_pool(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x = args[0]
    assert isinstance(x, View)
    if len(node.outputs) > 1 and ctx.is_read(node.outputs[1]):
        found = f"its Indices output {printable(node.outputs[1])} is read"
        raise unsupported(IMPORT, node.title, found, "the pooled values only", "Remove what reads the output")
    kernel = node.attrs.get("kernel_shape")
    if kernel is None:
        raise unsupported(IMPORT, node.title, "no kernel_shape")
    arranged, inner, stream, sizes = spatial_layout(node, x, ctx)
    windows = parse_windows(node.attrs, node.title, kernel, x.shape[2:], stream if ctx.endless else None)
    if any(w.left >= w.extent or w.right >= w.extent for w in windows):
        found = f"pads {list(node.attrs.get('pads', []))} for kernel {list(kernel)}"
        raise unsupported(IMPORT, node.title, found, "pads smaller than the kernel: a window of padding has no value")
    geometry = build_geometry(windows, inner, stream, sizes)
    length = window_length(ctx.tensor(arranged).length, geometry.time)
    if length == 0 or 0 in geometry.size_out:
        raise unsupported(IMPORT, node.title, f"the window does not fit its input {list(x.shape)}: empty output")
    kind = node.op_type.removesuffix("Pool").removeprefix("QLinear")
    op = Pool(kind, geometry, bool(node.attrs.get("count_include_pad", 0)))
    channels = x.shape[1]
    name = ctx.emit(op, [arranged.tensor], [*geometry.size_out, channels], length, node)
    return [output_view(name, arranged, geometry, inner, channels, length)]


LOWER = {
    **{("", name): lower_pool for name in ("MaxPool", "AveragePool", "LpPool")},
}

ANALYZED = {
    "LpPool": "no int8 form",
}

RULES = {
    "MaxPool": "1 to 3 axes; pads smaller than the kernel, dilations, ceil_mode; nothing reads its Indices",
    "AveragePool": "1 to 3 axes; pads smaller than the kernel, count_include_pad, ceil_mode",
}
