"""Plans -> the values that templates lay out: names, numbers, sentences. C is built here only as single expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.emit import operators
from codegen.emit.literals import float_literal, float_rows, rows
from codegen.emit.names import comment, unique
from codegen.ir.graph import Carried, Graph, Node, Port
from codegen.ir.time import Transposed, Window
from codegen.ops.base import KernelOp, Table
from codegen.ops.move import PadFrames
from codegen.ops.pool import AveragePoolS8
from codegen.plan import outputs as plan_outputs
from codegen.plan.layout import Accumulator, Layout, Storage
from codegen.plan.receptive_field import Extent
from codegen.plan.steps import Step
from codegen.plan.streaming import StreamPlan
from codegen.plan.tiling import TilePlan
from codegen.report.rows import Report


@dataclass(frozen=True)
class Compiled:
    """Everything known about a model when C is written."""

    graph: Graph
    extents: dict[str, Extent]
    plan: StreamPlan
    layout: Layout
    tiles: dict[str, TilePlan]
    report: Report
    name: str
    source: str
    digest: str
    version: str
    trace: bool = False


@dataclass
class Names:
    """C identifiers of tensors, nodes and ports."""

    tensors: dict[str, str]
    nodes: dict[str, str]
    inputs: list[str]
    outputs: list[str]
    rows: str


ROWS = "row_at"


def make_names(graph: Graph, prefix: str) -> Names:
    tensors = unique(graph.tensors)
    nodes = {node.name: f"node{i}_{tensors[node.output]}" for i, node in enumerate(graph.nodes)}
    used = unique([p.name for p in graph.inputs] + [f"{p.name} " for p in graph.outputs])
    ins = [used[p.name] for p in graph.inputs]
    outs = [used[f"{p.name} "] for p in graph.outputs]
    return Names(tensors, nodes, ins, outs, f"{prefix}_{ROWS}")


def model_context(c: Compiled) -> tuple[dict[str, Any], dict[str, Table]]:
    """Context of the model's templates, and all constant tables by name; equal ones once, under the first name."""
    names = make_names(c.graph, c.name)
    tables: dict[str, Table] = {}
    pads = _pad_tables(c, tables)
    nodes, headers = [], {"rt", "rt_stream", "rt_trace"}
    emissions = {}
    for node in c.graph.nodes:
        assert isinstance(node.op, KernelOp)
        made = operators.emission(node.op, f"{c.name}_{names.nodes[node.name]}")
        emissions[node.name] = made
        headers.update(made.kernels)
        if node.name in c.tiles and c.tiles[node.name].is_cut:
            headers.add(f"rt_{made.template}_tile")
        tables.update({f"{names.nodes[node.name]}_{key}": table for key, table in made.tables.items()})
    for phase, i in c.layout.order:
        node = c.graph.nodes[i]
        nodes.append(_node(c, names, i, phase, emissions[node.name], pads))
    kept = sorted((s for s in c.layout.storage.values() if s.head_bytes), key=lambda s: -s.head_bytes)
    if c.layout.row_table:
        values = np.asarray(c.layout.row_table, np.uint16)
        tables[ROWS] = Table("uint16_t", values, "byte offset of every row of the clip in the state's block")
    context: dict[str, Any] = {
        "name": c.name,
        "NAME": c.name.upper(),
        "version": c.version,
        "source": comment(c.source),
        "digest": c.digest,
        "summary": [comment(line) for line in c.report.summary()],
        "hop": c.plan.hop,
        "clip_length": c.graph.clip_length,
        "state_bytes": c.layout.state_bytes,
        "scratch_bytes": c.layout.scratch_bytes,
        "arena_words": c.layout.arena_words,
        "fast_words": -(-c.layout.fast_bytes // 4),
        "cores": c.layout.cores,
        "tiled": c.layout.cores > 1 or any(plan.is_cut for plan in c.tiles.values()),
        "padding_bytes": c.layout.state_bytes - c.layout.used_bytes,
        "accumulators": [_accumulator(c, a, names) for a in c.layout.accumulators],
        "live_lanes": c.layout.live_lanes,
        "overlay": _overlay(c),
        "macs_mean": c.report.macs_mean,
        "macs_peak": c.report.macs_peak,
        "arena": "sc->arena" if c.layout.form == "apart" else "st->rows",
        "joint": c.layout.form != "apart",
        "arena_comment": "not used: the state has room for everything"
        if c.layout.form != "apart"
        else f"{c.layout.arena_bytes} B used; no plan of this order needs less than {c.layout.arena_bound}",
        "inputs": [_port(c, p, names, names.inputs[i], False) for i, p in enumerate(c.graph.inputs)],
        "outputs": [_port(c, p, names, names.outputs[i], True) for i, p in enumerate(c.graph.outputs)],
        "single": len(c.graph.inputs) == 1 and len(c.graph.outputs) == 1,
        "histories": [_history(c, s, names) for s in kept],
        "headers": _include_order(headers | ({"rt_lut_s8"} if c.graph.carried else set())),
        "kernels": headers | ({"rt_lut_s8"} if c.graph.carried else set()),
        "lanes": _lanes(c),
        "start": c.plan.start,
        "warm_up": c.plan.warm_up,
        "period": c.plan.period,
        "count_steps": _steps(c.plan.count_steps, {lane.count for lane in c.layout.lanes}),
        "length_steps": _steps(c.plan.length_steps, {lane.length for lane in c.layout.lanes}),
        "nodes": nodes,
        "carried": [_carried(c, item, names, tables) for item in c.graph.carried],
        "steps": _schedule(c, names, "node"),
        "ending": _schedule(c, names, "end"),
        "unequal": _unequal(c),
        "early": _early(c),
    }
    moved = [p for p in context["inputs"] if p["target"] is not None]
    context["flipped_inputs"] = [p for p in moved if p["ctype"] == "uint8_t"]
    context["copied_inputs"] = [p for p in moved if p["ctype"] == "int8_t"]
    tables, context["aliases"] = _shared(tables)
    context["total"] = sum(table.bytes for table in tables.values())
    return context, tables


def _shared(tables: dict[str, Table]) -> tuple[dict[str, Table], list[tuple[str, str]]]:
    """Tables of different values, and (name, name of the table with the same values) of all others."""
    first: dict[tuple[str, bytes], str] = {}
    aliases = []
    for key, table in tables.items():
        known = first.setdefault((table.ctype, table.values.astype(np.int64).tobytes()), key)
        if known != key:
            aliases.append((key, known))
    return {key: tables[key] for key in first.values()}, aliases


def _include_order(kernels: set[str]) -> list[str]:
    return sorted({kernel.removesuffix("_w16").replace("_acc_", "_") for kernel in kernels})


def table_context(key: str, table: Table) -> dict[str, Any]:
    """What the weights templates print of a table. Apart from `model_context`: the text of large tables takes time."""
    return {
        "id": key,
        "ctype": table.ctype,
        "count": table.values.size,
        "comment": comment(table.comment or key),
        "rows": rows(table.values, table.ctype),
    }


def _pad_tables(c: Compiled, tables: dict[str, Table]) -> dict[int, str]:
    """One constant frame per padding code, as long as the longest reader needs."""
    longest: dict[int, int] = {}
    for node in c.graph.nodes:
        code = _pads_with(node)
        if code is not None:
            size = max(c.graph.tensors[x].frame_bytes for x in node.inputs)
            longest[code] = max(longest.get(code, 0), size)
    names = {}
    for code, size in sorted(longest.items()):
        key = f"pad_{'m' if code < 0 else ''}{abs(code)}"
        tables[key] = Table("int8_t", np.full(size, code, np.int8), f"a frame of padding with code {code}")
        names[code] = f"{c.name}_{key}"
    return names


def _pads_with(node: Node) -> int | None:
    """The code a node reads outside its input's sequence, if it ever does and its kernel wants a frame there."""
    rule = node.op.rule()
    outside = isinstance(rule, Window) and (rule.left > 0 or rule.right > 0 or rule.ceil_mode)
    # A transposed convolution meets the ends of its input with every phase that has more than one tap.
    outside = outside or isinstance(rule, Transposed)
    return node.op.pad_code() if outside and not isinstance(node.op, PadFrames | AveragePoolS8) else None


def _target(s: Storage, names: Names, element_bytes: int) -> str:
    """Where a node writes: codes, or int32 accumulators."""
    if element_bytes == 1 or s.fresh == "output":
        return _fresh(s, names)
    return f"(int32_t *)(void *)({_fresh(s, names)})"


def _fresh(s: Storage, names: Names) -> str:
    if s.fresh == "input":
        return f"(const int8_t *)r->in_{names.inputs[s.port]}"
    if s.fresh == "output":
        return f"r->out_{names.outputs[s.port]}"
    if s.fresh == "rows":
        return f"r->arena + {names.rows}[r->from[{s.lane}] + {s.table}]"
    if s.fresh == "carried":
        return f"r->st->{names.tensors[s.tensor]}_carried"
    if s.fresh in ("clip", "collected"):
        start = f"(int8_t *)r->st->rows + {s.offset}" if s.offset else "(int8_t *)r->st->rows"
        return start if s.fresh == "clip" else f"{start} + r->from[{s.lane}] * {s.frame_bytes}"
    return f"r->arena + {s.offset}" if s.offset else "r->arena"


def _node(
    c: Compiled, names: Names, index: int, phase: str, made: operators.Emission, pads: dict[int, str]
) -> dict[str, Any]:
    """One C function: a node's work in every tick, or (phase 'end') when the sequence is over."""
    node = c.graph.nodes[index]
    assert isinstance(node.op, KernelOp)
    accumulates = node.op.accumulator() is not None
    pad = _pads_with(node)
    read = node.inputs[: made.numbers.get("operands")]
    distinct = list(dict.fromkeys(read))
    streams = []
    for name in [] if accumulates and phase == "end" else distinct:
        s = c.layout.storage[name]
        streams.append(
            {
                "history": _history_pointer(c, s, names) if s.keep else "NULL",
                "head": f"r->st->{names.tensors[name]}_head" if s.head_bytes else "0",
                "at": f"{names.rows} + {s.table}" if s.keep and s.table is not None else "NULL",
                "fresh": _fresh(s, names),
                "pad": "NULL" if pad is None else pads[pad],
                "lane": s.lane,
                "bytes": s.frame_bytes,
                "keep": 0 if s.table is not None else s.keep,
            }
        )
    y, tensor = c.layout.storage[node.output], c.graph.tensors[node.output]
    # A reduction's per-frame work runs over the frames of its input.
    loop = c.layout.storage[node.inputs[0]] if accumulates and phase == "node" else y
    numbers = dict(made.numbers)
    numbers["second"] = distinct.index(read[-1])
    numbers["stream_of"] = [distinct.index(name) for name in read]
    numbers["copy_list"] = [
        copied | {"operand": distinct.index(node.inputs[copied["operand"]])} for copied in numbers.get("copy_list", [])
    ]
    if "size" in numbers:
        numbers["rows"] = y.frame_bytes // numbers["size"]
    shapes = " , ".join(f"{names.tensors[x]}{list(c.graph.tensors[x].frame_shape)}" for x in node.inputs)
    target = f"{names.tensors[node.output]}{list(c.graph.tensors[node.output].frame_shape)}"
    kind = node.op_type or type(node.op).__name__
    title = f'{kind} "{node.onnx_name}"{", at the end" if phase == "end" else ""}: {shapes} -> {target}'
    detail = node.op.describe()
    ident = names.nodes[node.name]
    return {
        "index": index,
        "id": f"{ident}_end" if phase == "end" else ident,
        "comment": comment(title),
        "window": comment(f"{detail + '; ' if detail else ''}{_extent_text(c.extents[node.output])}"),
        "streams": streams,
        "writes": not (accumulates and phase == "node"),
        "y": {
            "lane": loop.lane,
            "bytes": tensor.frame_elements,
            "fresh": _target(y, names, tensor.element_bytes),
            "ctype": "int32_t" if tensor.element_bytes == 4 else "int8_t",
        },
        "op": numbers,
        "state": _accumulator_pointer(c, node, ident),
        "stage": f"RT_{node.op.final.upper()}",
        "work": f"r->arena + {c.layout.working[node.name]}",
        "tables": {key: f"{c.name}_{ident}_{key}" for key in made.tables},
        "template": f"{made.template}_end" if accumulates and phase == "end" else made.template,
        "tiles": _tiles(c, node, made),
        "backwards": int(node.name in c.layout.backwards),
    }


def _tiles(c: Compiled, node: Node, made: operators.Emission) -> dict[str, Any] | None:
    """How a node's output frame is cut; None where it is not."""
    plan = c.tiles.get(node.name)
    if plan is None or not plan.is_cut:
        return None
    shape, block = plan.shape, plan.block
    return {
        "channels": shape.channels,
        "group_in": shape.group_in,
        "group_out": shape.group_out,
        "block": (block.planes, block.d, block.w),
        "tasks": plan.tasks,
        "fast": c.layout.fast_bytes > 0,
        "kernel": f"rt_{made.template}",
        "struct": f"rt_{made.template}_t",
        "comment": comment(f"stage {plan.stage}: tiles of {block}, {plan.working_set_bytes} B, {plan.tasks} tasks"),
    }


def _carried(c: Compiled, item: Carried, names: Names, tables: dict[str, Table]) -> dict[str, Any]:
    """A state tensor: where it is, where it comes from, and the table between their scales."""
    ident, s = names.tensors[item.tensor], c.layout.storage[item.tensor]
    source = c.layout.storage[item.source]
    if item.table is not None:
        tables[f"{ident}_rescale"] = Table("int8_t", item.table, f"state {item.name}: codes written to codes read")
    return {
        "id": f"{ident}_carried",
        "bytes": s.frame_bytes,
        "initial": item.initial,
        "comment": comment(f"state {item.name}, {s.frame_bytes} B: what the last step left"),
        "from": _fresh(source, names),
        "lane": source.lane,
        "table": None if item.table is None else f"{c.name}_{ident}_rescale",
    }


def _accumulator(c: Compiled, a: Accumulator, names: Names) -> dict[str, Any]:
    node = next(n for n in c.graph.nodes if n.name == a.node)
    text = f"{node.op.describe()} ({node.op_type} {node.onnx_name})"
    return {"id": f"{names.nodes[a.node]}_acc", "ctype": a.ctype, "count": a.count, "comment": comment(text)}


def _history_pointer(c: Compiled, s: Storage, names: Names) -> str:
    """First byte of a tensor's history in state: its own array, a place in the shared block, or all of that block."""
    if c.layout.overlay is None:
        return f"&r->st->{names.tensors[s.tensor]}[0][0]"
    if s.table is not None:
        return "r->arena"
    return f"(int8_t *)r->st->rows + {c.layout.overlay.offsets[f'history {s.tensor}']}"


def _accumulator_pointer(c: Compiled, node: Node, ident: str) -> str:
    assert isinstance(node.op, KernelOp)
    kept = node.op.accumulator() or node.op.running()
    if c.layout.overlay is None or kept is None:
        return f"r->st->{ident}_acc"
    offset = c.layout.overlay.offsets[f"acc {node.name}"]
    return f"(r->st->rows + {offset // 4})" if kept[0] == "int32_t" else f"((uint8_t *)r->st->rows + {offset})"


def _overlay(c: Compiled) -> dict[str, Any] | None:
    """The shared block of a clip's state: its size, and where everything lies."""
    placed = c.layout.overlay
    if placed is None:
        return None
    kinds = {"history": "last frames of", "acc": "sums of", "rows": "new rows of", "work": "working memory of"}
    lines = [f"anywhere: rows, by {ROWS}"] if c.layout.row_table else []
    for b in placed.buffers:
        kind, _, of = b.name.partition(" ")
        if kind in kinds:
            lines.append(f"{placed.offsets[b.name]}: {kinds[kind]} {of}, {b.bytes} B")
    return {"words": -(-placed.total // 4), "lines": [comment(line) for line in lines]}


def _extent_text(extent: Extent) -> str:
    if extent.ended:
        return f"once per sequence ({extent.ended})"
    return f"[S,a,b] = {extent}, rf {extent.rf}, lookahead {extent.lookahead}"


def _history(c: Compiled, s: Storage, names: Names) -> dict[str, Any]:
    readers = c.graph.readers(s.tensor)
    text = ", ".join(f"{names.nodes[n.name]} ({n.op.describe() or 'frame j'})" for n in readers)
    return {
        "id": names.tensors[s.tensor],
        "keep": s.keep,
        "bytes": s.frame_bytes,
        "head_type": _head_type(s),
        "comment": comment(f"last {s.keep} frames for {text}; {s.keep} * {s.frame_bytes} = {s.history_bytes} B"),
    }


def _head_type(s: Storage) -> str:
    return "uint8_t" if s.head_bytes == 1 else "uint16_t"


def _lanes(c: Compiled) -> list[dict[str, Any]]:
    members: dict[int, list[str]] = {}
    for name, s in c.layout.storage.items():
        members.setdefault(s.lane, []).append(name)
    return [
        {
            "count": lane.count,
            "length": lane.length,
            "shortest": lane.shortest,
            "comment": comment(", ".join(members[i][:6]) + (", ..." if len(members[i]) > 6 else "")),
        }
        for i, lane in enumerate(c.layout.lanes)
    ]


def _steps(steps: tuple[Step, ...], used: set[int]) -> list[dict[str, Any]]:
    """The steps that some lane needs, as C expressions of n and earlier steps."""
    needed = set(used)
    for i in range(len(steps) - 1, -1, -1):
        if i in needed:
            needed.update(steps[i].sources)
    return [{"index": i, "c": _step(step)} for i, step in enumerate(steps) if i in needed]


def _step(step: Step) -> str:
    if step.kind == "clock":
        return "n"
    if step.kind == "min":
        text = f"a{step.sources[0]}"
        for source in step.sources[1:]:
            text = f"rt_min({text}, a{source})"
        return text
    if step.mul == 0:
        return str(step.add)
    inner = f"a{step.sources[0]}" if step.mul == 1 else f"{step.mul} * a{step.sources[0]}"
    if step.add:
        inner += f" {'+' if step.add > 0 else '-'} {abs(step.add)}"
    if step.div == 1:
        return inner
    if step.div & (step.div - 1) == 0:
        return f"({inner}) >> {step.div.bit_length() - 1} /* floor of / {step.div} */"
    return f"rt_floor_div({inner}, {step.div})"


def _schedule(c: Compiled, names: Names, phase: str) -> list[dict[str, Any]]:
    """The nodes of a phase in order, each followed by what must happen before its inputs' scratch is used again."""
    steps: list[dict[str, Any]] = []
    written = [p.tensor for p in c.graph.inputs] if phase == "node" else []
    steps += _after(c, names, 0, written) if phase == "node" else []
    for at, (kind, i) in enumerate(c.layout.order, 1):
        if kind != phase:
            continue
        node = c.graph.nodes[i]
        assert isinstance(node.op, KernelOp)
        ident = names.nodes[node.name]
        steps.append({"kind": "node", "id": f"{ident}_end" if phase == "end" else ident})
        accumulates = node.op.accumulator() is not None and phase == "node"
        steps += _after(c, names, at, [] if accumulates else [node.output])
    return steps


def _after(c: Compiled, names: Names, at: int, written: list[str]) -> list[dict[str, Any]]:
    """Copies to the caller of tensors just written, and histories whose last reader has run."""
    steps: list[dict[str, Any]] = []
    for i, port in enumerate(c.graph.outputs):
        s = c.layout.storage[port.tensor]
        if port.tensor in written and s.fresh != "output":
            steps.append(_copy_out(s, port, names.outputs[i], names))
    for name, s in c.layout.storage.items():
        if s.keep and s.fresh != "rows" and c.layout.last_read[name] == at:
            steps.append(
                {
                    "kind": "commit" if s.table is None else "keep",
                    "at": f"{names.rows} + {s.table}",
                    "id": names.tensors[name],
                    "history": _history_pointer(c, s, names),
                    "keep": s.keep,
                    "head_type": _head_type(s),
                    "fresh": _fresh(s, names),
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
            "arguments": f"{_fresh(s, names)}, {count}, (int8_t *)r->out_{out}",
        }
    return {"kind": "call", "call": "rt_copy_bytes", "arguments": f"r->out_{out}, {_fresh(s, names)}, {count}"}


def _unequal(c: Compiled) -> list[tuple[int, int, str]]:
    found = []
    for x, y in c.plan.unequal_joins:
        pair = (c.layout.storage[x].lane, c.layout.storage[y].lane)
        if pair[0] != pair[1]:
            found.append((*pair, comment(f"{x} joins {y}")))
    return found


def _early(c: Compiled) -> list[int]:
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


def _port(c: Compiled, port: Port, names: Names, name: str, is_output: bool) -> dict[str, Any]:
    s = c.layout.storage[port.tensor]
    q = port.qparams
    unsigned = port.unsigned
    tensor = c.graph.tensors[port.tensor]
    context: dict[str, Any] = {
        "id": name,
        "MACRO": name.upper(),
        "comment": comment(port.name),
        "ctype": "int32_t" if tensor.element_bytes == 4 else "uint8_t" if unsigned else "int8_t",
        "bytes": tensor.frame_elements,
        "lane": s.lane,
        "target": None if is_output or s.fresh == "input" else _fresh(s, names),
        "frame_text": comment(_frame_text(port, tensor.frame_shape)),
        "scale": None if q is None else float_literal(q.scale),
        "zero_point": 0 if q is None else q.zero_point + (128 if unsigned else 0),
        "decoding": None if port.decoding is None else port.decoding.kind,
        "decoding_count": 0 if port.decoding is None else port.decoding.values.size,
        "decoding_rows": "" if port.decoding is None else float_rows(port.decoding.values),
        "low": 0 if unsigned else -128,
        "high": 255 if unsigned else 127,
    }
    context["quantization"] = _quantization(port, context)
    if is_output:
        context.update(_output_numbers(c, port))
    return context


def _quantization(port: Port, context: dict[str, Any]) -> str:
    if port.decoding is not None and port.decoding.kind == "accumulator":
        return "int32 accumulators, one scale per channel (see the float header)"
    if port.decoding is not None:
        return "codes of the function's input; its 256 values are in the float header"
    if port.qparams is None:
        return "raw codes"
    return f"scale {context['scale']}, zero point {context['zero_point']}"


def _output_numbers(c: Compiled, port: Port) -> dict[str, Any]:
    extent = c.extents[port.tensor]
    time = c.graph.time_graph()
    if c.graph.clip_length is not None:
        frames = c.plan.finished(c.graph.clip_length)[port.tensor]
        text = f"({frames} * ((n) / {c.graph.clip_length} + 2))"
        bound = {"P": frames, "M": c.graph.clip_length, "c": 2 * frames * c.graph.clip_length, "finish": 2 * frames}
    else:
        push = plan_outputs.out_bound(time, port.tensor, finish=False)
        most = plan_outputs.finish_max(time, port.tensor)
        scaled = "(n)" if push.P == 1 else f"(n) * {push.P}"
        value = f"({scaled} + {push.c})" if push.M == 1 else f"(({scaled} + {push.c}) / {push.M})"
        text = f"({value} > {most} ? {value} : {most})"
        bound = {"P": push.P, "M": push.M, "c": push.c, "finish": most}
    lookahead = 0 if extent.ended or extent.lookahead is None else -(-extent.lookahead // 1)
    return {"max_out": text, "bound": bound, "lookahead": int(lookahead), "timing": comment(_extent_text(extent))}


def _frame_text(port: Port, frame_shape: tuple[int, ...]) -> str:
    """How the ONNX axes lie in a frame: `[8] = ONNX axis 1 of [1, 8, T]`."""
    axes = port.view.storage_order()
    used = [str(i) for i in axes if any(not p.is_time and p.size > 1 for p in port.view.axes[i])]
    shape = "[" + ", ".join(str(n) for n in port.shape) + "]"
    order = f"ONNX axes {', '.join(used)} of {shape}, last one contiguous" if used else f"one value of {shape}"
    return f"{list(frame_shape)} ({order})"
