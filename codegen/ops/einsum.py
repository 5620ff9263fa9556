"""Einsum: equation -> labels -> views, reductions and contractions (ONNX Einsum-12).

One operand becomes views (transpose), a copy (diagonal) and a ReduceSum. Two become one contraction, or a convolution
where one is constant and the other lies as the kernel reads it. Three and more become one `EinsumChain`: two-operand
steps in the cheapest order, see `EinsumS8` for the precision between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.errors import CodegenError, unsupported
from codegen.frontend.load import OnnxNode, printable
from codegen.frontend.lower import LowerFunction, Lowering
from codegen.ir.graph import Const, QParams
from codegen.ir.time import Window
from codegen.ir.view import Axis, Piece, View, compact
from codegen.numerics import reference as numeric
from codegen.numerics.exact import NumericsError, check_scale
from codegen.ops import matmul, pool
from codegen.ops.base import Codes, KernelOp, Op, Rounding, Stages, rounding_stages
from codegen.ops.conv import Conv, dense
from codegen.ops.geometry import Geometry
from codegen.ops.matmul import INT32_MAX, STREAM_HINT, Contract, Loop, Operand
from codegen.ops.weights import quantized_constant

STAGE = "import"
INT16_MAX = (1 << 15) - 1
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
EXHAUSTIVE = 6


@dataclass(frozen=True)
class Equation:
    """Labels of every operand and of the result, and the size of each label. Ellipsis axes are '.0', '.1', ..."""

    text: str
    operands: tuple[tuple[str, ...], ...]
    out: tuple[str, ...]
    sizes: dict[str, int]


def parse(text: str, shapes: Sequence[tuple[int, ...]], where: str) -> Equation:
    """The equation for operands of these shapes. Raises CodegenError that names equation, operand, label and sizes."""
    shown = f"equation '{printable(text)}'"
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise unsupported(STAGE, where, f"{shown} has {len(terms)} operands, the node {len(shapes)}")
    lead = max(
        (len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True) if "..." in t), default=0
    )
    operands = tuple(
        _term(term, len(shape), lead, f"{shown}, operand {i} of shape {list(shape)}", where)
        for i, (term, shape) in enumerate(zip(terms, shapes, strict=True))
    )
    sizes: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(operands, shapes, strict=True)):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            if size not in (known, 1) and known != 1:
                name = "..." if label.startswith(".") else label
                found = f"{shown}: label {name} has size {size} in operand {i} of shape {list(shape)}, {known} before"
                raise unsupported(STAGE, where, found, "equal sizes, or 1")
            sizes[label] = max(known, size)
    out = _output(right, operands, lead, shown, where) if arrow else _implicit(left, lead)
    return Equation(text, operands, out, sizes)


def _term(term: str, rank: int, lead: int, shown: str, where: str) -> tuple[str, ...]:
    """Labels of one operand; `lead` axes is what the widest ellipsis of the equation stands for."""
    head, dots, tail = term.partition("...")
    letters = head + tail
    unknown = next((c for c in letters if c not in LETTERS), None)
    if unknown is not None:
        raise unsupported(STAGE, where, f"{shown}: unknown label '{printable(unknown)}'", "letters, and ... once")
    rest = rank - len(letters)
    if rest < 0 or (rest > 0 and not dots):
        raise unsupported(STAGE, where, f"{shown}: {len(letters)} labels for rank {rank}", "one label per axis")
    return (*head, *(f".{lead - rest + i}" for i in range(rest)), *tail)


def _output(term: str, operands: Sequence[tuple[str, ...]], lead: int, shown: str, where: str) -> tuple[str, ...]:
    head, dots, tail = term.partition("...")
    letters = head + tail
    known = {label for labels in operands for label in labels}
    for label in letters:
        if label not in known:
            raise unsupported(STAGE, where, f"{shown}: output label '{printable(label)}' is in no operand")
        if letters.count(label) > 1:
            raise unsupported(STAGE, where, f"{shown}: output label '{label}' stands there twice")
    if lead and not dots:
        raise unsupported(STAGE, where, f"{shown}: the output has no ellipsis", "an ellipsis there too")
    return (*head, *(f".{i}" for i in range(lead if dots else 0)), *tail)


def _implicit(left: str, lead: int) -> tuple[str, ...]:
    """Without ->: the ellipsis first, then labels that stand exactly once, sorted."""
    letters = left.replace("...", "").replace(",", "")
    return (*(f".{i}" for i in range(lead)), *sorted(c for c in set(letters) if letters.count(c) == 1))


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


def order_text(order: Sequence[tuple[int, int]], count: int) -> str:
    """`(0 1) then (2 [0 1])`: the pairs of a chain, for the report."""
    names = [str(i) for i in range(count)]
    for i, j in order:
        names.append(f"({names[i]} {names[j]})")
    return names[-1]


def lower_einsum(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    values = [arg for arg in args if arg is not None]
    shapes = [tuple(v.array.shape) if isinstance(v, Const) else v.shape for v in values]
    equation = node.attrs.get("equation")
    if not isinstance(equation, str | bytes):
        raise unsupported(STAGE, node.title, "no equation")
    text = equation.decode("utf-8", "replace") if isinstance(equation, bytes) else equation
    e = parse(text, shapes, node.title)
    try:
        return [product(node, list(zip(values, e.operands, strict=True)), e.out, ctx)]
    except CodegenError as error:
        problems = [replace(p, found=f"equation '{printable(text)}': {p.found}") for p in error.problems]
        raise CodegenError(error.stage, problems, error.exit_code) from error


def product(
    node: OnnxNode, values: Sequence[tuple[View | Const, Sequence[str]]], out: Sequence[str], ctx: Lowering
) -> View:
    """The sum of products of the operands over all labels that are not in `out`."""
    views = [diagonal(node, value, labels, ctx) for value, labels in values if isinstance(value, View)]
    constants = [constant_diagonal(value, labels) for value, labels in values if isinstance(value, Const)]
    if not views:
        raise unsupported(STAGE, node.title, "no operand is computed from the input")
    if len(views) == 1 and constants:
        return with_constant(node, views[0], joined(node, views[0], constants, out), out, ctx)
    if len(views) == 1:
        return single(node, views[0], out, ctx)
    if len(views) == 2 and not constants:
        return matmul.contract(node, views[0], views[1], out, ctx)
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
        raise unsupported(STAGE, node.title, found, "diagonals inside the frame", STREAM_HINT)
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
        pieces = matmul.refine(mine)
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
    array, scale, zero = const.array, const.scale, const.zero_point
    kept = [i for i, n in enumerate(array.shape) if n > 1]
    names = [labels[i] for i in kept]
    unique = list(dict.fromkeys(names))
    index = [unique.index(name) for name in names]
    squeezed = array.reshape([array.shape[i] for i in kept])
    made = np.einsum(squeezed, index, list(range(len(unique)))) if unique else squeezed
    if scale is None or scale.size == 1:
        return ConstantOperand(Const(made, scale, zero), tuple(unique))
    axis = unique.index(labels[const.axis])
    return ConstantOperand(Const(made, scale, zero, axis), tuple(unique))


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
        view = pool._reduced(replace(node, op_type="ReduceSum"), view, gone, False, ctx)
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
        raise unsupported(STAGE, node.title, "the stream axis is merged with another axis here", "an axis of its own")
    if time is not None and time in w.labels and time in out:
        found = f"a constant that varies along the stream axis ({time})"
        raise unsupported(STAGE, node.title, found, "constants are the same for every frame", STREAM_HINT)
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
        raise unsupported(STAGE, node.title, found, "one matrix times whole sequences", STREAM_HINT)
    order = [w.labels.index(label) for label in (*rows, *summed)]
    array = w.const.array.transpose(order)
    sizes = dict(zip((*rows, *summed), array.shape, strict=True))
    matrix = array.reshape(prod(sizes[label] for label in rows), -1)
    if w.scale_label is not None and w.scale_label != (rows[0] if len(rows) == 1 else None):
        raise unsupported(STAGE, node.title, "weight scales along the summed axis", "one scale per output column")
    free = [label for label in x.labels if label in out]
    axes = [x.view.axes[x.labels.index(label)] for label in free]
    last = tuple(piece for label in summed for piece in x.view.axes[x.labels.index(label)])
    view = View(x.view.tensor, (*axes, last))
    made = dense(node, view, Const(matrix, w.const.scale, w.const.zero_point, 0), None, ctx)
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
    weights = Const(array.reshape(g * n, 1, 1, 1, k), scale, zero, 0)
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
        raise unsupported(STAGE, node.title, "weight scales along the summed axis", "one scale per output column")
    array = w.const.array.transpose([w.labels.index(label) for label in (*rows, *inner)])
    sizes = dict(zip((*rows, *inner), array.shape, strict=True))
    k = prod(sizes[label] for label in inner)
    b = Operand(View("", tuple(compact(array.shape))), (*rows, *inner))
    labels = [label for label in dict.fromkeys((*x.labels, *w.labels)) if label != time]
    if any(matmul.label_loops(node, x, b, label) is None for label in labels):
        raise unsupported(STAGE, node.title, "layouts without common steps", hint="Reshape the constant")
    loops = {label: matmul.label_loops(node, x, b, label) or [] for label in labels}
    nest = matmul.merged([loop for label in out for loop in loops.get(label, ())])
    summed = matmul.ordered_sums([loop for label in labels if label not in out for loop in loops[label]])
    matmul.check_depth(node, nest, summed)
    scale, zero = _row_scales(w, rows, sizes)
    const = Const(array.reshape(-1, k), scale, zero, 0)
    op = Contract(tuple(nest), tuple(summed), const, tuple(loop.b // k for loop in nest))
    full = {label: prod(loop.size for loop in loops[label]) for label in labels}
    return matmul.emit_contract(node, op, [x.view], out, full, time, ctx)


@dataclass(frozen=True)
class Step:
    """Operands `left` and `right` (numbers from the operand count on are results of earlier steps) to one result."""

    left: int
    right: int
    out: tuple[Loop, ...]
    summed: tuple[Loop, ...]

    @property
    def outputs(self) -> int:
        return prod(loop.size for loop in self.out)

    @property
    def terms(self) -> int:
        return prod(loop.size for loop in self.summed)


@dataclass(frozen=True, eq=False)
class EinsumChain(Op):
    """Real contraction of three and more operands, streams first, then `constants`, in `steps`."""

    streams: int
    constants: tuple[Const, ...]
    steps: tuple[Step, ...]

    def macs(self) -> int:
        return sum(step.outputs * step.terms for step in self.steps)

    def describe(self) -> str:
        count = self.streams + len(self.constants)
        return f"order {order_text([(s.left, s.right) for s in self.steps], count)}"


def chain(
    node: OnnxNode, views: Sequence[Operand], constants: Sequence[ConstantOperand], out: Sequence[str], ctx: Lowering
) -> View:
    """Three and more operands as steps of two, in the cheapest order."""
    time = None
    for view in views[1:]:
        time = matmul.check_streams(node, views[0], view, out, ctx)
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
        loops = {label: matmul.label_loops(node, a, b, label) or [] for label in labels}
        nest = matmul.merged([loop for label in kept for loop in loops[label]])
        summed = matmul.ordered_sums([loop for label in labels if label not in kept for loop in loops[label]])
        matmul.check_depth(node, nest, summed)
        steps.append(Step(i, j, tuple(nest), tuple(summed)))
        operands.append(Operand(View("", tuple(compact([sizes[label] for label in kept]))), tuple(kept)))
        terms.append(tuple(kept))
    op = EinsumChain(len(views), tuple(c.const for c in constants), tuple(steps))
    ctx.note(f"{node.title}: {len(steps) + 1} operands, order {op.describe().removeprefix('order ')}")
    return matmul.emit_contract(node, op, [o.view for o in operands[: len(views)]], out, sizes, time, ctx)


def _contiguous_steps(node: OnnxNode, x: Operand, ctx: Lowering) -> Operand:
    """x with one piece per axis, copied where an axis is made of several."""
    if all(len(axis) <= 1 for axis in x.view.axes):
        return x
    order = [i for i in range(len(x.labels)) if i != x.view.time_axis]
    return Operand(ctx.arrange(x.view, order, node), x.labels)


@dataclass(frozen=True, eq=False)
class EinsumS8(KernelOp):
    """int8 einsum of three and more operands: int32 sums, int16 between the steps, one rounding at the end.

    The result of a step but the last is t = (acc + 2^(s-1)) >> s, round half up, with the smallest shift s >= 0 for
    which t fits int16 and the next step's sum fits int32 for all codes. So each step adds an error of at most half a
    unit of 2^s, none where s = 0. The last accumulator is rounded as everywhere: S = f32(product of all operand scales
    * 2^(sum of shifts) / y scale), the product in float64. Constants have one scale.
    """

    streams: int
    steps: tuple[Step, ...]
    shifts: tuple[int, ...]
    zero_points: tuple[int, ...]
    constants: tuple[npt.NDArray[np.int8], ...]
    scale: npt.NDArray[np.float32]
    y_zero_point: int
    bounds: tuple[int, int]
    interval: tuple[int, int]

    def macs(self) -> int:
        return sum(step.outputs * step.terms for step in self.steps)

    def describe(self) -> str:
        count = self.streams + len(self.constants)
        text = order_text([(s.left, s.right) for s in self.steps], count)
        return f"order {text}, int16 between with shifts {', '.join(map(str, self.shifts))}"

    def scratch_bytes(self) -> int:
        """The int16 results between the steps."""
        return sum(-(-2 * step.outputs // 4) * 4 for step in self.steps[:-1])

    def accumulate(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """The last step's accumulators [L, outputs]."""
        length = xs[0].shape[0]
        values = [matmul.centred(x, zero) for x, zero in zip(xs, self.zero_points, strict=False)]
        for codes, zero in zip(self.constants, self.zero_points[self.streams :], strict=True):
            values.append(np.broadcast_to(codes.astype(np.float64) - zero, (length, codes.size)))
        acc = np.zeros((length, 1), np.int64)
        for i, step in enumerate(self.steps):
            acc = matmul.contracted(step.out, step.summed, values[step.left], values[step.right])
            if i < len(self.shifts):
                values.append(rounded_shift(acc, self.shifts[i]).astype(np.float64))
        return acc

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return numeric.requantize(self.accumulate(xs), self.scale, self.y_zero_point, *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return rounding_stages(self.accumulate(xs), self.scale, self.y_zero_point, *self.bounds)

    def rounding(self) -> Rounding:
        low, high = (np.asarray([end], np.int64) for end in self.interval)
        return Rounding(self.scale, low, high, self.y_zero_point, *self.bounds)


def rounded_shift(acc: npt.NDArray[np.int64], shift: int) -> npt.NDArray[np.int64]:
    """acc / 2^shift, half up: what rt_einsum_step_s8 stores."""
    return acc if shift == 0 else (acc + (1 << (shift - 1))) >> shift


def einsum_s8(op: EinsumChain, operands: Sequence[QParams], y: QParams, bounds: tuple[int, int]) -> EinsumS8:
    """The int8 form; shifts follow from the ranges of the codes. Raises NumericsError where int32 is too small."""
    codes, scales, zeros = [], [float(q.scale) for q in operands], [q.zero_point for q in operands]
    ranges = [(-128 - zero, 127 - zero) for zero in zeros]
    for constant in op.constants:
        single_scale = constant.scale is None or constant.scale.size == 1
        made = quantized_constant(constant if single_scale else Const(constant.real()), None)
        array, zero = matmul.int8_codes(made)
        assert made.scale is not None
        codes.append(array)
        zeros.append(zero)
        scales.append(float(made.scale.ravel()[0]))
        ranges.append((int(array.min(initial=0)) - zero, int(array.max(initial=0)) - zero))
    shifts = []
    for i, step in enumerate(op.steps):
        low, high = _product_range(ranges[step.left], ranges[step.right], step.terms)
        if max(-low, high) > INT32_MAX:
            raise NumericsError(f"its sums of {step.terms} products can reach {low}..{high}, beyond int32")
        if i == len(op.steps) - 1:
            break
        limit = _limit(op, len(zeros) + i, ranges, len(zeros))
        shift = 0
        while max(-((low + ((1 << shift) >> 1)) >> shift), (high + ((1 << shift) >> 1)) >> shift) > limit:
            shift += 1
        shifts.append(shift)
        half = (1 << shift) >> 1
        ranges.append(((low + half) >> shift, (high + half) >> shift))
    value = prod(scales) * 2.0 ** sum(shifts) / float(y.scale)
    scale = np.asarray([check_scale(np.float32(value))], np.float32)
    return EinsumS8(
        op.streams, op.steps, tuple(shifts), tuple(zeros), tuple(codes), scale, y.zero_point, bounds, (low, high)
    )


def contraction_s8(
    op: Contract | EinsumChain, operands: Sequence[QParams], y: QParams, bounds: tuple[int, int]
) -> KernelOp:
    """The int8 form of a contraction of any number of operands."""
    if isinstance(op, EinsumChain):
        return einsum_s8(op, operands, y, bounds)
    return matmul.contract_s8(op, operands, y, bounds)


def constants_of(op: Contract | EinsumChain) -> tuple[Const, ...]:
    if isinstance(op, EinsumChain):
        return op.constants
    return () if op.constant is None else (op.constant,)


def _product_range(a: tuple[int, int], b: tuple[int, int], terms: int) -> tuple[int, int]:
    corners = [x * y for x in a for y in b]
    return terms * min(*corners, 0), terms * max(*corners, 0)


def _limit(op: EinsumChain, result: int, ranges: Sequence[tuple[int, int]], count: int) -> int:
    """The largest magnitude that the step which reads `result` bears: int16, and its own sum inside int32."""
    reader = next(step for step in op.steps if result in (step.left, step.right))
    other = reader.right if reader.left == result else reader.left
    if other >= count:
        limit = isqrt(INT32_MAX // reader.terms)
    else:
        low, high = ranges[other]
        limit = INT32_MAX // (reader.terms * max(-low, high, 1))
    if limit < 1:
        raise NumericsError(f"a sum of {reader.terms} products of three and more operands does not fit int32")
    return min(INT16_MAX, limit)


def lower_products(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """MatMul of any two operands (ONNX MatMul-13): batches broadcast, 1-D operands lose their axis."""
    a, b = args[0], args[1]
    assert a is not None and b is not None
    shapes = [tuple(v.array.shape) if isinstance(v, Const) else v.shape for v in (a, b)]
    left, right, out = matmul.matmul_labels(node, *shapes)
    sizes: dict[str, int] = {}
    for labels, shape in ((left, shapes[0]), (right, shapes[1])):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            if known != size and 1 not in (known, size):
                found = f"operands of shapes {list(shapes[0])} and {list(shapes[1])}"
                raise unsupported(STAGE, node.title, found, "batch sizes that are equal or 1")
            sizes[label] = max(known, size)
    return [product(node, [(a, left), (b, right)], out, ctx)]


LOWER: dict[tuple[str, str], LowerFunction] = {("", "Einsum"): lower_einsum}
RULES = {
    "Einsum": "any equation, also repeated labels, `...` and three or more operands (int16 between the steps);"
    " the stream axis stays an axis of the result",
}
