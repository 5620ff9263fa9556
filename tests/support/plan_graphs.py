"""Random time graphs: chains, residuals, U-Nets, DAGs, with pads, crops, ceil mode, upsampling and endings."""

from __future__ import annotations

import random

from codegen.ir.lengths import PlanError, lengths
from codegen.ir.periods import period, phases
from codegen.ir.time import (
    Join,
    Last,
    Recurrent,
    Reduce,
    Rule,
    TimeGraph,
    TimeNode,
    Transposed,
    Unstreamable,
    Upsample,
    Window,
)
from codegen.plan.streaming import plan

__all__ = ["Builder", "Unstreamable", "chain_graph", "random_graph"]


class Builder:
    """Appends nodes t1, t2, ... to a graph with one or more inputs."""

    def __init__(self, *inputs: str) -> None:
        self.inputs = inputs or ("x",)
        self.nodes: list[TimeNode] = []
        self.outs: list[str] = []

    def add(self, rule: Rule, *sources: str) -> str:
        out = f"t{len(self.nodes) + 1}"
        self.nodes.append(TimeNode(f"n{len(self.nodes) + 1}", rule, sources, out))
        return out

    def graph(self, *extra: str) -> TimeGraph:
        read = {x for node in self.nodes for x in node.inputs}
        outs = [n.output for n in self.nodes if n.output not in read or n.output in (*extra, *self.outs)]
        return TimeGraph(self.inputs, tuple(self.nodes), tuple(outs))


def chain_graph(*rules: Rule) -> TimeGraph:
    builder = Builder()
    x = "x"
    for rule in rules:
        x = builder.add(rule, x)
    return builder.graph()


def window(r: random.Random, stride: int | None = None, same: bool = False) -> Window:
    taps = r.choice([1, 2, 3, 3, 3, 4, 5, 7])
    d = r.choice([1, 1, 1, 2, 3]) if taps > 1 else 1
    s = stride or r.choice([1, 1, 1, 2, 3])
    k = d * (taps - 1) + 1
    if same:
        left = r.choice([k - 1, (k - 1) // 2, 0, r.randint(0, k - 1), r.randint(0, k + 2)])
        right = k - 1 - left + (0 if r.random() < 0.8 else r.randint(-1, 2))
    else:
        left, right = r.choice([0, k - 1, k // 2, r.randint(0, k + 3)]), r.choice([0, k // 2, r.randint(0, k + 2)])
    return Window(taps, s, d, left, right, r.random() < 0.15 and 0 <= right < k)


def transposed(r: random.Random, s: int, tidy: bool) -> Transposed:
    if tidy:
        k, d, op = r.choice([s, 2 * s, s + 1, 2 * s - 1, 3 * s]), 1, r.choice([0, r.randint(0, s - 1)])
        spare = max(0, k - s + op)
        left = r.choice([0, spare // 2, r.randint(0, spare)])
        return Transposed(k, s, 1, left, spare - left, op)
    k, d = r.choice([1, 2, 3, 4, 5]), r.choice([1, 1, 2])
    extent = d * (k - 1) + 1
    pads = r.randint(0, extent - 1), r.randint(0, extent - 1)
    return Transposed(k, s, d, *pads, r.choice([0, 0, r.randint(0, s - 1)]))


def upsample(r: random.Random, factor: int) -> Upsample:
    return Upsample(factor, r.choice([0, 0, 0, 1, factor - 1]))


def join(b: Builder, r: random.Random, x: str, y: str) -> str | None:
    """Join after a pad or crop that makes the lengths equal; None if there is none."""
    graph = b.graph()
    try:
        m = period(graph)
    except PlanError:
        return None
    found = set()
    for turns in (60, 61, 62, 67):
        length = lengths(graph, m * turns)
        if length is None:
            return None
        found.add(length[x] - length[y])
    gap = found.pop()
    if found or abs(gap) > 40:
        return None
    left = r.choice([0, 0, 0, gap, gap // 2, r.randint(-3, 4)])
    if gap or left:
        y = b.add(Window(left=left, right=gap - left), y)
    return b.add(Join(), *((x, y) if r.random() < 0.5 else (y, x)))


def _chain(b: Builder, r: random.Random) -> None:
    x = b.inputs[0]
    for _ in range(r.randint(1, 6)):
        rule: Rule = window(r)
        kind = r.random()
        if kind > 0.9:
            rule = Window(left=r.randint(-3, 4), right=r.randint(-3, 4))
        elif kind > 0.75:
            rule = transposed(r, r.choice([1, 2, 2, 3]), False)
        elif kind > 0.62:
            rule = upsample(r, r.choice([2, 3]))
        elif kind > 0.58:
            rule = Recurrent()
        x = b.add(rule, x)


def _residual(b: Builder, r: random.Random) -> None:
    x = b.inputs[0]
    for _ in range(r.randint(1, 3)):
        s = r.choice([1, 1, 1, 2, 3])
        y = b.add(window(r, s, True), x)
        for _ in range(r.randint(0, 2)):
            y = b.add(window(r, 1, True), y)
        skip = x if s == 1 and r.random() < 0.8 else b.add(Window(stride=s), x)
        x = join(b, r, y, skip) or y


def _unet(b: Builder, r: random.Random) -> None:
    x = b.inputs[0]
    skips = []
    for _ in range(r.randint(1, 3)):
        x = b.add(window(r, 1, True), x)
        s = r.choice([2, 2, 3])
        skips.append((x, s))
        pool = Window(s, s, ceil_mode=r.random() < 0.2)
        x = b.add(pool if r.random() < 0.5 else window(r, s, True), x)
    for y, s in reversed(skips):
        x = b.add(upsample(r, s) if r.random() < 0.45 else transposed(r, s, r.random() < 0.7), x)
        if r.random() < 0.85:
            x = join(b, r, x, y) or x
        if r.random() < 0.5:
            x = b.add(window(r, 1, True), x)
        if r.random() < 0.2:
            b.outs.append(x)


def _dag(b: Builder, r: random.Random) -> None:
    for _ in range(r.randint(3, 8)):
        x = r.choice([*b.inputs, *(n.output for n in b.nodes)])
        kind = r.random()
        if kind < 0.5:
            b.add(window(r, None, r.random() < 0.6), x)
        elif kind < 0.58:
            b.add(upsample(r, r.choice([2, 3])), x)
        elif kind < 0.65:
            b.add(transposed(r, r.choice([1, 2, 3]), r.random() < 0.5), x)
        else:
            p = phases(b.graph())
            same = [y for y in p if y != x and p[y][0] * p[x][1] == p[x][0] * p[y][1]]
            if same:
                join(b, r, x, r.choice(same))


def random_graph(seed: int, endings: bool = True) -> TimeGraph:
    """A graph with a schedule, of bounded period."""
    r = random.Random(seed)
    while True:
        b = Builder(*(("x", "x2") if r.random() < 0.1 else ("x",)))
        r.choice([_chain, _residual, _unet, _unet, _dag])(b, r)
        if not b.nodes:
            continue
        live = [n.output for n in b.nodes]
        if endings and r.random() < 0.15:
            b.add(Window(), b.add(Reduce(), r.choice(live)))
        if endings and r.random() < 0.15:
            b.add(Last(r.choice([1, 2, 3])), r.choice(live))
        b.outs += [x for x in live if r.random() < 0.08]
        graph = b.graph()
        try:
            m = max(max(pair) for pair in phases(graph).values())
            if m > 36 or period(graph) > 36:
                continue
            if plan(graph).warm_up > 150:
                continue
        except PlanError:
            continue
        return graph


def waits_for(rule: Rule, j: int) -> int:
    """The input frame whose arrival completes output frame j: its newest read plus the end correction e."""
    if isinstance(rule, Window):
        return j * rule.stride - rule.left + rule.extent - 1 + rule.held_back
    if isinstance(rule, Transposed):
        return (j + rule.left + rule.held_back) // rule.stride
    return rule.lowest()(j)
