"""All constant tables of a model: those of its nodes, frames of padding, addresses of rows, changes of scale."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from codegen.codes import INT8
from codegen.emit.names import ROWS, Names, comment
from codegen.ir.graph import Carried, Graph, Node
from codegen.ir.time import Transposed, Window
from codegen.kernels.base import Emission
from codegen.kernels.literals import rows
from codegen.ops.base import Table
from codegen.plan.layout import Layout


@dataclass(frozen=True)
class Tables:
    """Tables of different values by C name, (name, name of the table with the same values) of all others, and names:
    of each node's tables by key, and of the frames of padding by code."""

    values: Mapping[str, Table]
    aliases: tuple[tuple[str, str], ...]
    of_node: Mapping[str, Mapping[str, str]]
    pads: Mapping[int, str]

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.values.values())


def all_tables(graph: Graph, layout: Layout, emissions: Mapping[str, Emission], names: Names) -> Tables:
    """Equal tables once, under the first name."""
    tables = _pad_tables(graph, emissions)
    pads = {int(table.values[0]): key for key, table in tables.items()}
    of_node: dict[str, dict[str, str]] = {}
    for node in graph.nodes:
        made = emissions[node.name].tables
        of_node[node.name] = {key: _free(f"{names.nodes[node.name]}_{key}", tables) for key in made}
        tables |= {of_node[node.name][key]: table for key, table in made.items()}
    if layout.row_table:
        values = np.asarray(layout.row_table, np.uint16)
        tables[ROWS] = Table("uint16_t", values, "byte offset of every row of the clip in the state's block")
    for item in graph.carried:
        if item.table is not None:
            key = rescale_key(names, item)
            tables[key] = Table(INT8.ctype, item.table, f"state {item.name}: codes written to codes read")
    return Tables(*_shared(tables), of_node, pads)


def rescale_key(names: Names, item: Carried) -> str:
    """The table between the scales of a state that is written and read."""
    return f"{names.tensors[item.tensor]}_rescale"


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or with a number where two nodes and keys make one name."""
    texts = chain([name], (f"{name}_{i}" for i in count(2)))
    return next(text for text in texts if text not in taken)


def _shared(tables: Mapping[str, Table]) -> tuple[dict[str, Table], tuple[tuple[str, str], ...]]:
    first: dict[tuple[str, bytes], str] = {}
    aliases = []
    for key, table in tables.items():
        known = first.setdefault((table.ctype, table.values.astype(np.int64).tobytes()), key)
        if known != key:
            aliases.append((key, known))
    return {key: tables[key] for key in first.values()}, tuple(aliases)


def table_context(key: str, table: Table) -> dict[str, Any]:
    """What the weights templates print of a table. Apart from `model_context`: the text of large tables takes time."""
    return {
        "id": key,
        "ctype": table.ctype,
        "count": table.values.size,
        "comment": comment(table.comment or key),
        "rows": rows(table.values, table.ctype),
    }


def _pad_tables(graph: Graph, emissions: Mapping[str, Emission]) -> dict[str, Table]:
    """One constant frame per padding code, as long as the longest reader needs."""
    longest: dict[int, int] = {}
    for node in graph.nodes:
        code = pads_with(node, emissions[node.name])
        if code is not None:
            size = max(graph.tensors[x].frame_elements for x in node.inputs)
            longest[code] = max(longest.get(code, 0), size)
    return {
        f"pad_{'m' if code < 0 else ''}{abs(code)}": Table(
            INT8.ctype, np.full(size, code, INT8.dtype), f"a frame of padding with code {code}"
        )
        for code, size in sorted(longest.items())
    }


def pads_with(node: Node, made: Emission) -> int | None:
    """The code a node reads outside its input's sequence, if it ever does and its kernel wants a frame there."""
    rule = node.op.rule()
    outside = isinstance(rule, Window) and (rule.left > 0 or rule.right > 0 or rule.ceil_mode)
    # A transposed convolution meets the ends of its input with every phase that has more than one tap.
    outside = outside or isinstance(rule, Transposed)
    return node.op.pad_code() if outside and made.padding_frames else None
