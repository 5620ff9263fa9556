"""Sums of products of two activations over labelled axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, merged_axis
from codegen.ir.op import Op
from codegen.ir.real import Contract, Loop
from codegen.ir.view import Axis, Piece, View, compact

MAX_LOOPS = 8
STREAM_HINT = "Fix the length of the stream and build with --plan whole, or name another --stream axis"


@dataclass(frozen=True)
class Operand:
    """A view with one label per ONNX axis. Labels of one operand are distinct, or sizes 1 are dropped."""

    view: View
    labels: tuple[str, ...]

    def pieces(self, label: str) -> Axis | None:
        """The pieces of a label's axis; None where it is absent or has one step."""
        if label not in self.labels:
            return None
        return self.view.axes[self.labels.index(label)] or None

    @property
    def time_label(self) -> str | None:
        at = self.view.time_axis
        return None if at is None else self.labels[at]


def refine(axes: Sequence[Axis | None]) -> list[list[tuple[int, int]]] | None:
    """(size, stride) steps of every operand for one label, split at common places; None where they cannot be."""
    known = [axis for axis in axes if axis is not None]
    if not known:
        return [[] for _ in axes]
    rests = [None if axis is None else [(p.size, p.stride or 0) for p in axis if p.size > 1] for axis in axes]
    result: list[list[tuple[int, int]]] = [[] for _ in axes]
    while any(rest for rest in rests if rest is not None):
        if any(rest is not None and not rest for rest in rests):
            return None
        step = min(rest[-1][0] for rest in rests if rest)
        for out, rest in zip(result, rests, strict=True):
            if rest is None:
                out.insert(0, (step, 0))
                continue
            size, stride = rest.pop()
            if size % step:
                return None
            out.insert(0, (step, stride))
            if size > step:
                rest.append((size // step, stride * step))
    return result


def merged(loops: Sequence[Loop]) -> list[Loop]:
    """Neighbouring loops that walk both operands evenly become one."""
    result: list[Loop] = []
    for loop in loops:
        last = result[-1] if result else None
        if loop.size == 1:
            continue
        if last and last.a == loop.a * loop.size and last.b == loop.b * loop.size:
            result[-1] = Loop(last.size * loop.size, loop.a, loop.b)
        else:
            result.append(loop)
    return result


def label_loops(node: OnnxNode, a: Operand, b: Operand, label: str) -> list[Loop] | None:
    """The loops of one label, or None where the operands' layouts have no common steps."""
    pieces = refine([a.pieces(label), b.pieces(label)])
    if pieces is None:
        return None
    return [Loop(size, step, other) for (size, step), (_, other) in zip(*pieces, strict=True)]


def check_streams(node: OnnxNode, a: Operand, b: Operand, out: Sequence[str], ctx: Lowering) -> str | None:
    """The label of the stream axis: a batch label of both operands, or None where neither is a stream."""
    at_a, at_b = a.time_label, b.time_label
    if at_a is None and at_b is None:
        return None
    for operand in (a, b):
        if not operand.view.time_is_alone():
            raise merged_axis(node)
    if at_a is not None and at_b is not None and at_a != at_b:
        found = f"every frame of one operand meets every frame of the other (stream axis: {at_a} and {at_b})"
        raise unsupported(IMPORT, node.title, found, "one label for the stream axis", STREAM_HINT)
    if at_a is None or at_b is None:
        found = "one operand has one frame for the whole stream, the other one frame per step"
        raise unsupported(IMPORT, node.title, found, "both change with the stream", STREAM_HINT)
    if at_a not in out:
        found = f"it sums over the {'endless ' if ctx.endless else ''}stream axis ({at_a})"
        raise unsupported(IMPORT, node.title, found, "sums inside the frame", STREAM_HINT)
    return at_a


def contract(node: OnnxNode, a: Operand, b: Operand, out: Sequence[str], ctx: Lowering) -> View:
    """The contraction of two streams to the labels `out`; labels not in `out` are summed.

    A label of size 1 in one operand broadcasts. Copies an operand only where both have one axis in pieces that do not
    divide each other.
    """
    time = check_streams(node, a, b, out, ctx)
    labels = list(dict.fromkeys((*a.labels, *b.labels)))
    frame = [label for label in labels if label != time]
    if any(label_loops(node, a, b, label) is None for label in frame):
        order = [i for i in range(len(b.labels)) if b.labels[i] != time]
        b = Operand(_copied(b.view, order, node, ctx), b.labels)
        if any(label_loops(node, a, b, label) is None for label in frame):
            order = [i for i in range(len(a.labels)) if a.labels[i] != time]
            a = Operand(_copied(a.view, order, node, ctx), a.labels)
    loops = {}
    for label in frame:
        steps_of = label_loops(node, a, b, label)
        if steps_of is None:
            raise unsupported(
                IMPORT, node.title, f"sizes of {label} do not fit: {list(a.view.shape)}, {list(b.view.shape)}"
            )
        loops[label] = steps_of
    nest = merged([loop for label in out for loop in loops.get(label, ())])
    summed = ordered_sums([loop for label in frame if label not in out for loop in loops[label]])
    check_depth(node, nest, summed)
    op = Contract(tuple(nest), tuple(summed))
    sizes = {label: prod(loop.size for loop in loops[label]) for label in frame}
    return emit_contract(node, op, [a.view, b.view], out, sizes, time, ctx)


def _copied(view: View, order: Sequence[int], node: OnnxNode, ctx: Lowering) -> View:
    """The view as a row-major copy over `order` (made where `arrange` would keep a frame that is in order)."""
    return ctx.arrange(view, order, node)


def ordered_sums(loops: Sequence[Loop]) -> list[Loop]:
    """Summed loops, the widest steps outermost: the innermost one walks neighbours where it can."""
    return merged(sorted(loops, key=lambda loop: -(loop.a + loop.b)))


def check_depth(node: OnnxNode, nest: Sequence[Loop], summed: Sequence[Loop]) -> None:
    if max(len(nest), len(summed)) > MAX_LOOPS:
        found = f"{max(len(nest), len(summed))} nested loops"
        raise unsupported(IMPORT, node.title, found, f"at most {MAX_LOOPS}", "Merge axes with Reshape")


def emit_contract(
    node: OnnxNode,
    op: Op,
    views: Sequence[View],
    out: Sequence[str],
    sizes: Mapping[str, int],
    time: str | None,
    ctx: Lowering,
) -> View:
    """Append the operator; its frame is row-major over `out`, the stream axis `time` left out."""
    source = ctx.tensor(views[0])
    if any(ctx.tensor(view).length != source.length for view in views):
        raise unsupported(IMPORT, node.title, "operands with different numbers of frames", "equal lengths")
    frame = [sizes.get(label, 1) for label in out if label != time]
    name = ctx.emit(op, [view.tensor for view in views], frame or [1], source.length, node)
    axes = iter(compact(frame))
    return View(name, tuple((Piece(source.length, None),) if label == time else next(axes) for label in out))


def matmul_labels(node: OnnxNode, a: Sequence[int], b: Sequence[int]) -> tuple[list[str], list[str], list[str]]:
    """Labels of A, B and A @ B (numpy's rules: 1-D operands lose their axis, leading axes broadcast)."""
    if not a or not b or a[-1] != b[0 if len(b) == 1 else -2]:
        found = f"operands of shapes {list(a)} and {list(b)}"
        raise unsupported(IMPORT, node.title, found, "[..., M, K] times [..., K, N]")
    lead = max(len(a), len(b), 2) - 2
    batch = [f"b{i}" for i in range(lead)]
    left = ["k"] if len(a) == 1 else [*batch[lead - len(a) + 2 :], "m", "k"]
    right = ["k"] if len(b) == 1 else [*batch[lead - len(b) + 2 :], "k", "n"]
    return left, right, [*batch, *(["m"] if len(a) > 1 else []), *(["n"] if len(b) > 1 else [])]
