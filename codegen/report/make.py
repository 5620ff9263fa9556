"""A report of a planned model."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from codegen.ir.graph import Graph
from codegen.ir.op import Op
from codegen.numerics.certificate import certificate
from codegen.ops.base import KernelOp
from codegen.plan import outputs as plan_outputs
from codegen.plan.derivation import histories
from codegen.plan.hops import macs_per_push
from codegen.plan.kernels import PORTABLE, Choices, Target
from codegen.plan.layout import Layout
from codegen.plan.receptive_field import Extent, JoinNote
from codegen.plan.rounding import proof_of
from codegen.plan.streaming import StreamPlan
from codegen.report.rows import Means, NodeRow, OutputRow, Picture, Report

SHOWN = 3


def make_report(
    graph: Graph,
    extents: dict[str, Extent],
    plan: StreamPlan | None,
    layout: Layout | None,
    weight_bytes: dict[str, int],
    rate: float | None,
    joins: list[JoinNote],
    kernels: Choices | None = None,
    target: Target = PORTABLE,
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
                _certificate(node.op, target),
                kernels[node.name].kernel.name if kernels else "",
                kernels[node.name].reason if kernels else "",
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
    notes = [*graph.notes, *_join_notes(graph, joins)]
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


def _join_notes(graph: Graph, joins: list[JoinNote]) -> list[str]:
    """What is worth saying of joins: a line for each, one for all whose operands only have unequal centres."""
    named = {node.name: node.where for node in graph.nodes}
    lines = [
        f"{'warning: ' if note.severity == 'warning' else ''}{named.get(note.node, note.node)}: {note.text}"
        for note in joins
        if note.severity != "note"
    ]
    centred = list(dict.fromkeys(named.get(note.node, note.node) for note in joins if note.severity == "note"))
    if centred:
        shown = ", ".join(centred[:SHOWN]) + (f" and {len(centred) - SHOWN} more" if len(centred) > SHOWN else "")
        what = "joins take operands" if len(centred) > 1 else "join takes operands"
        lines.append(f"{len(centred)} {what} of unequal centres (column [S,a,b]), as the model does: {shown}")
    return lines


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


def _certificate(op: Op, target: Target) -> dict[str, Any] | None:
    """The proof that the operator's integer rounding equals the reference, as JSON."""
    proof = proof_of(op, target.forms) if isinstance(op, KernelOp) else None
    return None if proof is None else certificate(proof)


def kind(graph: Graph) -> str:
    """One of the kinds of docs/streaming.md, in words."""
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


def with_constants(report: Report, table_bytes: int, struct_bytes: int) -> Report:
    """The report with the bytes that the finished C has in its constant tables and structs."""
    return replace(report, weight_bytes=table_bytes, constant_bytes=table_bytes + struct_bytes)


def with_notes(report: Report, notes: tuple[str, ...]) -> Report:
    """The report with other notes."""
    return replace(report, notes=notes)
