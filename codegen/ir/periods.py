"""When a graph begins, when it is in its stride, and after how many frames it repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from codegen.ir.lengths import counts, ended_tensors, lengths_with_faults, plan_error
from codegen.ir.time import TimeGraph, Transposed, Upsample, Window


def smallest(holds: Callable[[int], bool], first: int) -> int:
    """The smallest n >= first with holds(n), for a condition that stays true once it is."""
    step = 1
    low, high = first - 1, first
    while not holds(high):
        low, high, step = high, high + step, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def phases(graph: TimeGraph) -> dict[str, tuple[int, int]]:
    """(M, P) of every live tensor: its schedule repeats every M input frames = P own frames; S = M/P.

    docs/streaming.md. Raises PlanError where a join has operands of unequal S.
    """
    ended = ended_tensors(graph)
    found = dict.fromkeys(graph.inputs, (1, 1))
    for node in graph.nodes:
        if node.output in ended:
            continue
        m, p = found[node.inputs[0]]
        rule = node.rule
        for x in node.inputs[1:]:
            m2, p2 = found[x]
            if m * p2 != m2 * p:
                text = f"joins {node.inputs[0]} (stride {Fraction(m, p)}) with {x} (stride {Fraction(m2, p2)})"
                raise plan_error(node.name, text, "strides must be equal")
            both = math.lcm(m, m2)
            m, p = both, p * both // m
        if isinstance(rule, Window):
            turns = rule.stride // math.gcd(p, rule.stride)
            m, p = m * turns, p * turns // rule.stride
        elif isinstance(rule, Upsample):
            p *= rule.factor
        elif isinstance(rule, Transposed):
            p *= rule.stride
        found[node.output] = (m, p)
    return found


def period(graph: TimeGraph) -> int:
    """M: input frames after which the whole schedule repeats."""
    return math.lcm(*(m for m, _ in phases(graph).values()))


def n_start(graph: TimeGraph) -> int:
    """Clock value at which pre-roll begins: the largest N <= 0 with no frame available (0 unless b < 0 somewhere)."""
    return -smallest(lambda n: max(counts(graph, -n).values()) <= 0, 0)


def n_end(graph: TimeGraph, total: int) -> int:
    """Clock value at which a clip of `total` frames is drained: every tensor has reached its length."""
    length, _ = lengths_with_faults(graph, total)
    ended = ended_tensors(graph)
    wanted = {name: frames for name, frames in length.items() if frames > 0 and name not in ended}

    def drained(clock: int) -> bool:
        available = counts(graph, clock)
        return all(available[name] >= frames for name, frames in wanted.items())

    return smallest(drained, total)


def warm_up(graph: TimeGraph) -> int:
    """W: smallest N >= 0 from which on everything is periodic.

    For N >= W no count is clipped, no frame computed from then on reads an index < 0, no length is clipped, and no
    node is before a frame that it makes in another way than those after it. All four are monotone in N, and beyond them
    each formula is affine with floors whose period divides M.
    """
    ended = ended_tensors(graph)

    def steady(clock: int) -> bool:
        available = counts(graph, clock)
        length, _ = lengths_with_faults(graph, clock)
        if min(available.values()) < 0 or min(length.values()) <= 0:
            return False
        if any(available[node.output] < 1 for node in graph.nodes if node.starts):
            return False
        live = (node for node in graph.nodes if node.output not in ended)
        return all(node.rule.lowest()(available[node.output]) >= 0 for node in live)

    return smallest(steady, 0)
