"""Sums, differences and products of two code tensors."""

from __future__ import annotations

from codegen.ir.graph import QParams
from codegen.numerics.linear import MulParams, fit_mul
from codegen.numerics.pairs import AddParams, fit_add
from codegen.ops.pair import PairS8


def pair_s8(kind: str, a: QParams, b: QParams, y: QParams, bounds: tuple[int, int], total: bool = False) -> PairS8:
    """The int8 operator of a pair, its integer form checked on all 65,536 operand pairs."""
    qa, qb, qy = ((q.scale, q.zero_point) for q in (a, b, y))
    kind = "Add" if kind == "Sum" else kind
    params: AddParams | MulParams
    if kind == "Mul":
        params = fit_mul(qa, qb, qy, *bounds, total=total)
    else:
        params = fit_add(qa, qb, qy, *bounds, sign_b=-1 if kind == "Sub" else 1, total=total)
    return PairS8(kind, params, (a, b), y, bounds, total)
