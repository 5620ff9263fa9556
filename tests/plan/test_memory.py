"""The arena planner against its lower bound and its own definition."""

from __future__ import annotations

import random

import pytest

from codegen.plan.memory import Buffer, Placement, place
from codegen.plan.rules import PlanError


def check(buffers: list[Buffer], placed: Placement, alignment: int) -> None:
    assert set(placed.offsets) == {b.name for b in buffers}
    assert placed.lower_bound <= placed.total
    for i, b in enumerate(buffers):
        start = placed.offsets[b.name]
        assert start % alignment == 0 and start + b.bytes <= placed.total
        for other in buffers[:i]:
            if b.overlaps(other) and b.bytes and other.bytes:
                at = placed.offsets[other.name]
                assert start + b.bytes <= at or at + other.bytes <= start


def test_a_chain_reuses_the_first_buffer() -> None:
    placed = place([Buffer("a", 10, 0, 1), Buffer("b", 20, 1, 2), Buffer("c", 10, 2, 3), Buffer("none", 0, 0, 9)])
    assert (placed.total, placed.lower_bound) == (30, 30)
    assert placed.offsets["a"] == placed.offsets["c"]


def test_nothing_and_alignment() -> None:
    assert place([]) == Placement({}, 0, 0)
    placed = place([Buffer("a", 3, 0, 0), Buffer("b", 3, 0, 0)], 4)
    assert sorted(placed.offsets.values()) == [0, 4] and placed.total == 7


@pytest.mark.parametrize("bad", [[Buffer("a", -1, 0, 0)], [Buffer("a", 1, 2, 1)], [Buffer("a", 1, 0, 0)] * 2])
def test_nonsense_is_refused(bad: list[Buffer]) -> None:
    with pytest.raises(PlanError):
        place(bad)


@pytest.mark.parametrize("seed", range(100))
def test_random_buffers(seed: int) -> None:
    r = random.Random(seed)
    buffers = []
    for i in range(r.randint(1, 25)):
        first = r.randint(0, 12)
        buffers.append(Buffer(f"b{i}", r.choice([0, r.randint(1, 500)]), first, first + r.randint(0, 4)))
    for alignment in (1, 4, 16):
        placed = place(buffers, alignment)
        check(buffers, placed, alignment)
        assert placed == place(list(buffers), alignment)
        if alignment == 1:
            assert placed.total <= 1.5 * placed.lower_bound
