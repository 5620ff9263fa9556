"""Transposed convolution on int8 codes, as one ordinary convolution per output phase: no int32 state, no scatter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.time import Join, Rule, Transposed, Window
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Rounding, Stages
from codegen.ops.channels import Coupling, Interval, Mask, product_coupling
from codegen.ops.conv import Requantize, accumulator_bounds, kept_weights


@dataclass(frozen=True)
class Phase:
    """Outputs start, start + stride, ... of one axis: output number m reads inputs m*step + first + dilation*i.

    `taps` are the kernel taps in the order of rising input index.
    """

    start: int
    out: int
    first: int
    dilation: int
    taps: tuple[int, ...]

    def window(self) -> Window:
        return Window(len(self.taps), 1, self.dilation, -self.first, 0)


def phases(t: Transposed, out: int | None) -> list[Phase]:
    """The phases of an axis with `out` outputs (None: endless; then `first` is relative to j = start mod stride)."""
    result = []
    for start in range(t.stride if out is None else min(t.stride, out)):
        taps = [tap for tap in range(t.taps) if (start + t.left - tap * t.dilation) % t.stride == 0]
        taps.reverse()
        inputs = [(start + t.left - tap * t.dilation) // t.stride for tap in taps]
        dilation = t.dilation // gcd(t.dilation, t.stride)
        count = 0 if out is None else -(-(out - start) // t.stride)
        result.append(Phase(start, count, inputs[0] if inputs else 0, dilation, tuple(taps)))
    return result


@dataclass(frozen=True, eq=False)
class TransposedConvolution(KernelOp):
    """int32 accumulators of x [L, D, W, Ci] -> [L', D', W', Co]; weights int8 or int16 [Co, kt, kd, kw, Ci/groups].

    Source: ONNX ConvTranspose-11; zero points and bias as in `conv.Convolution`.
    """

    time: Transposed | None
    depth: Transposed
    width: Transposed
    size_in: tuple[int, int]
    size_out: tuple[int, int]
    weights: npt.NDArray[np.integer[Any]]
    bias: npt.NDArray[np.int64]
    groups: int
    x_zero_point: int
    origin: str = field(default="", kw_only=True)

    def rule(self) -> Rule:
        return self.time or Join()

    def pad_code(self) -> int:
        return self.x_zero_point

    def macs(self) -> int:
        return prod(self.size_in) * prod(self.weights.shape) // (self.time.stride if self.time else 1)

    def describe(self) -> str:
        t = self.time
        return f"k={t.taps} s={t.stride} p={t.left},{t.right}" if t else "inside the frame"

    def combos(self) -> Iterator[tuple[Phase | None, Phase, Phase]]:
        """All combinations of output phases of the three axes."""
        times: list[Phase | None] = [None] if self.time is None else list(phases(self.time, None))
        for a in times:
            for b in phases(self.depth, self.size_out[0]):
                for c in phases(self.width, self.size_out[1]):
                    yield a, b, c

    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per channel the least and greatest accumulator over all phases."""
        return accumulator_bounds(self.weights.reshape(self.weights.shape[0], -1), self.bias, self.x_zero_point)

    def accumulate(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """Scatter each input through the kernel into the uncropped output, then crop: the definition itself."""
        co, _, _, _, per = self.weights.shape
        g = self.groups
        t = self.time or Transposed(1)
        x = xs[0].reshape(xs[0].shape[0], *self.size_in, g, per).astype(np.int64) - self.x_zero_point
        axes = (t, self.depth, self.width)
        length = x.shape[0]
        full = [(n - 1) * a.stride + a.extent + a.output_padding for n, a in zip(x.shape[:3], axes, strict=True)]
        acc = np.zeros((*(max(n, 0) for n in full), g, co // g), np.int64)
        weights = self.weights.astype(np.int64).reshape(g, co // g, *self.weights.shape[1:])
        for tap in np.ndindex(*self.weights.shape[1:4]):
            part = np.einsum("ldwgi,goi->ldwgo", x, weights[:, :, tap[0], tap[1], tap[2], :])
            where = tuple(
                slice(k * a.dilation, k * a.dilation + (n - 1) * a.stride + 1, a.stride)
                for k, a, n in zip(tap, axes, x.shape[:3], strict=True)
            )
            if length:
                acc[where] += part
        ends = [n - a.left - a.right for n, a in zip(full, axes, strict=True)]
        crop = tuple(slice(a.left, a.left + max(n, 0)) for a, n in zip(axes, ends, strict=True))
        acc = _grown(acc[crop], [max(n, 0) if length else 0 for n in ends])
        out: npt.NDArray[np.int64] = acc.reshape(*acc.shape[:3], co) + self.bias
        return out


@dataclass(frozen=True, eq=False)
class ConvTransposeS8(TransposedConvolution):
    """int8 transposed convolution: accumulators, then `requantize`."""

    requantize: Requantize

    def rounding(self) -> Rounding:
        return self.requantize.over(self.bounds())

    def reference(self, xs: Sequence[Codes]) -> Codes:
        r = self.requantize
        return numeric.requantize(self.accumulate(xs), r.scale, r.zero_point, r.lo, r.hi)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return self.requantize.stages(self.accumulate(xs))

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        """The edges see fewer taps: only what adds nothing can go."""
        channels = self.weights.shape[4] * self.groups, self.weights.shape[0]
        return product_coupling(self.weights, self.groups, channels, self.x_zero_point, False, size_y, xs[0])

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ConvTransposeS8:
        kept = kept_weights(self.weights, self.bias, self.groups, self.x_zero_point, y, xs[0], intervals[0])
        weights, bias, groups, outs = kept
        return replace(self, weights=weights, bias=bias, groups=groups, requantize=self.requantize.at(outs))


@dataclass(frozen=True, eq=False)
class ConvTransposeAccS8(TransposedConvolution):
    """A transposed convolution whose int32 accumulators are the result; real = float32(acc) * `scales` [Co]."""

    scales: npt.NDArray[np.float32]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        accumulators: Any = self.accumulate(xs).astype(np.int32)
        return accumulators  # type: ignore[no-any-return]


def _grown(acc: npt.NDArray[np.int64], sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Zeros where negative right padding lets the output run past the last tap."""
    widths = [(0, max(0, n - have)) for n, have in zip(sizes, acc.shape[:3], strict=True)]
    return np.pad(acc, [*widths, (0, 0), (0, 0)])
