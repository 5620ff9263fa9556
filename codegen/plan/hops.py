"""What a larger hop costs and saves: memory and weight traffic of the same graph for several hops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from codegen.ir.graph import Graph
from codegen.ir.lengths import counts, ended_tensors
from codegen.ir.periods import period, warm_up
from codegen.ir.time import TimeGraph
from codegen.plan import streaming
from codegen.plan.kernels import Choices
from codegen.plan.layout import Layout, layout

HOPS = (1, 2, 4, 8)
LONGEST = 4096  # input frames of warm-up and period: beyond, planning several hops would be felt


@dataclass(frozen=True)
class HopRow:
    """One hop: bytes of state and scratch, most MACs of one push of it, and mean bytes of weights per input frame.

    A tick runs layer by layer: a layer's weights come from flash once for all its frames of the tick, if they stay in a
    cache or in fast memory that long; `weight_bytes_per_frame` counts just that. MACs per input frame do not change.
    """

    hop: int
    state_bytes: int
    scratch_bytes: int
    macs_per_push: int
    weight_bytes_per_frame: int


def hop_rows(
    graph: Graph,
    weight_bytes: Mapping[str, int],
    chosen: streaming.StreamPlan,
    memory: Layout,
    choices: Choices,
    hops: Sequence[int] = HOPS,
) -> list[HopRow]:
    """Rows for the usual hops and the `chosen` plan; none longer than a clip, only 1 where state is carried.

    `choices`: the kernel of each node; fast memory is that of the chosen plan.
    """
    time = graph.time_graph()
    if period(time) + warm_up(time) > LONGEST:
        return []
    wanted = sorted({*hops, chosen.hop})
    if graph.carried:
        wanted = [1]
    elif graph.clip_length is not None:
        wanted = [hop for hop in wanted if hop <= graph.clip_length or hop == chosen.hop]
    rows = []
    for hop in wanted:
        plan = chosen if hop == chosen.hop else streaming.plan(time, hop)
        needed = memory
        if plan is not chosen:
            needed = replace(layout(graph, plan, choices), fast_bytes=memory.fast_bytes, cores=memory.cores)
        rows.append(_row(graph, weight_bytes, plan, needed))
    return rows


def _row(graph: Graph, weight_bytes: Mapping[str, int], plan: streaming.StreamPlan, memory: Layout) -> HopRow:
    traffic = weight_traffic(graph.time_graph(), weight_bytes, plan.hop, graph.clip_length)
    return HopRow(plan.hop, memory.state_bytes, memory.scratch_bytes, macs_per_push(graph, plan), math.ceil(traffic))


def macs_per_push(graph: Graph, plan: streaming.StreamPlan) -> int:
    """Most MACs of one push of a hop. Source: the counts A(N) over one period; the push that ends a clip does the rest
    of the work, and what runs at the end."""
    peak = 0
    for clock in range(plan.period):
        before, after = plan.available(clock), plan.available(clock + plan.hop)
        peak = max(peak, sum((after[n.output] - before[n.output]) * n.op.macs() for n in graph.nodes))
    if graph.clip_length is not None:
        before, length = plan.available(max(0, graph.clip_length - plan.hop)), plan.finished(graph.clip_length)
        rest = [(length[n.works_on] - max(0, before[n.works_on])) * n.op.macs() for n in graph.nodes]
        peak = max(peak, sum(rest))
    return peak


def weight_traffic(
    time: TimeGraph, weight_bytes: Mapping[str, int], hop: int, clip_length: int | None = None
) -> Fraction:
    """Mean bytes of weights per input frame where a node reads all of its weights in each tick that gives it a frame.

    In steady state: over as many ticks of `hop` as make whole periods. Weights of what runs once per clip count once.
    """
    ended = ended_tensors(time)
    span = math.lcm(period(time), hop)
    clocks = [counts(time, n) for n in range(0, span + 1, hop)]
    total = Fraction(0)
    for node in time.nodes:
        size = weight_bytes.get(node.name, 0)
        if node.output in ended:
            total += Fraction(size, clip_length) if clip_length else 0
            continue
        firing = sum(b[node.output] > a[node.output] for a, b in pairwise(clocks))
        total += Fraction(size * firing, span)
    return total
