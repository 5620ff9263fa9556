"""Where a clip stops being a stream: its frames, kept side by side, are one frame for everything that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.ir.time import Reduce, Rule
from codegen.ops.base import Codes, KernelOp, Stages


@dataclass(frozen=True, eq=False)
class CollectS8(KernelOp):
    """All `frames` frames of a clip as one. No code: the operand's producer writes them where they stay."""

    frames: int

    def rule(self) -> Rule:
        return Reduce()

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return xs[0].reshape(1, -1)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return {}

    def describe(self) -> str:
        return f"{self.frames} frames kept for layers that run one after another"
