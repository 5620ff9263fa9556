"""Placement of buffers with lifetimes in one arena: lower bound, greedy in several orders, a bounded local search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codegen.plan.rules import plan_error

SEARCH_SEED = 1
SEARCH_TRIALS = 400


@dataclass(frozen=True)
class Buffer:
    """`bytes` bytes that are live in steps first_step .. last_step, both included."""

    name: str
    bytes: int
    first_step: int
    last_step: int

    def overlaps(self, other: Buffer) -> bool:
        """True if both are live in a common step."""
        return self.first_step <= other.last_step and other.first_step <= self.last_step


@dataclass(frozen=True)
class Placement:
    """Byte offset of every buffer, arena size, and the most live bytes of any step (no arena can be smaller)."""

    offsets: dict[str, int]
    total: int
    lower_bound: int
    buffers: tuple[Buffer, ...] = ()


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Largest number of bytes that are live in one step."""
    return max(
        (sum(b.bytes for b in buffers if b.first_step <= at.first_step <= b.last_step) for at in buffers), default=0
    )


def place(buffers: Sequence[Buffer], alignment: int = 1) -> Placement:
    """Offsets (multiples of `alignment` bytes) so that buffers live in a common step never share a byte.

    Best fit in several orders, then swaps and moves in the best order while the bound is not met; the smallest wins,
    the first of equals: the result depends on the input only.
    A buffer of 0 bytes gets an offset and disturbs nobody. `lower_bound` ignores alignment.
    """
    for b in buffers:
        if b.bytes < 0 or b.first_step > b.last_step:
            raise plan_error(b.name, f"buffer of {b.bytes} bytes in steps {b.first_step}..{b.last_step}")
    if alignment < 1 or len({b.name for b in buffers}) != len(buffers):
        raise plan_error("arena", f"alignment {alignment}, {len(buffers)} buffers", "alignment >= 1 and unique names")
    bound = lower_bound(buffers)
    orders = [sorted(buffers, key=key) for key in _ORDERS]
    totals = [_total(buffers, _greedy(order, alignment)) for order in orders]
    best = orders[totals.index(min(totals))]
    reachable = lower_bound([replace(b, bytes=-(-b.bytes // alignment) * alignment) for b in buffers])
    if min(totals) > reachable:
        best = _search(buffers, best, alignment, reachable)
    offsets = _greedy(best, alignment)
    return Placement({b.name: offsets[b.name] for b in buffers}, _total(buffers, offsets), bound, tuple(buffers))


def _total(buffers: Sequence[Buffer], offsets: dict[str, int]) -> int:
    return max((offsets[b.name] + b.bytes for b in buffers), default=0)


def _search(buffers: Sequence[Buffer], order: list[Buffer], alignment: int, bound: int) -> list[Buffer]:
    """Hill climbing over placement orders by swaps and moves, with a fixed seed and a bounded number of trials."""
    rng = random.Random(SEARCH_SEED)
    best, least = list(order), _total(buffers, _greedy(order, alignment))
    current, value = best, least
    for _ in range(SEARCH_TRIALS if len(order) > 1 else 0):
        if least <= bound:
            break
        trial = list(current)
        if rng.random() < 0.5:
            i, j = rng.sample(range(len(trial)), 2)
            trial[i], trial[j] = trial[j], trial[i]
        else:
            trial.insert(rng.randrange(len(trial)), trial.pop(rng.randrange(len(trial))))
        total = _total(buffers, _greedy(trial, alignment))
        # A few steps upwards leave local minima.
        if total <= value or rng.random() < 0.02:
            current, value = trial, total
        if total < least:
            best, least = trial, total
    return best


_ORDERS: tuple[Callable[[Buffer], tuple[int, ...]], ...] = (
    lambda b: (-b.bytes, b.first_step, b.last_step),
    lambda b: (-b.bytes * (b.last_step - b.first_step + 1), -b.bytes, b.first_step),
    lambda b: (b.first_step, -b.bytes, b.last_step),
    lambda b: (b.last_step, -b.bytes, b.first_step),
    lambda b: (-(b.last_step - b.first_step), -b.bytes, b.first_step),
)


def _greedy(order: Sequence[Buffer], alignment: int) -> dict[str, int]:
    """Best fit: each buffer into the smallest gap between already placed neighbours, else behind them."""
    offsets: dict[str, int] = {}
    placed: list[Buffer] = []
    for b in order:
        if b.bytes == 0:
            offsets[b.name] = 0
            continue
        taken = sorted((offsets[p.name], offsets[p.name] + p.bytes) for p in placed if p.overlaps(b))
        free, best, slack = 0, -1, -1
        for start, end in taken:
            gap = start - free - b.bytes
            if gap >= 0 and (best < 0 or gap < slack):
                best, slack = free, gap
            free = max(free, -(-end // alignment) * alignment)
        offsets[b.name] = best if best >= 0 else free
        placed.append(b)
    return offsets
