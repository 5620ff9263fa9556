"""Integer simulation of a plan: rows hold frame numbers, every read is checked. A test instrument, and documentation.

It runs the schedule exactly as the generated C does: a reduced clock, clipped counts on it, rows addressed by their
distance from the newest row. Beside it runs the unreduced truth: absolute frame numbers and offline lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from codegen.ir.lengths import ended_tensors, lengths, plan_error, tensors
from codegen.ir.periods import n_end
from codegen.ir.time import Last, Reduce, TimeGraph, TimeNode, Upsample
from codegen.plan.streaming import StreamPlan

Form = Literal["ring", "history"]
ENDLESS = 1 << 60


class ReadFault(AssertionError):
    """A read returned the wrong frame, a frame too early, or a tensor ended with the wrong length."""


class Simulation:
    """One stream. `rows` overrides the plan's ring (or keep) rows per tensor, to show that one row less fails."""

    def __init__(self, graph: TimeGraph, plan: StreamPlan, form: Form, rows: dict[str, int] | None = None) -> None:
        self.graph, self.plan, self.form = graph, plan, form
        base = plan.ring if form == "ring" else plan.keep
        self.rows = {**base, **(rows or {})}
        self.store: dict[str, dict[int, int]] = {name: {} for name in tensors(graph)}
        self.fresh: dict[str, dict[int, int]] = {name: {} for name in tensors(graph)}
        self.made = dict.fromkeys(tensors(graph), 0)
        self.summed = dict.fromkeys((n.output for n in graph.nodes if isinstance(n.rule, Reduce)), 0)
        self.ended = ended_tensors(graph)
        self.clock = plan.start
        self.total: dict[str, int] = {}
        self.true_total: dict[str, int] = {}

    def _clipped(self, clock: int) -> dict[str, int]:
        """Counts on the reduced clock, clipped to 0 .. L (L known at finish only)."""
        available = self.plan.available(clock)
        return {name: min(max(0, a), self.total.get(name, ENDLESS)) for name, a in available.items()}

    def tick(self, frames: int) -> None:
        """Advance the clock by `frames` <= hop; every node computes what its count grants."""
        before, after = self._clipped(self.clock), self._clipped(self.clock + frames)
        for fresh in self.fresh.values():
            fresh.clear()
        for name in self.graph.inputs:
            self._write(name, after[name] - before[name])
        for node in self.graph.nodes:
            if isinstance(node.rule, Reduce):
                self._accumulate(node, before, after)
            elif node.output not in self.ended:
                for j in range(before[node.output], after[node.output]):
                    self._compute(node, j, after)
        for name, fresh in self.fresh.items():
            keep = self.rows[name]
            for frame in list(fresh)[-keep:] if keep and self.form == "history" else ():
                self.store[name][frame % keep] = frame
        self.clock += frames
        if not self.total:
            self.clock = self.plan.reduced(self.clock)

    def _write(self, name: str, frames: int) -> None:
        for frame in range(self.made[name], self.made[name] + frames):
            if self.form == "ring":
                self.store[name][frame % max(1, self.rows[name])] = frame
            else:
                self.fresh[name][frame] = frame
        self.made[name] += frames

    def _fetch(self, node: str, x: str, frame: int) -> None:
        """Read row `frame` of x where the schedule believes it to be."""
        if not 0 <= frame < self.made[x]:
            raise ReadFault(f"{node} reads frame {frame} of {x}, which has {self.made[x]}")
        if self.form == "history" and frame in self.fresh[x]:
            return
        size = max(1, self.rows[x]) if self.form == "ring" else self.rows[x]
        found = self.store[x].get(frame % size) if size else None
        if found != frame:
            raise ReadFault(f"{node} reads frame {frame} of {x}, finds {found} ({self.form} of {size} rows)")

    def _compute(self, node: TimeNode, j: int, after: dict[str, int]) -> None:
        """Frame j on the reduced clock, which is frame made[output] of the stream."""
        truth = node.rule.reads(self.made[node.output])
        for x in node.inputs:
            for i, i_true in zip(node.rule.reads(j), truth, strict=True):
                end, true_end = self.total.get(x, ENDLESS), self.true_total.get(x, ENDLESS)
                if isinstance(node.rule, Upsample):
                    i, i_true = min(i, end - 1), min(i_true, true_end - 1)  # noqa: PLW2901
                padding = not 0 <= i < end
                if padding != (not 0 <= i_true < true_end):
                    raise ReadFault(
                        f"{node.name} takes frame {i_true} of {x} for {'padding' if padding else 'a frame'}"
                    )
                if padding:
                    continue
                row = self.made[x] - (after[x] - i)
                if row != i_true:
                    raise ReadFault(f"{node.name} reads frame {row} of {x} instead of {i_true}")
                self._fetch(node.name, x, row)
        self._write(node.output, 1)

    def _accumulate(self, node: TimeNode, before: dict[str, int], after: dict[str, int]) -> None:
        x = node.inputs[0]
        for i in range(before[x], after[x]):
            self._fetch(node.name, x, self.made[x] - (after[x] - i))
            self.summed[node.output] += 1

    def push(self, frames: int) -> None:
        """One push: pre-roll if it is the first, then ticks of at most hop frames."""
        if frames <= 0:
            return
        while self.clock < 0:
            self.tick(min(-self.clock, self.plan.hop))
        while frames > 0:
            step = min(frames, self.plan.hop)
            self.tick(step)
            frames -= step

    def finish(self, total: int) -> None:
        """End of a clip of `total` frames: post-roll, then check all lengths and end-of-stream reads."""
        truth = lengths(self.graph, total)
        if truth is None:
            raise plan_error("finish", f"a clip of {total} frames is not legal")
        if total == 0:
            return
        reduced = self.plan.finished(self.clock)
        if any(reduced[x] != reduced[y] for x, y in self.plan.unequal_joins):
            raise ReadFault(f"the reduced clock calls {total} frames illegal")
        end = n_end(self.graph, self.clock)
        available = self._clipped(self.clock)
        self.total = {name: max(available[name], reduced[name]) for name in reduced}
        self.true_total = {name: max(self.made[name], truth[name]) for name in truth}
        while self.clock < end:
            self.tick(self.plan.hop)
        self._check_end(truth)

    def _check_end(self, truth: dict[str, int]) -> None:
        for fresh in self.fresh.values():
            fresh.clear()
        for node in self.graph.nodes:
            x = node.inputs[0]
            if isinstance(node.rule, Reduce) and self.summed[node.output] != self.made[x]:
                raise ReadFault(f"{node.name} reduced {self.summed[node.output]} of {self.made[x]} frames")
            if isinstance(node.rule, Last) and self.made[x] >= node.rule.frames:
                self._fetch(node.name, x, self.made[x] - node.rule.frames)
        for name, frames in truth.items():
            if name not in self.ended and self.made[name] != frames and frames > 0:
                raise ReadFault(f"{name} ended with {self.made[name]} of {frames} frames")


def simulate(
    graph: TimeGraph,
    plan: StreamPlan,
    total: int,
    chunks: Sequence[int],
    *,
    form: Form,
    rows: dict[str, int] | None = None,
) -> dict[str, int]:
    """Run a clip of `total` frames in pushes of `chunks` (repeated until used up); frames made of every tensor.

    Raises ReadFault at the first wrong read, PlanError if the clip is not legal.
    """
    stream = Simulation(graph, plan, form, rows)
    left, turn = total, 0
    while left > 0:
        step = min(left, chunks[turn % len(chunks)])
        stream.push(step)
        left -= step
        turn += 1
    stream.finish(total)
    return stream.made
