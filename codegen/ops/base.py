"""What every operator on streams offers, and what lowering passes hand to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, CodeType
from codegen.ir.geometry import Geometry
from codegen.ir.lengths import is_ending
from codegen.ir.op import Op
from codegen.numerics import reference as numeric
from codegen.ops.channels import Coupling, Interval, Mask, fixed
from codegen.ops.tile_shape import Shape

Codes = npt.NDArray[np.int8]
Stages = dict[str, npt.NDArray[Any]]
STAGES = ("accumulator", "requantized", "activated", "pooled")
"""What a trace observes, in the order of computation: RT_ACCUMULATOR ... RT_POOLED of runtime_c/rt_trace.h."""


@dataclass(frozen=True, eq=False)
class KernelOp(Op):
    """An operator on int8 codes that has a C kernel. `final` is the stage that it writes to its output tensor,
    `type` that of the codes it reads and writes."""

    final: ClassVar[str] = "activated"
    type: CodeType = field(default=INT8, kw_only=True)

    def reference(self, xs: Sequence[Codes]) -> Codes:
        """Whole-clip numpy result; `xs` and the result are int8 [frames, *frame_shape]."""
        raise NotImplementedError(type(self).__name__)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        """The whole-clip result at every stage that the kernel has, fused or not; the last one is `reference(xs)`."""
        return {self.final: self.reference(xs)}

    def codes(self, xs: Sequence[Interval]) -> Interval | None:
        """The codes that elements of the result can take, from those of the operands; None: any. A result shorter than
        a frame repeats (channels)."""
        return None

    def counts_frames(self) -> bool:
        """Whether the result depends on how many frames there are, so that `codes` hold for clips alone."""
        return False

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        """Which elements of result and operands can only be kept or removed together; the default is all."""
        return fixed(size_y, xs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Op | None:
        """The operator on the kept elements of its result and operands; None where it cannot be expressed."""
        return None

    def sliding(self, size: int) -> KernelOp | None:
        """The operator that slides along an endless stream, with results of `size` elements; None if there is none.

        The default is the operator itself, where it does not need the end of the stream.
        """
        return None if is_ending(self.rule()) else self

    def window(self) -> Geometry | None:
        """The `geometry` into which padding and cropping beside the operator may go; None: none."""
        return None

    def tile_shape(self, frames: int | None = None) -> Shape | None:
        """The shape that is cut into tiles, None where the operator always runs whole (`window_shape`)."""
        return None

    def rounding(self) -> Rounding | None:
        """How int32 accumulators become codes, and which accumulators can occur; None where none are rounded."""
        return None

    def code_bounds(self) -> tuple[int, int]:
        """Bounds of the codes that it writes: all of its type, or those of a fused Relu or Clip."""
        r = self.rounding()
        return self.type.bounds if r is None else (r.lo, r.hi)


def rounding_stages(
    acc: npt.NDArray[np.int64], scale: npt.NDArray[np.float32] | np.float32, zero_point: int, lo: int, hi: int
) -> Stages:
    """Accumulators [..., C], their codes by `numerics.reference.requantize`, and those inside the bounds lo..hi."""
    codes = numeric.requantize(acc, scale, zero_point)
    return {"accumulator": acc, "requantized": codes, "activated": np.clip(codes, lo, hi)}


@dataclass(frozen=True, eq=False)
class Rounding:
    """codes = requantize(acc, scale [C], zero_point, lo, hi) for accumulators acc_lo[c]..acc_hi[c] of channel c."""

    scale: npt.NDArray[np.float32]
    acc_lo: npt.NDArray[np.int64]
    acc_hi: npt.NDArray[np.int64]
    zero_point: int
    lo: int
    hi: int


@dataclass(frozen=True, eq=False)
class Table:
    """A constant C array: `ctype`, values and what they are."""

    ctype: str
    values: npt.NDArray[np.generic]
    comment: str = ""

    @property
    def bytes(self) -> int:
        size = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4}[self.ctype]
        return int(self.values.size) * size
