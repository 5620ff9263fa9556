"""Reductions of codes: inside the frame, over a whole clip, or over the last frames of an endless stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8
from codegen.ir.geometry import Geometry
from codegen.ir.graph import QParams
from codegen.ir.time import Join, Reduce, Rule, Window
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Rounding, Stages
from codegen.ops.channels import Coupling, Interval, Mask, each, hull, kept_channels, removed_constants, same
from codegen.ops.conv import ConvS8, Requantize, accumulator_bounds


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
    bounds: tuple[int, int] = INT8.bounds
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

    def sum_range(self) -> tuple[int, int]:
        """Sums of code - zero point that can occur."""
        return self.count * (self.x.type.low - self.x.zero_point), self.count * (self.x.type.high - self.x.zero_point)

    def rounding(self) -> Rounding | None:
        if self.kind != "Mean":
            return None
        low, high = (np.asarray([v], np.int64) for v in self.sum_range())
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
        codes = self._rounded(total, *self.type.bounds)
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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        """All elements least, all greatest: the reference itself, on `frames` equal frames."""
        frames = self.frames if self.over_time else 1
        return hull(lambda x: self.reference([np.broadcast_to(x, (frames, x.shape[1]))]), xs, self.type)

    def counts_frames(self) -> bool:
        return self.over_time and self.kind not in ("Max", "Min")

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        """[outer, n, inner] -> [outer, inner]: columns of inner, or where there is one, rows of outer."""
        _, n, inner = self.block
        if inner == 1:
            return Coupling(each(size_y), (each(xs[0].low.size) // n,))
        return same(size_y, xs, inner)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ReduceS8:
        outer, n, inner = self.block
        if inner == 1:
            return replace(self, block=(int(y.sum()), n, 1))
        return replace(self, block=(outer, n, int(kept_channels(y, inner).sum())))

    def sliding(self, size: int) -> KernelOp:
        return SlidingReduceS8(self) if self.over_time else self


@dataclass(frozen=True, eq=False)
class DenseOverTimeS8(KernelOp):
    """Product of the whole sequence with weights int8 [T, N, frame], accumulated frame by frame; y [1, N].

    Accumulators and rounding as in ConvS8: bias int32 [N], `requantize` per output.
    """

    weights: npt.NDArray[np.integer[Any]]
    bias: npt.NDArray[np.int64]
    x_zero_point: int
    requantize: Requantize
    origin: str = field(default="", kw_only=True)

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

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        used_by = np.asarray((self.weights != 0).any(axis=0))
        free = xs[0].constant

        def needs(kept: Mask) -> Mask:
            return np.asarray(used_by[kept].any(axis=0) & ~free)

        return Coupling(each(size_y), (each(xs[0].low.size),), needs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> DenseOverTimeS8:
        added = removed_constants(intervals[0], xs[0], self.x_zero_point)
        bias = self.bias + self.weights.astype(np.int64).sum(axis=0) @ added
        weights = np.ascontiguousarray(self.weights[:, y][:, :, xs[0]])
        return replace(self, weights=weights, bias=bias[y], requantize=self.requantize.at(y))

    def sliding(self, size: int) -> KernelOp:
        frames, outputs, frame = self.weights.shape
        geometry = Geometry(Window(taps=frames), Window(), Window(), (1, 1), (1, 1))
        weights = np.ascontiguousarray(self.weights.transpose(1, 0, 2).reshape(outputs, frames, 1, 1, frame))
        return ConvS8(geometry, weights, self.bias, 1, self.x_zero_point, self.requantize, origin=self.origin)


@dataclass(frozen=True, eq=False)
class SlidingReduceS8(KernelOp):
    """A reduction over the last `reduce.frames` frames, for every frame; rounding as ReduceS8.

    Sums run: the newest frame is added, and the oldest taken off once the result is out. int32 sums are exact in any
    order, so nothing drifts. Maxima cannot be taken off: they are found anew for every frame.
    """

    reduce: ReduceS8
    final = ReduceS8.final

    def rule(self) -> Window:
        return Window(taps=self.reduce.frames)

    def rounding(self) -> Rounding | None:
        return self.reduce.rounding()

    def code_bounds(self) -> tuple[int, int]:
        return self.reduce.bounds

    def running(self) -> tuple[str, int] | None:
        outer, _, inner = self.reduce.block
        return None if self.reduce.kind in ("Max", "Min") else ("int32_t", outer * inner)

    def reference(self, xs: Sequence[Codes]) -> Codes:
        x, frames = xs[0], self.reduce.frames
        count = max(0, x.shape[0] - frames + 1)
        parts = [self.reduce.reference([x[j : j + frames]]) for j in range(count)]
        outer, _, inner = self.reduce.block
        return np.concatenate(parts) if parts else np.zeros((0, outer, inner), self.type.dtype)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        frames = self.reduce.frames
        parts = [self.reduce.stages([xs[0][j : j + frames]]) for j in range(xs[0].shape[0] - frames + 1)]
        return {stage: np.concatenate([part[stage] for part in parts]) for stage in parts[0]} if parts else {}

    def describe(self) -> str:
        return f"{self.reduce.kind.lower()} of the last {self.reduce.frames} frames"
