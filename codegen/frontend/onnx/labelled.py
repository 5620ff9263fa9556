"""Products of operands with labelled axes: diagonals, constants, chains of contractions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, merged_axis, summed_scales
from codegen.frontend.onnx.contraction import (
    STREAM_HINT,
    Operand,
    check_depth,
    check_streams,
    contract,
    emit_contract,
    label_loops,
    merged,
    ordered_sums,
    refine,
)
from codegen.frontend.onnx.dense import dense
from codegen.frontend.onnx.reduce import _reduced
from codegen.ir.geometry import Geometry
from codegen.ir.graph import Const
from codegen.ir.real import Contract, Conv, EinsumChain, Step
from codegen.ir.time import Window
from codegen.ir.view import Axis, Piece, View, compact

EXHAUSTIVE = 6


def cheapest_order(
    terms: Sequence[tuple[str, ...]], out: Sequence[str], sizes: dict[str, int]
) -> list[tuple[int, int]]:
    """Pairs to contract, first one first; results are numbered on from len(terms). Fewest products in total.

    All orders are tried for up to EXHAUSTIVE operands, beyond that the cheapest next pair is taken. Ties: first pair.
    """

    def pairs(
        live: Sequence[int], labels: dict[int, tuple[str, ...]]
    ) -> Iterator[tuple[int, int, tuple[str, ...], int]]:
        for at, i in enumerate(live):
            for j in live[at + 1 :]:
                union = dict.fromkeys((*labels[i], *labels[j]))
                wanted = {*out, *(label for k in live if k not in (i, j) for label in labels[k])}
                yield i, j, tuple(label for label in union if label in wanted), prod(sizes[label] for label in union)

    def search(
        live: tuple[int, ...], labels: dict[int, tuple[str, ...]], fresh: int
    ) -> tuple[int, list[tuple[int, int]]]:
        if len(live) == 1:
            return 0, []
        choices = list(pairs(live, labels))
        if len(live) > EXHAUSTIVE:
            choices = [min(choices, key=lambda c: c[3])]
        best: tuple[int, list[tuple[int, int]]] | None = None
        for i, j, kept, cost in choices:
            rest = (*(k for k in live if k not in (i, j)), fresh)
            more, order = search(rest, {**labels, fresh: kept}, fresh + 1)
            if best is None or cost + more < best[0]:
                best = (cost + more, [(i, j), *order])
        assert best is not None
        return best

    return search(tuple(range(len(terms))), dict(enumerate(terms)), len(terms))[1]


def product(
    node: OnnxNode, values: Sequence[tuple[View | Const, Sequence[str]]], out: Sequence[str], ctx: Lowering
) -> View:
    """The sum of products of the operands over all labels that are not in `out`."""
    views = [diagonal(node, value, labels, ctx) for value, labels in values if isinstance(value, View)]
    constants = [constant_diagonal(value, labels) for value, labels in values if isinstance(value, Const)]
    if not views:
        raise unsupported(IMPORT, node.title, "no operand is computed from the input")
    if len(views) == 1 and constants:
        return with_constant(node, views[0], joined(node, views[0], constants, out), out, ctx)
    if len(views) == 1:
        return single(node, views[0], out, ctx)
    if len(views) == 2 and not constants:
        return contract(node, views[0], views[1], out, ctx)
    return chain(node, views, constants, out, ctx)


def diagonal(node: OnnxNode, view: View, labels: Sequence[str], ctx: Lowering) -> Operand:
    """Each label once, axes of one step without label; a repeated label walks its axes together."""
    at = view.time_axis
    kept = [i for i in range(len(labels)) if view.shape[i] > 1 or i == at]
    names = [labels[i] for i in kept]
    if len(set(names)) == len(names):
        return Operand(View(view.tensor, tuple(view.axes[i] for i in kept)), tuple(names))
    if at is not None and labels.count(labels[at]) > 1:
        found = f"the diagonal along the stream axis ({labels[at]})"
        raise unsupported(IMPORT, node.title, found, "diagonals inside the frame", STREAM_HINT)
    axes = _diagonal_axes(view, labels, kept)
    if axes is None:
        copied = ctx.arrange(view, [i for i in range(len(labels)) if i != at], node)
        axes = _diagonal_axes(copied, labels, kept)
        view = copied
    assert axes is not None
    return Operand(View(view.tensor, tuple(axes.values())), tuple(axes))


def _diagonal_axes(view: View, labels: Sequence[str], kept: Sequence[int]) -> dict[str, Axis] | None:
    axes: dict[str, Axis] = {}
    for label in dict.fromkeys(labels[i] for i in kept):
        mine = [view.axes[i] for i in kept if labels[i] == label]
        if len(mine) == 1:
            axes[label] = mine[0]
            continue
        pieces = refine(mine)
        if pieces is None:
            return None
        axes[label] = tuple(Piece(p[0][0], sum(stride for _, stride in p)) for p in zip(*pieces, strict=True))
    return axes


@dataclass(frozen=True)
class ConstantOperand:
    """A constant with one label per axis, all different, no axis of one step (but a per-axis scale keeps its axis)."""

    const: Const
    labels: tuple[str, ...]

    @property
    def scale_label(self) -> str | None:
        """The label whose index picks the scale; None where there is one scale."""
        scale = self.const.scale
        return self.labels[self.const.axis] if scale is not None and scale.size > 1 else None


def constant_diagonal(const: Const, labels: Sequence[str]) -> ConstantOperand:
    """Axes of one step dropped, repeated labels on their diagonal, at build time."""
    array, scale = const.array, const.scale
    kept = [i for i, n in enumerate(array.shape) if n > 1]
    names = [labels[i] for i in kept]
    unique = list(dict.fromkeys(names))
    index = [unique.index(name) for name in names]
    squeezed = array.reshape([array.shape[i] for i in kept])
    made = np.einsum(squeezed, index, list(range(len(unique)))) if unique else squeezed
    if scale is None or scale.size == 1:
        return ConstantOperand(replace(const, array=made), tuple(unique))
    axis = unique.index(labels[const.axis])
    return ConstantOperand(replace(const, array=made, axis=axis), tuple(unique))


def joined(node: OnnxNode, x: Operand, constants: Sequence[ConstantOperand], out: Sequence[str]) -> ConstantOperand:
    """Several constants as one: their real product, summed over what nothing else needs (float64, then float32)."""
    if len(constants) == 1:
        return constants[0]
    names = list(dict.fromkeys(label for c in constants for label in c.labels))
    kept = [label for label in names if label in x.labels or label in out]
    parts: list[Any] = []
    for c in constants:
        parts += [c.const.real().astype(np.float64), [names.index(label) for label in c.labels]]
    made = np.einsum(*parts, [names.index(label) for label in kept], optimize=True)
    return ConstantOperand(Const(np.asarray(made, np.float32)), tuple(kept))


def single(node: OnnxNode, x: Operand, out: Sequence[str], ctx: Lowering) -> View:
    """Permutation, diagonal and sums of one operand."""
    view, labels = x.view, list(x.labels)
    gone = tuple(i for i, label in enumerate(labels) if label not in out)
    if gone:
        view = _reduced(replace(node, op_type="ReduceSum"), view, gone, False, ctx)
        labels = [label for label in labels if label in out]
    elif _overlaps(view):
        view = ctx.arrange(view, [i for i in range(len(labels)) if i != view.time_axis], node)
    axes = dict(zip(labels, view.axes, strict=True))
    return View(view.tensor, tuple(axes.get(label, ()) for label in out))


def _overlaps(view: View) -> bool:
    """Whether some axis skips elements, as a diagonal does."""
    stride = 1
    pieces = [p for axis in view.axes for p in axis if not p.is_time and p.size > 1]
    for piece in sorted(pieces, key=lambda p: p.stride or 0):
        if piece.stride != stride:
            return True
        stride *= piece.size
    return False


def with_constant(node: OnnxNode, x: Operand, w: ConstantOperand, out: Sequence[str], ctx: Lowering) -> View:
    """One stream, one constant: a grouped 1-tap convolution where x lies as its kernel reads it, else a loop nest."""
    time = x.time_label
    if time is not None and not x.view.time_is_alone():
        raise merged_axis(node)
    if time is not None and time in w.labels and time in out:
        found = f"a constant that varies along the stream axis ({time})"
        raise unsupported(IMPORT, node.title, found, "constants are the same for every frame", STREAM_HINT)
    if time is not None and time not in out:
        return _over_time(node, x, w, out, ctx)
    made = _convolution(node, x, w, out, ctx)
    return made if made is not None else _strided(node, x, w, out, ctx)


def _over_time(node: OnnxNode, x: Operand, w: ConstantOperand, out: Sequence[str], ctx: Lowering) -> View:
    """A sum over the stream axis with a constant: the product of the whole sequence with [N, K]."""
    summed = [label for label in x.labels if label not in out]
    rows = [label for label in w.labels if label in out]
    plain = all(label in w.labels for label in summed) and not any(label in x.labels for label in rows)
    if not plain or any(label not in x.labels for label in w.labels if label not in out):
        found = f"it sums over the {'endless ' if ctx.endless else ''}stream axis ({x.time_label})"
        raise unsupported(IMPORT, node.title, found, "one matrix times whole sequences", STREAM_HINT)
    order = [w.labels.index(label) for label in (*rows, *summed)]
    array = w.const.array.transpose(order)
    sizes = dict(zip((*rows, *summed), array.shape, strict=True))
    matrix = array.reshape(prod(sizes[label] for label in rows), -1)
    if w.scale_label is not None and w.scale_label != (rows[0] if len(rows) == 1 else None):
        raise summed_scales(node)
    free = [label for label in x.labels if label in out]
    axes = [x.view.axes[x.labels.index(label)] for label in free]
    last = tuple(piece for label in summed for piece in x.view.axes[x.labels.index(label)])
    view = View(x.view.tensor, (*axes, last))
    made = dense(node, view, replace(w.const, array=matrix, axis=0), None, ctx)
    split = View(made.tensor, (made.axes[-1],)).reshape([sizes[label] for label in rows])
    assert split is not None
    found_axes = dict(zip((*free, *rows), (*made.axes[:-1], *split.axes), strict=True))
    return View(made.tensor, tuple(found_axes.get(label, ()) for label in out))


def _by_stride(x: Operand, labels: Sequence[str]) -> list[str]:
    """Labels from the outermost in memory to the innermost."""

    def key(label: str) -> int:
        return -max((p.stride or 0 for p in x.pieces(label) or ()), default=0)

    return sorted(labels, key=key)


def _convolution(node: OnnxNode, x: Operand, w: ConstantOperand, out: Sequence[str], ctx: Lowering) -> View | None:
    """As Conv: frames [positions][group][K] times weights [group * N][K]; None where x lies otherwise."""
    time = x.time_label
    groups = _by_stride(x, [label for label in x.labels if label in w.labels and label in out])
    summed = _by_stride(x, [label for label in x.labels if label in w.labels and label not in out])
    free = _by_stride(x, [label for label in x.labels if label not in w.labels and label != time])
    rows = [label for label in w.labels if label not in x.labels]
    if any(label not in out for label in (*free, *rows)) or w.scale_label in summed:
        return None
    order = [*free, *groups, *summed]
    ordered = View(x.view.tensor, tuple(x.view.axes[x.labels.index(label)] for label in order))
    if not ordered.is_compact(range(len(order))) or not ctx._covers(ordered):
        return None
    array = w.const.array.transpose([w.labels.index(label) for label in (*groups, *rows, *summed)])
    sizes = dict(zip((*groups, *rows, *summed), array.shape, strict=True))
    n, k, g = (prod(sizes[label] for label in part) for part in (rows, summed, groups))
    positions = prod(ordered.shape[i] for i in range(len(free)))
    scale, zero = _row_scales(w, (*groups, *rows), sizes)
    weights = Const(array.reshape(g * n, 1, 1, 1, k), scale, zero, 0, w.const.origin)
    geometry = Geometry(Window(), Window(), Window(), (1, positions), (1, positions))
    source = ctx.tensor(x.view)
    name = ctx.emit(Conv(geometry, weights, None, g), [x.view.tensor], [1, positions, g * n], source.length, node)
    order = [*free, *groups, *rows]
    frame = [*(ordered.shape[i] for i in range(len(free))), *(sizes[label] for label in (*groups, *rows))]
    axes: dict[str, Axis] = dict(zip(order, compact(frame), strict=True))
    if time is not None:
        axes[time] = (Piece(source.length, None),)
    return View(name, tuple(axes.get(label, ()) for label in out))


def _row_scales(
    w: ConstantOperand, labels: Sequence[str], sizes: dict[str, int]
) -> tuple[npt.NDArray[np.float32] | None, npt.NDArray[np.integer] | None]:
    """Scales and zero points of a quantized constant, one per row over `labels` (one in all where there is one)."""
    scale, zero = w.const.scale, w.const.zero_point
    if scale is None or scale.size == 1:
        return scale, zero
    shape = [sizes[label] if label == w.scale_label else 1 for label in labels]
    full = [sizes[label] for label in labels]

    def spread(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.broadcast_to(values.reshape(shape) if values.size > 1 else values.reshape(()), full).reshape(-1)

    return spread(scale), None if zero is None else spread(zero)  # type: ignore[return-value]


def _strided(node: OnnxNode, x: Operand, w: ConstantOperand, out: Sequence[str], ctx: Lowering) -> View:
    """The contraction as a loop nest over x as it lies; the constant is stored [rows of the output][summed]."""
    time = x.time_label
    rows = [label for label in w.labels if label in out]
    inner = [label for label in w.labels if label not in out]
    if w.scale_label in inner:
        raise summed_scales(node)
    array = w.const.array.transpose([w.labels.index(label) for label in (*rows, *inner)])
    sizes = dict(zip((*rows, *inner), array.shape, strict=True))
    k = prod(sizes[label] for label in inner)
    b = Operand(View("", tuple(compact(array.shape))), (*rows, *inner))
    labels = [label for label in dict.fromkeys((*x.labels, *w.labels)) if label != time]
    if any(label_loops(node, x, b, label) is None for label in labels):
        raise unsupported(IMPORT, node.title, "layouts without common steps", hint="Reshape the constant")
    loops = {label: label_loops(node, x, b, label) or [] for label in labels}
    nest = merged([loop for label in out for loop in loops.get(label, ())])
    summed = ordered_sums([loop for label in labels if label not in out for loop in loops[label]])
    check_depth(node, nest, summed)
    scale, zero = _row_scales(w, rows, sizes)
    const = Const(array.reshape(-1, k), scale, zero, 0, w.const.origin)
    op = Contract(tuple(nest), tuple(summed), const, tuple(loop.b // k for loop in nest))
    full = {label: prod(loop.size for loop in loops[label]) for label in labels}
    return emit_contract(node, op, [x.view], out, full, time, ctx)


def chain(
    node: OnnxNode, views: Sequence[Operand], constants: Sequence[ConstantOperand], out: Sequence[str], ctx: Lowering
) -> View:
    """Three and more operands as steps of two, in the cheapest order."""
    time = None
    for view in views[1:]:
        time = check_streams(node, views[0], view, out, ctx)
    flat = [Operand(View("", tuple(compact(c.const.array.shape))), c.labels) for c in constants]
    operands = [_contiguous_steps(node, view, ctx) for view in views] + flat
    terms = [tuple(label for label in operand.labels if label != time) for operand in operands]
    sizes = {
        label: prod(p.size for p in operand.pieces(label) or ())
        for operand in operands
        for label in operand.labels
        if label != time
    }
    frame = [label for label in out if label != time]
    steps = []
    order = cheapest_order(terms, frame, sizes)
    for number, (i, j) in enumerate(order):
        later = {k for pair in order[number + 1 :] for k in pair}
        wanted = {*frame, *(label for k in later if k < len(terms) for label in terms[k])}
        labels = list(dict.fromkeys((*terms[i], *terms[j])))
        last = number == len(order) - 1
        kept = [label for label in frame if label in labels] if last else [n for n in labels if n in wanted]
        a, b = (Operand(o.view, o.labels) for o in (operands[i], operands[j]))
        loops = {label: label_loops(node, a, b, label) or [] for label in labels}
        nest = merged([loop for label in kept for loop in loops[label]])
        summed = ordered_sums([loop for label in labels if label not in kept for loop in loops[label]])
        check_depth(node, nest, summed)
        steps.append(Step(i, j, tuple(nest), tuple(summed)))
        operands.append(Operand(View("", tuple(compact([sizes[label] for label in kept]))), tuple(kept)))
        terms.append(tuple(kept))
    op = EinsumChain(len(views), tuple(c.const for c in constants), tuple(steps))
    ctx.note(f"{node.title}: {len(steps) + 1} operands, order {op.describe().removeprefix('order ')}")
    return emit_contract(node, op, [o.view for o in operands[: len(views)]], out, sizes, time, ctx)


def _contiguous_steps(node: OnnxNode, x: Operand, ctx: Lowering) -> Operand:
    """x with one piece per axis, copied where an axis is made of several."""
    if all(len(axis) <= 1 for axis in x.view.axes):
        return x
    order = [i for i in range(len(x.labels)) if i != x.view.time_axis]
    return Operand(ctx.arrange(x.view, order, node), x.labels)
