"""A sum of products of two code tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.real import Loop, describe_contraction
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp, Rounding, Stages, rounding_stages


@dataclass(frozen=True, eq=False)
class MatMulS8(KernelOp):
    """int8 contraction: acc = sum((a - a zero point) * (b - b zero point)) in int32, exact, then one rounding.

    a [L, A], b [L, B] (or the constant `weights` int8 [B]), y [L, *out]; S = f32(f32(as * bs) / ys), one per channel:
    output loop i steps by channel[i] through `scale`. Source: ONNX QLinearMatMul-10 and docs/numbers.md.
    """

    out: tuple[Loop, ...]
    summed: tuple[Loop, ...]
    zero_points: tuple[int, int]
    scale: npt.NDArray[np.float32]
    channel: tuple[int, ...]
    y_zero_point: int
    bounds: tuple[int, int]
    weights: npt.NDArray[np.int8] | None = None

    def macs(self) -> int:
        return prod(loop.size for loop in (*self.out, *self.summed))

    def describe(self) -> str:
        return describe_contraction(self.out, self.summed)

    @property
    def terms(self) -> int:
        """Products in each sum."""
        return prod(loop.size for loop in self.summed)

    def accumulate(self, xs: Sequence[Codes]) -> npt.NDArray[np.int64]:
        """Accumulators [L, outputs]."""
        length = xs[0].shape[0]
        right = xs[-1] if self.weights is None else np.broadcast_to(self.weights, (length, self.weights.size))
        return contracted(
            self.out, self.summed, centred(xs[0], self.zero_points[0]), centred(right, self.zero_points[1])
        )

    def channels(self) -> npt.NDArray[np.int64]:
        """The channel of each output."""
        return steps([Loop(loop.size, step, 0) for loop, step in zip(self.out, self.channel, strict=True)], "a")

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return numeric.requantize(self.accumulate(xs), self._scale(), self.y_zero_point, *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        return rounding_stages(self.accumulate(xs), self._scale(), self.y_zero_point, *self.bounds)

    def _scale(self) -> npt.NDArray[np.float32]:
        """The scale of each output."""
        return self.scale[self.channels()] if self.scale.size > 1 else self.scale

    def interval(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per channel the least and greatest accumulator that any codes can give."""
        low, high = (np.asarray([end - zero for zero in self.zero_points], np.int64) for end in self.type.bounds)
        if self.weights is None:
            corners = [x * y for x in (int(low[0]), int(high[0])) for y in (int(low[1]), int(high[1]))]
            return np.asarray([self.terms * min(corners)]), np.asarray([self.terms * max(corners)])
        w = self.weights.astype(np.int64) - self.zero_points[1]
        total = tuple(range(-len(self.summed), 0))
        ends = []
        for pick in (np.minimum, np.maximum):
            view = strided(pick(w * low[0], w * high[0]), (*self.out, *self.summed), "b")
            ends.append(view.sum(axis=total).reshape(-1) if self.summed else view.reshape(-1))
        least, most = np.full((2, self.scale.size), 1 << 62) * np.asarray([[1], [-1]])
        np.minimum.at(least, self.channels(), ends[0])
        np.maximum.at(most, self.channels(), ends[1])
        return least, most

    def rounding(self) -> Rounding:
        return Rounding(self.scale, *self.interval(), self.y_zero_point, *self.bounds)


def centred(codes: Codes, zero_point: int) -> npt.NDArray[np.float64]:
    """Frames [L, elements] without their zero point; float64 holds them and sums of their products exactly."""
    return codes.reshape(codes.shape[0], prod(codes.shape[1:])).astype(np.float64) - zero_point


def strided(values: npt.NDArray[Any], loops: Sequence[Loop], side: str) -> npt.NDArray[Any]:
    """Frames [..., elements] as [..., *loop sizes], each loop stepping through the frame; nothing is copied."""
    values = np.ascontiguousarray(values)
    inner = tuple(getattr(loop, side) * values.itemsize for loop in loops)
    shape = (*values.shape[:-1], *(loop.size for loop in loops))
    return np.lib.stride_tricks.as_strided(values, shape, (*values.strides[:-1], *inner), writeable=False)


def contracted(
    out: Sequence[Loop], summed: Sequence[Loop], a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Exact sums of products [L, outputs] of frames a [L, A] and b [L, B]; every partial sum is below 2^53."""
    loops = [*out, *summed]
    sides: list[Any] = []
    for values, side in ((a, "a"), (b, "b")):
        used = [i for i, loop in enumerate(loops) if getattr(loop, side)]
        sides += [strided(values, [loops[i] for i in used], side), [0, *(i + 1 for i in used)]]
    idle = prod(loop.size for loop in summed if not loop.a and not loop.b)
    kept = [i for i, loop in enumerate(out) if loop.a or loop.b]
    result = np.einsum(*sides, [0, *(i + 1 for i in kept)], optimize=True) * idle
    shape = [a.shape[0], *(loop.size if i in kept else 1 for i, loop in enumerate(out))]
    full = np.broadcast_to(result.reshape(shape), (a.shape[0], *(loop.size for loop in out)))
    totals: npt.NDArray[np.int64] = np.rint(full).astype(np.int64)
    return totals.reshape(a.shape[0], prod(loop.size for loop in out))


def steps(loops: Sequence[Loop], side: str) -> npt.NDArray[np.int64]:
    """Elements from the first one of an operand, one per pass of the nest, outermost loop slowest."""
    index = np.zeros((), np.int64)
    for loop in loops:
        index = index[..., None] + np.arange(loop.size) * getattr(loop, side)
    return index.reshape(-1)
