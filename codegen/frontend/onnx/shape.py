"""Operators that relabel or move elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen.errors import IMPORT, unsupported
from codegen.frontend.constants import reshape_target, squeezed
from codegen.frontend.crops import TimedCrop
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, check_one_stream, merged_axis
from codegen.ir.geometry import MAX_WINDOW, window_length
from codegen.ir.graph import Const
from codegen.ir.real import Concat
from codegen.ir.time import Window
from codegen.ir.view import Axis, Piece, View, compact, same_lengths
from codegen.ops.move import Copy, PadFrames


def lower_relabel(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Reshape, Flatten, Squeeze, Unsqueeze: a new view of the same frames."""
    x = args[0]
    assert isinstance(x, View)
    second = args[1] if len(args) > 1 else None
    if isinstance(second, View):
        raise unsupported(IMPORT, node.title, "its target is computed at run time", "a constant target")
    if node.op_type == "Reshape":
        assert second is not None
        target = reshape_target(x.shape, second.array, bool(node.attrs.get("allowzero", 0)))
    elif node.op_type == "Flatten":
        axis = int(node.attrs.get("axis", 1))
        axis = axis % len(x.shape) if axis < 0 else axis
        target = (prod(x.shape[:axis]), prod(x.shape[axis:]))
    else:
        target = squeezed(node, x.shape, second)
    view = x.reshape(target)
    if view is None and prod(x.shape) == prod(target):
        order = [i for i in range(len(x.axes)) if i != x.time_axis]
        view = ctx.arrange(x, order, node).reshape(target) if x.time_is_alone() else None
    if view is None:
        found = f"{list(x.shape)} to {list(target)} cuts across the stream axis"
        raise unsupported(IMPORT, node.title, found, "reshapes that keep it whole", "Name another axis with --stream")
    return [view]


def lower_transpose(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x = args[0]
    assert isinstance(x, View)
    perm = list(node.attrs.get("perm") or range(len(x.axes))[::-1])
    if sorted(perm) != list(range(len(x.axes))):
        raise unsupported(IMPORT, node.title, f"perm {perm} for rank {len(x.axes)}", "a permutation of all axes")
    return [x.transpose(perm)]


def lower_pad(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x = args[0]
    assert isinstance(x, View)
    mode = node.attrs.get("mode", "constant")
    if mode != "constant":
        raise unsupported(IMPORT, node.title, f"mode={mode}", "mode=constant", "Pad with zeros")
    pads, value, axes_in = (*args[1:], None, None, None)[:3]
    if isinstance(pads, View) or isinstance(value, View):
        raise unsupported(IMPORT, node.title, "pads or value computed at run time", "constants")
    amounts = node.attrs.get("pads") if pads is None else pads.array.ravel().tolist()
    rank = len(x.axes)
    axes = [int(a) % rank for a in axes_in.array.ravel()] if isinstance(axes_in, Const) else list(range(rank))
    if amounts is None or len(amounts) != 2 * len(axes):
        raise unsupported(IMPORT, node.title, f"pads {amounts} for rank {rank}", "two per axis")
    both = {a: (int(amounts[i]), int(amounts[i + len(axes)])) for i, a in enumerate(axes)}
    fill = 0.0 if value is None or value.array.size == 0 else float(value.real().ravel()[0])
    return [_padded(node, x, both, fill, ctx)]


def _padded(
    node: OnnxNode, x: View, amounts: dict[int, tuple[int, int]], fill: float, ctx: Lowering, always: bool = False
) -> View:
    moved = {i: ab for i, ab in amounts.items() if ab != (0, 0) or always}
    if not moved:
        return x
    largest = max(max(pair) for pair in moved.values())
    if largest > MAX_WINDOW:
        raise unsupported(IMPORT, node.title, f"padding by {largest}", f"at most {MAX_WINDOW}")
    if not x.time_is_alone():
        raise merged_axis(node)
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    at = x.time_axis
    frame_axes = [i for i in order if i != at]
    sizes = tuple(x.shape[i] for i in frame_axes)
    op = PadFrames(
        amounts.get(at, (0, 0)) if at is not None else (0, 0),
        sizes,
        tuple(amounts.get(i, (0, 0)) for i in frame_axes),
        fill,
    )
    source = ctx.tensor(x)
    length = window_length(source.length, Window(left=op.time[0], right=op.time[1]))
    if length == 0 or min(op.frame_out, default=1) < 1:
        raise unsupported(IMPORT, node.title, f"pads {amounts} leave nothing of {list(x.shape)}")
    name = ctx.emit(op, [x.tensor], op.frame_out, length, node)
    axes: list[Axis] = [()] * len(x.axes)
    for i, axis in zip(frame_axes, compact(op.frame_out), strict=True):
        axes[i] = axis
    if at is not None:
        axes[at] = (Piece(length, None),)
    return View(name, tuple(axes))


def lower_slice(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """A crop along the stream axis (`frontend.crops` has bounds computed from lengths), a gather inside the frame."""
    x = args[0]
    assert isinstance(x, View)
    if any(isinstance(arg, View) for arg in args[1:]):
        raise unsupported(IMPORT, node.title, "bounds computed at run time", "constant bounds")
    rank = len(x.axes)
    starts, ends, axes, steps = _slice_bounds(node, args, rank)
    crops: dict[int, tuple[int, int]] = {}
    gathers: dict[int, tuple[int, int, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        first, last, stride = slice(start, end, step).indices(size)
        count = len(range(first, last, stride))
        timed = any(piece.is_time for piece in x.axes[axis]) and any(name in ctx.timed for name in node.inputs[1:3])
        if count == size and stride == 1 and not timed:
            continue
        if count == 0:
            raise unsupported(IMPORT, node.title, f"an empty slice {start}:{end}:{step} of {size}")
        if any(piece.is_time for piece in x.axes[axis]):
            if stride != 1:
                found = f"step {step} on the stream axis"
                raise unsupported(IMPORT, node.title, found, "step 1 (a crop)", "Use a strided convolution or pool")
            crops[axis] = (-first, -(size - first - count))
        else:
            gathers[axis] = (first, stride, count)
    x = gather_steps(node, x, gathers, ctx) if gathers else x
    if not crops or not any(name in ctx.timed for name in node.inputs[1:3]):
        return [_padded(node, x, crops, 0.0, ctx)]
    y = _padded(node, x, crops, 0.0, ctx, always=True)
    ctx.crops.append(TimedCrop(y.tensor, node, axes.index(next(iter(crops))), ctx.timed, ctx.model.opset))
    return [y]


def _slice_bounds(
    node: OnnxNode, args: Sequence[View | Const | None], rank: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    def numbers(i: int, name: str) -> list[int] | None:
        arg = args[i] if len(args) > i else None
        values = arg.array.ravel().tolist() if isinstance(arg, Const) else node.attrs.get(name)
        return None if values is None else [int(v) for v in values]

    starts, ends = numbers(1, "starts"), numbers(2, "ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise ValueError("starts and ends do not match")
    axes = numbers(3, "axes") or list(range(len(starts)))
    steps = numbers(4, "steps") or [1] * len(starts)
    if any(not -rank <= a < rank for a in axes):
        raise ValueError(f"axes {axes} for rank {rank}")
    return starts, ends, [a % rank for a in axes], steps


def gather_steps(node: OnnxNode, x: View, parts: dict[int, tuple[int, int, int]], ctx: Lowering) -> View:
    """Take `count` steps of `stride` from `first` along each given axis, as one copy."""
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    offset = 0
    pieces: list[Piece] = []
    sizes: list[int] = []
    for i in order:
        if x.time_axis == i:
            continue
        size = x.shape[i]
        stride = x.axes[i][0].stride if x.axes[i] else 0
        step = prod(x.shape[j] for j in order[list(order).index(i) + 1 :] if j != x.time_axis)
        assert stride is not None
        if i in parts:
            first, jump, count = parts[i]
            offset += first * step
            pieces.append(Piece(count, jump * step))
            sizes.append(count)
        else:
            pieces.append(Piece(size, step))
            sizes.append(size)
    source = ctx.tensor(x)
    name = ctx.emit(Copy(tuple(p for p in pieces if p.size > 1), offset), [x.tensor], sizes, source.length, node)
    axes: list[Axis] = list(x.axes)
    for i, axis in zip([i for i in order if i != x.time_axis], compact(sizes), strict=True):
        axes[i] = axis
    return View(name, tuple(axes))


def lower_concat(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    views = [arg for arg in args if isinstance(arg, View)]
    if len(views) != len(args):
        hint = "End the model before it (--cut-output), and join the constant to the result elsewhere"
        raise unsupported(IMPORT, node.title, "a constant operand", "operands computed from the input", hint)
    rank = len(views[0].axes)
    axis = int(node.attrs["axis"]) % rank
    if any(piece.is_time for view in views for piece in view.axes[axis]):
        found = "it joins along the stream axis"
        raise unsupported(IMPORT, node.title, found, "joins inside the frame", "Use Pad for constant padding")
    check_one_stream(node, views)
    views = same_lengths(views)
    for view in views[1:]:
        if any(a != b for i, (a, b) in enumerate(zip(view.shape, views[0].shape, strict=True)) if i != axis):
            raise ValueError(f"shapes {[list(v.shape) for v in views]} along axis {axis}")
    order = _common_order(views, axis)
    views = [ctx.arrange(view, order, node) for view in views]
    at = views[0].time_axis
    place = order.index(axis)
    outer = prod(views[0].shape[i] for i in order[:place] if i != at)
    inner = prod(views[0].shape[i] for i in order[place + 1 :] if i != at)
    total = sum(view.shape[axis] for view in views)
    sizes = [total if i == axis else views[0].shape[i] for i in order if i != at]
    length = min(ctx.tensor(view).length for view in views)
    op = Concat(outer, tuple(view.shape[axis] for view in views), inner)
    name = ctx.emit(op, [view.tensor for view in views], sizes, length, node)
    axes: list[Axis] = list(views[0].axes)
    for i, piece in zip([i for i in order if i != at], compact(sizes), strict=True):
        axes[i] = piece
    return [View(name, tuple(axes))]


def _common_order(views: Sequence[View], axis: int) -> tuple[int, ...]:
    """The storage order of the operand that says most about it (the joined axis may have size 1 in some)."""
    best = max(views, key=lambda view: sum(1 for a in view.axes if a) * 2 + bool(view.axes[axis]))
    order = list(best.storage_order())
    if not best.axes[axis] and len(order) > 1:
        # The joined axis has one step in every operand: channels go innermost, as the kernels like them.
        order.remove(axis)
        order.append(axis)
    return tuple(order)


LOWER = {
    **{("", name): lower_relabel for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze")},
    ("", "Transpose"): lower_transpose,
    ("", "Pad"): lower_pad,
    ("", "Slice"): lower_slice,
    ("", "Concat"): lower_concat,
}

RULES = {
    **dict.fromkeys(
        ("Reshape", "Flatten", "Squeeze", "Unsqueeze"), "constant target; relabels, the stream axis stays whole"
    ),
    "Transpose": "any permutation; relabels, or one copy inside the frame where a kernel needs another order",
    "Pad": "mode constant with constant pads (negative ones crop), along the stream too",
    "Slice": "constant bounds, or another tensor's end; along the stream with step 1, inside the frame with any step",
    "Concat": "inside the frame (operands of any scales)",
}
