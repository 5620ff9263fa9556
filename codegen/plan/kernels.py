"""Which kernel runs each operator: chosen before memory is laid out, as its loops decide what may share memory.

`codegen.kernels.KERNELS` is the table that is chosen from; tests bring tables of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codegen.errors import unsupported
from codegen.ir.graph import Graph, Node
from codegen.ops.base import KernelOp


@dataclass(frozen=True)
class Target:
    """A family of processors: the row of `numerics.prover.COST` that its rounding costs, and what kernels may use."""

    name: str
    forms: str
    features: frozenset[str] = frozenset()
    about: str = ""


TARGETS = {
    target.name: target
    for target in (
        Target("portable", "m4", about="plain C99; what the compiler's own macros offer is used"),
        Target("cortex-m0plus", "m0", about="16-bit Thumb, no long multiplication"),
        Target("cortex-m3", "generic", about="long multiplication, no lanes"),
        Target("cortex-m4", "m4", frozenset({"dsp"}), "two 16-bit lanes a register; also Cortex-M7 and M33 with DSP"),
        Target("cortex-m55", "m4", frozenset({"dsp", "mve"}), "sixteen 8-bit lanes a vector; also Cortex-M85"),
        Target("rv32", "generic", about="RV32IM and its compressed forms"),
        Target("host", "m4", about="the machine that compiles: tests and simulators"),
    )
}
PORTABLE = TARGETS["portable"]


class Kernel:
    """How one operator runs: its C entry, and the promises of its loops that the memory plan relies on.

    The defaults are safe: it takes nothing over and needs no working memory.
    """

    name: str
    """The C function."""

    def fits(self, op: Any, target: Target, tile: bool) -> str:
        """'' if it computes this operator on this target (`tile`: cut into tiles), else why not."""
        return ""

    def cost(self, op: Any, target: Target) -> float:
        """Estimated instructions per output frame, to compare kernels of one operator; equal costs: the first one."""
        return 0.0

    def scratch_bytes(self, op: Any) -> int:
        """Bytes of int32 working memory while one frame is computed."""
        return 0

    def lead(self, op: Any, operand: int) -> int | None:
        """Bytes by which a frame of the output must begin before the operand's frame whose memory it takes over, so
        that the kernel writes only where it has read for the last time. None: it may not. Element by element: 0."""
        return None

    def lead_back(self, op: Any, operand: int) -> int | None:
        """The same for a kernel that goes through the frame from its end: bytes by which the output must begin behind
        the operand. None: it can't."""
        return None


Table = Mapping[type[KernelOp], Sequence[Kernel]]


@dataclass(frozen=True)
class Choice:
    """The kernel of one node, and why; `rejected` are the (name, why not) that come before it in the table."""

    kernel: Kernel
    op: KernelOp
    tile: bool
    rejected: tuple[tuple[str, str], ...] = ()

    @property
    def reason(self) -> str:
        """Why it is not simply the first in the table, '' where it is."""
        text = "; ".join(f"{name}: {why}" for name, why in self.rejected)
        form = "in tiles" if self.tile else ""
        return "; ".join(part for part in (form, text) if part)

    @property
    def scratch_bytes(self) -> int:
        return self.kernel.scratch_bytes(self.op)

    def lead(self, operand: int) -> int | None:
        """`Kernel.lead`; tiles go through a frame in an order of their own and take nothing over."""
        return None if self.tile else self.kernel.lead(self.op, operand)

    def lead_back(self, operand: int) -> int | None:
        return None if self.tile else self.kernel.lead_back(self.op, operand)


Choices = Mapping[str, Choice]


def choose(graph: Graph, target: Target, tiled: Collection[str], table: Table) -> dict[str, Choice]:
    """By node name the cheapest kernel that fits; `tiled` are the nodes that are cut. Raises CodegenError (3)."""
    return {node.name: _choice(node, target, node.name in tiled, table) for node in graph.nodes}


def _choice(node: Node, target: Target, tile: bool, table: Table) -> Choice:
    assert isinstance(node.op, KernelOp)
    rejected: list[tuple[str, str]] = []
    fitting: list[tuple[Kernel, tuple[tuple[str, str], ...]]] = []
    for kernel in table[type(node.op)]:
        why_not = kernel.fits(node.op, target, tile)
        if why_not:
            rejected.append((kernel.name, why_not))
        else:
            fitting.append((kernel, tuple(rejected)))
    if not fitting:
        found = "; ".join(f"{name}: {why}" for name, why in rejected)
        hint = "Build with --target portable" + (", or without --fast-memory" if tile else "")
        raise unsupported("plan", node.where, f"no kernel of {target.name} fits ({found})", "", hint)
    kernel, before = min(fitting, key=lambda pair: pair[0].cost(node.op, target))
    return Choice(kernel, node.op, tile, before)
