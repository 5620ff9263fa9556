"""Other orders of execution: topological, complete, and smaller where branches lie side by side in the file."""

from __future__ import annotations

import pytest
from checks import Workshop
from models import Net
from random_graphs import random_graph

from codegen.kernels import KERNELS
from codegen.options import Options
from codegen.pipeline import compile_model, load_int8
from codegen.plan import streaming
from codegen.plan.kernels import PORTABLE, choose
from codegen.plan.layout import layout
from codegen.plan.order import orders


@pytest.mark.parametrize("seed", range(40))
def test_every_order_is_topological(shop: Workshop, seed: int) -> None:
    graph = load_int8(shop.save(random_graph(seed)))
    found = list(orders(graph))
    assert found[0].nodes == graph.nodes
    assert len({tuple(node.name for node in other.nodes) for other in found}) == len(found)
    for other in found:
        assert sorted(node.name for node in other.nodes) == sorted(node.name for node in graph.nodes)
        there = set(other.sources())
        for node in other.nodes:
            assert set(node.inputs) <= there, node.name
            there.add(node.output)


def side_by_side(branches: int) -> Net:
    """Branches that grow wide and narrow again, layer by layer in the file, then one Concat."""
    net = Net(seed=5)
    x = net.input([1, 4, "T"])
    wide = [net.conv(x, 32, [1]) for _ in range(branches)]
    narrow = [net.conv(y, 4, [1]) for y in wide]
    net.output(net.conv(net.real_op("Concat", narrow, axis=1), 3, [1]))
    return net


def test_branches_run_one_after_another(shop: Workshop) -> None:
    """All wide tensors at once need 4 * 32 bytes and more; one after another 32, and what is finished."""
    path = shop.save(side_by_side(4).model())
    graph = load_int8(path, Options())
    as_written = layout(graph, streaming.plan(graph.time_graph()), choose(graph, PORTABLE, (), KERNELS))
    best = compile_model(path, Options()).layout
    assert as_written.scratch_bytes >= 4 * 32
    assert best.scratch_bytes <= 32 + 4 * 4 + 8
    assert best.state_bytes == as_written.state_bytes


def test_the_order_of_the_file_wins_where_nothing_is_gained(shop: Workshop) -> None:
    net = Net(seed=6)
    x = net.input([1, 4, "T"])
    net.output(net.add(net.conv(x, 4, [3], pads=[1, 1]), net.conv(x, 4, [5], pads=[2, 2])))
    path = shop.save(net.model())
    graph = load_int8(path, Options())
    assert [n.name for n in compile_model(path, Options()).graph.nodes] == [n.name for n in graph.nodes]
