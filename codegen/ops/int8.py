"""int8 operators that are not windows: tables, pairs, joins, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import QParams
from codegen.numerics import reference as numeric
from codegen.numerics.linear import MulParams, fit_mul
from codegen.numerics.pairs import AddParams, fit_add
from codegen.numerics.softmax import LogSoftmaxParams, SoftmaxParams, fit_log_softmax, fit_softmax
from codegen.ops.base import Codes, KernelOp


@dataclass(frozen=True, eq=False)
class LutS8(KernelOp):
    """y = table[x + 128]: any unary function, or a change of scale. table int8 [256]."""

    table: npt.NDArray[np.int8]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        codes: Codes = self.table[xs[0].astype(np.int64) + 128]
        return codes


@dataclass(frozen=True, eq=False)
class ConcatS8(KernelOp):
    """Joins frames [outer, n_i, inner] of equal QParams along the middle axis."""

    outer: int
    sizes: tuple[int, ...]
    inner: int

    def reference(self, xs: Sequence[Codes]) -> Codes:
        parts = [x.reshape(x.shape[0], self.outer, n, self.inner) for x, n in zip(xs, self.sizes, strict=True)]
        return np.concatenate(parts, axis=2)


@dataclass(frozen=True, eq=False)
class PairS8(KernelOp):
    """Add, Sub or Mul of two frames of one shape: exact real result of the scales, one rounding half to even."""

    kind: str
    params: AddParams | MulParams
    operands: tuple[QParams, QParams]
    result: QParams
    bounds: tuple[int, int]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        a, b = xs[0].astype(np.int64), xs[1].reshape(xs[0].shape).astype(np.int64)
        qa, qb, qy = ((q.scale, q.zero_point) for q in (*self.operands, self.result))
        lo, hi = self.bounds
        if self.kind == "Mul":
            return numeric.mul(a, b, qa, qb, qy, lo=lo, hi=hi)
        return numeric.add(a, b, qa, qb, qy, lo=lo, hi=hi, sign_b=-1 if self.kind == "Sub" else 1)


def pair_s8(kind: str, a: QParams, b: QParams, y: QParams, bounds: tuple[int, int]) -> PairS8:
    """The int8 operator of a pair, its integer form checked on all 65,536 operand pairs."""
    qa, qb, qy = ((q.scale, q.zero_point) for q in (a, b, y))
    kind = "Add" if kind == "Sum" else kind
    params: AddParams | MulParams
    if kind == "Mul":
        params = fit_mul(qa, qb, qy, *bounds)
    else:
        params = fit_add(qa, qb, qy, *bounds, sign_b=-1 if kind == "Sub" else 1)
    return PairS8(kind, params, (a, b), y, bounds)


@dataclass(frozen=True, eq=False)
class SoftmaxS8(KernelOp):
    """Softmax or LogSoftmax over the innermost `size` codes, in integers: within one code of the real result.

    A declared deviation: `params.error_codes` bounds it.
    """

    kind: str
    size: int
    params: SoftmaxParams | LogSoftmaxParams

    def reference(self, xs: Sequence[Codes]) -> Codes:
        rows = xs[0].reshape(-1, self.size).astype(np.int64)
        return self.params.apply(rows).reshape(xs[0].shape)

    def describe(self) -> str:
        return f"over {self.size}, within {self.params.error_codes:.2g} codes before rounding"


def softmax_s8(kind: str, size: int, x: QParams, y: QParams) -> SoftmaxS8 | None:
    """The integer Softmax or LogSoftmax, or None for another kind."""
    qx, qy = (x.scale, x.zero_point), (y.scale, y.zero_point)
    if kind == "Softmax":
        return SoftmaxS8(kind, size, fit_softmax(qx, qy, size))
    if kind == "LogSoftmax":
        return SoftmaxS8(kind, size, fit_log_softmax(qx, qy, size))
    return None
