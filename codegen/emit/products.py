"""Contractions of activations -> template and numbers: MatMul and Einsum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from codegen.emit.literals import requantize_initializer, typed
from codegen.ir.real import Loop
from codegen.numerics.forms import RequantParams
from codegen.ops.base import Table
from codegen.ops.einsum import EinsumS8
from codegen.ops.matmul import MatMulS8


def loops(nest: Sequence[Loop], channel: Sequence[int] = ()) -> list[tuple[int, int, int, int]]:
    """Loops as the templates print them: (size, a, b, channel); a nest has at least one."""
    steps = [*channel, *[0] * (len(nest) - len(channel))]
    return [(loop.size, loop.a, loop.b, step) for loop, step in zip(nest, steps, strict=True)] or [(1, 0, 0, 0)]


def matmul(op: MatMulS8, prefix: str, params: RequantParams) -> tuple[dict[str, Any], dict[str, Table]]:
    """Numbers and tables of matmul.c.j2; `params` is the proved rounding."""
    initializer, tables = requantize_initializer(params, prefix)
    if op.weights is not None:
        tables = {"w": typed(op.weights, "the constant operand, in the order of the file"), **tables}
    numbers = {
        "out": loops(op.out, op.channel),
        "summed": loops(op.summed),
        "outputs": prod(loop.size for loop in op.out),
        "zeros": op.zero_points,
        "constant": op.weights is not None,
        "requantize": initializer,
    }
    return numbers, tables


def einsum(op: EinsumS8, prefix: str, params: RequantParams) -> tuple[dict[str, Any], dict[str, Table]]:
    """Numbers and tables of einsum.c.j2. `operands` are the streams' numbers among the node's inputs."""
    initializer, tables = requantize_initializer(params, prefix)
    count = op.streams + len(op.constants)
    zeros = [*op.zero_points, *[0] * len(op.steps)]
    steps, at = [], 0
    for i, step in enumerate(op.steps):
        pair = (step.left, step.right)
        steps.append(
            {
                "left": step.left,
                "right": step.right,
                "out": loops(step.out),
                "summed": loops(step.summed),
                "outputs": step.outputs,
                "zeros": [zeros[k] for k in pair],
                "wide": [int(k >= count) for k in pair],
                "shift": op.shifts[i] if i < len(op.shifts) else 0,
                "result": count + i,
                "at": at,
            }
        )
        at += -(-2 * step.outputs // 4) * 2
    constants = {f"c{i}": typed(codes, "a constant operand") for i, codes in enumerate(op.constants)}
    numbers = {
        "steps": steps,
        "value_count": count + len(op.steps),
        "operands": list(range(op.streams)),
        "constant_at": [(f"c{i}", op.streams + i) for i in range(len(op.constants))],
        "requantize": initializer,
    }
    return numbers, constants | tables
