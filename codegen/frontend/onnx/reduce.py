"""Reductions over axes of the frame, or over the whole stream."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, merged_axis
from codegen.ir.geometry import block_of
from codegen.ir.graph import Const
from codegen.ir.real import GlobalReduce
from codegen.ir.view import Axis, View, compact


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
        raise merged_axis(node)
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
    **{("", name): lower_global for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    **{
        ("", f"Reduce{name}"): lower_reduce
        for name in ("Mean", "Max", "Min", "Sum", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
}

ANALYZED = {
    "GlobalLpPool": "no int8 form",
    **{f"Reduce{name}": "no int8 form" for name in ("Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}

RULES = {
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
        "inside the frame, or over the whole stream (one result at its end)",
    ),
}
