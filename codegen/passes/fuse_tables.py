"""A change of scale in front of a Concat happens while the operand is copied: no tensor of its own."""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.graph import Graph, Node, prune
from codegen.ops.move import ConcatS8
from codegen.ops.table import LutS8


def fuse_tables(graph: Graph) -> Graph:
    """Move every table that only a Concat reads into that Concat."""
    outputs = {port.tensor for port in graph.outputs}
    producers = {node.output: node for node in graph.nodes}
    readers = {name: len(graph.readers(name)) for name in graph.tensors}
    nodes: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node.op, ConcatS8):
            nodes.append(node)
            continue
        names, tables = list(node.inputs), list(node.op.tables or [None] * len(node.inputs))
        for i, name in enumerate(names):
            source = producers.get(name)
            lone = readers[name] == 1 and name not in outputs and names.count(name) == 1
            if source and isinstance(source.op, LutS8) and lone and tables[i] is None:
                names[i], tables[i] = source.inputs[0], source.op.table
        nodes.append(replace(node, op=replace(node.op, tables=tuple(tables)), inputs=tuple(names)))
    return prune(graph.with_nodes(nodes))
