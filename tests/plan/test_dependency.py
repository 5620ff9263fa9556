"""[S, a, b] against the truth: nudge one input frame, see which frames of every tensor move.

The truth comes from the numpy reference alone, and at the outputs from following every index (`dependency`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from checks import Array, Workshop
from random_graphs import random_graph
from streams import run_reference

from codegen.ir.graph import Graph
from codegen.ir.periods import period, warm_up
from codegen.ir.time import TimeGraph, Transposed, Upsample
from codegen.ops.conv import ConvS8, Requantize
from codegen.ops.move import Copy
from codegen.ops.table import LutS8
from codegen.ops.transposed import ConvTransposeS8
from codegen.pipeline import load_int8
from codegen.plan.outputs import is_legal
from codegen.plan.receptive_field import Extent, analyse, dependency

pytestmark = pytest.mark.search

GRAPHS = 200
BATCH = 20
ATTEMPTS = 12  # random clips: a nudge may hide behind a saturated code or a larger neighbour


def unreached(graph: Graph) -> set[str]:
    """Tensors whose [S, a, b] is only a bound: a stride below an upsampling, a kernel that leaves phases without taps,
    or channels picked out of a tensor (the others may be those with the longer reach)."""
    up: set[str] = set()
    loose: set[str] = set()
    for node in graph.nodes:
        rule = node.op.rule()
        if isinstance(node.op, Copy):
            size, source = (graph.tensors[x].frame_bytes for x in (node.output, node.inputs[0]))
            loose |= {node.output} if size < source else set()
        if any(x in loose for x in node.inputs):
            loose.add(node.output)
        if any(x in up for x in node.inputs):
            up.add(node.output)
            if getattr(rule, "stride", 1) > 1 and not isinstance(rule, Transposed):
                loose.add(node.output)
        if isinstance(rule, Upsample | Transposed):
            up.add(node.output)
        if isinstance(rule, Transposed) and (rule.extent < rule.stride or rule.dilation > 1):
            loose.add(node.output)
    return loose


def sharpened(graph: Graph, r: np.random.Generator) -> Graph:
    """The same graph with weights and scales that let a change of one code survive any number of layers.

    Only numbers change, the geometry that is tested stays. In a trained network the influence of the outermost taps
    fades below one code after a few layers.
    """
    nodes = []
    for node in graph.nodes:
        op = node.op
        if isinstance(op, ConvS8 | ConvTransposeS8):
            weights = r.choice([-1, 1], op.weights.shape) * r.integers(40, 127, op.weights.shape)
            scale = np.full(len(weights), 170 / (6000 * np.sqrt(weights[0].size)), np.float32)
            requantize = Requantize(scale, 0)
            op = replace(op, weights=weights.astype(np.int8), bias=np.zeros_like(op.bias), requantize=requantize)
        elif isinstance(op, LutS8):
            op = LutS8(r.permutation(256).astype(np.uint8).view(np.int8))
        nodes.append(replace(node, op=op))
    return graph.with_nodes(nodes)


def moved(graph: Graph, base: dict[str, Array], at: int, r: np.random.Generator) -> dict[str, Array]:
    """Frames of every tensor that change when input frame `at` does (of all inputs)."""
    nudged = {name: x.copy() for name, x in base.items()}
    for x in nudged.values():
        x[at] = r.integers(-128, 128, x.shape[1:])
    before, after = run_reference(graph, base), run_reference(graph, nudged)
    assert before is not None and after is not None
    different = {name: (before[name] != after[name]).reshape(len(before[name]), -1) for name in before}
    return {name: np.flatnonzero(rows.any(axis=1)) for name, rows in different.items()}


class Probe:
    """Least and greatest i - j*S seen for input frame i and frame j of every tensor."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.time = graph, graph.time_graph()
        self.extents = analyse(self.time)
        self.low: dict[str, Fraction] = {}
        self.high: dict[str, Fraction] = {}
        self.seen: dict[str, set[tuple[int, int]]] = {}

    def nudge(self, total: int, frames: range, r: np.random.Generator) -> None:
        base = {
            p.tensor: r.integers(-128, 128, (total, self.graph.tensors[p.tensor].frame_bytes)).astype(np.int8)
            for p in self.graph.inputs
        }
        for i in frames:
            for name, rows in moved(self.graph, base, i, r).items():
                for j in rows.tolist():
                    self.note(name, i, j)

    def note(self, name: str, i: int, j: int) -> None:
        e = self.extents[name]
        assert e.a is not None and e.b is not None
        assert math.ceil(j * e.S + e.a) <= i <= math.floor(j * e.S + e.b), f"{name}[{j}] depends on frame {i}: {e}"
        gap = i - j * e.S
        self.low[name] = min(self.low.get(name, gap), gap)
        self.high[name] = max(self.high.get(name, gap), gap)
        self.seen.setdefault(name, set()).add((i, j))

    def reached(self, name: str, e: Extent) -> bool:
        return (self.low.get(name), self.high.get(name)) == (e.a, e.b)


def check_graph(graph: Graph, seed: int) -> tuple[int, int]:
    """(tensors whose ends can be reached, those where nudging alone reached both) of one graph."""
    time, r = graph.time_graph(), np.random.default_rng(seed)
    graph = sharpened(graph, r)
    probe, span, full = Probe(graph), period(time), warm_up(time)
    first = full + span
    # So long that nothing nudged reaches the last frames, where an Upsample with an offset repeats one.
    least = first + span + full + max(int((e.b or 0) - (e.a or 0)) for e in probe.extents.values())
    total = next(t for t in range(least, least + 300) if is_legal(time, t))
    bounds_only = unreached(graph)
    wanted = [name for name in probe.extents if name not in bounds_only]
    for _ in range(ATTEMPTS):
        probe.nudge(total, range(first, first + span), r)
        if all(probe.reached(name, probe.extents[name]) for name in wanted):
            break
    for output in time.outputs:
        exact = dependency(time, total, output)
        assert all(i in exact[j] for i, j in probe.seen.get(output, ())), f"{output}: more than the rules say"
    hidden = [name for name in wanted if not probe.reached(name, probe.extents[name])]
    for name in hidden:
        low, high = followed(time, name, total, range(first, first + span), probe.extents[name].S)
        assert (low, high) == (probe.extents[name].a, probe.extents[name].b), f"{name}: {low} .. {high}"
    return len(wanted), len(wanted) - len(hidden)


def followed(time: TimeGraph, name: str, total: int, frames: range, stride: Fraction) -> tuple[Fraction, Fraction]:
    """Least and greatest i - j*S by following the rules index by index, for input frames i of one period.

    For the few tensors where every nudge of an outermost tap hid behind a maximum or a rounding.
    """
    gaps = [i - j * stride for j, sources in enumerate(dependency(time, total, name)) for i in sources if i in frames]
    return min(gaps), max(gaps)


@pytest.mark.parametrize("number", range(GRAPHS // BATCH))
def test_nudged_frames(shop: Workshop, number: int) -> None:
    tensors = exact = 0
    for seed in range(90_000 + number * BATCH, 90_000 + (number + 1) * BATCH):
        try:
            counts = check_graph(load_int8(shop.save(random_graph(seed))), seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
        tensors, exact = tensors + counts[0], exact + counts[1]
    print(f"{tensors} tensors, both ends reached by nudging in {exact}")
    assert exact > 0.85 * tensors
