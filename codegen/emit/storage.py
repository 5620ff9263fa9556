"""Where things lie, as C expressions: rows, histories, sums, states; and what the state struct says of them."""

from __future__ import annotations

from typing import Any

from codegen.codes import INT8, CodeType
from codegen.emit.model import Compiled
from codegen.emit.names import ROWS as ROW_TABLE
from codegen.emit.names import Names, comment
from codegen.emit.tables import rescale_key
from codegen.ir.graph import Carried, Node
from codegen.ops.base import KernelOp
from codegen.plan.layout import Accumulator, Storage
from codegen.plan.memory import HISTORY, ROWS, SUMS, WORK, Key


def target_of(s: Storage, names: Names, kind: CodeType) -> str:
    """Where a node writes: codes, or int32 accumulators."""
    if kind == INT8 or s.fresh == "output":
        return address_of(s, names)
    return f"({kind.ctype} *)(void *)({address_of(s, names)})"


def address_of(s: Storage, names: Names) -> str:
    if s.fresh == "input":
        return f"(const int8_t *)r->in_{names.inputs[s.port]}"
    if s.fresh == "output":
        return f"r->out_{names.outputs[s.port]}"
    if s.fresh == "rows":
        return f"r->arena + {names.rows}[r->from[{s.lane}] + {s.table}]"
    if s.fresh == "carried":
        return f"r->st->{names.members['carried', s.tensor]}"
    if s.fresh in ("clip", "collected"):
        start = f"(int8_t *)r->st->rows + {s.offset}" if s.offset else "(int8_t *)r->st->rows"
        return start if s.fresh == "clip" else f"{start} + r->from[{s.lane}] * {s.frame_bytes}"
    return f"r->arena + {s.offset}" if s.offset else "r->arena"


def carried_row(c: Compiled, item: Carried) -> dict[str, Any]:
    """A state tensor: where it is, where it comes from, and the table between their scales."""
    s = c.layout.storage[item.tensor]
    source = c.layout.storage[item.source]
    return {
        "id": c.names.members["carried", item.tensor],
        "bytes": s.frame_bytes,
        "initial": item.initial,
        "comment": comment(f"state {item.name}, {s.frame_bytes} B: what the last step left"),
        "from": address_of(source, c.names),
        "lane": source.lane,
        "table": None if item.table is None else f"{c.name}_{rescale_key(c.names, item)}",
    }


def accumulator_row(c: Compiled, a: Accumulator) -> dict[str, Any]:
    node = next(n for n in c.graph.nodes if n.name == a.node)
    text = f"{node.op.describe()} ({node.op_type} {node.onnx_name})"
    return {"id": c.names.members["acc", a.node], "ctype": a.ctype, "count": a.count, "comment": comment(text)}


def history_pointer(c: Compiled, s: Storage) -> str:
    """First byte of a tensor's history in state: its own array, a place in the shared block, or all of that block."""
    if c.layout.overlay is None:
        return f"&r->st->{c.names.members['history', s.tensor]}[0][0]"
    if s.table is not None:
        return "r->arena"
    return f"(int8_t *)r->st->rows + {c.layout.overlay.offsets[Key(HISTORY, s.tensor)]}"


def accumulator_pointer(c: Compiled, node: Node) -> str:
    """First element of a node's sums in state."""
    assert isinstance(node.op, KernelOp)
    kept = node.op.accumulator() or node.op.running()
    if c.layout.overlay is None or kept is None:
        return f"r->st->{c.names.members['acc', node.name]}"
    offset = c.layout.overlay.offsets[Key(SUMS, node.name)]
    return f"(r->st->rows + {offset // 4})" if kept[0] == "int32_t" else f"((uint8_t *)r->st->rows + {offset})"


def overlay_rows(c: Compiled) -> dict[str, Any] | None:
    """The shared block of a clip's state: its size, and where everything lies."""
    placed = c.layout.overlay
    if placed is None:
        return None
    kinds = {HISTORY: "last frames of", SUMS: "sums of", ROWS: "new rows of", WORK: "working memory of"}
    lines = [f"anywhere: rows, by {ROW_TABLE}"] if c.layout.row_table else []
    for b in sorted(placed.buffers, key=lambda b: placed.offsets[b.name]):
        if b.name.kind in kinds:
            lines.append(f"{placed.offsets[b.name]}: {kinds[b.name.kind]} {b.name.of}, {b.bytes} B")
    return {"words": -(-placed.total // 4), "lines": [comment(line) for line in lines]}


def history_row(c: Compiled, s: Storage) -> dict[str, Any]:
    """A history in the state struct, and who reads it."""
    readers = c.graph.readers(s.tensor)
    text = ", ".join(f"{c.names.nodes[n.name]} ({n.op.describe() or 'frame j'})" for n in readers)
    return {
        "id": c.names.members["history", s.tensor],
        "head": c.names.members["head", s.tensor],
        "keep": s.keep,
        "bytes": s.frame_bytes,
        "head_type": head_type(s),
        "comment": comment(f"last {s.keep} frames for {text}; {s.keep} * {s.frame_bytes} = {s.history_bytes} B"),
    }


def head_type(s: Storage) -> str:
    return "uint8_t" if s.head_bytes == 1 else "uint16_t"
