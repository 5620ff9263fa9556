"""All kernels, by the operator that they compute, best first, and what the chosen ones hand over for C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen.ir.graph import Graph, Node
from codegen.kernels import elementwise, move, product, reduce, window
from codegen.kernels.base import CKernel, Emission, Site
from codegen.kernels.structs import Struct
from codegen.ops.base import KernelOp
from codegen.plan.kernels import Choices, Target
from codegen.plan.layout import Layout
from codegen.plan.tiling import TilePlan

KERNELS: dict[type[KernelOp], tuple[CKernel, ...]] = {
    **window.KERNELS,
    **reduce.KERNELS,
    **elementwise.KERNELS,
    **move.KERNELS,
    **product.KERNELS,
}


def emissions(
    graph: Graph, layout: Layout, choices: Choices, tiles: Mapping[str, TilePlan], target: Target
) -> dict[str, Emission]:
    """What every node becomes in C, by name."""
    return {node.name: _emission(graph, layout, choices, tiles, target, node) for node in graph.nodes}


def _emission(
    graph: Graph, layout: Layout, choices: Choices, tiles: Mapping[str, TilePlan], target: Target, node: Node
) -> Emission:
    kernel = choices[node.name].kernel
    assert isinstance(kernel, CKernel)
    distinct = list(dict.fromkeys(node.inputs))
    streams = tuple(distinct.index(name) for name in node.inputs)
    frame = graph.tensors[node.output].frame_elements
    made = kernel.emit(node.op, Site(streams, frame, node.name in layout.backwards, target))
    made = replace(made, numbers={"kernel": kernel.name, **made.numbers})
    if not choices[node.name].tile:
        return made
    headers = (*made.headers, f"{kernel.tiled}_tile")
    tiling = {"tiling": _tiling(tiles[node.name])}
    return replace(made, headers=headers, tiled=kernel.tiled, constants={**made.constants, **tiling})


def _tiling(plan: TilePlan) -> Struct:
    shape, block = plan.shape, plan.block
    members = {"channels": shape.channels, "group_in": shape.group_in, "group_out": shape.group_out}
    members |= {"block_channels": block.planes, "block_depth": block.d, "block_width": block.w}
    return Struct("rt_tiling_t", members)
