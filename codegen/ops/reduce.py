"""int8 reductions and average pools: running sums in int32, one rounding at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import QParams
from codegen.ir.time import Join, Reduce, Rule, Window
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Rounding, Stages
from codegen.ops.conv import Requantize, accumulator_bounds
from codegen.ops.geometry import Geometry, window_length


@dataclass(frozen=True, eq=False)
class ReduceS8(KernelOp):
    """Mean, average, sum, maximum or minimum of frames [outer, n, inner] over n, and over all frames if `over_time`.

    'Mean' rounds as GlobalAveragePool does (float32 scale per element count, see numerics.reference), 'Average' as
    AveragePool does (exact sum, one rounding); 'Sum' is exact too. Max and Min keep the QParams. `frames` is the
    sequence length (1 if not over time).
    """

    kind: str
    block: tuple[int, int, int]
    over_time: bool
    frames: int
    x: QParams
    y: QParams
    bounds: tuple[int, int] = (-128, 127)
    final = "pooled"

    def rule(self) -> Rule:
        return Reduce() if self.over_time else Join()

    @property
    def count(self) -> int:
        """Elements per result."""
        return self.block[1] * self.frames

    def accumulator(self) -> tuple[str, int] | None:
        if not self.over_time:
            return None
        return ("uint8_t" if self.kind in ("Max", "Min") else "int32_t", self.block[0] * self.block[2])

    def scratch_bytes(self) -> int:
        if self.over_time:
            return 0
        return self.block[0] * self.block[2] * (1 if self.kind in ("Max", "Min") else 4)

    def interval(self) -> tuple[int, int]:
        """Sums of code - zero point that can occur."""
        return self.count * (-128 - self.x.zero_point), self.count * (127 - self.x.zero_point)

    def rounding(self) -> Rounding | None:
        if self.kind != "Mean":
            return None
        low, high = (np.asarray([v], np.int64) for v in self.interval())
        return Rounding(np.asarray([self.scale()], np.float32), low, high, self.y.zero_point, *self.bounds)

    def scale(self) -> np.float32:
        """Float32 scale of the accumulator sum(code) - count * zero point ('Mean')."""
        return numeric.global_average_scale(self.x.scale, self.y.scale, self.count)

    def reference(self, xs: Sequence[Codes]) -> Codes:
        outer, n, inner = self.block
        x = xs[0].reshape(xs[0].shape[0], outer, n, inner)
        axes = (0, 2) if self.over_time else (2,)
        if self.kind in ("Max", "Min"):
            best: Codes = (x.max if self.kind == "Max" else x.min)(axis=axes)
            return best.reshape(1 if self.over_time else x.shape[0], outer, inner)
        return self._rounded(self._sums(xs), *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        if self.kind in ("Max", "Min"):
            return super().stages(xs)
        total = self._sums(xs)
        codes = self._rounded(total, -128, 127)
        return {"accumulator": total, "requantized": codes, self.final: np.clip(codes, *self.bounds)}

    def code_bounds(self) -> tuple[int, int]:
        return self.bounds

    def _sums(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """Sums of code - zero point [frames, outer, inner]."""
        outer, n, inner = self.block
        x = xs[0].reshape(xs[0].shape[0], outer, n, inner).astype(np.int64)
        total = x.sum(axis=(0, 2) if self.over_time else (2,)) - self.count * self.x.zero_point
        return np.asarray(total.reshape(1 if self.over_time else x.shape[0], outer, inner))

    def _rounded(self, total: npt.NDArray[np.int64], lo: int, hi: int) -> Codes:
        if self.kind == "Mean":
            return numeric.requantize(total, self.scale(), self.y.zero_point, lo, hi)
        return numeric.average(total, 1 if self.kind == "Sum" else self.count, *self.quants(), lo=lo, hi=hi)

    def quants(self) -> tuple[tuple[float, int], tuple[float, int]]:
        return (self.x.scale, self.x.zero_point), (self.y.scale, self.y.zero_point)

    def describe(self) -> str:
        return f"{self.kind.lower()} of {self.count}" + (" over the stream axis" if self.over_time else "")


@dataclass(frozen=True, eq=False)
class AveragePoolS8(KernelOp):
    """Average of each window: exact integer sum, divided once, half to even. x [L, D, W, C]. Source: AveragePool-19.

    Padding adds nothing to the sum; with `count_include_pad` it counts (inside the explicit pads only), else not.
    """

    geometry: Geometry
    channels: int
    count_include_pad: bool
    x: QParams
    y: QParams
    bounds: tuple[int, int] = (-128, 127)
    final = "pooled"

    def rule(self) -> Rule:
        return self.geometry.time

    def pad_code(self) -> int:
        return self.x.zero_point

    def describe(self) -> str:
        return self.geometry.describe()

    def lead(self, operand: int) -> int:
        return self.geometry.lead(self.channels, self.channels)

    def lead_back(self, operand: int) -> int:
        return self.geometry.lead_back(self.channels, self.channels)

    def divisors(self, length: int) -> npt.NDArray[np.int64]:
        """Cells that count in each window: [L', D', W']."""
        g = self.geometry
        sizes = (length, *g.size_in)
        per_axis = [
            counted(w, size, out, self.count_include_pad)
            for (w, out), size in zip(g.axes(window_length(length, g.time)), sizes, strict=True)
        ]
        result: npt.NDArray[np.int64] = per_axis[0][:, None, None] * per_axis[1][:, None] * per_axis[2]
        return result

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return self._rounded(self._sums(xs), xs[0].shape[0], *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        total = self._sums(xs)
        codes = self._rounded(total, xs[0].shape[0], -128, 127)
        return {"accumulator": total, "requantized": codes, self.final: np.clip(codes, *self.bounds)}

    def code_bounds(self) -> tuple[int, int]:
        return self.bounds

    def _sums(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """Sums of code - zero point over the cells of each window that exist."""
        g = self.geometry
        x = xs[0].reshape(xs[0].shape[0], *g.size_in, self.channels).astype(np.int64) - self.x.zero_point
        return np.asarray(g.patches(x, 0, window_length(x.shape[0], g.time)).sum(axis=(3, 4, 5)))

    def _rounded(self, total: npt.NDArray[np.int64], length: int, lo: int, hi: int) -> Codes:
        divisors = self.divisors(length)
        y = np.zeros(total.shape, np.int8)
        qx, qy = (self.x.scale, self.x.zero_point), (self.y.scale, self.y.zero_point)
        for count in np.unique(divisors):
            here = divisors == count
            y[here] = numeric.average(total[here], int(count), qx, qy, lo=lo, hi=hi)
        return y

    def counts(self) -> list[int]:
        """Every divisor that can occur, whatever the length of the sequence."""
        g = self.geometry
        inner = [
            set(counted(w, size, out, self.count_include_pad).tolist())
            for w, size, out in ((g.depth, g.size_in[0], g.size_out[0]), (g.width, g.size_in[1], g.size_out[1]))
        ]
        rows = set(range(1, g.time.taps + 1))
        if (self.count_include_pad and not g.time.ceil_mode) or (
            g.time.left == 0 and g.time.right == 0 and not g.time.ceil_mode
        ):
            rows = {g.time.taps}
        return sorted({a * b * c for a in rows for b in inner[0] for c in inner[1]})


def counted(w: Window, size: int, out: int, include_pad: bool) -> npt.NDArray[np.int64]:
    """Cells of each window along one axis that the average divides by."""
    index = np.arange(out)[:, None] * w.stride - w.left + np.arange(w.taps)[None, :] * w.dilation
    low, high = (-w.left, size + w.right) if include_pad else (0, size)
    result: npt.NDArray[np.int64] = ((index >= low) & (index < high)).sum(axis=1).astype(np.int64)
    return result


@dataclass(frozen=True, eq=False)
class DenseOverTimeS8(KernelOp):
    """Product of the whole sequence with weights int8 [T, N, frame], accumulated frame by frame; y [1, N].

    Accumulators and rounding as in ConvS8: bias int32 [N], `requantize` per output.
    """

    weights: npt.NDArray[np.integer[Any]]
    bias: npt.NDArray[np.int64]
    x_zero_point: int
    requantize: Requantize

    def rule(self) -> Rule:
        return Reduce()

    def macs(self) -> int:
        """Per input frame."""
        return int(self.weights.shape[1] * self.weights.shape[2])

    def accumulator(self) -> tuple[str, int]:
        return "int32_t", int(self.weights.shape[1])

    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per output the least and greatest accumulator."""
        w = self.weights.transpose(1, 0, 2).reshape(self.weights.shape[1], -1)
        return accumulator_bounds(w, self.bias, self.x_zero_point)

    def rounding(self) -> Rounding:
        return self.requantize.over(self.bounds())

    def accumulate(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """Accumulators [1, N], or none of a sequence of another length."""
        x = xs[0].reshape(xs[0].shape[0], prod(xs[0].shape[1:])).astype(np.int64) - self.x_zero_point
        if x.shape[0] != self.weights.shape[0]:
            return np.zeros((0, self.weights.shape[1]), np.int64)
        return np.asarray(np.einsum("tf,tnf->n", x, self.weights.astype(np.int64))[None] + self.bias)

    def reference(self, xs: Sequence[Codes]) -> Codes:
        r = self.requantize
        return numeric.requantize(self.accumulate(xs), r.scale, r.zero_point, r.lo, r.hi)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return self.requantize.stages(self.accumulate(xs))

    def describe(self) -> str:
        return f"{self.weights.shape[0]} frames of {self.weights.shape[2]}"
