"""Two code tensors, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import QParams
from codegen.numerics import reference as numeric
from codegen.numerics.islands import IslandParams, pair_table
from codegen.numerics.linear import MulParams
from codegen.numerics.pairs import AddParams
from codegen.ops.base import Codes, KernelOp, Stages
from codegen.ops.channels import Coupling, Interval, Mask, hull, same


@dataclass(frozen=True, eq=False)
class PairS8(KernelOp):
    """Add, Sub or Mul of two frames of one shape: exact real result of the scales, one rounding half to even.

    `total`: the zero point is added before the rounding (com.microsoft QLinearAdd and QLinearMul): ties differ.
    """

    kind: str
    params: AddParams | MulParams
    operands: tuple[QParams, QParams]
    result: QParams
    bounds: tuple[int, int]
    total: bool = False

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return self._rounded(xs, *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        codes = self._rounded(xs, *self.type.bounds)
        made: Stages = {"requantized": codes, self.final: np.clip(codes, *self.bounds)}
        if self.kind != "Mul":
            return made
        a, b = (x.astype(np.int64) - q.zero_point for x, q in zip(xs, self.operands, strict=True))
        return {"accumulator": a * b.reshape(a.shape)} | made

    def code_bounds(self) -> tuple[int, int]:
        return self.bounds

    def _rounded(self, xs: Sequence[Codes], lo: int, hi: int) -> Codes:
        a, b = xs[0].astype(np.int64), xs[1].reshape(xs[0].shape).astype(np.int64)
        qa, qb, qy = ((q.scale, q.zero_point) for q in (*self.operands, self.result))
        if self.kind == "Mul":
            return numeric.mul(a, b, qa, qb, qy, lo=lo, hi=hi, total=self.total)
        sign = -1 if self.kind == "Sub" else 1
        return numeric.add(a, b, qa, qb, qy, lo=lo, hi=hi, sign_b=sign, total=self.total)

    def codes(self, xs: Sequence[Interval]) -> Interval:
        """Add and Sub are monotone in each operand, Mul is bilinear: the corners hold both ends."""
        return hull(lambda a, b: self.reference([a, b]), xs, self.type)

    def coupling(self, size_y: int, xs: Sequence[Interval]) -> Coupling:
        return same(size_y, xs)

    def without(self, y: Mask, xs: Sequence[Mask], intervals: Sequence[Interval]) -> PairS8:
        return self


Reals = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class IslandS8(KernelOp):
    """y = Q(f(a) kind g(b)); element i of the frame's repeating part uses functions number `island_of[i]`.

    The reference is the literal float32 formula: f and g by DequantizeLinear and Python's math, one float32 operation.
    """

    kind: str
    reals: tuple[tuple[Reals, Reals], ...]
    params: tuple[IslandParams, ...]
    island_of: npt.NDArray[np.uint8]
    y: QParams
    bounds: tuple[int, int]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        qy = (self.y.scale, self.y.zero_point)
        tables = np.stack([pair_table(self.kind, f, g, qy, *self.bounds) for f, g in self.reals])
        a, b = (x.reshape(xs[0].shape[0], -1, self.island_of.size).astype(np.int64) - self.type.low for x in xs)
        codes: Codes = tables[self.island_of.astype(np.int64), a, b]
        return codes.reshape(xs[0].shape)

    def describe(self) -> str:
        return f"{len(self.params)} pairs of tables"


@dataclass(frozen=True, eq=False)
class SelectS8(KernelOp):
    """Elementwise Max or Min of two tensors of equal QParams."""

    kind: str

    def reference(self, xs: Sequence[Codes]) -> Codes:
        codes: Codes = (np.maximum if self.kind == "Max" else np.minimum)(xs[0], xs[1].reshape(xs[0].shape))
        return codes
