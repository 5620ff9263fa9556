"""Says how many bytes are only moved: the copies that remain where no kernel reads a layout as it is."""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.graph import Graph
from codegen.ops.move import Copy

SHOWN = 4


def count_copies(graph: Graph) -> Graph:
    """The graph with a note on its Copy operators, bytes per frame; unchanged where there is none."""
    copies = [node for node in graph.nodes if isinstance(node.op, Copy)]
    if not copies:
        return graph
    total = sum(graph.tensors[node.output].frame_bytes for node in copies)
    names = [f"{node.where} {graph.tensors[node.output].frame_bytes} B" for node in copies[:SHOWN]]
    more = f" and {len(copies) - SHOWN} more" if len(copies) > SHOWN else ""
    text = f"{total} B a frame are only moved (a slice, or a layout that no kernel reads): {', '.join(names)}{more}"
    return replace(graph, notes=(*graph.notes, text))
