"""The arena planner against its lower bound and its own definition."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest
from checks import Workshop
from models import Net

from codegen.ir.lengths import PlanError
from codegen.options import Options
from codegen.pipeline import compile_model
from codegen.plan import memory
from codegen.plan.memory import EVER, Buffer, Placement, lower_bound, place


def alive(b: Buffer, tick: int, step: int) -> int:
    """Live bytes of a buffer at one time, by the words of its docstring."""
    if b.linear:
        live = (b.first_tick, b.first_step) <= (tick, step) <= (b.last_tick, b.last_step)
    else:
        live = b.first_tick <= tick <= b.last_tick and b.first_step <= step <= b.last_step
    if not live:
        return 0
    return max((size for at, size in b.grows if at <= tick), default=0) if b.grows else b.bytes


def check(buffers: list[Buffer], placed: Placement, alignment: int, ticks: int = 1, steps: int = 20) -> None:
    """At every time no two buffers share a byte, but for pairs with a lead that is kept."""
    leads = placed.leads or {}
    assert set(placed.offsets) == {b.name for b in buffers}
    assert placed.lower_bound <= placed.total
    for b in buffers:
        assert placed.offsets[b.name] % alignment == 0 and placed.offsets[b.name] + b.bytes <= placed.total
    for time in product(range(ticks), range(steps)):
        here = [(placed.offsets[b.name], size, b.name) for b in buffers if (size := alive(b, *time))]
        here.sort()
        for (at, size, name), (at2, _, name2) in combinations(here, 2):
            kept = [at2 - at >= leads[name, name2]] if (name, name2) in leads else []
            kept += [at - at2 >= leads[name2, name]] if (name2, name) in leads else []
            assert at + size <= at2 or any(kept), f"{name} at {at} and {name2} at {at2} in {time}"


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


def random_life(name: str, r: random.Random) -> Buffer:
    """One of the three kinds: new rows of some ticks, a row, or rows side by side."""
    size, first, kind = r.randint(1, 300), r.randint(0, 7), r.randint(0, 3)
    last = min(7, first + r.randint(0, 4))
    if kind == 0:
        return Buffer(name, size, *EVER, first, last)
    if kind == 1:
        step = r.randint(0, 5)
        return Buffer(name, size, step, min(5, step + r.randint(0, 3)), first, last)
    if kind == 2:
        begin, end = sorted([(first, r.randint(0, 5)), (last, r.randint(0, 5))])
        return Buffer(name, size, begin[1], end[1], begin[0], end[0], linear=True)
    rows = last - first + 1
    return Buffer(name, size * rows, *EVER, first, last, grows=tuple((first + n, size * (n + 1)) for n in range(rows)))


@pytest.mark.parametrize("seed", range(100))
def test_random_lives_and_leads(seed: int) -> None:
    """Whatever the lives: nothing is shared but what may be, and the bound is a bound."""
    r = random.Random(1000 + seed)
    buffers = [random_life(f"b{i}", r) for i in range(r.randint(2, 25))]
    names = [b.name for b in buffers]
    leads = {}
    for _ in range(r.randint(0, 12)):
        low, high = r.sample(names, 2)
        leads[low, high] = r.randint(0, 120)
    placed = place(buffers, 4, leads)
    check(buffers, placed, 4, 9, 7)
    assert placed == place(list(buffers), 4, dict(leads))
    shared = place(buffers, 1, leads).total
    plain = place(buffers, 1)
    least = max(sum(alive(b, tick, step) for b in buffers) for tick in range(9) for step in range(7))
    assert plain.lower_bound == least, "without leads the bound is what is live at one time"
    assert lower_bound(buffers, leads) <= min(shared, least)


def test_outputs_that_take_over() -> None:
    """A chain of equal buffers shifts by its lead to and fro if either direction will do, else down and down."""
    chain = [Buffer(f"rows {i}", 512, i, i + 1) for i in range(6)]
    down = {(f"rows {i + 1}", f"rows {i}"): 80 for i in range(5)}
    both = down | {(upper, lower): lead for (lower, upper), lead in down.items()}
    assert place(chain).total == 1024
    assert place(chain, leads=down).total == 512 + 5 * 80
    placed = place(chain, leads=both)
    assert placed.total == placed.lower_bound == 592
    assert placed.shared == 5 * (512 - 80)


def test_the_search_ends_when_its_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at neighbours, not seconds: never more than asked for and those of one order; more work is never worse."""
    rng = random.Random(3)
    buffers = [
        Buffer(f"b{i}", rng.randrange(1, 60), *sorted((rng.randrange(40), rng.randrange(40))), 0, 0) for i in range(120)
    ]
    one = sum(map(len, memory._gaps(buffers, {})))
    looks: list[int] = []
    promote = memory._Search._promote

    def counted(self: memory._Search, order: list[int], bound: int) -> None:
        promote(self, order, bound)
        looks.append(self.looks)

    monkeypatch.setattr(memory._Search, "_promote", counted)
    totals = []
    for work in (0, one, 4 * one, 50 * one):
        looks.clear()
        totals.append(place(buffers, work=work).total)
        assert max(looks, default=0) <= work + one
    assert totals == sorted(totals, reverse=True) and totals[-1] < totals[0]


def test_planning_a_long_clip_is_bounded(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """98 frames through a dozen residual layers: every row has an address, and most cuts are placed."""
    net = Net(seed=2)
    x = net.input([1, 8, 98])
    for i in range(6):
        y = net.conv(x, 8 + 2 * i, [9], pads=[4, 4], strides=[2 if i % 2 else 1])
        x = net.add(net.conv(y, 8 + 2 * i, [9], pads=[4, 4]), y)
    net.output(net.gemm(net.code_op("Flatten", net.real_op("GlobalAveragePool", [x]), axis=1), 12))
    looks = 0
    run = memory._Search.run

    def counted(self: memory._Search, bound: int) -> None:
        nonlocal looks
        run(self, bound)
        looks += self.looks

    monkeypatch.setattr(memory._Search, "run", counted)
    compile_model(shop.save(net.model()), Options())
    print(f"{looks} looks at a neighbour")
    assert looks < 10 * memory.SEARCH_WORK
