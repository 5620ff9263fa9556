"""A compiled model -> the values that templates lay out: names, numbers, sentences."""

from __future__ import annotations

from typing import Any

from codegen.emit.model import Compiled
from codegen.emit.names import comment
from codegen.emit.node import node_context
from codegen.emit.ports import port_context
from codegen.emit.schedule import early_lanes, lane_rows, schedule, step_expressions, unequal_joins
from codegen.emit.storage import accumulator_row, carried_row, history_row, overlay_rows


def model_context(c: Compiled) -> dict[str, Any]:
    """Context of the model's templates; `codegen.emit.tables.table_context` prints the tables."""
    kept = sorted((s for s in c.layout.storage.values() if s.head_bytes), key=lambda s: -s.head_bytes)
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
        "accumulators": [accumulator_row(c, a) for a in c.layout.accumulators],
        "live_lanes": c.layout.live_lanes,
        "overlay": overlay_rows(c),
        "macs_mean": c.report.macs_mean,
        "macs_peak": c.report.macs_peak,
        "arena": "sc->arena" if c.layout.form == "apart" else "st->rows",
        "joint": c.layout.form != "apart",
        "arena_comment": "not used: the state has room for everything"
        if c.layout.form != "apart"
        else f"{c.layout.arena_bytes} B used; no plan of this order needs less than {c.layout.arena_bound}",
        "inputs": [port_context(c, p, c.names.inputs[i], False) for i, p in enumerate(c.graph.inputs)],
        "outputs": [port_context(c, p, c.names.outputs[i], True) for i, p in enumerate(c.graph.outputs)],
        "single": len(c.graph.inputs) == 1 and len(c.graph.outputs) == 1,
        "histories": [history_row(c, s) for s in kept],
        "headers": headers(c),
        "lanes": lane_rows(c),
        "start": c.plan.start,
        "warm_up": c.plan.warm_up,
        "period": c.plan.period,
        "count_steps": step_expressions(c.plan.count_steps, {lane.count for lane in c.layout.lanes}),
        "length_steps": step_expressions(c.plan.length_steps, {lane.length for lane in c.layout.lanes}),
        "nodes": [node_context(c, i, phase) for phase, i in c.layout.order],
        "carried": [carried_row(c, item) for item in c.graph.carried],
        "steps": schedule(c, "node"),
        "ending": schedule(c, "end"),
        "unequal": unequal_joins(c),
        "early": early_lanes(c),
    }
    moved = [p for p in context["inputs"] if p["target"] is not None]
    context["flipped_inputs"] = [p for p in moved if p["ctype"] == "uint8_t"]
    context["copied_inputs"] = [p for p in moved if p["ctype"] == "int8_t"]
    context["aliases"] = c.tables.aliases
    context["total"] = c.tables.bytes
    return context


def headers(c: Compiled) -> list[str]:
    """Runtime headers that the model includes, without .h."""
    found = {"rt", "rt_stream", "rt_trace", *(header for made in c.emissions.values() for header in made.headers)}
    return sorted(found | ({"rt_lut_s8"} if c.graph.carried else set()))


def units(c: Compiled) -> set[str]:
    """Runtime files that the model needs, without what they include themselves."""
    return {*headers(c), *(unit for made in c.emissions.values() for unit in made.units)}
