"""Placement of buffers with lifetimes in one arena: lower bound, greedy in several orders, a bounded local search."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from codegen.ir.lengths import plan_error

SEARCH_SEED = 1
SEARCH_TRIALS = 100
SEARCH_WORK = 1_000_000
"""Looks at a neighbour in the changes of one placement: about half a second."""
EVER = (0, 1 << 30)

HISTORY, ROWS, ROW, SUMS, WORK = "history", "rows", "row", "acc", "work"


class Key(NamedTuple):
    """What a buffer holds: frames from before or new rows of a tensor, one row (or group) of it, sums or working memory
    of a node."""

    kind: str
    of: str
    row: int = -1

    def __str__(self) -> str:
        return f"{self.kind} {self.of}" if self.row < 0 else f"{self.kind} {self.of} {self.row}"


Leads = Mapping[tuple[Key, Key], int]


@dataclass(frozen=True)
class Buffer:
    """`bytes` bytes with a life in ticks and the steps of each tick, firsts and lasts included.

    `linear`: live without a pause from first_step of first_tick to last_step of last_tick (a row). Else live in these
    steps of every one of these ticks (new rows); in all steps (`EVER`) if it waits from tick to tick. `grows`: (tick,
    bytes) in rising order, that only so many bytes are live from each tick on (rows that are kept side by side).
    """

    name: Key
    bytes: int
    first_step: int
    last_step: int
    first_tick: int = 0
    last_tick: int = 0
    linear: bool = False
    grows: tuple[tuple[int, int], ...] = ()

    @property
    def lives(self) -> bool:
        """Whether its life ends no earlier than it begins."""
        if self.linear:
            return (self.first_tick, self.first_step) <= (self.last_tick, self.last_step)
        return self.first_tick <= self.last_tick and self.first_step <= self.last_step

    def steps(self, tick: int) -> tuple[int, int]:
        """First and last step in which it is live in a tick of its life."""
        if not self.linear:
            return self.first_step, self.last_step
        first = self.first_step if tick == self.first_tick else EVER[0]
        return first, self.last_step if tick == self.last_tick else EVER[1]

    def overlaps(self, other: Buffer) -> bool:
        """True if both are live at a common time."""
        first, last = max(self.first_tick, other.first_tick), min(self.last_tick, other.last_tick)
        if first > last:
            return False
        if first + 1 < last and (self.linear or other.linear):
            return True  # a tick in the middle: one of them is live in all of its steps
        for tick in (first, last):
            (a, b), (c, d) = self.steps(tick), other.steps(tick)
            if a <= d and c <= b:
                return True
        return False

    def size(self, tick: int) -> int:
        """Live bytes up to and including a tick."""
        if not self.grows:
            return self.bytes
        known = bisect_right(self.grows, tick, key=lambda step: step[0])
        return self.grows[known - 1][1] if known else 0


@dataclass(frozen=True)
class Placement:
    """Byte offset of every buffer, arena size, and a number of bytes that no arena can be smaller than."""

    offsets: dict[Key, int]
    total: int
    lower_bound: int
    buffers: tuple[Buffer, ...] = ()
    leads: Leads | None = None

    @property
    def shared(self) -> int:
        """Bytes that outputs take over from operands which are still being read."""
        sizes = {b.name: b.bytes for b in self.buffers}
        pairs = sorted({(min(pair), max(pair)) for pair in self.leads or {} if sizes.keys() >= set(pair)})
        ends = [min(self.offsets[x] + sizes[x] for x in pair) for pair in pairs]
        starts = [max(self.offsets[x] for x in pair) for pair in pairs]
        return sum(max(0, end - start) for start, end in zip(starts, ends, strict=True))


def lower_bound(buffers: Sequence[Buffer], leads: Leads | None = None) -> int:
    """Most bytes that are live at one time, less what `leads` let share: |A or B| >= |A| + |B| - |A and B|."""
    if not buffers:
        return 0
    ticks = np.unique([b.first_tick for b in buffers] + [at for b in buffers for at, _ in b.grows])[:, None, None]
    steps = np.unique([b.first_step for b in buffers])[:, None]
    first = np.array([(b.first_tick, b.first_step) for b in buffers])
    last = np.array([(b.last_tick, b.last_step) for b in buffers])
    linear = np.array([b.linear for b in buffers])
    alive = (first[:, 0] <= ticks) & (ticks <= last[:, 0])
    alive = alive & ((first[:, 1] <= steps) | (linear & (ticks > first[:, 0])))
    alive = alive & ((steps <= last[:, 1]) | (linear & (ticks < last[:, 0])))
    sizes = np.array([b.bytes for b in buffers], np.int64)
    live = alive @ sizes
    for i, b in enumerate(buffers):
        if b.grows:
            at = np.searchsorted([tick for tick, _ in b.grows], ticks.ravel(), side="right")
            sizes_then = np.array([0, *(size for _, size in b.grows)])[at]
            live -= alive[:, :, i] * (b.bytes - sizes_then)[:, None]
    place_of = {b.name: i for i, b in enumerate(buffers)}
    shared: dict[tuple[int, int], int] = {}
    for (lower, upper), lead in (leads or {}).items():
        if lower in place_of and upper in place_of:
            i, j = place_of[lower], place_of[upper]
            pair = (min(i, j), max(i, j))
            shared[pair] = max(shared.get(pair, 0), min(int(sizes[j]), int(sizes[i]) - lead))
    for (i, j), size in shared.items():
        live -= (alive[:, :, i] & alive[:, :, j]) * size
    return max(0, int(live.max()))


def place(
    buffers: Sequence[Buffer], alignment: int = 1, leads: Leads | None = None, work: int = SEARCH_WORK
) -> Placement:
    """Offsets (multiples of `alignment` bytes) so that buffers live at a common time never share a byte.

    `leads[lower, upper]`: these two may share, if `lower` begins at least so many bytes before `upper`.
    Best fit in several orders, and changes of each while the bound is not met, the best orders first; the smallest
    wins, the first of equals. The changes end after `work` looks at a neighbour: the result depends on the input only.
    A buffer of 0 bytes gets an offset and disturbs nobody. `lower_bound` ignores alignment.
    """
    for b in buffers:
        if b.bytes < 0 or not b.lives:
            life = f"steps {b.first_step}..{b.last_step} of ticks {b.first_tick}..{b.last_tick}"
            raise plan_error(str(b.name), f"buffer of {b.bytes} bytes in {life}")
    if alignment < 1 or len({b.name for b in buffers}) != len(buffers):
        raise plan_error("arena", f"alignment {alignment}, {len(buffers)} buffers", "alignment >= 1 and unique names")
    search = _Search(buffers, _gaps(buffers, leads or {}), alignment, work)
    bound = lower_bound(buffers, leads)
    search.run(lower_bound([_aligned(b, alignment) for b in buffers], leads))
    named = {b.name: offset for b, offset in zip(buffers, search.best, strict=True)}
    return Placement(named, search.least, bound, tuple(buffers), leads)


class _Search:
    """Best fit in many orders; `best` are the offsets with the least bytes so far, `least`."""

    def __init__(self, buffers: Sequence[Buffer], gaps: Gaps, alignment: int, work: int) -> None:
        self.sizes = [b.bytes for b in buffers]
        self.buffers, self.alignment, self.work = buffers, alignment, work
        self.gaps = [[(j, *gap) for j, gap in near.items()] for near in gaps]
        self.best: list[int] = []
        self.least = self.looks = 0

    def run(self, bound: int) -> None:
        """Every start, then changes of each, the best first, until the bound is met or the work is done."""
        large = max(self.sizes, default=0) / 4
        starts: list[tuple[int, int, list[int]]] = []
        for number, key in enumerate(_ORDERS):
            order = sorted(range(len(self.buffers)), key=lambda i: key(self.buffers[i], large))
            offsets, _ = self._greedy(order, None)
            total = self._total(offsets)
            if not starts or total < self.least:
                self.best, self.least = offsets, total
            starts.append((total, number, order))
            if self.least <= bound:
                return
        self.looks = 0
        for _, _, order in sorted(starts, key=lambda start: start[:2]):
            if len(order) > 1:
                self._promote(order, bound)

    def _promote(self, order: list[int], bound: int) -> None:
        """Trials, in each of which a buffer that ends at the top is placed earlier than before.

        A fixed seed chooses how much earlier. A long run of trials without gain ends it.
        """
        rng = random.Random(SEARCH_SEED)
        gained = 0
        for trial in range(SEARCH_TRIALS):
            if self.least <= bound or trial - gained > SEARCH_TRIALS // 2 or self.looks > self.work:
                return
            offsets, top = self._greedy(order, self.least)
            if top is None:
                self.best, self.least, gained = offsets, self._total(offsets), trial
                top = next(i for i in order if offsets[i] + self.sizes[i] == self.least)
            at = order.index(top)
            earlier = rng.randrange(at) if at and rng.random() < 0.7 else 0
            order.insert(earlier, order.pop(at))

    def _total(self, offsets: Sequence[int]) -> int:
        return max((offset + size for offset, size in zip(offsets, self.sizes, strict=True)), default=0)

    def _greedy(self, order: Sequence[int], limit: int | None) -> tuple[list[int], int | None]:
        """Best fit: each buffer into the range of offsets with the least room that its placed neighbours leave, else
        behind them all. Ends at the first buffer that reaches `limit` bytes, and names it."""
        offsets = [-1] * len(self.buffers)
        for i in order:
            near = self.gaps[i]
            taken = sorted([(at - before, at + behind) for j, before, behind in near if (at := offsets[j]) >= 0])
            self.looks += len(near)
            free, best, slack = 0, -1, -1
            for last_before, first_behind in taken:
                room = last_before - free
                if room >= 0 and (best < 0 or room < slack):
                    best, slack = free, room
                if first_behind > free:
                    free = -(-first_behind // self.alignment) * self.alignment
            offsets[i] = best if best >= 0 else free
            if limit is not None and offsets[i] + self.sizes[i] >= limit:
                return offsets, i
        return offsets, None


def _aligned(b: Buffer, alignment: int) -> Buffer:
    """The buffer with the bytes that it takes from a neighbour that must be aligned."""
    return replace(b, bytes=-(-b.bytes // alignment) * alignment)


Gaps = list[dict[int, tuple[int, int]]]


def _gaps(buffers: Sequence[Buffer], leads: Leads) -> Gaps:
    """Per buffer b and every buffer p that it must keep away from: how far b must begin before p, or behind it."""
    found: Gaps = [{} for _ in buffers]
    for i, b in enumerate(buffers):
        for j, p in enumerate(buffers[:i]):
            if b.bytes and p.bytes and b.overlaps(p):
                last = min(b.last_tick, p.last_tick)
                before = min(b.size(last), leads.get((b.name, p.name), b.bytes))
                behind = min(p.size(last), leads.get((p.name, b.name), p.bytes))
                found[i][j] = (before, behind)
                found[j][i] = (behind, before)
    return found


_ORDERS: tuple[Callable[[Buffer, float], tuple[float, ...]], ...] = (
    lambda b, _: (-b.bytes, b.first_tick, b.first_step, b.last_step),
    lambda b, _: (-b.bytes * _duration(b), -b.bytes, b.first_tick, b.first_step),
    lambda b, _: (b.first_tick, b.first_step, -b.bytes, b.last_step),
    lambda b, _: (b.last_tick, b.last_step, -b.bytes, b.first_step),
    lambda b, _: (-_duration(b), -b.bytes, b.first_tick, b.first_step),
    lambda b, _: (-b.last_tick, -b.last_step, -b.bytes, b.first_step),
    # A chain of large buffers that take over from each other is laid from its end: outputs lie below operands.
    lambda b, large: (-b.last_tick, -b.last_step) if b.bytes >= large else (1, -b.bytes, b.first_tick, b.first_step),
)


def _duration(b: Buffer) -> int:
    steps = 1 if b.linear else b.last_step - b.first_step + 1
    return steps * (b.last_tick - b.first_tick + 1)
