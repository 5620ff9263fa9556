"""The streaming schedule: when frames exist, how many rows every tensor keeps, and one small clock for all of it.

Paced execution (docs/streaming.md): in a tick from clock N to N' <= N + hop every tensor gains the frames
clip(A(N)) .. clip(A(N')) - 1, nodes in topological order. The clock runs from `start` (<= 0, pre-roll inside the first
push) over the T input frames to the end of the post-roll. Once the clock reaches warm_up + period it may be reduced by
a multiple of `period`: counts, reads and lengths relative to each other do not change, so no index grows for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.ir.lengths import (
    PlanError,
    counts,
    ended_tensors,
    joins_shortest,
    lengths_with_faults,
    plan_error,
    raw_length,
    readers,
    tensors,
)
from codegen.ir.periods import n_start, period, smallest, warm_up
from codegen.ir.time import Last, Reduce, TimeGraph, Unstreamable, Upsample
from codegen.plan.steps import Step, StepTable, add_count, add_length


@dataclass(frozen=True)
class StreamPlan:
    """All numbers of a schedule for ticks of at most `hop` input frames. Clock values and rows in frames.

    `count_steps` are evaluated in order, step 0 is the clock: A_x = steps[count_of[x]], signed, to be clipped at 0.
    `length_steps` likewise with step 0 = T; L_x = 0 if T < shortest[x], else steps[length_of[x]]. Ended tensors (made
    by Reduce or Last, or from such) have count 0 until finish and length 1. `unequal_joins` are pairs of tensors whose
    lengths finish must find equal.
    """

    hop: int
    start: int
    warm_up: int
    period: int
    keep: dict[str, int]
    ring: dict[str, int]
    new: dict[str, int]
    count_steps: tuple[Step, ...]
    count_of: dict[str, int]
    length_steps: tuple[Step, ...]
    length_of: dict[str, int]
    shortest: dict[str, int]
    unequal_joins: tuple[tuple[str, str], ...]
    ended: tuple[str, ...]

    def available(self, clock: int) -> dict[str, int]:
        """A(N) by the steps, as the generated C evaluates them."""
        values = _evaluate(self.count_steps, clock)
        return {name: values[step] for name, step in self.count_of.items()}

    def finished(self, total: int) -> dict[str, int]:
        """L(T) by the steps, as the generated C evaluates them."""
        values = _evaluate(self.length_steps, total)
        return {name: values[step] if total >= self.shortest[name] else 0 for name, step in self.length_of.items()}

    def reduced(self, clock: int) -> int:
        """The clock after taking off whole periods: below warm_up + period."""
        if clock < self.warm_up + self.period:
            return clock
        return self.warm_up + (clock - self.warm_up) % self.period

    def __str__(self) -> str:
        lines = [
            f"hop {self.hop}, clock from {self.start}, reduced by {self.period} once >= {self.warm_up + self.period}",
            f"{'tensor':<24} {'keep':>5} {'ring':>5} {'new':>5}  count; length (0 if T < shortest)",
        ]
        for name, keep in self.keep.items():
            made = self.count_steps[self.count_of[name]].text("A", "N")
            total = self.length_steps[self.length_of[name]].text("L", "T")
            tail = f"{made}; {total} ({self.shortest[name]})"
            lines.append(f"{name:<24} {keep:>5} {self.ring[name]:>5} {self.new[name]:>5}  {tail}")
        return "\n".join(lines)


def _evaluate(steps: Sequence[Step], argument: int) -> list[int]:
    values: list[int] = []
    for step in steps:
        values.append(step.evaluate(values, argument))
    return values


def check(graph: TimeGraph) -> None:
    """Raise PlanError for a graph that has no schedule, with all bad nodes at once."""
    ended = ended_tensors(graph)
    faults: list[PlanError] = []
    for node in graph.nodes:
        rule = node.rule
        dead = [x for x in node.inputs if x in ended]
        if isinstance(rule, Unstreamable):
            faults.append(plan_error(node.name, f"every output frame reads the whole sequence ({rule.reason})"))
        elif isinstance(rule, Upsample) and rule.offset < 0:
            faults.append(plan_error(node.name, f"upsampling with offset {rule.offset}", "offsets >= 0"))
        elif dead and len(dead) < len(node.inputs):
            live = next(x for x in node.inputs if x not in ended)
            found = f"joins stream {live} with {dead[0]}, which exists only at the end ({ended[dead[0]]})"
            faults.append(plan_error(node.name, found, "", "Use a fixed window instead of the whole sequence."))
        elif dead and raw_length(rule, [1]) != 1:
            faults.append(plan_error(node.name, f"{dead[0]} has one frame", "operators that turn one frame into one"))
    if faults:
        raise PlanError("plan", [problem for fault in faults for problem in fault.problems])


def rows(graph: TimeGraph, hop: int) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """(keep K, ring R, new m) of every tensor in frames for ticks of <= hop: docs/streaming.md, exact.

    Beyond F1: Last(count) needs `count` rows at finish; an Upsample with an offset repeats the last frame in a later
    tick than the one that made it, so one row survives. A ring has at least m rows, so that a tick's rows fit side by
    side; an unread tensor keeps nothing and has ring = new.
    """
    ended = ended_tensors(graph)
    read_by = readers(graph)
    live = [name for name in tensors(graph) if name not in ended]
    span = period(graph)
    table = [counts(graph, n) for n in range(span + hop)]
    keep = dict.fromkeys(tensors(graph), 0)
    ring = dict.fromkeys(tensors(graph), 1)
    new = dict.fromkeys(tensors(graph), 1)
    for x in live:
        new[x] = max(table[n + hop][x] - table[n][x] for n in range(span))
        ring[x] = max(1, new[x])
        for reader in read_by[x]:
            rule = reader.rule
            if isinstance(rule, Reduce):
                continue
            if isinstance(rule, Last):
                least, behind = rule.frames, [0]
            else:
                least = 1 if isinstance(rule, Upsample) and rule.offset > 0 else 0
                behind = [rule.lowest()(table[n][reader.output]) for n in range(span)]
                ring[x] = max(ring[x], *(table[n + hop][x] - behind[n] for n in range(span)))
                keep[x] = max(keep[x], *(table[n][x] - behind[n] for n in range(span)), 0)
            keep[x] = max(keep[x], least)
            ring[x] = max(ring[x], least)
    return keep, ring, new


def _steps(graph: TimeGraph) -> tuple[StepTable, StepTable]:
    """Count and length formulas of every tensor, composed and shared."""
    made, total = StepTable(), StepTable()
    ended = ended_tensors(graph)
    for name in graph.inputs:
        made.of[name] = total.of[name] = 0
    for node in graph.nodes:
        if node.output in ended:
            made.of[node.output] = made.constant(0)
            total.of[node.output] = total.constant(1)
        else:
            add_count(made, node)
            add_length(total, node)
    return made, total


def _shortest(graph: TimeGraph) -> dict[str, int]:
    """Smallest T at which each tensor has a frame, by one bisection per tensor."""

    def has_frame(name: str) -> Callable[[int], bool]:
        return lambda total: lengths_with_faults(graph, total)[0][name] > 0

    return {name: smallest(has_frame(name), 0) for name in tensors(graph)}


def plan(graph: TimeGraph, hop: int = 1) -> StreamPlan:
    """The schedule of a graph for ticks of at most `hop` input frames. Raises PlanError where there is none."""
    if hop < 1:
        raise plan_error("hop", f"hop {hop} found", "hops of at least 1 frame")
    check(graph)
    made, total = _steps(graph)
    keep, ring, new = rows(graph, hop)
    shortest = _shortest(graph)
    pairs: dict[tuple[int, int, int, int], tuple[str, str]] = {}
    for node in graph.nodes:
        x = node.inputs[0]
        for y in () if joins_shortest(node.rule) else node.inputs[1:]:
            key = (total.of[x], shortest[x], total.of[y], shortest[y])
            if key[:2] != key[2:]:
                pairs.setdefault(key, (x, y))
    return StreamPlan(
        hop=hop,
        start=n_start(graph),
        warm_up=warm_up(graph),
        period=period(graph),
        keep=keep,
        ring=ring,
        new=new,
        count_steps=tuple(made.steps),
        count_of=made.of,
        length_steps=tuple(total.steps),
        length_of=total.of,
        shortest=shortest,
        unequal_joins=tuple(pairs.values()),
        ended=tuple(ended_tensors(graph)),
    )
