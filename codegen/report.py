"""What the user sees of a model: per-node numbers, totals, notes. Values for the table, report.json and C comments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from codegen.ir.graph import Graph
from codegen.numerics.certificate import certificate
from codegen.ops.base import KernelOp, Op
from codegen.plan import outputs as plan_outputs
from codegen.plan import receptive_field
from codegen.plan.derivation import History, histories
from codegen.plan.hops import HopRow, macs_per_push
from codegen.plan.layout import Layout
from codegen.plan.memory import Placement
from codegen.plan.receptive_field import Extent, JoinNote
from codegen.plan.rounding import proof_of
from codegen.plan.streaming import StreamPlan
from codegen.plan.tiling import TilePlan

SCHEMA = "onnx2stream report 1"


@dataclass(frozen=True)
class NodeRow:
    """One line of the table. macs per output frame; rows and bytes of the tensor it writes."""

    index: int
    name: str
    op: str
    path: str
    detail: str
    frame: tuple[int, ...]
    extent: Extent | None
    keep: int
    new: int
    state_bytes: int
    macs: int
    weight_bytes: int
    requantize: dict[str, Any] | None = None


@dataclass(frozen=True)
class OutputRow:
    """Latency of one graph output in input frames: lookahead of the model, and waiting for a full hop."""

    name: str
    extent: Extent
    stride: Fraction | None
    lookahead: int
    hop_wait: int


@dataclass(frozen=True)
class PlanRow:
    """How a model runs: 'stream', 'whole', or 'hybrid', where all frames of `cut` are kept and the rest runs layer by
    layer. `tried`: state + scratch of every cut that was looked at ('': everything streamed), None where it was clear
    that it does not need less than the best one before it."""

    plan: str
    cut: str = ""
    tried: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True)
class Means:
    """What the memory plan does: its form (`codegen.plan.layout`), the least that its order and lifetimes allow, bytes
    that outputs take over from operands still being read, and bytes of row addresses in flash."""

    form: str
    lower_bound: int
    shared_bytes: int
    row_table_bytes: int


@dataclass(frozen=True)
class TileRow:
    """How the output frame of one layer is cut (`codegen.plan.tiling`)."""

    name: str
    plan: TilePlan


@dataclass(frozen=True)
class Picture:
    """Buffers that share memory over time: the steps of a tick, or the ticks of a clip.

    `steps` names the points of the time axis, `spans` gives each buffer's first and last, `live` the most bytes that
    are live at each.
    """

    steps: tuple[str, ...]
    placement: Placement
    spans: dict[str, tuple[int, int]]
    live: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """Everything measured about one build. `arena` is None where nothing could be planned.

    `weight_bytes` are the tables of the weights file, `constant_bytes` those and the structs that tell kernels about
    them, on a 32-bit target.
    """

    kind: str
    hop: int
    rate: float | None
    nodes: tuple[NodeRow, ...]
    outputs: tuple[OutputRow, ...]
    macs_mean: int
    macs_peak: int
    weight_bytes: int
    state_bytes: int
    scratch_bytes: int
    notes: tuple[str, ...]
    legal: str
    constant_bytes: int = 0
    histories: tuple[History, ...] = ()
    arena: Picture | None = None
    overlay: Picture | None = None
    hops: tuple[HopRow, ...] = ()
    plan: PlanRow | None = None
    means: Means | None = None
    tiles: tuple[TileRow, ...] = ()

    def summary(self) -> list[str]:
        """Sentences for the head of the generated header."""
        lines = [
            f"{self.kind}; hop {self.hop}; state {self.state_bytes} B, scratch {self.scratch_bytes} B, "
            f"weights {self.weight_bytes} B, {self.macs_mean} MACs per input frame"
        ]
        lines += [
            f"output {o.name}: [S,a,b] = {o.extent}, rf {o.extent.rf}, lookahead {o.lookahead} frames"
            if not o.extent.ended
            else f"output {o.name}: once per sequence"
            for o in self.outputs
        ]
        if self.legal:
            lines.append(f"legal lengths T: {self.legal}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """report.json: the schema is documented in README.md."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "hop": self.hop,
            "totals": {
                "state_bytes": self.state_bytes,
                "scratch_bytes": self.scratch_bytes,
                "weight_bytes": self.weight_bytes,
                "constant_bytes": self.constant_bytes,
                "macs_per_frame": self.macs_mean,
                "macs_per_push": self.macs_peak,
            },
            "plan": None if self.plan is None else _plan_json(self.plan),
            "memory": None if self.means is None else vars(self.means),
            "tiles": [_tile_json(row) for row in self.tiles],
            "hops": [vars(row) for row in self.hops],
            "legal_lengths": self.legal,
            "nodes": [_row_json(row) for row in self.nodes],
            "outputs": [_output_json(row, self.rate) for row in self.outputs],
            "histories": [_history_json(row) for row in self.histories],
            "arena": _picture_json(self.arena),
            "state_overlay": _picture_json(self.overlay),
            "notes": list(self.notes),
        }


def extent_json(extent: Extent | None) -> dict[str, Any] | None:
    if extent is None:
        return None
    if extent.ended:
        return {"ended": extent.ended}

    def number(value: Fraction | None) -> str | int | None:
        return None if value is None else int(value) if value.denominator == 1 else str(value)

    return {
        "S": number(extent.S),
        "a": number(extent.a),
        "b": number(extent.b),
        "rf": extent.rf,
        "lookahead": number(extent.lookahead),
    }


def _plan_json(row: PlanRow) -> dict[str, Any]:
    tried = [{"cut": cut or None, "ram_bytes": size} for cut, size in row.tried]
    return {"plan": row.plan, "cut": row.cut or None, "tried": tried}


def _tile_json(row: TileRow) -> dict[str, Any]:
    plan, block = row.plan, row.plan.block
    return {
        "name": row.name,
        "stage": plan.stage,
        "block": {"channels": block.planes, "depth": block.d, "rows": block.h, "width": block.w},
        "working_set_bytes": plan.working_set_bytes,
        "tasks": plan.tasks,
        "attempts": [vars(attempt) for attempt in plan.attempts],
    }


def _row_json(row: NodeRow) -> dict[str, Any]:
    return {
        "index": row.index,
        "name": row.name,
        "op": row.op,
        "path": row.path,
        "detail": row.detail,
        "frame": list(row.frame),
        "window": extent_json(row.extent),
        "history_frames": row.keep,
        "new_frames": row.new,
        "state_bytes": row.state_bytes,
        "macs_per_frame": row.macs,
        "weight_bytes": row.weight_bytes,
        "requantize": row.requantize,
    }


def _output_json(row: OutputRow, rate: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": row.name,
        "window": extent_json(row.extent),
        "lookahead_frames": row.lookahead,
        "hop_wait_frames": row.hop_wait,
    }
    if rate:
        result["lookahead_ms"] = 1000.0 * row.lookahead / rate
        result["hop_wait_ms"] = 1000.0 * row.hop_wait / rate
    return result


def _history_json(row: History) -> dict[str, Any]:
    return {
        "tensor": row.tensor,
        "frame_bytes": row.frame_bytes,
        "history_frames": row.keep,
        "new_frames": row.new,
        "ring_frames": row.ring,
        "why": list(row.why),
    }


def _picture_json(picture: Picture | None) -> dict[str, Any] | None:
    if picture is None:
        return None
    placed = picture.placement
    buffers = [
        {
            "name": b.name,
            "bytes": b.bytes,
            "offset": placed.offsets[b.name],
            "first_step": picture.spans[b.name][0],
            "last_step": picture.spans[b.name][1],
        }
        for b in placed.buffers
    ]
    return {
        "bytes": placed.total,
        "lower_bound": placed.lower_bound,
        "steps": list(picture.steps),
        "buffers": buffers,
    }


def make_report(
    graph: Graph,
    extents: dict[str, Extent],
    plan: StreamPlan | None,
    layout: Layout | None,
    weight_bytes: dict[str, int],
    rate: float | None,
    joins: list[JoinNote],
) -> Report:
    """Collect the numbers; `plan` and `layout` are None for models that cannot be streamed (analysis only)."""
    time = graph.time_graph()
    rows = []
    for i, node in enumerate(graph.nodes):
        tensor = graph.tensors[node.output]
        keep = plan.keep[node.output] if plan else 0
        rows.append(
            NodeRow(
                i,
                node.onnx_name,
                node.op_type or type(node.op).__name__,
                node.path,
                node.op.describe(),
                tensor.frame_shape,
                extents.get(node.output),
                keep,
                plan.new[node.output] if plan else 0,
                keep * tensor.frame_bytes,
                node.op.macs(),
                weight_bytes.get(node.name, 0),
                _certificate(node.op),
            )
        )
    outputs = []
    for port in graph.outputs:
        extent = extents[port.tensor]
        stride = None if extent.ended else extent.S
        lookahead = 0 if extent.ended or extent.lookahead is None else int(-(-extent.lookahead // 1))
        wait = plan_outputs.hop_wait(time, port.tensor, plan.hop) if plan and not extent.ended else 0
        outputs.append(OutputRow(port.name, extent, stride, lookahead, wait))
    mean, peak = _macs(graph, extents, plan)
    kinds = {"note": "", "warning": "warning: "}
    notes = [*graph.notes, *(f"{kinds.get(note.severity, '')}{note.node}: {note.text}" for note in joins)]
    legal = str(plan_outputs.legal_lengths(time)) if plan and graph.clip_length is None else ""
    return Report(
        kind(graph),
        plan.hop if plan else 1,
        rate,
        tuple(rows),
        tuple(outputs),
        mean,
        peak,
        sum(weight_bytes.values()),
        layout.state_bytes if layout else 0,
        layout.scratch_bytes if layout else 0,
        tuple(notes),
        legal,
        0,
        histories(graph, plan) if plan else (),
        _arena(graph, layout) if layout else None,
        _overlay(graph, plan, layout) if plan and layout else None,
        means=_means(layout) if layout else None,
    )


def _means(layout: Layout) -> Means:
    shared = layout.arena.shared + (layout.overlay.shared if layout.overlay else 0)
    return Means(layout.form, layout.lower_bound, shared, 2 * len(layout.row_table))


def _arena(graph: Graph, layout: Layout) -> Picture:
    """Scratch over the steps of one tick, and of the end of the sequence."""
    steps = ["the tick's input"]
    for kind, i in layout.order:
        steps.append(f"{graph.nodes[i].where}{', at the end' if kind == 'end' else ''}")
    if graph.carried:
        steps.append("carry the state")
    ending = 1 + sum(kind == "node" for kind, _ in layout.order)
    spans = {}
    for b in layout.arena.buffers:
        at_end = b.first_tick >= layout.end
        ticks = ending + b.first_tick - layout.end, ending + b.last_tick - layout.end
        spans[b.name] = ticks if at_end else (b.first_step, b.last_step)
    live = [sum(b.bytes for b in layout.arena.buffers if _within(t, spans[b.name])) for t in range(len(steps))]
    return Picture(tuple(steps), layout.arena, spans, tuple(live))


def _within(at: int, span: tuple[int, int]) -> bool:
    return span[0] <= at <= span[1]


def _overlay(graph: Graph, plan: StreamPlan, layout: Layout) -> Picture | None:
    """A clip's state over its ticks: by the input frames that have arrived, then by the nodes that run at the end."""
    if layout.overlay is None:
        return None
    ticks = [f"{max(0, plan.start + t)} input frames" for t in range(layout.end)]
    ticks += [f"{graph.nodes[i].where}, at the end" for kind, i in layout.order if kind == "end"]
    buffers = layout.overlay.buffers
    spans = {b.name: (b.first_tick, min(b.last_tick, len(ticks) - 1)) for b in buffers}
    # Between these ticks nothing changes: a row is live in some steps of its first and its last one only.
    edges = {t for first, last in spans.values() for t in (first, first + 1, last, last + 1)}
    edges |= {at for b in buffers for at, _ in b.grows} | {0, len(ticks)}
    live: list[int] = []
    for start, stop in pairwise(sorted(t for t in edges if t <= len(ticks))):
        here = [(b.steps(start), b.size(start)) for b in buffers if _within(start, spans[b.name])]
        firsts = {steps[0] for steps, _ in here}
        most = max((sum(size for steps, size in here if _within(t, steps)) for t in firsts), default=0)
        live += [most] * (stop - start)
    return Picture(tuple(ticks), layout.overlay, spans, tuple(live))


def _certificate(op: Op) -> dict[str, Any] | None:
    """The proof that the operator's integer rounding equals the reference, as JSON."""
    proof = proof_of(op) if isinstance(op, KernelOp) else None
    return None if proof is None else certificate(proof)


def kind(graph: Graph) -> str:
    """One of the kinds of DESIGN.md section 4, in words."""
    if graph.clip_length is None:
        return "endless stream"
    if all(port.view.time_axis is None for port in graph.inputs):
        return "whole: one push is the whole input"
    return f"clip of {graph.clip_length} frames"


def _macs(graph: Graph, extents: dict[str, Extent], plan: StreamPlan | None) -> tuple[int, int]:
    """(mean per input frame, rounded up; largest of one push of a hop). Source: the counts A(N) over one period."""
    mean = Fraction(0)
    for node in graph.nodes:
        extent = extents.get(node.works_on)
        if extent is None or not node.op.macs():
            continue
        if not extent.ended:
            mean += Fraction(node.op.macs()) / extent.S
        elif graph.clip_length:
            mean += Fraction(node.op.macs(), graph.clip_length)
    if plan is None:
        return -(-mean.numerator // mean.denominator), 0
    return -(-mean.numerator // mean.denominator), macs_per_push(graph, plan)


def analyse_graph(graph: Graph) -> tuple[dict[str, Extent], list[JoinNote]]:
    """[S, a, b] of every tensor, and what is worth saying about joins."""
    time = graph.time_graph()
    extents = receptive_field.analyse(time)
    return extents, receptive_field.joins(time, extents)


def with_constants(report: Report, table_bytes: int, struct_bytes: int) -> Report:
    """The report with the bytes that the finished C has in its constant tables and structs."""
    return replace(report, weight_bytes=table_bytes, constant_bytes=table_bytes + struct_bytes)


def with_notes(report: Report, notes: tuple[str, ...]) -> Report:
    """The report with other notes."""
    return replace(report, notes=notes)
