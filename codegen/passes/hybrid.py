"""A clip whose head streams and whose tail runs layer by layer on the frames that were kept (`--plan hybrid`).

A tail layer needs its input and its output whole, a streamed layer the rows of its window: small tensors late in a
network are cheaper whole, and take over the memory that the head has used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from codegen.codes import INT8
from codegen.ir.graph import Graph, Node
from codegen.ir.view import View
from codegen.ops.move import CollectS8

KEPT = " kept"


def hybrids(streamed: Graph, whole: Graph) -> Iterator[tuple[str, Graph]]:
    """Every legal cut of a clip: the tensor at which streaming ends, and the graph.

    `streamed` and `whole` are the same model with and without its stream axis. A tensor is a cut if everything after it
    depends on nothing else; outputs must exist once per clip, since a stream has none before the cut.
    """
    ended = [p.view.time_axis is None for p in streamed.outputs]
    if streamed.clip_length is None or streamed.carried or not all(ended):
        return
    if [p.view for p in streamed.outputs] != [p.view for p in whole.outputs]:
        return
    kept = {v.tensor: v for v in streamed.taps.values()}
    plain = {v.tensor: v for v in whole.taps.values()}
    for name, view in kept.items():
        if name in plain and view.time_axis is not None and _side_by_side(view, streamed, plain[name], whole):
            graph = _cut(streamed, whole, name)
            if graph is not None:
                yield name, graph


def kept_bytes(hybrid: Graph) -> int:
    """All frames of the cut, which are there together: a hybrid never needs less."""
    return max(hybrid.tensors[node.output].frame_bytes for node in hybrid.nodes if isinstance(node.op, CollectS8))


def estimate(hybrid: Graph, keep: Mapping[str, int]) -> int:
    """Bytes that a hybrid needs if all histories of its head are there with its largest tensor; `keep` in frames."""
    at = next(i for i, node in enumerate(hybrid.nodes) if isinstance(node.op, CollectS8))
    tail = max(hybrid.tensors[node.output].frame_bytes for node in hybrid.nodes[at:])
    head = {x for node in hybrid.nodes[:at] for x in node.inputs}
    return tail + sum(keep[x] * hybrid.tensors[x].frame_bytes for x in head)


def _side_by_side(view: View, streamed: Graph, other: View, whole: Graph) -> bool:
    """Whether the frames of a stream, one after another, are the frame that the whole model has."""
    a, b = streamed.tensors[view.tensor], whole.tensors[view.tensor]
    size = a.frame_elements
    axes = [[(p.size, size if p.is_time else p.stride) for p in axis if p.size > 1] for axis in view.axes]
    same = axes == [[(p.size, p.stride) for p in axis if p.size > 1] for axis in other.axes]
    return same and a.length * size == b.frame_elements and a.qparams == b.qparams and a.type == INT8


def _cut(streamed: Graph, whole: Graph, name: str) -> Graph | None:
    """Head nodes of the streamed graph, tail nodes of the whole one; None where the tail reads more than the cut."""
    head, tail = _before(streamed, name), _after(whole, name)
    inside = {name, *(node.output for node in tail)}
    if not tail or any(x not in inside for node in tail for x in node.inputs):
        return None
    if any(p.tensor not in inside for p in whole.outputs) or {n.name for n in head} & {n.name for n in tail}:
        return None
    collected = name + KEPT
    source = streamed.tensors[name]
    collect = Node(collected, CollectS8(source.length), (name,), collected, source.onnx_name, "kept")
    moved = [replace(n, inputs=tuple(collected if x == name else x for x in n.inputs)) for n in tail]
    wanted = {name, *(p.tensor for p in streamed.inputs), *(node.output for node in head)}
    tensors = {x: t for x, t in streamed.tensors.items() if x in wanted}
    tensors[collected] = replace(whole.tensors[name], name=collected)
    tensors |= {node.output: whole.tensors[node.output] for node in tail}
    taps = {x: view for x, view in streamed.taps.items() if view.tensor in wanted}
    taps |= {x: view for x, view in whole.taps.items() if view.tensor in tensors and x not in taps}
    nodes = (*head, collect, *moved)
    return replace(streamed, nodes=nodes, tensors=tensors, taps=taps, outputs=whole.outputs)


def _before(graph: Graph, name: str) -> list[Node]:
    """Nodes that a tensor depends on, in order."""
    wanted, found = {name}, []
    for node in reversed(graph.nodes):
        if node.output in wanted:
            wanted.update(node.inputs)
            found.append(node)
    return found[::-1]


def _after(graph: Graph, name: str) -> list[Node]:
    """Nodes that depend on a tensor, in order."""
    known, found = {name}, []
    for node in graph.nodes:
        if known.intersection(node.inputs):
            known.add(node.output)
            found.append(node)
    return found
