"""A chain of sums of products of code tensors with one rounding at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.real import Step, order_text
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Rounding, Stages, rounding_stages
from codegen.ops.matmul import centred, contracted


@dataclass(frozen=True, eq=False)
class EinsumS8(KernelOp):
    """int8 einsum of three and more operands: int32 sums, int16 between the steps, one rounding at the end.

    The result of a step but the last is t = (acc + 2^(s-1)) >> s, round half up, with the smallest shift s >= 0 for
    which t fits int16 and the next step's sum fits int32 for all codes. So each step adds an error of at most half a
    unit of 2^s, none where s = 0. The last accumulator is rounded as everywhere: S = f32(product of all operand scales
    * 2^(sum of shifts) / y scale), the product in float64. Constants have one scale.
    """

    streams: int
    steps: tuple[Step, ...]
    shifts: tuple[int, ...]
    zero_points: tuple[int, ...]
    constants: tuple[npt.NDArray[np.int8], ...]
    scale: npt.NDArray[np.float32]
    y_zero_point: int
    bounds: tuple[int, int]
    interval: tuple[int, int]

    def macs(self) -> int:
        return sum(step.outputs * step.terms for step in self.steps)

    def describe(self) -> str:
        count = self.streams + len(self.constants)
        text = order_text([(s.left, s.right) for s in self.steps], count)
        return f"order {text}, int16 between with shifts {', '.join(map(str, self.shifts))}"

    def accumulate(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """The last step's accumulators [L, outputs]."""
        length = xs[0].shape[0]
        values = [centred(x, zero) for x, zero in zip(xs, self.zero_points, strict=False)]
        for codes, zero in zip(self.constants, self.zero_points[self.streams :], strict=True):
            values.append(np.broadcast_to(codes.astype(np.float64) - zero, (length, codes.size)))
        acc = np.zeros((length, 1), np.int64)
        for i, step in enumerate(self.steps):
            acc = contracted(step.out, step.summed, values[step.left], values[step.right])
            if i < len(self.shifts):
                values.append(rounded_shift(acc, self.shifts[i]).astype(np.float64))
        return acc

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return numeric.requantize(self.accumulate(xs), self.scale, self.y_zero_point, *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return rounding_stages(self.accumulate(xs), self.scale, self.y_zero_point, *self.bounds)

    def rounding(self) -> Rounding:
        low, high = (np.asarray([end], np.int64) for end in self.interval)
        return Rounding(self.scale, low, high, self.y_zero_point, *self.bounds)


def rounded_shift(acc: npt.NDArray[np.int64], shift: int) -> npt.NDArray[np.int64]:
    """acc / 2^shift, half up: what rt_einsum_step_s8 stores."""
    return acc if shift == 0 else (acc + (1 << (shift - 1))) >> shift
