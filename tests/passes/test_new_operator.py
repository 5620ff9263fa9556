"""An operator that says nothing but its rule and its reference is right: every pass leaves it alone."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from checks import PREFIX, Workshop, assert_same, write_generated
from models import DIVERSE, Net

from codegen import importing, pipeline
from codegen.frontend.read import read, require
from codegen.int8.builder import to_int8
from codegen.ir.graph import Graph
from codegen.kernels import KERNELS
from codegen.ops.base import KernelOp
from codegen.options import Options
from codegen.passes import PASSES
from codegen.passes.make_endless import make_endless
from codegen.plan import choose
from codegen.reference import whole_clip
from codegen.verify import random_feed

SAID = ("codes", "counts_frames", "coupling", "without", "sliding", "window", "tile_shape")


def bare(cls: type[KernelOp]) -> type[KernelOp]:
    """The operator without what passes ask it for."""
    return type(cls.__name__, (cls,), {name: getattr(KernelOp, name) for name in SAID})


BARE = {cls: bare(cls) for cls in KERNELS}
TABLE = {**KERNELS, **{made: KERNELS[cls] for cls, made in BARE.items()}}


def without_rules(graph: Graph) -> Graph:
    def changed(op: KernelOp) -> KernelOp:
        made = BARE.get(type(op))
        return op if made is None else made(**{f.name: getattr(op, f.name) for f in fields(op)})

    return graph.with_nodes([replace(node, op=changed(node.op)) for node in graph.nodes])


@pytest.mark.parametrize("name", DIVERSE)
def test_an_operator_without_rules_builds_right_code(shop: Workshop, name: str) -> None:
    path = shop.save(DIVERSE[name]())
    options = Options(name=PREFIX)
    source = importing.read(path, options)
    graph = first = without_rules(to_int8(require(read(path))))
    for step in PASSES:
        graph = step(graph)
    chosen = choose.plan(graph, lambda: source.whole, replace(options, plan="stream"), TABLE)
    shop.count += 1
    compiled = pipeline.compile_chosen(path, source.model.digest, chosen, options)
    g = write_generated(shop.root / f"{shop.count}_out", path, compiled)
    feed = random_feed(first)
    want, got = whole_clip.run(first, feed), shop.host(g).run(feed, [1])
    for key, values in want.items():
        assert_same(got[key], values, f"{name} {key}")


def test_what_needs_the_end_does_not_slide(shop: Workshop) -> None:
    """An operator that reads a whole clip and has no sliding form of its own is refused, not left as it is."""
    net = Net(seed=1)
    net.output(net.real_op("GlobalAveragePool", [net.conv(net.input([1, 3, 20]), 4, [3])]))
    graph = to_int8(require(read(shop.save(net.model()))))
    assert make_endless(graph)[1] == []
    assert any("no sliding form" in problem.found for problem in make_endless(without_rules(graph))[1])
