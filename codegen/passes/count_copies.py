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
    moved: dict[str, int] = {}
    for node in copies:
        moved[node.where] = moved.get(node.where, 0) + graph.tensors[node.output].frame_bytes
    names = [f"{where} {bytes_} B" for where, bytes_ in moved.items()][:SHOWN]
    more = f" and {len(moved) - SHOWN} more" if len(moved) > SHOWN else ""
    total = sum(moved.values())
    text = f"{total} B a frame are only moved (a slice, or a layout that no kernel reads): {', '.join(names)}{more}"
    return replace(graph, notes=(*graph.notes, text))
