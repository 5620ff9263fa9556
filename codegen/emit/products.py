"""Contractions of activations -> template and numbers: MatMul and Einsum."""

from __future__ import annotations

from typing import Any

from codegen.emit.literals import requantize_initializer, typed
from codegen.numerics.forms import RequantParams
from codegen.ops.base import Table
from codegen.ops.matmul import MatMulS8, matmul_s8_numbers


def matmul(op: MatMulS8, prefix: str, params: RequantParams) -> tuple[dict[str, Any], dict[str, Table]]:
    """Numbers and tables of matmul.c.j2; `params` is the proved rounding."""
    initializer, tables = requantize_initializer(params, prefix)
    if op.weights is not None:
        tables = {"w": typed(op.weights, "the constant operand, in the order of the file"), **tables}
    return matmul_s8_numbers(op) | {"requantize": initializer}, tables
