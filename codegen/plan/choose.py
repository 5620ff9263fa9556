"""How a model runs: streamed, or a clip whose head streams and whose tail runs layer by layer at its end (hybrid).

All plans compute every frame once, so none has fewer MACs than another; they differ in RAM and in the MACs of their
largest push, which is what a deadline has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import log, log2

from codegen.errors import CodegenError, unsupported
from codegen.ir.graph import Graph
from codegen.options import Options
from codegen.passes.hybrid import estimate, hybrids, kept_bytes
from codegen.plan import streaming
from codegen.plan.check import check
from codegen.plan.hops import macs_per_push
from codegen.plan.kernels import TARGETS, Choices, Table, choose
from codegen.plan.layout import Layout, layout_below
from codegen.plan.order import orders
from codegen.plan.tiling import TilePlan, plan_layers

MAX_CUTS = 48
"""Cuts of a clip that are planned, those that promise most first: very deep networks have hundreds."""

WORTH = 0.08
"""The share of RAM that a plan must save for each doubling of the largest push (`balanced`)."""


@dataclass(frozen=True)
class Point:
    """A plan that was looked at: the tensor up to which it streams ('': all of it), state and scratch, and MACs of the
    largest push. No `ram_bytes`: it was clear that a plan with no larger push needs no more."""

    cut: str
    ram_bytes: int | None
    push_macs: int


@dataclass(frozen=True)
class PlanRow:
    """How a model runs: 'stream', 'whole', or 'hybrid', where all frames of `cut` are kept and the rest runs layer by
    layer; what it was chosen for, and all that was looked at."""

    plan: str
    cut: str = ""
    plan_for: str = "balanced"
    tried: tuple[Point, ...] = ()

    @property
    def front(self) -> list[Point]:
        """The plans that no other one beats in RAM or largest push without losing in the other."""
        known = [p for p in self.tried if p.ram_bytes is not None]
        best: list[Point] = []
        for point in sorted(known, key=lambda p: (p.push_macs, p.ram_bytes or 0)):
            if not best or (point.ram_bytes or 0) < (best[-1].ram_bytes or 0):
                best.append(point)
        return best


@dataclass(frozen=True)
class Chosen:
    """A graph with its schedule, kernels, memory and tiles (of all layers that could be cut), and how it was chosen."""

    graph: Graph
    stream: streaming.StreamPlan
    memory: Layout
    kernels: Choices
    row: PlanRow
    tiles: dict[str, TilePlan] = field(default_factory=dict)

    @property
    def point(self) -> Point:
        return Point(self.row.cut, self.memory.ram_bytes, macs_per_push(self.graph, self.stream))


def plan(graph: Graph, whole: Callable[[], Graph | None], options: Options, table: Table) -> Chosen:
    """The plan that the options ask for. Raises CodegenError (3).

    `graph` is the imported model; its nodes run in the order of the file, or in another one that needs less. `whole` is
    the same model with one push for everything, or None; `table`: the kernels by operator.
    """
    check(graph)
    is_whole = all(port.view.time_axis is None for port in graph.inputs)
    row = PlanRow("whole" if is_whole else "stream")
    streamed = _least(graph, _schedule(graph, options), options, table, row, None)
    assert streamed is not None
    forced = options.plan == "hybrid"
    cuts = _cuts(graph, whole, options, streamed) if options.plan in ("auto", "hybrid") and not is_whole else []
    if forced and not cuts:
        raise _no_cut(graph, is_whole)
    made = [] if forced else [streamed]
    tried, failed = [streamed.point], None
    for cut in cuts:
        beaten = [c.memory.ram_bytes for c in made if c.point.push_macs <= cut.push_macs]
        try:
            found = cut.planned(options, table, min(beaten, default=None))
        except CodegenError as error:  # a layer of the tail has no tile that fits
            failed, found = error, None
        tried.append(Point(cut.at, found.memory.ram_bytes if found else None, cut.push_macs))
        made += [_with_note(found, streamed)] if found else []
    if not made:
        assert failed is not None
        raise failed
    best = preferred(made, options)
    return replace(best, row=replace(best.row, plan_for=options.plan_for, tried=tuple(tried)))


def preferred(made: Sequence[Chosen], options: Options) -> Chosen:
    """The best of some plans: least RAM, least largest push, or the balance of both (`WORTH`); with a budget of RAM the
    least largest push that fits."""
    points = {id(c): (c.memory.ram_bytes, c.point.push_macs) for c in made}
    ram = min(made, key=lambda c: points[id(c)])
    if options.plan_for == "ram":
        return ram
    fitting = [c for c in made if options.ram_budget is None or points[id(c)][0] <= options.ram_budget]
    if options.plan_for == "latency" or options.ram_budget is not None:
        return min(fitting, key=lambda c: points[id(c)][::-1], default=ram)
    return min(made, key=lambda c: balance(*points[id(c)]))


def balance(ram_bytes: int, push_macs: int) -> float:
    """What `balanced` keeps least: the logarithm of RAM, and what each doubling of the largest push must save."""
    return log(max(1, ram_bytes)) - log(1 - WORTH) * log2(max(1, push_macs))


@dataclass(frozen=True)
class _Cut:
    """A hybrid that can be planned: the ONNX name of its cut, its graph and schedule."""

    at: str
    graph: Graph
    stream: streaming.StreamPlan
    push_macs: int

    def planned(self, options: Options, table: Table, limit: int | None) -> Chosen | None:
        """Its plan with the least RAM, None where that is not below `limit`."""
        if limit is not None and kept_bytes(self.graph) >= limit:
            return None
        return _least(self.graph, self.stream, options, table, PlanRow("hybrid", self.at), limit)


def _cuts(graph: Graph, whole: Callable[[], Graph | None], options: Options, streamed: Chosen) -> list[_Cut]:
    """The cuts that promise most, those with the smallest pushes first."""
    if graph.clip_length is None or any(port.view.time_axis is not None for port in graph.outputs):
        return []
    other = whole()
    found = list(hybrids(graph, other)) if other is not None else []
    found.sort(key=lambda pair: estimate(pair[1], streamed.stream.keep))
    cuts = []
    for name, cut in found[:MAX_CUTS]:
        stream = _schedule(cut, options)
        cuts.append(_Cut(cut.tensors[name].onnx_name or name, cut, stream, macs_per_push(cut, stream)))
    return sorted(cuts, key=lambda cut: cut.push_macs)


def _schedule(graph: Graph, options: Options) -> streaming.StreamPlan:
    hop = 1 if graph.carried else min(options.hop, graph.clip_length or options.hop)
    return streaming.plan(graph.time_graph(), hop)


def _least(
    graph: Graph, stream: streaming.StreamPlan, options: Options, table: Table, row: PlanRow, limit: int | None
) -> Chosen | None:
    """The order of execution with the least RAM, None where none needs less than `limit` bytes."""
    best: Chosen | None = None
    for ordered in orders(graph):
        best = _with_memory(ordered, stream, options, table, row, best.memory.ram_bytes if best else limit) or best
    return best


def _with_memory(
    graph: Graph, stream: streaming.StreamPlan, options: Options, table: Table, row: PlanRow, limit: int | None
) -> Chosen | None:
    """Tiles, kernels and memory of a graph; None where it does not need less than `limit` bytes."""
    tiles: dict[str, TilePlan] = {}
    copied = 0
    if options.fast_memory is not None or options.cores > 1:
        tiles = plan_layers(graph, options.fast_memory, options.cores)
        if options.fast_memory is not None:
            copied = max((plan.working_set_bytes for plan in tiles.values() if plan.is_cut), default=0)
    cut = [name for name, plan in tiles.items() if plan.is_cut]
    kernels = choose(graph, TARGETS[options.target], cut, table)
    memory = layout_below(graph, stream, kernels, limit)
    if memory is None:
        return None
    memory = replace(memory, fast_bytes=copied, cores=options.cores)
    if limit is not None and memory.ram_bytes >= limit:
        return None
    return Chosen(graph, stream, memory, kernels, row, tiles)


def _with_note(hybrid: Chosen, streamed: Chosen) -> Chosen:
    """A hybrid with what it costs and saves."""
    a, b = hybrid.point, streamed.point
    text = (
        f"hybrid: all frames of {a.cut} are kept, and what follows runs layer by layer once the last one is there;"
        f" {a.ram_bytes} B of state and scratch and at most {a.push_macs} MACs a push,"
        f" {b.ram_bytes} B and {b.push_macs} if all streamed"
    )
    return replace(hybrid, graph=replace(hybrid.graph, notes=(*hybrid.graph.notes, text)))


def _no_cut(graph: Graph, whole: bool) -> CodegenError:
    if whole:
        found, hint = "a model that has no stream axis", "Leave --plan out, or name the axis with --stream"
    elif graph.clip_length is None:
        found, hint = "an endless stream: it has no end at which layers could run", "Leave --plan out, or fix T"
    else:
        found = "no tensor of the clip is all that the rest of the network depends on, or an output is a stream"
        hint = "Use --plan stream or whole"
    return unsupported("plan", graph.name, f"--plan hybrid for {found}", "a clip with outputs at its end", hint)
