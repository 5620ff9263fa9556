"""int8 operators that are not windows: tables, pairs, joins, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Const, QParams
from codegen.numerics import reference as numeric
from codegen.numerics.linear import MulParams, fit_mul
from codegen.numerics.pairs import AddParams, fit_add
from codegen.numerics.softmax import LogSoftmaxParams, SoftmaxParams, fit_log_softmax, fit_softmax
from codegen.ops.base import Codes, ElementwiseOp, KernelOp, Stages
from codegen.ops.elementwise import Unary
from codegen.ops.unary import function_of, is_clamp, with_constant


@dataclass(frozen=True, eq=False)
class LutS8(ElementwiseOp):
    """y = table[x + 128]: any unary function, or a change of scale. table int8 [256]."""

    table: npt.NDArray[np.int8]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        codes: Codes = self.table[xs[0].astype(np.int64) + 128]
        return codes


@dataclass(frozen=True, eq=False)
class LutChannelsS8(ElementwiseOp):
    """y[i] = tables[table_of[i % period]][x[i] + 128]: one unary function per element of a frame's repeating part."""

    tables: npt.NDArray[np.int8]
    table_of: npt.NDArray[np.uint8]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        frames, *frame = xs[0].shape
        x = xs[0].reshape(frames, prod(frame) // self.table_of.size, self.table_of.size).astype(np.int64) + 128
        codes: Codes = self.tables[self.table_of.astype(np.int64), x]
        return codes.reshape(xs[0].shape)

    def describe(self) -> str:
        return f"{len(self.tables)} tables"


def constant_tables(
    kind: str,
    x: QParams,
    y: QParams,
    constant: Const,
    swapped: bool,
    before: Sequence[Unary],
    after: Sequence[Unary],
) -> LutChannelsS8 | None:
    """`after(before(x) kind constant)` as tables, one for each distinct constant; None beyond 256 of them.

    A quantized constant of Add, Sub or Mul is the second operand of the exact pair; everything else is literal
    DequantizeLinear -> functions -> QuantizeLinear.
    """
    frame = constant.array.reshape(-1)
    values, index = np.unique(frame, return_inverse=True)
    if len(values) > 256:
        return None
    qx, qy = (x.scale, x.zero_point), (y.scale, y.zero_point)
    exact = constant.is_quantized and kind in ("Add", "Sub", "Mul") and not before and not swapped
    exact = exact and all(is_clamp(f) for f in after) and constant.array.dtype in (np.int8, np.uint8)
    tables = []
    for value in values:
        if exact:
            table = _pair_row(kind, x, y, constant, int(value))
            if after:
                codes = numeric.dequantize(table.astype(np.int64), qy).astype(np.float64)
                clamp = numeric.chain(*(function_of(f) for f in after))
                table = numeric.quantize(np.asarray([np.float32(clamp(float(v))) for v in codes], np.float32), qy)
        else:
            one = Const(np.asarray([value]), constant.scale, constant.zero_point)
            middle = with_constant(kind, float(one.real()[0]), swapped)
            functions = [function_of(f) for f in (*before, middle, *after)]
            table = numeric.unary_table(numeric.chain(*functions), qx, qy)
        tables.append(table)
    return channel_tables(tables, index)


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


def _pair_row(kind: str, x: QParams, y: QParams, constant: Const, code: int) -> npt.NDArray[np.int8]:
    """The 256 results of the exact pair with one constant code."""
    assert constant.scale is not None
    shift = 128 if constant.array.dtype == np.uint8 else 0
    zero = int(np.asarray(constant.zero()).ravel()[0]) - shift
    qc = (float(constant.scale.ravel()[0]), zero)
    a = np.arange(-128, 128, dtype=np.int64)
    b = np.full(256, code - shift, np.int64)
    qx, qy = (x.scale, x.zero_point), (y.scale, y.zero_point)
    if kind == "Mul":
        return numeric.mul(a, b, qx, qc, qy)
    return numeric.add(a, b, qx, qc, qy, sign_b=-1 if kind == "Sub" else 1)


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
            codes = x if table is None else table[x.astype(np.int64) + 128]
            parts.append(codes.reshape(x.shape[0], self.outer, n, self.inner))
        return np.concatenate(parts, axis=2)

    def lead(self, operand: int) -> int | None:
        """Operands are copied one after another, in rising order: the output runs ahead by what the others add."""
        if self.outer > 1:
            return None
        return (sum(self.sizes) - self.sizes[operand]) * self.inner

    def describe(self) -> str:
        changed = sum(table is not None for table in self.tables)
        return f"{changed} of {len(self.sizes)} operands rescaled" if changed else ""


@dataclass(frozen=True, eq=False)
class PairS8(ElementwiseOp):
    """Add, Sub or Mul of two frames of one shape: exact real result of the scales, one rounding half to even."""

    kind: str
    params: AddParams | MulParams
    operands: tuple[QParams, QParams]
    result: QParams
    bounds: tuple[int, int]

    def reference(self, xs: Sequence[Codes]) -> Codes:
        return self._rounded(xs, *self.bounds)

    def stages(self, xs: Sequence[Codes]) -> Stages:
        codes = self._rounded(xs, -128, 127)
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
class SoftmaxS8(ElementwiseOp):
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
