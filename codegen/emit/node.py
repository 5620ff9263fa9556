"""One node as a C function: its streams, constants, numbers and comments."""

from __future__ import annotations

from typing import Any

from codegen.emit.model import Compiled
from codegen.emit.names import comment
from codegen.emit.storage import accumulator_pointer, address_of, history_pointer, target_of
from codegen.emit.tables import pads_with
from codegen.ir.graph import Node
from codegen.kernels.base import Emission
from codegen.kernels.structs import declaration
from codegen.ops.base import KernelOp
from codegen.plan.receptive_field import Extent


def node_context(c: Compiled, index: int, phase: str) -> dict[str, Any]:
    """One C function: a node's work in every tick, or (phase 'end') when the sequence is over."""
    node, names = c.graph.nodes[index], c.names
    assert isinstance(node.op, KernelOp)
    made = c.emissions[node.name]
    tables = {key: f"{c.name}_{name}" for key, name in c.tables.of_node[node.name].items()}
    accumulates = node.op.accumulator() is not None
    at_end = accumulates and phase == "end"
    read = dict.fromkeys(node.inputs[: made.operands])
    y, tensor = c.layout.storage[node.output], c.graph.tensors[node.output]
    # A reduction's per-frame work runs over the frames of its input.
    loop = c.layout.storage[node.inputs[0]] if accumulates and phase == "node" else y
    return {
        "index": index,
        "id": function_name(c, node, phase),
        "comment": comment(_title(c, node, phase)),
        "window": comment(f"{_detail(node)}{extent_text(c.extents[node.output])}"),
        "constants": [
            declaration(name, value, tables)
            for name, value in (made.end_constants if at_end else made.constants).items()
        ],
        "streams": [] if at_end else [_stream(c, name, node, made) for name in read],
        "writes": not (accumulates and phase == "node"),
        "y": {
            "lane": loop.lane,
            "bytes": tensor.frame_elements,
            "fresh": target_of(y, names, tensor.type),
            "ctype": tensor.type.ctype,
        },
        "op": made.numbers,
        "state": accumulator_pointer(c, node),
        "stage": f"RT_{node.op.final.upper()}",
        "work": f"r->arena + {c.layout.working[node.name]}",
        "tables": tables,
        "template": f"{made.template}_end" if at_end else made.template,
        "tiles": _tiles(c, node, made),
    }


def function_name(c: Compiled, node: Node, phase: str) -> str:
    """The C function of a node in a phase."""
    name = f"node_{c.names.nodes[node.name]}"
    return f"{name}_end" if phase == "end" else name


def _stream(c: Compiled, name: str, node: Node, made: Emission) -> dict[str, Any]:
    """rt_stream_t of one operand."""
    s, pad = c.layout.storage[name], pads_with(node, made)
    return {
        "history": history_pointer(c, s) if s.keep else "NULL",
        "head": f"r->st->{c.names.members['head', name]}" if s.head_bytes else "0",
        "at": f"{c.names.rows} + {s.table}" if s.keep and s.table is not None else "NULL",
        "fresh": address_of(s, c.names),
        "pad": "NULL" if pad is None else f"{c.name}_{c.tables.pads[pad]}",
        "lane": s.lane,
        "bytes": s.frame_bytes,
        "keep": 0 if s.table is not None else s.keep,
    }


def _title(c: Compiled, node: Node, phase: str) -> str:
    shown = {x: f"{c.names.tensors[x]}{list(c.graph.tensors[x].frame_shape)}" for x in (*node.inputs, node.output)}
    kind = node.op_type or type(node.op).__name__
    when = ", at the end" if phase == "end" else ""
    return f'{kind} "{node.onnx_name}"{when}: {" , ".join(shown[x] for x in node.inputs)} -> {shown[node.output]}'


def _detail(node: Node) -> str:
    detail = node.op.describe()
    return f"{detail}; " if detail else ""


def _tiles(c: Compiled, node: Node, made: Emission) -> dict[str, Any] | None:
    """How a node's output frame is cut; None where it is not."""
    plan = c.tiles.get(node.name)
    if plan is None or not plan.is_cut:
        return None
    text = f"stage {plan.stage}: tiles of {plan.block}, {plan.working_set_bytes} B, {plan.tasks} tasks"
    kernel = made.tiled
    fast = c.layout.fast_bytes > 0
    return {"tasks": plan.tasks, "fast": fast, "kernel": kernel, "struct": f"{kernel}_t", "comment": comment(text)}


def extent_text(extent: Extent) -> str:
    if extent.ended:
        return f"once per sequence ({extent.ended})"
    return f"[S,a,b] = {extent}, rf {extent.rf}, lookahead {extent.lookahead}"
