"""Operators that move codes and change none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8
from codegen.ir.time import Join, Reduce, Rule, Upsample, Window
from codegen.ir.view import Piece
from codegen.ops.base import Codes, KernelOp, Stages


@dataclass(frozen=True, eq=False)
class Copy(KernelOp):
    """Gather inside a frame: the output is row-major over `pieces`, which address the input from `offset` on."""

    pieces: tuple[Piece, ...]
    offset: int = 0

    def index(self) -> npt.NDArray[np.int64]:
        """For each output element the input element."""
        index = np.full((), self.offset, np.int64)
        for size, stride in self.pieces:
            index = index[..., None] + np.arange(size) * (stride or 0)
        return index.reshape(-1)

    def reference(self, xs: Sequence[Codes]) -> Codes:
        frames: Codes = xs[0].reshape(xs[0].shape[0], prod(xs[0].shape[1:]))[:, self.index()]
        return frames

    def describe(self) -> str:
        return "copy " + "x".join(str(piece.size) for piece in self.pieces)


@dataclass(frozen=True, eq=False)
class PadFrames(KernelOp):
    """Constant padding and cropping: (left, right) frames, and (before, after) along each axis of the frame.

    Negative counts crop. `value` is the real filled in (on codes: `code`). Source: ONNX Pad-11, mode constant.
    """

    time: tuple[int, int]
    frame_in: tuple[int, ...]
    frame: tuple[tuple[int, int], ...]
    value: float
    code: int = 0

    def rule(self) -> Rule:
        return Window(left=self.time[0], right=self.time[1])

    def pad_code(self) -> int:
        return self.code

    @property
    def frame_out(self) -> tuple[int, ...]:
        return tuple(n + a + b for n, (a, b) in zip(self.frame_in, self.frame, strict=True))

    def reference(self, xs: Sequence[Codes]) -> Codes:
        x = xs[0].reshape(xs[0].shape[0], *self.frame_in)
        if x.shape[0] == 0:  # nothing becomes of an empty sequence, in every operator
            return np.zeros((0, *self.frame_out), x.dtype)
        for axis, (a, b) in enumerate((self.time, *self.frame)):
            # Step j is step j - a of the input, also where a crop at one end takes all and a pad at the other adds.
            source = np.arange(max(0, x.shape[axis] + a + b)) - a
            inside = ((source >= 0) & (source < x.shape[axis])).reshape([-1] + [1] * (x.ndim - axis - 1))
            x = np.where(inside, x.take(np.clip(source, 0, x.shape[axis] - 1), axis=axis), x.dtype.type(self.code))
        return x

    def describe(self) -> str:
        return f"time {self.time[0]},{self.time[1]} frame {list(self.frame)}"


@dataclass(frozen=True, eq=False)
class Truncate(KernelOp):
    """The first operand's frames, of `size` elements, as long as the second has some too."""

    size: int

    def rule(self) -> Rule:
        return Join(shortest=True)

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return xs[0][: len(xs[1])]

    def describe(self) -> str:
        return "to the shorter length"


@dataclass(frozen=True, eq=False)
class ConcatS8(KernelOp):
    """Joins frames [outer, n_i, inner] along the middle axis; operand i through `tables[i]` (int8 [256]), if any."""

    outer: int
    sizes: tuple[int, ...]
    inner: int
    tables: tuple[npt.NDArray[np.int8] | None, ...] = ()

    def reference(self, xs: Sequence[Codes]) -> Codes:
        tables = self.tables or (None,) * len(xs)
        parts = []
        for x, n, table in zip(xs, self.sizes, tables, strict=True):
            codes = x if table is None else table[x.astype(np.int64) - INT8.low]
            parts.append(codes.reshape(x.shape[0], self.outer, n, self.inner))
        return np.concatenate(parts, axis=2)

    def describe(self) -> str:
        changed = sum(table is not None for table in self.tables)
        return f"{changed} of {len(self.sizes)} operands rescaled" if changed else ""


@dataclass(frozen=True, eq=False)
class UpsampleS8(KernelOp):
    """Nearest upsampling by whole factors over (stream, frame axes): output j reads floor((j + offset) / factor)."""

    time: Rule
    frame_in: tuple[int, ...]
    index: tuple[tuple[int, ...], ...]

    def rule(self) -> Rule:
        return self.time

    def reference(self, xs: Sequence[Codes]) -> Codes:
        x = xs[0].reshape(xs[0].shape[0], *self.frame_in)
        if isinstance(self.time, Upsample) and x.shape[0]:
            j = np.arange(x.shape[0] * self.time.factor)
            x = x[np.minimum((j + self.time.offset) // self.time.factor, x.shape[0] - 1)]
        for axis, index in enumerate(self.index):
            x = x.take(np.asarray(index), axis=axis + 1)
        return x


@dataclass(frozen=True, eq=False)
class LastS8(KernelOp):
    """The last frame of the sequence, once, at its end."""

    time: Rule

    def rule(self) -> Rule:
        return self.time

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return xs[0][-1:]


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
