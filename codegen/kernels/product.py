"""Kernels of contractions: MatMul and Einsum of activations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from codegen.ir.real import Loop
from codegen.kernels.base import CKernel, Constants, Emission, Site, proved
from codegen.kernels.literals import typed
from codegen.kernels.rounding import requantize
from codegen.kernels.structs import Array, Struct
from codegen.ops.einsum import EinsumS8
from codegen.ops.matmul import MatMulS8


def loops(nest: Sequence[Loop], channel: Sequence[int] = ()) -> Array:
    """A nest of rt_matmul_loop_t, outermost first; it has at least one."""
    steps = [*channel, *[0] * (len(nest) - len(channel))]
    rows = [(loop.size, loop.a, loop.b, step) for loop, step in zip(nest, steps, strict=True)] or [(1, 0, 0, 0)]
    names = ("size", "a", "b", "channel")
    items = (Struct("rt_matmul_loop_t", dict(zip(names, row, strict=True))) for row in rows)
    return Array("rt_matmul_loop_t", tuple(items))


class MatMul(CKernel):
    name = "rt_matmul_s8"

    def emit(self, op: MatMulS8, site: Site) -> Emission:
        struct, tables = requantize(proved(op, site.target))
        if op.weights is not None:
            tables = {"w": typed(op.weights, "the constant operand, in the order of the file"), **tables}
        out, summed = loops(op.out, op.channel), loops(op.summed)
        members: dict[str, Any] = {
            "out_loops": len(out.items),
            "summed_loops": len(summed.items),
            "out": "out",
            "summed": "summed",
            "outputs": prod(loop.size for loop in op.out),
            "a_zero": op.zero_points[0],
            "b_zero": op.zero_points[1],
            "requantize": struct,
        }
        numbers = {"second": None if op.weights is not None else site.streams[-1]}
        constants: Constants = {"out": out, "summed": summed, "matmul": Struct("rt_matmul_t", members)}
        return Emission("matmul", (self.name,), (), numbers, tables, constants)


class Einsum(CKernel):
    name = "rt_einsum_s8"

    def scratch_bytes(self, op: EinsumS8) -> int:
        """The int16 results between the steps."""
        return 2 * sum(_room(step.outputs) for step in op.steps[:-1])

    def emit(self, op: EinsumS8, site: Site) -> Emission:
        struct, tables = requantize(proved(op, site.target))
        count = op.streams + len(op.constants)
        zeros = [*op.zero_points, *[0] * len(op.steps)]
        calls, at = [], 0
        structs: dict[str, Struct | Array] = {}
        for i, step in enumerate(op.steps):
            out, summed = loops(step.out), loops(step.summed)
            members: dict[str, Any] = {"out_loops": len(out.items), "summed_loops": len(summed.items)}
            members |= {"out": f"out{i}", "summed": f"summed{i}", "outputs": step.outputs}
            members |= {"a_zero": zeros[step.left], "b_zero": zeros[step.right]}
            members |= {"a_wide": int(step.left >= count), "b_wide": int(step.right >= count)}
            members |= {"shift": op.shifts[i] if i < len(op.shifts) else 0}
            structs |= {f"out{i}": out, f"summed{i}": summed, f"step{i}": Struct("rt_einsum_step_t", members)}
            calls.append({"left": step.left, "right": step.right, "result": count + i, "at": at})
            at += _room(step.outputs)
        constants = {f"c{i}": typed(codes, "a constant operand") for i, codes in enumerate(op.constants)}
        numbers = {
            "steps": calls,
            "streams": site.streams,
            "value_count": count + len(op.steps),
            "constant_at": [(f"c{i}", op.streams + i) for i in range(len(op.constants))],
        }
        tables = {**constants, **tables}
        return Emission("einsum", (self.name,), (), numbers, tables, {**structs, "requantize": struct})


def _room(outputs: int) -> int:
    """int16 elements of a step's result, in whole words."""
    return -(-2 * outputs // 4) * 2


KERNELS = {MatMulS8: (MatMul(),), EinsumS8: (Einsum(),)}
