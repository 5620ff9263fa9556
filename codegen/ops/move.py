"""Operators that move codes and change none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8
from codegen.ir.time import Join, Reduce, Rule, Upsample, Window
from codegen.ir.view import Piece
from codegen.ops.base import Codes, KernelOp, Stages
from codegen.ops.channels import Coupling, Interval, Mask, Values, affine, each, hull, kept_channels, same


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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return xs[0].at(self.index())

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        index, size_x = self.index(), xs[0].low.size

        def needs(kept: Mask) -> Mask:
            read = np.zeros(size_x, np.bool_)
            read[index[kept]] = True
            return read

        return Coupling(each(size_y), (each(size_x),), needs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Copy | None:
        index = (np.cumsum(xs[0]) - 1)[self.index()[y]]
        pieces = affine(index)
        return None if pieces is None else Copy(pieces, int(index[0]))


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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        inside = replace(self, time=(0, 0))
        made = hull(lambda x: inside.reference([x]), xs, self.type)
        return made.with_code(self.code) if max(self.time) > 0 else made

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        if not self.frame or self.frame[-1] != (0, 0):
            return super().coupling(size_y, xs)
        return same(size_y, xs, self.frame_in[-1])

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> PadFrames:
        kept = int(kept_channels(y, self.frame_in[-1]).sum())
        return replace(self, frame_in=(*self.frame_in[:-1], kept))


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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return xs[0]

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        """Of the second operand no element is read, only its length."""
        return Coupling(each(size_y), (each(size_y), each(xs[1].low.size)), lambda kept: kept)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> Truncate:
        return replace(self, size=int(y.sum()))


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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        """Of operands without tables, which a later pass puts there."""

        def joined(parts: Sequence[Values]) -> Values:
            return np.concatenate([p.reshape(self.outer, -1) for p in parts], axis=1).reshape(-1)

        return Interval(joined([x.low for x in xs]), joined([x.high for x in xs]))

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        """Columns of [outer, columns]: the same ones in every row."""
        width = size_y // self.outer
        columns, at = [], 0
        for size in self.sizes:
            own = size * self.inner
            columns.append(at + each(self.outer * own) % own)
            at += own
        return Coupling(each(size_y) % width, tuple(columns))

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> ConcatS8:
        return ConcatS8(self.outer, tuple(int(x.sum()) // self.outer for x in xs), 1)


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

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return xs[0].at(self.frame_index())

    def frame_index(self) -> npt.NDArray[np.int64]:
        """For each element of an output frame the element of the input frame."""
        index = np.arange(prod(self.frame_in)).reshape(self.frame_in)
        for axis, source in enumerate(self.index):
            index = index.take(np.asarray(source), axis=axis)
        return index.reshape(-1)

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        if not self.frame_in or self.index[-1] != tuple(range(self.frame_in[-1])):
            return super().coupling(size_y, xs)
        return same(size_y, xs, self.frame_in[-1])

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> UpsampleS8:
        kept = int(kept_channels(y, self.frame_in[-1]).sum())
        return replace(self, frame_in=(*self.frame_in[:-1], kept), index=(*self.index[:-1], tuple(range(kept))))


@dataclass(frozen=True, eq=False)
class LastS8(KernelOp):
    """The last frame of the sequence, once, at its end."""

    time: Rule

    def rule(self) -> Rule:
        return self.time

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return xs[0][-1:]

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return xs[0]

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        return same(size_y, xs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> LastS8:
        return self

    def sliding(self, size: int) -> KernelOp:
        return Copy((Piece(size, 1),))


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
