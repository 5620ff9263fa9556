"""Pools on codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8
from codegen.ir.geometry import Geometry, window_length
from codegen.ir.graph import QParams
from codegen.ir.time import Rule, Window
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Stages
from codegen.ops.channels import Coupling, Interval, Mask, kept_channels, same
from codegen.ops.tile_shape import Shape, window_shape


@dataclass(frozen=True, eq=False)
class MaxPoolS8(KernelOp):
    """Largest code of each window; a pad never wins. x [L, D, W, C], same QParams in and out. Source: MaxPool-12."""

    geometry: Geometry
    channels: int
    final = "pooled"

    def rule(self) -> Rule:
        return self.geometry.time

    def pad_code(self) -> int:
        return self.type.low

    def describe(self) -> str:
        return self.geometry.describe()

    def reference(self, xs: Sequence[Codes]) -> Codes:
        g = self.geometry
        x = xs[0].reshape(xs[0].shape[0], *g.size_in, self.channels)
        patches = g.patches(x, self.type.low, window_length(x.shape[0], g.time))
        best: Codes = patches.max(axis=(3, 4, 5))
        return best

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return xs[0].by_channel(self.channels)

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        return same(size_y, xs, self.channels)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> MaxPoolS8:
        return replace(self, channels=int(kept_channels(y, self.channels).sum()))

    def window(self) -> Geometry:
        return self.geometry

    def tile_shape(self, frames: int | None = None) -> Shape:
        return window_shape(self.geometry, frames, self.channels, self.channels, 1, 0, self.type)


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
    bounds: tuple[int, int] = INT8.bounds
    final = "pooled"

    def rule(self) -> Rule:
        return self.geometry.time

    def pad_code(self) -> int:
        return self.x.zero_point

    def describe(self) -> str:
        return self.geometry.describe()

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
        codes = self._rounded(total, xs[0].shape[0], *self.type.bounds)
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
        y = np.zeros(total.shape, self.type.dtype)
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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        x = xs[0].by_channel(self.channels)
        if self.count_include_pad and self.geometry.reads_padding():
            x = x.with_code(self.x.zero_point)
        qx, qy = (self.x.scale, self.x.zero_point), (self.y.scale, self.y.zero_point)
        lo, hi = self.bounds
        cases = [
            [numeric.average(end * count, count, qx, qy, lo=lo, hi=hi).astype(np.int64) for count in self.counts()]
            for end in (x.low - self.x.zero_point, x.high - self.x.zero_point)
        ]
        return Interval(np.min(cases[0], axis=0), np.max(cases[1], axis=0))

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        return same(size_y, xs, self.channels)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> AveragePoolS8:
        return replace(self, channels=int(kept_channels(y, self.channels).sum()))

    def tile_shape(self, frames: int | None = None) -> Shape:
        return window_shape(self.geometry, frames, self.channels, self.channels, 1, 0, self.type)


def counted(w: Window, size: int, out: int, include_pad: bool) -> npt.NDArray[np.int64]:
    """Cells of each window along one axis that the average divides by."""
    index = np.arange(out)[:, None] * w.stride - w.left + np.arange(w.taps)[None, :] * w.dilation
    low, high = (-w.left, size + w.right) if include_pad else (0, size)
    result: npt.NDArray[np.int64] = ((index >= low) & (index < high)).sum(axis=1).astype(np.int64)
    return result
