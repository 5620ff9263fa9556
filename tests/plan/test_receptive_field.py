"""[S, a, b], the reverse recurrence, join notes and exact dependencies; literal numbers are worked by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from plan_graphs import Builder, chain_graph, random_graph

from codegen.ir.lengths import lengths
from codegen.ir.periods import period, warm_up
from codegen.ir.time import (
    Join,
    Last,
    Recurrent,
    Reduce,
    Rule,
    TimeGraph,
    Transposed,
    Unstreamable,
    Upsample,
    Window,
)
from codegen.plan.outputs import is_legal, latency
from codegen.plan.receptive_field import Extent, analyse, dependency, joins, reverse

CHAIN = chain_graph(*(Window(3, s, 1, 1, 1) for s in (1, 1, 2, 1, 1)))
TENSORS = ["t1", "t2", "t3", "t4", "t5"]


def triple(extent: Extent) -> tuple[Fraction, Fraction | None, Fraction | None]:
    return extent.S, extent.a, extent.b


def test_chain_of_five_same_convolutions() -> None:
    e = analyse(CHAIN)
    assert [e[t].S for t in TENSORS] == [1, 1, 2, 2, 2]
    assert [e[t].a for t in TENSORS] == [-1, -2, -3, -5, -7]
    assert [e[t].b for t in TENSORS] == [1, 2, 3, 5, 7]
    assert [e[t].rf for t in TENSORS] == [3, 5, 7, 11, 15]
    assert [e[t].lookahead for t in TENSORS] == [1, 2, 3, 5, 7]


def test_chain_backwards() -> None:
    need = reverse(CHAIN, "t5")
    assert [need[t].frames for t in ["x", *TENSORS]] == [15, 13, 11, 5, 3, 1]
    assert (need["x"].S, need["x"].padding) == (2, 7)
    assert [need[t].padding for t in ["x", *TENSORS]] == [7, 6, 5, 2, 1, 0]


def test_chain_dependencies_inside_a_clip_of_64() -> None:
    sets = dependency(CHAIN, 64, "t5")
    assert len(sets) == 32
    assert [sets[j] for j in (0, 1, 8, 15)] == [set(range(8)), set(range(10)), set(range(9, 24)), set(range(23, 38))]


@pytest.mark.parametrize(
    ("rule", "expected", "lookahead"),
    [
        (Window(3, 1, 2, 2, 2), (1, -2, 2), 2),  # dilated, same
        (Window(3, 1, 1, 2, 0), (1, -2, 0), 0),  # causal
        (Window(2, 2), (2, 0, 1), 1),  # pool
        (Window(left=2), (1, -2, -2), 0),  # pure delay
        (Window(left=-2), (1, 2, 2), 2),  # crop at the start
        (Upsample(2), (Fraction(1, 2), Fraction(-1, 2), 0), 0),
        (Upsample(3, 1), (Fraction(1, 3), Fraction(-1, 3), Fraction(1, 3)), Fraction(1, 3)),
        (Transposed(4, 2, 1, 1, 1), (Fraction(1, 2), -1, Fraction(1, 2)), Fraction(1, 2)),
        (Recurrent(), (1, None, 0), 0),
    ],
)
def test_one_rule(rule: Rule, expected: tuple[int, int, int], lookahead: int) -> None:
    extent = analyse(chain_graph(rule))["t1"]
    assert triple(extent) == expected
    assert extent.lookahead == lookahead
    assert not extent.ended


def test_wait_includes_the_end_correction() -> None:
    crop = analyse(chain_graph(Window(3, 1, 1, 1, -2)))["t1"]
    assert (crop.b, crop.wait) == (1, 3)
    short = analyse(chain_graph(Transposed(1, 2)))["t1"]  # k 1 s 2: the end may cut one frame, e = 1
    assert (short.b, short.wait) == (0, Fraction(1, 2))


@pytest.mark.parametrize("rule", [Reduce(), Last(), Unstreamable("softmax over time")])
def test_nothing_below_a_whole_sequence_rule_has_an_extent(rule: Rule) -> None:
    e = analyse(chain_graph(Window(3), rule, Window()))
    assert e["t2"].ended == e["t3"].ended != ""
    assert "n2" in e["t2"].ended
    assert e["t3"].rf is None and e["t3"].lookahead is None
    assert reverse(chain_graph(Window(3), rule, Window()), "t3")["x"].frames is None


def residual(main: Window, skip: Window | None) -> TimeGraph:
    b = Builder()
    y = b.add(main, "x")
    return_path = b.add(skip, "x") if skip else "x"
    b.add(Join(), y, return_path)
    return b.graph()


def severities(graph: TimeGraph) -> list[str]:
    return [note.severity for note in joins(graph, analyse(graph))]


def test_join_notes() -> None:
    assert severities(residual(Window(3, left=1, right=1), None)) == []  # symmetric: same centre
    assert severities(residual(Window(3, left=2), None)) == ["note"]  # causal: centres -1 and 0, both b = 0
    assert severities(residual(Window(3, right=2), None)) == ["warning"]
    graph = residual(Window(3, 2, left=1, right=1), None)
    (note,) = joins(graph, analyse(graph))
    assert (note.severity, note.node, note.x, note.y) == ("error", "n2", "t1", "x")
    assert "stride 2" in note.text and "stride 1" in note.text
    b = Builder()
    b.add(Join(), "x", b.add(Reduce(), "x"))
    assert severities(b.graph()) == ["error"]


def test_upsample_repeats_the_last_frame() -> None:
    assert dependency(chain_graph(Upsample(2, 1)), 3, "t1") == [{0}, {1}, {1}, {2}, {2}, {2}]


def test_endings_depend_on_all_or_one() -> None:
    assert dependency(chain_graph(Reduce()), 3, "t1") == [{0, 1, 2}]
    assert dependency(chain_graph(Last(2)), 3, "t1") == [{1}]
    assert dependency(chain_graph(Recurrent()), 3, "t1") == [{0}, {0, 1}, {0, 1, 2}]
    assert dependency(chain_graph(Unstreamable("reverse")), 2, "t1") == [{0, 1}, {0, 1}]


def stride_below_upsampling(graph: TimeGraph) -> bool:
    below: set[str] = set()
    for node in graph.nodes:
        ups = isinstance(node.rule, Upsample | Transposed)
        inherited = any(x in below for x in node.inputs)
        if inherited and getattr(node.rule, "stride", 1) > 1:
            return True
        if ups or inherited:
            below.add(node.output)
    return False


def holes(graph: TimeGraph) -> bool:
    """Rules whose windows skip frames: the extremes of [S, a, b] may then fall between taps further up."""
    return any(
        getattr(n.rule, "dilation", 1) > 1 or (isinstance(n.rule, Transposed) and n.rule.extent < n.rule.stride)
        for n in graph.nodes
    )


@pytest.mark.parametrize("seed", range(60))
def test_extent_contains_and_reaches_the_true_dependency(seed: int) -> None:
    graph = random_graph(seed)
    extents = analyse(graph)
    total = warm_up(graph) + 3 * period(graph) + 30
    total = next(t for t in range(total, total + 200) if is_legal(graph, t))
    frames = lengths(graph, total)
    assert frames is not None
    for output in graph.outputs:
        e = extents[output]
        if e.ended or e.b is None:
            continue
        sets = dependency(graph, total, output)
        lows, highs = [], []
        for j in range(len(sets)):
            inside = e.a is None or j * e.S + e.a >= 0
            if not sets[j] or j * e.S + e.b > total - 1 - 40:
                continue
            assert e.a is None or min(sets[j]) >= j * e.S + e.a
            assert max(sets[j]) <= j * e.S + e.b
            if inside and e.a is not None:
                lows.append(min(sets[j]) - j * e.S)
                highs.append(max(sets[j]) - j * e.S)
        if lows and len(lows) >= 2 * period(graph) / e.S and not stride_below_upsampling(graph) and not holes(graph):
            assert (min(lows), max(highs)) == (e.a, e.b)


@pytest.mark.parametrize("seed", range(60))
def test_reverse_agrees_with_analyse_at_the_input(seed: int) -> None:
    graph = random_graph(seed)
    extents = analyse(graph)
    for output in graph.outputs:
        e = extents[output]
        need = reverse(graph, output)
        if e.ended:
            continue
        seen = [need[x] for x in graph.inputs if x in need]
        assert {r.S for r in seen} == {e.S}
        if e.a is not None and e.b is not None:
            assert min(r.first for r in seen if r.first is not None) == e.a
            assert max(r.last for r in seen if r.last is not None) == e.b
            assert math.floor(e.b - e.a) + 1 == e.rf


@pytest.mark.parametrize("seed", range(60))
def test_wait_bounds_the_latency(seed: int) -> None:
    """extent.wait is never below the true delay, and equals it without a stride below an upsampling."""
    graph = random_graph(seed)
    extents = analyse(graph)
    for output in graph.outputs:
        delay = latency(graph, output)
        wait = extents[output].wait
        if delay is None or wait is None:
            continue
        assert delay.worst <= wait
        if not stride_below_upsampling(graph):
            assert delay.worst == wait
