"""Pools: MaxPool on reals and codes; AveragePool and the global pools for the analyzer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode, printable
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.time import Join, Reduce, Rule
from codegen.ir.view import Axis, View, compact
from codegen.ops.base import Codes, KernelOp, Op
from codegen.ops.conv import build_geometry, output_view, spatial_layout
from codegen.ops.geometry import Geometry, block_of, parse_windows, window_length

STAGE = "import"


@dataclass(frozen=True, eq=False)
class Pool(Op):
    """Real pool of frames [D, W, C]; `kind` is Max, Average or Lp."""

    kind: str
    geometry: Geometry
    count_include_pad: bool = False

    def rule(self) -> Rule:
        return self.geometry.time

    def describe(self) -> str:
        return self.geometry.describe()


@dataclass(frozen=True, eq=False)
class MaxPoolS8(KernelOp):
    """Largest code of each window; a pad never wins. x [L, D, W, C], same QParams in and out. Source: MaxPool-12."""

    geometry: Geometry
    channels: int
    final = "pooled"

    def rule(self) -> Rule:
        return self.geometry.time

    def pad_code(self) -> int:
        return -128

    def lead(self, operand: int) -> int:
        return self.geometry.lead(self.channels, self.channels)

    def lead_back(self, operand: int) -> int:
        return self.geometry.lead_back(self.channels, self.channels)

    def describe(self) -> str:
        return self.geometry.describe()

    def reference(self, xs: Sequence[Codes]) -> Codes:
        g = self.geometry
        x = xs[0].reshape(xs[0].shape[0], *g.size_in, self.channels)
        patches = g.patches(x, -128, window_length(x.shape[0], g.time))
        best: Codes = patches.max(axis=(3, 4, 5))
        return best


@dataclass(frozen=True, eq=False)
class GlobalReduce(Op):
    """A real reduction of frames [outer, n, inner] over n; over the stream (`frames` frames) too if `over_time`."""

    kind: str
    over_time: bool
    block: tuple[int, int, int]
    frames: int

    def rule(self) -> Rule:
        return Reduce() if self.over_time else Join()

    def describe(self) -> str:
        return "over the stream axis" if self.over_time else "inside the frame"


def lower_pool(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x = args[0]
    assert isinstance(x, View)
    if len(node.outputs) > 1 and ctx.is_read(node.outputs[1]):
        found = f"its Indices output {printable(node.outputs[1])} is read"
        raise unsupported(STAGE, node.title, found, "the pooled values only", "Remove what reads the output")
    kernel = node.attrs.get("kernel_shape")
    if kernel is None:
        raise unsupported(STAGE, node.title, "no kernel_shape")
    arranged, inner, stream, sizes = spatial_layout(node, x, ctx)
    windows = parse_windows(node.attrs, node.title, kernel, x.shape[2:], stream if ctx.endless else None)
    if any(w.left >= w.extent or w.right >= w.extent for w in windows):
        found = f"pads {list(node.attrs.get('pads', []))} for kernel {list(kernel)}"
        raise unsupported(STAGE, node.title, found, "pads smaller than the kernel: a window of padding has no value")
    geometry = build_geometry(windows, inner, stream, sizes)
    length = window_length(ctx.tensor(arranged).length, geometry.time)
    if length == 0 or 0 in geometry.size_out:
        raise unsupported(STAGE, node.title, f"the window does not fit its input {list(x.shape)}: empty output")
    kind = node.op_type.removesuffix("Pool").removeprefix("QLinear")
    op = Pool(kind, geometry, bool(node.attrs.get("count_include_pad", 0)))
    channels = x.shape[1]
    name = ctx.emit(op, [arranged.tensor], [*geometry.size_out, channels], length, node)
    return [output_view(name, arranged, geometry, inner, channels, length)]


def lower_global(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x = args[0]
    assert isinstance(x, View)
    return [_reduced(node, x, tuple(range(2, len(x.axes))), True, ctx)]


def lower_reduce(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """ReduceMean and its family; axes are an attribute or (opset 13 or 18) an input."""
    x = args[0]
    assert isinstance(x, View)
    given = args[1] if len(args) > 1 else None
    axes = given.array.ravel().tolist() if isinstance(given, Const) else node.attrs.get("axes")
    rank = len(x.axes)
    if axes is None or len(axes) == 0:
        if node.attrs.get("noop_with_empty_axes"):
            return [x]
        axes = range(rank)
    return [_reduced(node, x, tuple(int(a) % rank for a in axes), bool(node.attrs.get("keepdims", 1)), ctx)]


def _reduced(node: OnnxNode, x: View, axes: Sequence[int], keepdims: bool, ctx: Lowering) -> View:
    over_time = any(piece.is_time for i in axes for piece in x.axes[i])
    if over_time and not x.time_is_alone():
        raise unsupported(STAGE, node.title, "the stream axis is merged with another axis here", "an axis of its own")
    if over_time and ctx.endless:
        found = f"{node.op_type} over the endless stream axis"
        ctx.note(f"{node.title}: {found} gives one result at the end of the stream")
    order = [i for i in x.storage_order() if i != x.time_axis]
    block = block_of([x.shape[i] for i in order], [i in axes for i in order])
    if block is None or not x.is_compact(order):
        order = [i for i in order if i not in axes] + [i for i in order if i in axes]
        x = ctx.arrange(x, order, node)
        block = block_of([x.shape[i] for i in order], [i in axes for i in order])
    assert block is not None
    source = ctx.tensor(x)
    kept = [i for i in order if i not in axes]
    sizes = [x.shape[i] for i in kept]
    frames = source.length if over_time else 1
    op = GlobalReduce(node.op_type, over_time, block, frames)
    name = ctx.emit(op, [x.tensor], sizes or [1], 1 if over_time else source.length, node)
    frame = dict(zip(kept, compact(sizes), strict=True))
    if x.time_axis is not None and not over_time:
        frame[x.time_axis] = x.axes[x.time_axis]
    out: list[Axis] = []
    for i in range(len(x.axes)):
        if i not in axes:
            out.append(frame[i])
        elif keepdims:
            out.append(())
    return View(name, tuple(out))


LOWER = {
    **{("", name): lower_pool for name in ("MaxPool", "AveragePool", "LpPool")},
    **{("", name): lower_global for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    **{
        ("", f"Reduce{name}"): lower_reduce
        for name in ("Mean", "Max", "Min", "Sum", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
}
ANALYZED = {
    "LpPool": "no int8 form",
    "GlobalLpPool": "no int8 form",
    **{f"Reduce{name}": "no int8 form" for name in ("Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}
RULES = {
    "MaxPool": "1 to 3 axes; pads smaller than the kernel, dilations, ceil_mode; nothing reads its Indices",
    "AveragePool": "1 to 3 axes; pads smaller than the kernel, count_include_pad, ceil_mode",
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
        "inside the frame, or over the whole stream (one result at its end)",
    ),
}
