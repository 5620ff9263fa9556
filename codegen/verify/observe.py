from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Node
from codegen.ops.base import STAGES, KernelOp, Stages
from codegen.reference import whole_clip

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """One value that C and reference disagree on. `position`: place inside the frame before the channel."""

    node: str
    stage: str
    frame: int
    position: tuple[int, ...]
    channel: int
    c: int
    reference: int

    def __str__(self) -> str:
        place = f", position {list(self.position)}" if any(self.position) else ""
        return (
            f"{self.node}, stage {self.stage}, frame {self.frame}{place}, channel {self.channel}: "
            f"C {self.c}, reference {self.reference}"
        )


@dataclass(frozen=True)
class StageComparison:
    """One stage of one node: values compared, how many differ, and the first that does."""

    node: str
    stage: str
    values: int
    different: int
    first: Difference | None = None


def reference_stages(graph: Graph, feed: Mapping[str, Array]) -> Iterator[tuple[Node, Stages]]:
    """The stages of every node in execution order, whole clip; `feed` by ONNX name."""
    inputs = {p.tensor: whole_clip.quantize_input(np.asarray(feed[p.name]), p) for p in graph.inputs}
    codes = whole_clip.run_codes(graph, inputs)
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        yield node, node.op.stages([codes[name] for name in node.inputs])


def compare_stages(
    graph: Graph, feed: Mapping[str, Array], recorded: Mapping[str, Mapping[str, Array]]
) -> list[StageComparison]:
    """All stages of all nodes in execution order; `recorded` as HostModel.trace returns it."""
    return [
        _compare(node, graph.tensors[node.output].frame_shape, stage, stages[stage], recorded[node.name].get(stage))
        for node, stages in reference_stages(graph, feed)
        for stage in STAGES
        if stage in stages
    ]


def _compare(node: Node, shape: tuple[int, ...], stage: str, want: Array, got: Array | None) -> StageComparison:
    """Missing and surplus frames count as different.

    A rounding is proved up to the bounds of a fused Relu or Clip: codes on the far side of a bound are equal.
    """
    want = want.reshape(want.shape[0], -1).astype(np.int64)
    got = np.zeros((0, want.shape[1]), np.int64) if got is None else got.astype(np.int64)
    frames = min(len(want), len(got))
    surplus = abs(len(want) - len(got)) * want.shape[1]
    assert isinstance(node.op, KernelOp)
    limits = node.op.code_bounds() if stage == "requantized" else (None, None)
    delta = np.clip(got[:frames], *limits) != np.clip(want[:frames], *limits)
    first = None
    if delta.any():
        frame, element = (int(i) for i in np.argwhere(delta)[0])
        *position, channel = (int(i) for i in np.unravel_index(element, shape))
        values = int(got[frame, element]), int(want[frame, element])
        first = Difference(node.where, stage, frame, tuple(position), channel, *values)
    return StageComparison(node.where, stage, int(want.size), int(delta.sum()) + surplus, first)


def first_difference(found: list[StageComparison]) -> str:
    """The first stage in execution order that differs, in words; '' where none does."""
    for item in found:
        if item.first is not None:
            return str(item.first)
        if item.different:
            return f"{item.node}, stage {item.stage}: another number of frames"
    return ""
