"""Scales and zero points of tensors of codes."""

from __future__ import annotations

from codegen.int8.expressions import MOVES
from codegen.int8.tables import compares
from codegen.ir.graph import Graph, Node, QParams
from codegen.ir.real import Dequantize, Pool, Quantize
from codegen.ops.move import Truncate


def code_params(graph: Graph) -> dict[str, QParams]:
    """QParams of every code tensor: from its QuantizeLinear or DequantizeLinear, carried over operators on codes."""
    known: dict[str, QParams] = {}
    for node in graph.nodes:
        if isinstance(node.op, Quantize):
            known[node.output] = node.op.qparams
        elif isinstance(node.op, Dequantize):
            known.setdefault(node.inputs[0], node.op.qparams)
    reals = {node.output for node in graph.nodes if isinstance(node.op, Dequantize)}
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            if isinstance(node.op, Quantize | Dequantize) or node.output in reals:
                continue
            read = node.inputs[:1] if isinstance(node.op, Truncate) else node.inputs
            names = [*read, node.output]
            q = next((known[name] for name in names if name in known), None)
            if q is None or not _carries(node, graph, reals):
                continue
            for name in names:
                if name not in known:
                    known[name] = q
                    changed = True
    return known


def _carries(node: Node, graph: Graph, reals: set[str]) -> bool:
    """Whether the node moves or compares codes (its inputs are not reals)."""
    if any(name in reals for name in node.inputs):
        return False
    return isinstance(node.op, (*MOVES, Pool)) or compares(node.op)
