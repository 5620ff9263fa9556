"""What every operator of a graph has: a rule of time, a description, its cost."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.ir.time import Join, Rule


@dataclass(frozen=True, eq=False)
class Op:
    """Base of all operators. Streams are arrays [frames, *frame_shape]."""

    def rule(self) -> Rule:
        """What the operator does along the stream axis."""
        return Join()

    def pad_code(self) -> int | None:
        """The code that fills frames outside the sequence, or None where the operator never reads them."""
        return None

    def macs(self) -> int:
        """Multiply-accumulates per output frame."""
        return 0

    def accumulator(self) -> tuple[str, int] | None:
        """(C type, elements) that the operator keeps from frame to frame until the end of the sequence."""
        return None

    def running(self) -> tuple[str, int] | None:
        """(C type, elements) that a window keeps from frame to frame so that it need not be summed anew."""
        return None

    def describe(self) -> str:
        """A few words for tables: kernel, stride, padding."""
        return ""
