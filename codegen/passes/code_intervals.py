"""Which codes every element of a frame can take, whatever the input: interval analysis, exact at both ends.

Every operator that says so (`KernelOp.codes`) is monotone in each operand, or searched: the ends of its operands'
intervals give the ends of its own. All others give any code.
"""

from __future__ import annotations

from codegen.ir.graph import Graph
from codegen.ops.base import KernelOp
from codegen.ops.channels import Interval, full


def analyse(graph: Graph) -> dict[str, Interval]:
    """The interval of every tensor of an int8 graph, for every input, every frame and every length."""
    known = {name: full(t.frame_elements, t.type) for name, t in graph.tensors.items()}
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        if node.op.counts_frames() and graph.clip_length is None:
            continue  # a sum over an endless stream has as many terms as it happens to have
        made = node.op.codes([known[name] for name in node.inputs])
        if made is not None:
            known[node.output] = made.repeated(graph.tensors[node.output].frame_elements)
    return known
