"""The order of a tick: lanes of counters, their steps, nodes, copies to the caller and histories."""

from __future__ import annotations

from typing import Any

from codegen.emit.model import Compiled
from codegen.emit.names import Names, comment
from codegen.emit.node import function_name
from codegen.emit.storage import address_of, head_type, history_pointer
from codegen.ir.graph import Port
from codegen.ops.base import KernelOp
from codegen.plan.layout import Storage
from codegen.plan.steps import Step


def lane_rows(c: Compiled) -> list[dict[str, Any]]:
    members: dict[int, list[str]] = {}
    for name, s in c.layout.storage.items():
        members.setdefault(s.lane, []).append(c.names.tensors[name])
    return [
        {
            "count": lane.count,
            "length": lane.length,
            "shortest": lane.shortest,
            "comment": comment(", ".join(members[i][:6]) + (", ..." if len(members[i]) > 6 else "")),
        }
        for i, lane in enumerate(c.layout.lanes)
    ]


def step_expressions(steps: tuple[Step, ...], used: set[int]) -> list[dict[str, Any]]:
    """The steps that some lane needs, as C expressions of n and earlier steps."""
    needed = set(used)
    for i in range(len(steps) - 1, -1, -1):
        if i in needed:
            needed.update(steps[i].sources)
    return [{"index": i, "c": step.in_c()} for i, step in enumerate(steps) if i in needed]


def schedule(c: Compiled, phase: str) -> list[dict[str, Any]]:
    """The nodes of a phase in order, each followed by what must happen before its inputs' scratch is used again."""
    steps: list[dict[str, Any]] = []
    written = [p.tensor for p in c.graph.inputs] if phase == "node" else []
    steps += _after(c, 0, written) if phase == "node" else []
    for at, (kind, i) in enumerate(c.layout.order, 1):
        if kind != phase:
            continue
        node = c.graph.nodes[i]
        assert isinstance(node.op, KernelOp)
        steps.append({"kind": "node", "id": function_name(c, node, phase)})
        accumulates = node.op.accumulator() is not None and phase == "node"
        steps += _after(c, at, [] if accumulates else [node.output])
    return steps


def _after(c: Compiled, at: int, written: list[str]) -> list[dict[str, Any]]:
    """Copies to the caller of tensors just written, and histories whose last reader has run."""
    steps: list[dict[str, Any]] = []
    for i, port in enumerate(c.graph.outputs):
        s = c.layout.storage[port.tensor]
        if port.tensor in written and s.fresh != "output":
            steps.append(_copy_out(s, port, c.names.outputs[i], c.names))
    for name, s in c.layout.storage.items():
        if s.keep and s.fresh != "rows" and c.layout.last_read[name] == at:
            steps.append(
                {
                    "kind": "commit" if s.table is None else "keep",
                    "at": f"{c.names.rows} + {s.table}",
                    "head": c.names.members["head", name],
                    "history": history_pointer(c, s),
                    "keep": s.keep,
                    "head_type": head_type(s),
                    "fresh": address_of(s, c.names),
                    "lane": s.lane,
                    "bytes": s.frame_bytes,
                }
            )
    return steps


def _copy_out(s: Storage, port: Port, out: str, names: Names) -> dict[str, Any]:
    count = f"(r->to[{s.lane}] - r->from[{s.lane}]) * {s.frame_bytes}"
    if port.unsigned:
        return {
            "kind": "call",
            "call": "rt_flip_s8",
            "arguments": f"{address_of(s, names)}, {count}, (int8_t *)r->out_{out}",
        }
    return {"kind": "call", "call": "rt_copy_bytes", "arguments": f"r->out_{out}, {address_of(s, names)}, {count}"}


def unequal_joins(c: Compiled) -> list[tuple[int, int, str]]:
    found = []
    for x, y in c.plan.unequal_joins:
        pair = (c.layout.storage[x].lane, c.layout.storage[y].lane)
        if pair[0] != pair[1]:
            found.append((*pair, comment(f"{x} joins {y}")))
    return found


def early_lanes(c: Compiled) -> list[int]:
    """Lanes of outputs that may hand out frames of nothing but padding before the sequence turns out to be too short.

    Such lengths are not legal (`plan.outputs.is_legal`); all of them are below the warm-up.
    """
    if c.graph.clip_length is not None:
        return []
    found: dict[int, None] = {}
    for total in range(1, c.plan.warm_up + 1):
        available, length = c.plan.available(total), c.plan.finished(total)
        for port in c.graph.outputs:
            if available[port.tensor] > length[port.tensor]:
                found[c.layout.storage[port.tensor].lane] = None
    return list(found)
