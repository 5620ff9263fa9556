"""Frames per push and finish, latency, legal clip lengths; formulas against plain counting."""

from __future__ import annotations

import pytest
from plan_graphs import Builder, chain_graph, random_graph

from codegen.ir.lengths import counts, ended_tensors, lengths
from codegen.ir.periods import period, warm_up
from codegen.ir.time import Join, Last, Reduce, Transposed, Upsample, Window
from codegen.plan.outputs import (
    finish_max,
    hop_wait,
    is_legal,
    latency,
    legal_lengths,
    max_out,
    out_bound,
)

CHAIN = chain_graph(*(Window(3, s, 1, 1, 1) for s in (1, 1, 2, 1, 1)))


def test_chain() -> None:
    """[2, -7, 7]: one frame per two inputs, ready with input 2j + 7, three or four left at the end (T odd: 4)."""
    assert [max_out(CHAIN, "t5", n) for n in range(6)] == [0, 1, 1, 2, 2, 3]
    assert finish_max(CHAIN, "t5") == 4
    delay = latency(CHAIN, "t5")
    assert delay is not None and (delay.best, delay.worst) == (7, 7)
    assert [hop_wait(CHAIN, "t5", hop) for hop in (1, 2, 3, 4)] == [0, 0, 2, 2]
    bound = out_bound(CHAIN, "t5", finish=False)
    assert (bound.P, bound.M, bound.c) == (1, 2, 1)
    assert [out_bound(CHAIN, "t5")(n) for n in (0, 1, 2)] == [4, 4, 5]


def test_the_first_push_may_yield_more() -> None:
    graph = chain_graph(Window(left=2))
    assert [max_out(graph, "t1", n) for n in (0, 1, 2)] == [0, 3, 4]


def test_endings_yield_one_frame_at_finish() -> None:
    graph = chain_graph(Window(3), Reduce())
    assert max_out(graph, "t2", 9) == 0 and finish_max(graph, "t2") == 1
    assert latency(graph, "t2") is None and hop_wait(graph, "t2", 3) == 0
    assert (out_bound(graph, "t2")(0), out_bound(graph, "t2", finish=False)(100)) == (1, 0)
    assert finish_max(chain_graph(Last(2)), "t1") == 1


def test_latency_is_tight_where_a_stride_skips_the_worst_phase() -> None:
    """up 2, then k 2 s 2: the table says b = 1/2, but only even frames are read: frame j waits for input j."""
    delay = latency(chain_graph(Upsample(2), Window(2, 2)), "t2")
    assert delay is not None and delay.worst == 0
    delay = latency(chain_graph(Upsample(3)), "t1")
    assert delay is not None and (delay.worst, 3 * delay.best) == (0, -2)


def test_legal_lengths_of_a_u_net() -> None:
    b = Builder()
    down = b.add(Window(2, 2), "x")
    b.add(Join(), b.add(Upsample(2), down), "x")
    legal = legal_lengths(b.graph())
    assert (legal.modulus, legal.residues, str(legal)) == (2, (0,), "multiples of 2")
    assert [legal.allows(t) for t in (0, 1, 2, 3, 4)] == [True, False, True, False, True]
    assert legal_lengths(CHAIN).every and str(legal_lengths(CHAIN)) == "any"
    b = Builder()
    b.add(Join(), b.add(Window(5), "x"), b.add(Window(left=-4), "x"))
    legal = legal_lengths(b.graph())
    assert legal.every and not legal.never
    b = Builder()
    b.add(Join(), b.add(Window(5), "x"), "x")
    legal = legal_lengths(b.graph())
    assert legal.never and str(legal) == "only 0"


def test_frames_of_padding_before_an_empty_tensor_are_not_legal() -> None:
    """k 5 without padding, then two frames of padding: pushed out at T = 3, where the offline tensors are empty."""
    legal = legal_lengths(chain_graph(Window(5), Window(left=2)))
    assert [legal.allows(t) for t in range(7)] == [True, True, True, False, False, True, True]
    assert str(legal) == "any, not 3..4"


@pytest.mark.parametrize("seed", range(80))
def test_formulas_equal_counting(seed: int) -> None:
    graph = random_graph(seed)
    far, m = warm_up(graph) + 2 * period(graph), period(graph)
    ended = ended_tensors(graph)
    available = [counts(graph, n) for n in range(far + m + 40)]
    for out in graph.outputs:
        bound, pushes = out_bound(graph, out), out_bound(graph, out, finish=False)
        for n in (0, 1, 2, 3, 7, 16, 31):
            made = [max(0, available[t + n][out]) - (max(0, available[t][out]) if t else 0) for t in range(far)]
            most = max(made) if n and out not in ended else 0
            assert max_out(graph, out, n) == most <= pushes(n) <= bound(n)
        left = 0
        for total in range(far):
            length = lengths(graph, total)
            if length is not None:
                left = max(left, length[out] - (max(0, available[total][out]) if total else 0))
        assert finish_max(graph, out) == left <= bound(0)
        if out not in ended and pushes.c > 0:
            tight = [n for n in range(1, 2 * m + 2) if max_out(graph, out, n) * pushes.M > n * pushes.P + pushes.c - 1]
            assert tight  # c - 1 would be too small for some n


@pytest.mark.parametrize("seed", range(80))
def test_legal_lengths_equal_trying(seed: int) -> None:
    graph = random_graph(seed)
    legal = legal_lengths(graph)
    for total in range(warm_up(graph) + 4 * period(graph)):
        assert legal.allows(total) == is_legal(graph, total)
        if is_legal(graph, total):
            length = lengths(graph, total)
            assert length is not None
            a = counts(graph, total)
            assert total == 0 or all(length[o] >= a[o] for o in graph.outputs)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("hop", [1, 2, 3, 4, 6])
def test_hop_wait_equals_trying(seed: int, hop: int) -> None:
    graph = random_graph(seed)
    ended = ended_tensors(graph)
    start = hop * (warm_up(graph) // hop + 1)
    for out in graph.outputs:
        if out in ended:
            continue
        waits = [
            (-(n + 1)) % hop
            for n in range(start, start + hop * period(graph))
            if counts(graph, n + 1)[out] > counts(graph, n)[out]
        ]
        assert hop_wait(graph, out, hop) == max(waits)


def test_transposed_waits_for_what_the_end_may_cut() -> None:
    """k 1 s 2, T = 2: the offline model has 3 frames (ONNX Runtime too), so a push may hand out only 2T - 1."""
    graph = chain_graph(Transposed(1, 2))
    assert lengths(graph, 2) == {"x": 2, "t1": 3}
    assert counts(graph, 2)["t1"] == 3
