"""The closed forms of ring sizes agree with the exact rows where they claim to be exact (docs/streaming.md).

F2 holds for a tensor of one phase (nothing upsamples above it), any readers, any hop, with tight lookaheads.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from plan_graphs import random_graph, waits_for

from codegen.ir.lengths import ended_tensors, readers, tensors
from codegen.ir.periods import phases
from codegen.ir.time import Join, Recurrent, TimeGraph, TimeNode, Transposed, Upsample, Window
from codegen.plan.streaming import rows

SEEDS = range(2000, 2150)
HOPS = (1, 2, 3, 5, 8)


def tight_wait(graph: TimeGraph, name: str, memo: dict[str, Fraction]) -> Fraction:
    """max over j of tau(j) - j*S: the clock index that frames wait for, over one period of the tensor's schedule."""
    if name not in memo:
        m, p = phases(graph)[name]
        memo[name] = max(Fraction(tau(graph, name, j)) - j * Fraction(m, p) for j in range(p))
    return memo[name]


def tau(graph: TimeGraph, name: str, j: int) -> int:
    """Clock index of the last input frame that frame j of a tensor waits for, by recursion on what it reads."""
    node = next((n for n in graph.nodes if n.output == name), None)
    if node is None:
        return j
    return max(tau(graph, x, waits_for(node.rule, j)) for x in node.inputs)


def closed(node: TimeNode, step: Fraction, ahead: Fraction, hop: int) -> int:
    """F2 for one reader: rows of the ring of x while x is written. step = S_x, ahead = b_reader - b_x."""
    rule, fresh = node.rule, math.ceil(Fraction(hop) / step)
    if isinstance(rule, Window):
        return 1 + math.floor((ahead + hop - 1) / step) + rule.left
    if isinstance(rule, Transposed):
        e, k = rule.held_back, rule.extent
        return fresh + max((r + e) // rule.stride + (k - 1 - r) // rule.stride for r in range(rule.stride))
    if isinstance(rule, Upsample) or len(set(node.inputs)) == 1:
        return fresh
    return 1 + math.floor((ahead + hop - 1) / step)


def applies(graph: TimeGraph, name: str) -> bool:
    known = Window | Join | Recurrent | Upsample | Transposed
    read = readers(graph)[name]
    plain = all(isinstance(n.rule, known) and not (isinstance(n.rule, Upsample) and n.rule.offset) for n in read)
    return bool(read) and plain and phases(graph)[name][1] == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_closed_form_equals_the_exact_rows(seed: int) -> None:
    graph = random_graph(seed, endings=False)
    memo: dict[str, Fraction] = {}
    for name in tensors(graph):
        if name in ended_tensors(graph) or not applies(graph, name):
            continue
        step = Fraction(*phases(graph)[name])
        for hop in HOPS:
            wanted = 1
            for node in readers(graph)[name]:
                ahead = tight_wait(graph, node.output, memo) - tight_wait(graph, name, memo)
                wanted = max(wanted, closed(node, step, ahead, hop))
            assert rows(graph, hop)[1][name] == wanted, f"seed {seed}, {name}, hop {hop}"


def test_the_closed_form_is_tried_often() -> None:
    graphs = [random_graph(seed, endings=False) for seed in SEEDS]
    assert sum(applies(g, name) for g in graphs for name in tensors(g)) > 400
