"""Tables of 256 codes: any function of one code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.ops.base import Codes, KernelOp
from codegen.ops.channels import Coupling, Interval, Mask, Values, same

MOST_TABLES = 256  # `table_of` holds numbers of 8 bits


@dataclass(frozen=True, eq=False)
class LutS8(KernelOp):
    """y = table[x + 128]: any unary function, or a change of scale. table int8 [256]."""

    table: npt.NDArray[np.int8]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        codes: Codes = self.table[xs[0].astype(np.int64) - self.type.low]
        return codes

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return _range(self.table[None], np.zeros(xs[0].low.size, np.int64), xs[0], self.type.low)

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        return same(size_y, xs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> LutS8:
        return self


@dataclass(frozen=True, eq=False)
class LutChannelsS8(KernelOp):
    """y[i] = tables[table_of[i % period]][x[i] + 128]: one unary function per element of a frame's repeating part."""

    tables: npt.NDArray[np.int8]
    table_of: npt.NDArray[np.uint8]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        frames, *frame = xs[0].shape
        x = (
            xs[0].reshape(frames, prod(frame) // self.table_of.size, self.table_of.size).astype(np.int64)
            - self.type.low
        )
        codes: Codes = self.tables[self.table_of.astype(np.int64), x]
        return codes.reshape(xs[0].shape)

    def describe(self) -> str:
        return f"{len(self.tables)} tables"

    def codes(self, xs: Sequence[Interval]) -> Interval:
        return _range(self.tables, np.resize(self.table_of.astype(np.int64), xs[0].low.size), xs[0], self.type.low)

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        return same(size_y, xs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> LutChannelsS8:
        used, index = np.unique(np.resize(self.table_of, y.size)[y], return_inverse=True)
        return channel_tables(list(self.tables[used]), index.reshape(-1))


def _range(tables: npt.NDArray[np.int8], which: Values, x: Interval, first: int) -> Interval:
    """Least and greatest entry of tables[which] over the codes low..high."""
    cases, back = np.unique(np.stack([which, x.low, x.high]), axis=1, return_inverse=True)
    parts = [tables[t, lo - first : hi - first + 1].astype(np.int64) for t, lo, hi in cases.T]
    low, high = np.asarray([p.min() for p in parts]), np.asarray([p.max() for p in parts])
    back = back.reshape(-1)
    return Interval(low[back], high[back])


def channel_tables(tables: Sequence[npt.NDArray[np.int8]], index: npt.NDArray[np.intp]) -> LutChannelsS8:
    """Tables, and which one each element of a frame takes, kept as short as the frame's repetition allows."""
    return LutChannelsS8(np.stack(tables), index[: repetition(index)].astype(np.uint8))


def repetition(index: npt.NDArray[np.intp]) -> int:
    """The shortest repetition that the frame consists of, in elements."""
    n = len(index)
    for period in range(1, n + 1):
        if n % period == 0 and np.array_equal(index, np.resize(index[:period], n)):
            return period
    return n
