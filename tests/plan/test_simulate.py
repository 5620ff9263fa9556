"""The plan is executed on rings and on history rows: every read is right, and one row less is wrong."""

from __future__ import annotations

import random

import pytest
from plan_graphs import chain_graph, random_graph
from simulate import Form, ReadFault, simulate

from codegen.ir.lengths import ended_tensors, lengths, readers
from codegen.ir.time import Last, Rule, TimeGraph, Transposed, Upsample, Window
from codegen.plan.outputs import is_legal
from codegen.plan.streaming import StreamPlan, plan

FORMS: tuple[Form, Form] = ("ring", "history")


def some_lengths(graph: TimeGraph, p: StreamPlan, r: random.Random) -> list[int]:
    legal = [t for t in range(p.warm_up + 4 * p.period + 10) if is_legal(graph, t)]
    return [*legal[:3], *r.sample(legal, min(2, len(legal))), legal[-1]]


@pytest.mark.parametrize("seed", range(1000, 1120))
def test_any_chunking_reads_the_right_frames(seed: int) -> None:
    graph, r = random_graph(seed), random.Random(seed)
    for hop in (1, 2, r.choice([3, 5, 8])):
        p = plan(graph, hop)
        for total in some_lengths(graph, p, r):
            chunks = [r.choice([0, 1, 1, 2, r.randint(1, 2 * hop + 1)]) for _ in range(9)] + [1]
            for form in FORMS:
                made = simulate(graph, p, total, chunks, form=form)
                length = lengths(graph, total)
                assert length is not None
                assert all(made[o] == length[o] for o in graph.outputs if o not in p.ended)


def fails(graph: TimeGraph, p: StreamPlan, total: int, form: Form, rows: dict[str, int]) -> bool:
    """True if some push pattern reads wrong: single frames, with one push of a whole hop at every phase."""
    base = total - p.hop - 2 * p.period - 40
    patterns = [[1], *([*[1] * max(1, base + o), p.hop, *[1] * total] for o in range(p.period))]
    for pattern in patterns:
        try:
            simulate(graph, p, total, pattern, form=form, rows=rows)
        except ReadFault:
            return True
    return False


def declared_loose(graph: TimeGraph, p: StreamPlan, x: str, size: int) -> bool:
    """The two declared exceptions: a ring of m rows so that one tick's rows fit although only Last reads them, and the
    row for an Upsample with offset, which joins further down may spare (no legal T ends in the phase that needs it)."""
    rules = [reader.rule for reader in readers(graph)[x]]
    if size == p.new[x] and any(isinstance(rule, Last) for rule in rules):
        return True
    return size == 1 and any(isinstance(rule, Upsample) and rule.offset for rule in rules)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "rule", [Upsample(2, 1), Upsample(3, 2), Last(3), Window(3, 2, 2, 1), Transposed(5, 2, 1, 1, 1)]
)
def test_one_row_less_is_wrong_for_a_single_reader(rule: Rule, form: Form) -> None:
    graph = chain_graph(rule)
    p = plan(graph, 2)
    size = (p.ring if form == "ring" else p.keep)["x"]
    assert size > 0
    loose = form == "ring" and isinstance(rule, Upsample)  # K = 1 but R = m: the last row is never overwritten
    assert fails(graph, p, 80, form, {"x": size - 1}) or loose
    assert not fails(graph, p, 80, form, {"x": size})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(2000, 2030))
def test_one_row_less_is_wrong(seed: int, form: Form) -> None:
    graph = random_graph(seed)
    hop = (1, 3)[seed % 2]
    p = plan(graph, hop)
    total = p.warm_up + 4 * p.period + 2 * hop + 40
    total = next(t for t in range(total, total + 200) if is_legal(graph, t))
    ended, read_by = ended_tensors(graph), readers(graph)
    rows, floor = (p.ring, 1) if form == "ring" else (p.keep, 0)
    for x, size in rows.items():
        if size > floor and x not in ended and read_by[x] and not declared_loose(graph, p, x, size):
            assert fails(graph, p, total, form, {x: size - 1}), f"{x}: {size - 1} rows of {size} were enough"


def test_the_clock_is_reduced_in_a_long_stream() -> None:
    graph = chain_graph(*(Window(3, s, 1, 1, 1) for s in (1, 1, 2, 1, 1)))
    assert simulate(graph, plan(graph, 2), 1001, [3, 1], form="history")["t5"] == 501
