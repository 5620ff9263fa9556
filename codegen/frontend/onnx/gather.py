"""Gather, Split and Expand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.frontend.onnx.shape import gather_steps
from codegen.ir.graph import Const
from codegen.ir.real import LastFrame, Resample
from codegen.ir.time import Join
from codegen.ir.view import Piece, View, compact


def lower_gather(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Gather of constant indices: steps inside the frame, in any order, or the last frame of the stream."""
    x, index = args[0], args[1]
    if not isinstance(x, View) or not isinstance(index, Const):
        raise unsupported(IMPORT, node.title, "indices computed at run time", "constant indices", "Use Slice")
    axis = int(node.attrs.get("axis", 0)) % len(x.axes)
    size = x.shape[axis]
    steps = [int(i) + size if i < 0 else int(i) for i in index.array.ravel()]
    if not steps or min(steps) < 0 or max(steps) >= size:
        raise unsupported(IMPORT, node.title, f"indices {index.array.ravel().tolist()[:8]} of {size}")
    if any(piece.is_time for piece in x.axes[axis]):
        if steps != [size - 1] or not x.time_is_alone():
            found = f"frames {steps[:8]} of the stream"
            raise unsupported(IMPORT, node.title, found, "the last frame (index -1)", "Build with --plan whole")
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
        raise unsupported(IMPORT, node.title, "it splits the stream axis", "splits inside the frame")
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
        raise unsupported(IMPORT, node.title, "a target computed at run time", "a constant target")
    wanted = [int(n) for n in target.array.ravel()]
    shape = np.broadcast_shapes(x.shape, tuple(wanted))
    x = View(x.tensor, ((),) * (len(shape) - len(x.axes)) + x.axes)
    if shape == x.shape:
        return [x]
    axes = [axis if n == m else (Piece(m, 0),) for axis, n, m in zip(x.axes, x.shape, shape, strict=True)]
    return [ctx.arrange(View(x.tensor, tuple(axes)), tuple(range(len(shape))), node)]


LOWER = {
    ("", "Gather"): lower_gather,
    ("", "Split"): lower_split,
    ("", "Expand"): lower_expand,
}

RULES = {
    "Gather": "one constant index inside the frame, or the last frame of the stream",
    "Split": "inside the frame",
    "Expand": "constant target, inside the frame",
}
