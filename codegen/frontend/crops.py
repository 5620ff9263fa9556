"""Crops whose bounds are computed from the stream's length: `skip[..., :y.shape[-1]]` is as long as y, whatever T is.

Lowering folds the bounds to the numbers of its trial length. Here they are evaluated again for every T of two periods:
a crop that is always the same stays one; a crop that starts at a fixed frame and always ends with another tensor
becomes `Truncate`, which follows that tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.errors import CodegenError, Problem
from codegen.frontend.constants import fold
from codegen.frontend.load import OnnxNode
from codegen.ir.graph import Const, Graph, Node
from codegen.ir.lengths import ended_tensors, lengths_with_faults
from codegen.ir.periods import period, warm_up
from codegen.ir.real import Dequantize, Quantize
from codegen.ir.time import Join
from codegen.ir.view import View
from codegen.ops.move import PadFrames, Truncate

# Beyond this period a build would take too long; such crops stay what they are at the trial length.
MOST_TRIALS = 2048

# Short sequences, below the warm-up, that are looked at too.
SHORT_TRIALS = 256


def follow_lengths(graph: Graph, crops: Sequence[TimedCrop], values: Values) -> tuple[Graph, list[Problem]]:
    """The graph with crops that follow another tensor's length, and crops that no stream can make."""
    problems: list[Problem] = []
    for crop in crops:
        try:
            graph = _followed(graph, crop, values)
        except CodegenError as error:
            problems.extend(error.problems)
    return graph, problems


def _followed(graph: Graph, crop: TimedCrop, values: Values) -> Graph:
    """Crops come in the order of the file: the lengths of those before are right already."""
    node = next(n for n in graph.nodes if n.output == crop.tensor)
    source = node.inputs[0]
    trials = _trials(graph)
    lengths = [lengths_with_faults(graph.time_graph(), total)[0] for total in trials]
    lengths = [length for length in lengths if min(length.values()) > 0]  # the model fails on empty tensors
    try:
        bounds = [_bounds(crop, values, length, length[source]) for length in lengths]
    except (CodegenError, LookupError):
        return _constant(graph, node)  # computed from more than lengths: the joins after it say which T are right
    firsts, counts = {first for first, _ in bounds}, [count for _, count in bounds]
    rights = {length[source] - first - n for (first, n), length in zip(bounds, lengths, strict=True)}
    if not bounds or (len(firsts) == 1 and len(rights) == 1):
        return _constant(graph, node)
    followed = None if len(firsts) > 1 else _partner(graph, node, firsts.pop(), counts, lengths)
    if followed is not None:
        return _truncated(graph, node, bounds[0][0], followed)
    if any(len(reader.inputs) > 1 for reader in _pointwise_readers(graph, node.output)):
        return _constant(graph, node)  # a join after it refuses every T at which the crop is another one
    found = "where it crops depends on the length of the stream"
    hint = "Crop at the end, to the length of the tensor it is joined with"
    raise CodegenError("import", [Problem(node.where, found, "the same for every length", hint)])


def _trials(graph: Graph) -> list[int]:
    """Lengths T to look at: some short ones, and two periods of long ones. [] where the graph has no period."""
    time = graph.time_graph()
    try:
        span, steady = period(time), warm_up(time)
    except CodegenError:
        return []
    if span > MOST_TRIALS:
        return []
    return [*range(max(1, steady - SHORT_TRIALS), steady), *range(steady, steady + 2 * span)]


def _bounds(crop: TimedCrop, values: Values, lengths: Mapping[str, int], size: int) -> tuple[int, int]:
    """(first frame, frames) of the crop of `size` frames, for these lengths of all tensors."""
    known: dict[str, Const] = {}

    def number(name: str) -> int | None:
        if not name:
            return None
        found = _value(name, crop, values, lengths, known).array.ravel()
        return int(found[crop.place if found.size > 1 else 0])

    node = crop.node
    start, end = number(node.inputs[1]), number(node.inputs[2])
    first, last, _ = slice(start, end, 1).indices(size)
    return first, max(0, last - first)


def _value(name: str, crop: TimedCrop, values: Values, lengths: Mapping[str, int], known: dict[str, Const]) -> Const:
    """A constant for these lengths: evaluated again where it was computed from a shape. LookupError: it cannot be."""
    if name not in known:
        node = crop.timed.get(name)
        if node is None:
            value = values[name]
            if not isinstance(value, Const):
                raise LookupError(name)
            return value
        args: list[View | Const | None] = []
        for x in node.inputs:
            value = values[x] if x else None
            if isinstance(value, View):
                args.append(value.with_length(lengths[value.tensor]))
            else:
                args.append(_value(x, crop, values, lengths, known) if x else None)
        results = fold(node, args, crop.opset)
        if results is None:
            raise LookupError(name)
        known.update(zip(node.outputs, results, strict=False))
    return known[name]


def _pointwise_readers(graph: Graph, tensor: str) -> list[Node]:
    """Readers of a tensor, and of what pointwise operators make of it."""
    found = []
    for reader in graph.readers(tensor):
        found.append(reader)
        if len(set(reader.inputs)) == 1 and isinstance(reader.op.rule(), Join):
            found += _pointwise_readers(graph, reader.output)
    return found


def _partner(
    graph: Graph, crop: Node, first: int, counts: Sequence[int], lengths: Sequence[Mapping[str, int]]
) -> str | None:
    """The tensor that the crop ends with: nearest to the join after it if there is one; codes before reals."""
    after = _downstream(graph, crop.output)
    source = crop.inputs[0]
    ended = ended_tensors(graph.time_graph())
    joined = [x for reader in _pointwise_readers(graph, crop.output) for x in reader.inputs if x not in after]
    near = _upstream(graph, joined)
    fits = [
        x
        for x in graph.time_graph().inputs + tuple(node.output for node in graph.nodes)
        if x not in after
        and x not in ended
        and all(n == min(length[source] - first, length[x]) for n, length in zip(counts, lengths, strict=True))
    ]
    codes = {node.output for node in graph.nodes if isinstance(node.op, Quantize)}
    codes |= {node.inputs[0] for node in graph.nodes if isinstance(node.op, Dequantize)}
    codes = codes or set(fits)
    ranked = sorted(fits, key=lambda x: (x in codes, x in near, fits.index(x) if x in near else -fits.index(x)))
    return ranked[-1] if ranked else None


def _downstream(graph: Graph, tensor: str) -> set[str]:
    found = {tensor}
    for node in graph.nodes:
        if found & set(node.inputs):
            found.add(node.output)
    return found


def _upstream(graph: Graph, tensors: Sequence[str]) -> set[str]:
    found = set(tensors)
    for node in reversed(graph.nodes):
        if node.output in found:
            found.update(node.inputs)
    return found


def _constant(graph: Graph, node: Node) -> Graph:
    """The crop as it is at the trial length; none where it takes nothing there."""
    assert isinstance(node.op, PadFrames)
    if node.op.time != (0, 0):
        return graph
    source = node.inputs[0]
    nodes = [
        replace(n, inputs=tuple(source if x == node.output else x for x in n.inputs))
        for n in graph.nodes
        if n is not node
    ]
    outputs = tuple(replace(p, view=_renamed(p.view, node.output, source)) for p in graph.outputs)
    taps = {name: _renamed(view, node.output, source) for name, view in graph.taps.items()}
    tensors = {name: t for name, t in graph.tensors.items() if name != node.output}
    return replace(graph.with_nodes(nodes, tensors), outputs=outputs, taps=taps)


def _renamed(view: View, old: str, new: str) -> View:
    return replace(view, tensor=new) if view.tensor == old else view


def _truncated(graph: Graph, node: Node, first: int, followed: str) -> Graph:
    tensors, made = dict(graph.tensors), []
    source = node.inputs[0]
    if first:
        name = f"{node.output}/start"
        old = tensors[source]
        tensors[name] = replace(tensors[node.output], name=name, length=old.length - first)
        assert isinstance(node.op, PadFrames)
        made.append(replace(node, name=name, op=replace(node.op, time=(-first, 0)), output=name))
        source = name
    op = Truncate(tensors[node.output].frame_elements)
    made.append(replace(node, op=op, inputs=(source, followed)))
    return graph.with_nodes(_sorted([m for n in graph.nodes for m in (made if n is node else [n])], graph), tensors)


def _sorted(nodes: Sequence[Node], graph: Graph) -> list[Node]:
    """Executable order, as the nodes came where that is possible."""
    ready, out, waiting = set(graph.sources()), list[Node](), list(nodes)
    while waiting:
        node = next(n for n in waiting if all(x in ready for x in n.inputs))
        waiting.remove(node)
        ready.add(node.output)
        out.append(node)
    return out


class Poison:
    """Stands for a value that could not be lowered; whatever reads it is skipped silently."""


Lowered = View | Const | Poison | None
Values = Mapping[str, Lowered]


@dataclass(frozen=True, eq=False)
class TimedCrop:
    """A Slice whose bounds along the stream axis (at `place`) are computed from its length; `tensor` is what it writes.

    `timed`: constants that were computed from the length, and their nodes.
    """

    tensor: str
    node: OnnxNode
    place: int
    timed: dict[str, OnnxNode]
    opset: int
