"""Counts, lengths, rows, warm-up and the reduced clock."""

from __future__ import annotations

import pytest
from plan_graphs import Builder, chain_graph, random_graph, waits_for

from codegen.errors import CodegenError
from codegen.ir.lengths import (
    PlanError,
    counts,
    ended_tensors,
    lengths,
    lengths_with_faults,
    tensors,
)
from codegen.ir.periods import n_end, n_start, period, phases, warm_up
from codegen.ir.time import Join, Last, Recurrent, Reduce, TimeGraph, Transposed, Unstreamable, Upsample, Window
from codegen.plan.outputs import is_legal
from codegen.plan.streaming import plan

CHAIN = chain_graph(*(Window(3, s, 1, 1, 1) for s in (1, 1, 2, 1, 1)))


def test_chain_plan() -> None:
    """k=3 same convs, strides 1 1 2 1 1: two rows survive everywhere, hop 1 needs k rows."""
    p = plan(CHAIN, 1)
    assert (p.start, p.period) == (0, 2)
    assert p.keep == {"x": 2, "t1": 2, "t2": 2, "t3": 2, "t4": 2, "t5": 0}
    assert p.ring == {"x": 3, "t1": 3, "t2": 3, "t3": 3, "t4": 3, "t5": 1}
    assert set(p.new.values()) == {1}
    assert [step.text("A", "N") for step in p.count_steps] == [
        "N",
        "N - 1",
        "N - 2",
        "floor_div(N - 2, 2)",
        "floor_div(N - 4, 2)",
        "floor_div(N - 6, 2)",
    ]
    assert counts(CHAIN, 8) == {"x": 8, "t1": 7, "t2": 6, "t3": 3, "t4": 2, "t5": 1}
    assert lengths(CHAIN, 7) == {"x": 7, "t1": 7, "t2": 7, "t3": 4, "t4": 4, "t5": 4}
    assert n_end(CHAIN, 8) == 14  # t5 has 4 frames; A = floor((N - 6)/2) >= 4
    assert p.length_of["t3"] == p.length_of["t4"] == p.length_of["t5"]
    assert "tensor" in str(p)


def test_skip_keeps_what_the_slow_branch_needs() -> None:
    """x -> k5 same -> + x: x needs 4 rows for the window; as a join operand alone only 2."""
    b = Builder()
    y = b.add(Window(5, left=2, right=2), "x")
    b.add(Join(), "x", y)
    assert plan(b.graph(), 1).keep["x"] == 4
    b = Builder()
    d = b.add(Window(), "x")
    y = b.add(Window(5, left=2, right=2), "x")
    b.add(Join(), d, y)
    p = plan(b.graph(), 3)
    assert (p.keep["t1"], p.ring["t1"], p.new["t1"]) == (2, 5, 3)


def test_transposed_and_upsample_rows() -> None:
    p = plan(chain_graph(Transposed(4, 2, 1, 1, 1)), 1)
    assert (p.keep["x"], p.ring["x"], p.new["t1"]) == (1, 2, 2)  # ceil(k/s) - 1
    assert plan(chain_graph(Upsample(2)), 1).keep["x"] == 0
    assert plan(chain_graph(Upsample(2, 1)), 1).keep["x"] == 1  # the last frame is repeated a tick later


def test_endings() -> None:
    p = plan(chain_graph(Window(3), Reduce(), Window()), 2)
    assert (p.keep["t1"], p.ring["t1"]) == (0, 2)
    assert p.ended == ("t2", "t3")
    assert p.finished(2)["t3"] == 0 and p.finished(3)["t3"] == 1
    p = plan(chain_graph(Last(3)), 1)
    assert (p.keep["x"], p.ring["x"]) == (3, 3)
    assert p.finished(2)["t1"] == 0 and p.finished(3)["t1"] == 1
    assert plan(chain_graph(Recurrent()), 4).keep["x"] == 0


def test_pure_delay_starts_before_zero() -> None:
    graph = chain_graph(Window(left=2))
    assert n_start(graph) == -2
    assert counts(graph, 0)["t1"] == 2


def test_empty_tensors_make_everything_after_them_empty() -> None:
    graph = chain_graph(Window(5), Window(left=2))
    assert lengths(graph, 4) == {"x": 4, "t1": 0, "t2": 0}
    assert lengths(graph, 5) == {"x": 5, "t1": 1, "t2": 3}
    assert lengths(chain_graph(Window(1, left=1, right=1)), 0) == {"x": 0, "t1": 0}


def test_ceil_mode_drops_windows_that_start_in_the_padding() -> None:
    graph = chain_graph(Window(2, 3, ceil_mode=True))
    assert [(lengths(graph, t) or {})["t1"] for t in range(1, 8)] == [1, 1, 1, 2, 2, 2, 3]
    graph = chain_graph(Window(3, 2, left=1, right=1, ceil_mode=True))
    assert [(lengths(graph, t) or {})["t1"] for t in range(1, 6)] == [1, 2, 2, 3, 3]


def bad_graphs() -> list[tuple[TimeGraph, str]]:
    unequal, mixed = Builder(), Builder()
    unequal.add(Join(), "x", unequal.add(Window(stride=2), "x"))
    mixed.add(Join(), "x", mixed.add(Reduce(), "x"))
    return [
        (chain_graph(Window(), Unstreamable("softmax over time")), "n2"),
        (unequal.graph(), "n2"),
        (mixed.graph(), "n2"),
        (chain_graph(Reduce(), Window(3)), "n2"),
        (chain_graph(Upsample(2, -1)), "n1"),
    ]


@pytest.mark.parametrize(("graph", "node"), bad_graphs())
def test_refusals_name_the_node(graph: TimeGraph, node: str) -> None:
    with pytest.raises(PlanError, match=node) as caught:
        plan(graph, 1)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, CodegenError)
    with pytest.raises(PlanError):
        plan(CHAIN, 0)


@pytest.mark.parametrize("seed", range(100))
def test_steps_equal_the_recurrences(seed: int) -> None:
    graph = random_graph(seed)
    p = plan(graph, 2)
    for n in range(p.start - 3, p.warm_up + 2 * p.period + 5):
        assert p.available(n) == counts(graph, n)
    for total in range(p.warm_up + 2 * p.period + 20):
        length, faults = lengths_with_faults(graph, total)
        made = p.finished(total)
        assert bool(faults) == any(made[x] != made[y] for x, y in p.unequal_joins)
        if not faults:
            assert made == length


@pytest.mark.parametrize("seed", range(60))
def test_counts_equal_the_waiting_times(seed: int) -> None:
    """A(N) = number of frames j with tau(j) <= N - 1, tau by recursion on what a frame waits for."""
    graph = random_graph(seed)
    ended = ended_tensors(graph)
    by_output = {node.output: node for node in graph.nodes}

    def tau(tensor: str, j: int) -> int:
        if tensor not in by_output:
            return j
        node = by_output[tensor]
        return max(tau(x, waits_for(node.rule, j)) for x in node.inputs)

    for n in (-4, 0, 1, 7, 40, 41):
        for tensor, a in counts(graph, n).items():
            if tensor not in ended:
                assert tau(tensor, a - 1) <= n - 1 < tau(tensor, a)


@pytest.mark.parametrize("seed", range(100))
def test_everything_is_periodic_from_the_warm_up_on(seed: int) -> None:
    """N -> N + M changes no clipped count difference, no read relative to the newest frame, no length minus count."""
    graph = random_graph(seed)
    w, m, per = warm_up(graph), period(graph), phases(graph)
    ended = ended_tensors(graph)
    for n in range(w, w + 2 * m + 3):
        a, later = counts(graph, n), counts(graph, n + m)
        length, faults = lengths_with_faults(graph, n)
        length2, faults2 = lengths_with_faults(graph, n + m)
        assert faults == faults2 and is_legal(graph, n) == is_legal(graph, n + m)
        assert n_end(graph, n + m) == n_end(graph, n) + m
        for x in tensors(graph):
            step = 0 if x in ended else m * per[x][1] // per[x][0]
            assert a[x] >= 0 and later[x] - a[x] == step
            assert length[x] > 0 and length2[x] - length[x] == step
        for node in graph.nodes:
            if node.output in ended:
                continue
            lo, lo2 = (node.rule.lowest()(c[node.output]) for c in (a, later))
            assert lo >= 0
            assert all(a[x] - lo == later[x] - lo2 for x in node.inputs)


@pytest.mark.parametrize("seed", range(60))
def test_the_warm_up_is_the_shortest(seed: int) -> None:
    """One frame earlier something is clipped: a count, a read or a length."""
    graph = random_graph(seed)
    w = warm_up(graph)
    if w == 0:
        return
    a, (length, _) = counts(graph, w - 1), lengths_with_faults(graph, w - 1)
    ended = ended_tensors(graph)
    lows = [n.rule.lowest()(a[n.output]) for n in graph.nodes if n.output not in ended]
    assert min(a.values()) < 0 or min(length.values()) <= 0 or min(lows) < 0


def test_reduced_clock_stays_small() -> None:
    p = plan(CHAIN, 1)
    for clock in range(p.start, 200):
        small = p.reduced(clock)
        assert small < p.warm_up + p.period and (clock - small) % p.period == 0


def test_phases_are_the_shortest() -> None:
    """up 2: two frames per input; k 2 s 2 below it takes both: one per input again, in one phase."""
    assert phases(chain_graph(Upsample(2), Window(2, 2), Window(3, 3), Transposed(4, 2))) == {
        "x": (1, 1),
        "t1": (1, 2),
        "t2": (1, 1),
        "t3": (3, 1),
        "t4": (3, 2),
    }
