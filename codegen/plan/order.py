"""Other orders of execution, where a graph leaves freedom: branches one after another instead of side by side."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.ir.graph import Graph, Node


def orders(graph: Graph) -> Iterator[Graph]:
    """The graph as it is, then in every other order that is tried; each is topological, none comes twice."""
    seen = set()
    for nodes in (graph.nodes, _depth_first(graph), _least_live(graph)):
        names = tuple(node.name for node in nodes)
        if names not in seen:
            seen.add(names)
            yield graph.with_nodes(nodes)


def _depth_first(graph: Graph) -> tuple[Node, ...]:
    """A node runs when its operands are there, the operand whose branch needs most first (Sethi and Ullman 1970)."""
    made = {node.output: node for node in graph.nodes}
    need: dict[str, int] = {}
    for node in graph.nodes:  # bytes that a branch needs at its worst moment: a lower operand waits for a later one
        size = graph.tensors[node.output].frame_bytes
        branches = sorted((need.get(x, 0) - _size(graph, x), x) for x in dict.fromkeys(node.inputs))[::-1]
        waiting = worst = 0
        for spare, x in branches:
            worst = max(worst, waiting + spare + _size(graph, x))
            waiting += _size(graph, x)
        need[node.output] = max(worst, waiting + size)
    found: dict[str, Node] = {}
    for start in (*(p.tensor for p in graph.outputs), *(c.source for c in graph.carried), *made):
        stack = [start]
        while stack:
            top = made.get(stack[-1])
            rest = [] if top is None or top.output in found else [x for x in top.inputs if x in made and x not in found]
            stack += sorted(rest, key=lambda x: (need[x] - _size(graph, x), x))
            if not rest:
                stack.pop()
                if top is not None:
                    found.setdefault(top.output, top)
    return tuple(found.values())


def _least_live(graph: Graph) -> tuple[Node, ...]:
    """Of the nodes whose operands are there, always the one that leaves the fewest bytes alive."""
    left = {x: len(graph.readers(x)) for x in graph.tensors}
    there, waiting, order = set(graph.sources()), list(graph.nodes), list[Node]()
    while waiting:
        ready = [node for node in waiting if all(x in there for x in node.inputs)]

        def grows(node: Node) -> int:
            freed = sum(_size(graph, x) for x in dict.fromkeys(node.inputs) if left[x] == 1)
            return _size(graph, node.output) - freed

        node = min(ready, key=grows)  # the first of equals, in the file's order
        waiting.remove(node)
        order.append(node)
        there.add(node.output)
        for x in dict.fromkeys(node.inputs):
            left[x] -= 1
    return tuple(order)


def _size(graph: Graph, tensor: str) -> int:
    return graph.tensors[tensor].frame_bytes
