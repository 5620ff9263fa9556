"""Convolution on codes, and its int32 accumulators as an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, INT32, CodeType
from codegen.ir.geometry import Geometry, conv_macs, describe_convolution, window_length
from codegen.ir.time import Rule
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Rounding, Stages, rounding_stages
from codegen.ops.channels import Coupling, Interval, Mask, kept_channels, product_coupling, removed_constants
from codegen.ops.tile_shape import Shape, window_shape

Weights = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Requantize:
    """int32 accumulators -> codes: per-channel float32 `scale`, `zero_point`, and the code bounds `lo`..`hi`.

    Relu and Clip live in the bounds. Formula and rounding: `codegen.numerics.reference.requantize`.
    """

    scale: npt.NDArray[np.float32]
    zero_point: int
    lo: int = INT8.low
    hi: int = INT8.high

    def over(self, interval: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> Rounding:
        """The rounding of accumulators in an interval per channel."""
        return Rounding(self.scale, *interval, self.zero_point, self.lo, self.hi)

    def stages(self, acc: npt.NDArray[np.int64]) -> Stages:
        return rounding_stages(acc, self.scale, self.zero_point, self.lo, self.hi)

    def at(self, keep: Mask) -> Requantize:
        """For the kept channels."""
        return replace(self, scale=self.scale[keep]) if self.scale.size == keep.size else self


@dataclass(frozen=True, eq=False)
class Convolution(KernelOp):
    """int32 accumulators acc = bias + sum((x - x_zero_point) * w).

    x [L, D, W, Ci], weights int8 or int16 [Co, kt, kd, kw, Ci/groups], bias int32 [Co]. Source: ONNX QLinearConv-10.
    """

    geometry: Geometry
    weights: npt.NDArray[np.integer[Any]]
    bias: npt.NDArray[np.int64]
    groups: int
    x_zero_point: int
    origin: str = field(default="", kw_only=True)
    writes: ClassVar[CodeType] = INT8

    def rule(self) -> Rule:
        return self.geometry.time

    def pad_code(self) -> int:
        return self.x_zero_point

    def macs(self) -> int:
        return conv_macs(self.geometry, self.weights.shape)

    def describe(self) -> str:
        return describe_convolution(self.geometry, self.groups)

    @property
    def channels(self) -> tuple[int, int]:
        return self.weights.shape[4] * self.groups, self.weights.shape[0]

    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per channel the least and greatest accumulator that any int8 input can give, partial sums included."""
        w = self.weights.reshape(self.weights.shape[0], -1)
        return accumulator_bounds(w, self.bias, self.x_zero_point)

    def accumulate(self, x: Codes) -> npt.NDArray[np.int64]:
        """Accumulators [L', D', W', Co] with the zero point removed."""
        g, groups = self.geometry, self.groups
        length = window_length(x.shape[0], g.time)
        ci, co = self.channels
        x = x.reshape(x.shape[0], *g.size_in, ci)
        out = np.empty((length, *g.size_out, co), np.int64)
        weights = self.weights.astype(np.float64).reshape(groups, co // groups, -1)
        for start in range(0, length, 256):
            stop = min(start + 256, length)
            patches = _patches(g, x, self.x_zero_point, start, stop)
            patches = patches.reshape(*patches.shape[:-1], groups, ci // groups)
            patches = np.moveaxis(patches, -2, 3).reshape(stop - start, *g.size_out, groups, -1)
            # float64 holds every product and partial sum exactly: |acc| < 2^53.
            acc = np.einsum("ldwgk,gok->ldwgo", patches.astype(np.float64) - self.x_zero_point, weights, optimize=True)
            out[start:stop] = np.rint(acc).astype(np.int64).reshape(stop - start, *g.size_out, co)
        return out + self.bias

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        can_fold = not self.geometry.reads_padding()
        return product_coupling(self.weights, self.groups, self.channels, self.x_zero_point, can_fold, size_y, xs[0])

    def tile_shape(self, frames: int | None = None) -> Shape | None:
        channels, per = self.channels[1], self.weights.shape[4]
        own = self.weights.nbytes // channels + 4
        return window_shape(self.geometry, frames, channels, self.groups, per, own, self.writes)


@dataclass(frozen=True, eq=False)
class ConvS8(Convolution):
    """int8 convolution: accumulators, then `requantize`."""

    requantize: Requantize

    def rounding(self) -> Rounding:
        return self.requantize.over(self.bounds())

    def reference(self, xs: Sequence[Codes]) -> Codes:
        r = self.requantize
        return numeric.requantize(self.accumulate(xs[0]), r.scale, r.zero_point, r.lo, r.hi)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return self.requantize.stages(self.accumulate(xs[0]))

    def codes(self, xs: Sequence[Interval]) -> Interval:
        """acc = bias + sum((x - zero point) * w): each product is least and greatest at the ends of x."""
        ci, co = self.channels
        x = xs[0].by_channel(ci)
        if self.geometry.reads_padding():
            x = x.with_code(self.x_zero_point)
        per = ci // self.groups
        low, high = ((v - self.x_zero_point).reshape(self.groups, 1, 1, per) for v in (x.low, x.high))
        w = self.weights.astype(np.int64).reshape(self.groups, co // self.groups, -1, per)
        least = self.bias + np.minimum(w * low, w * high).sum(axis=(2, 3)).reshape(co)
        most = self.bias + np.maximum(w * low, w * high).sum(axis=(2, 3)).reshape(co)
        r = self.requantize
        codes = [numeric.requantize(acc, r.scale, r.zero_point, r.lo, r.hi).astype(np.int64) for acc in (least, most)]
        return Interval(codes[0], codes[1])

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ConvS8:
        kept = kept_weights(self.weights, self.bias, self.groups, self.x_zero_point, y, xs[0], intervals[0])
        weights, bias, groups, outs = kept
        return replace(self, weights=weights, bias=bias, groups=groups, requantize=self.requantize.at(outs))

    def window(self) -> Geometry:
        return self.geometry


@dataclass(frozen=True, eq=False)
class ConvAccS8(Convolution):
    """A convolution whose int32 accumulators are the result; real = float32(acc) * `scales` [Co]."""

    scales: npt.NDArray[np.float32]
    final = "accumulator"
    writes = INT32

    def reference(self, xs: Sequence[Codes]) -> Codes:
        accumulators: Any = self.accumulate(xs[0]).astype(np.int32)
        return accumulators  # type: ignore[no-any-return]

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ConvAccS8:
        kept = kept_weights(self.weights, self.bias, self.groups, self.x_zero_point, y, xs[0], intervals[0])
        weights, bias, groups, outs = kept
        return replace(self, weights=weights, bias=bias, groups=groups, scales=self.scales[outs])


def kept_weights(
    weights: Weights, bias: npt.NDArray[np.int64], groups: int, zero_point: int, y: Mask, x: Mask, interval: Interval
) -> tuple[Weights, npt.NDArray[np.int64], int, Mask]:
    """(weights [Co, ..., Ci / groups] and bias of kept channels, groups, the kept output channels): removed constants
    move into the bias, whole groups go."""
    co, per = weights.shape[0], weights.shape[4]
    outs, ins = kept_channels(y, co), kept_channels(x, per * groups)
    if groups == 1:
        added = removed_constants(interval.by_channel(per), ins, zero_point)
        bias = bias + weights.astype(np.int64).sum(axis=(1, 2, 3)) @ added
        weights = weights[..., ins]
    else:
        groups = int(ins.sum()) // per
    return np.ascontiguousarray(weights[outs]), bias[outs], groups, outs


def accumulator_bounds(
    w: npt.NDArray[np.integer[Any]], bias: npt.NDArray[np.int64], x_zero_point: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Per row of w [Co, K] the least and greatest bias + sum((x - zero point) * w) over all int8 x and partial sums."""
    w = w.astype(np.int64)
    low, high = INT8.low - x_zero_point, INT8.high - x_zero_point
    least = np.minimum(w * low, w * high).sum(axis=1)
    most = np.maximum(w * low, w * high).sum(axis=1)
    return bias + least, bias + most


def _patches(g: Geometry, x: Codes, fill: int, start: int, stop: int) -> npt.NDArray[Any]:
    """Windows of the output frames start..stop-1 (patches of the whole clip would not fit in memory)."""
    time = replace(g.time, left=g.time.left - start * g.time.stride)
    return replace(g, time=time).patches(x, fill, stop - start)
