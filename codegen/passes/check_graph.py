"""What every pass must leave behind it: a graph in order, all of whose tensors are known."""

from __future__ import annotations

from codegen.ir.graph import Graph
from codegen.ops.base import KernelOp


def check_graph(graph: Graph, after: str) -> Graph:
    """The graph itself; AssertionError (a fault of this program) where the pass `after` broke it."""
    known = {port.tensor for port in graph.inputs} | {item.tensor for item in graph.carried}
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp), f"after {after}: {node.where} is no operator on codes"
        missing = [x for x in node.inputs if x not in known]
        assert not missing, f"after {after}: {node.where} reads {missing} before they are made"
        assert node.output not in known, f"after {after}: {node.output} is made twice"
        known.add(node.output)
    used = known | {port.tensor for port in graph.outputs} | {view.tensor for view in graph.taps.values()}
    used |= {item.source for item in graph.carried}
    assert used <= graph.tensors.keys() and used <= known, f"after {after}: unknown {sorted(used - known)}"
    sizes = {name: tensor.frame_elements for name, tensor in graph.tensors.items()}
    assert min(sizes.values()) > 0, f"after {after}: an empty frame"
    for port in (*graph.inputs, *graph.outputs):
        codes = graph.tensors[port.tensor].qparams
        assert codes is None or port.qparams is None or codes.same_codes(port.qparams), f"after {after}: {port.name}"
    return graph
