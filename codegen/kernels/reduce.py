"""Kernels of reductions: inside a frame, over a whole clip, over the last frames of an endless stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.kernels.base import CKernel, Emission, Site, proved
from codegen.kernels.literals import integer, typed
from codegen.kernels.rounding import exceptions, folded, linear, requantize
from codegen.kernels.structs import Array, Struct
from codegen.numerics.linear import LinearParams, fit_average, fit_ratio
from codegen.numerics.reference import average_ratio
from codegen.ops.base import Table
from codegen.ops.reduce import DenseOverTimeS8, ReduceS8, SlidingReduceS8
from codegen.plan.kernels import Target


def _selects(op: ReduceS8) -> bool:
    return op.kind in ("Max", "Min")


def fit_sum(op: ReduceS8) -> LinearParams:
    """Exact division of the sum ('Average'), or rescaling of the sum itself ('Sum')."""
    qx, qy = op.quants()
    if op.kind == "Average":
        return fit_average(qx, qy, op.count, *op.bounds)
    low, high = op.sum_range()
    lo, hi = op.bounds
    return fit_ratio(average_ratio(qx, qy, 1), low, high, qy[1], lo=lo, hi=hi)


class Reduction(CKernel):
    """Sums in int32, extremes in uint8; `finish` makes codes of them."""

    name = "rt_sum_s8 or rt_best_s8"

    def scratch_bytes(self, op: ReduceS8) -> int:
        outer, _, inner = op.block
        return 0 if op.over_time else outer * inner * (1 if _selects(op) else 4)

    def emit(self, op: ReduceS8, site: Site) -> Emission:
        numbers, finish, tables = self.parts(op, site.target)
        block = {"block": _block(op)}
        if op.over_time:
            return Emission("reduce", ("rt_reduce_s8",), (), numbers, tables, block, finish)
        return Emission("reduce_frame", ("rt_reduce_s8",), (), numbers, tables, {**block, **finish})

    def parts(self, op: ReduceS8, target: Target) -> tuple[dict[str, Any], dict[str, Any], dict[str, Table]]:
        """Numbers of the templates, constants of the finish, and its tables."""
        results = op.block[0] * op.block[2]
        numbers: dict[str, Any] = {"results": results, "flip": "", "ctype": "int32_t", "accumulate": "rt_sum_s8"}
        finish: dict[str, Struct | Array] = {}
        tables: dict[str, Table] = {}
        offset = integer(op.count * op.x.zero_point)
        if _selects(op):
            sign = -1 if op.kind == "Min" else 0
            numbers |= {"flip": f"{sign}, ", "ctype": "uint8_t", "accumulate": "rt_best_s8"}
            numbers["finish"] = f"rt_best_codes_s8(acc, {results}, {sign}, y)"
        elif op.kind == "Mean":
            finish["requantize"], tables = requantize(proved(op, target))
            numbers["finish"] = f"rt_mean_codes_s8(acc, {results}, {offset}, &requantize, y)"
        else:
            fitted = fit_sum(op)
            finish |= exceptions(fitted.exceptions) | {"divide": linear(fitted)}
            numbers["finish"] = f"rt_average_codes_s8(acc, {results}, {offset}, &divide, y)"
        return numbers, finish, tables


def _block(op: ReduceS8) -> Struct:
    outer, n, inner = op.block
    return Struct("rt_block_t", {"outer": outer, "n": n, "inner": inner})


class SlidingReduction(Reduction):
    """Over the last frames: sums run on, extremes are found anew."""

    def scratch_bytes(self, op: SlidingReduceS8) -> int:  # type: ignore[override]
        outer, _, inner = op.reduce.block
        return 0 if op.running() else outer * inner

    def emit(self, op: SlidingReduceS8, site: Site) -> Emission:  # type: ignore[override]
        numbers, finish, tables = self.parts(op.reduce, site.target)
        template = "reduce_running" if op.running() else "reduce_sliding"
        numbers |= {"frames": op.reduce.frames}
        return Emission(template, ("rt_reduce_s8",), (), numbers, tables, {"block": _block(op.reduce), **finish})


class DenseOverTime(CKernel):
    def __init__(self, wide: bool) -> None:
        self.wide = wide
        self.name = f"rt_dense_accumulate_s8{'_w16' if wide else ''}"

    def fits(self, op: DenseOverTimeS8, target: Target, tile: bool) -> str:
        return "" if (op.weights.dtype == np.int16) == self.wide else f"weights are {op.weights.dtype}"

    def emit(self, op: DenseOverTimeS8, site: Site) -> Emission:
        struct, tables = requantize(proved(op, site.target))
        frames, outputs, frame = op.weights.shape
        flat = op.weights.transpose(1, 0, 2).reshape(outputs, -1)
        named = {
            "w": typed(op.weights, f"{op.origin}: [time][out][frame] = {frames} x {outputs} x {frame}"),
            "b": typed(folded(op.bias, flat, op.x_zero_point), "bias - x zero point * sum of weights"),
        }
        numbers = {"outputs": outputs, "frame": frame}
        return Emission(
            "dense_time", ("rt_reduce_s8",), (), numbers, {**named, **tables}, end_constants={"requantize": struct}
        )


KERNELS = {
    ReduceS8: (Reduction(),),
    SlidingReduceS8: (SlidingReduction(),),
    DenseOverTimeS8: (DenseOverTime(False), DenseOverTime(True)),
}
