"""A model trained on a window of fixed length becomes an endless stream: the window slides with it (`--endless`)."""

from __future__ import annotations

from dataclasses import replace

from codegen.errors import Problem
from codegen.ir.graph import Graph
from codegen.ir.time import Window
from codegen.ops.base import KernelOp

STAGE = "endless"


def make_endless(graph: Graph) -> tuple[Graph, list[Problem]]:
    """The sliding form of a clip graph, and what has none. A graph that is endless already stays as it is."""
    if graph.clip_length is None:
        return graph, []
    if not any(port.view.time_axis is not None for port in graph.inputs):
        return graph, [Problem(graph.name, "--endless, but the model has no stream axis", hint="Leave the option out")]
    nodes, problems = [], []
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        op = node.op.sliding(graph.tensors[node.output].frame_elements)
        if op is None:
            problems.append(Problem(node.where, "it has no sliding form", hint="Leave --endless out"))
        else:
            nodes.append(replace(node, op=op))
    notes = (*graph.notes, _notice(graph))
    return replace(graph, nodes=tuple(nodes), clip_length=None, notes=notes), problems


def is_exact(graph: Graph) -> bool:
    """Whether sliding equals re-running windows: nothing pads along the stream."""
    rules = [node.op.rule() for node in graph.nodes]
    return all(not isinstance(r, Window) or (r.left <= 0 and r.right <= 0) for r in rules)


def _notice(graph: Graph) -> str:
    if is_exact(graph):
        return f"endless: every frame gives what the model gives for the last {graph.clip_length} frames, exactly"
    return (
        f"endless: layers pad inside the window of {graph.clip_length} frames, so sliding is not the same function as "
        "re-running windows; `verify` measures how far apart they are"
    )
