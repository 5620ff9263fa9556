from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from codegen.int8.expressions import MOVES, Builder, Chain, Codes, Pending, RawInput, Real, renamed, selects
from codegen.int8.islands import MAX_PAIRS, Side, island_s8
from codegen.int8.pairs import pair_s8
from codegen.int8.products import FailedError
from codegen.int8.tables import affine_tables, constant_tables
from codegen.int8.unary import apply_pair, function_of, is_clamp
from codegen.ir.graph import Node, QParams
from codegen.ir.real import Affine, Binary, Unary
from codegen.numerics import reference as numeric
from codegen.ops.base import KernelOp


def code_bounds(b: Builder, functions: Sequence[Unary], q: QParams, node: Node) -> tuple[int, int]:
    """Code bounds of the Relu and Clip between an operator and its QuantizeLinear (rounding is monotone)."""
    lo, hi = q.type.bounds
    for function in functions:
        if not is_clamp(function):
            found = f"{function.kind} between an operator and QuantizeLinear runs in float"
            hint = "Quantize its input too (QuantizeLinear and DequantizeLinear before it)"
            b.fail(node, found, "Relu and Clip may stand there", hint)
            raise FailedError
        clamp = function_of(function)
        ends = numeric.dequantize(np.asarray([lo, hi], np.int64), (q.scale, q.zero_point)).astype(np.float64)
        wide = [-np.inf if lo == q.type.low else ends[0], np.inf if hi == q.type.high else ends[1]]
        values = np.asarray([np.float32(clamp(v)) for v in wide], np.float32)
        lo, hi = (int(v) for v in numeric.quantize(values, (q.scale, q.zero_point)))
    return lo, hi


def affine(b: Builder, real: Pending, op: Affine, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
    """A linear function per channel: one table of 256 codes for each."""
    operand = real.operands[0]
    before = operand.functions if isinstance(operand, Chain) else ()
    x = b.as_codes(operand.base if isinstance(operand, Chain) else operand, real.node)
    made = affine_tables(op, x.q, q, before, functions)
    if made is None:
        hint = "Fold it into the layer before it when exporting"
        b.fail(real.node, f"{len(op.scale)} different channels", "at most 256 tables", hint)
        raise FailedError
    return b.emit(made, [x.tensor], q, renamed(real.node, node))


def with_constant_operand(b: Builder, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
    """A constant operand per element: one table of 256 codes for each of its values."""
    op = real.node.op
    assert isinstance(op, Binary) and op.constant is not None
    operand = real.operands[0]
    before = operand.functions if isinstance(operand, Chain) else ()
    base = operand.base if isinstance(operand, Chain) else operand
    x = b.as_codes(base, real.node)
    made = constant_tables(op.kind, x.q, q, op.constant, op.swapped, before, functions, op.total)
    if made is None:
        found = f"{op.kind} with {len(np.unique(op.constant.array))} different constants"
        b.fail(real.node, found, "at most 256 different constants")
        raise FailedError
    return b.emit(made, [x.tensor], q, renamed(real.node, node))


def two_operands(b: Builder, real: Pending, q: QParams, bounds: tuple[int, int], node: Node) -> str:
    """Add, Sub, Mul of two tensors: exact on codes, or (functions of codes) an island of two tables."""
    op = real.node.op
    assert isinstance(op, Binary)
    if op.kind not in ("Add", "Sub", "Mul", "Sum") or len(real.operands) != 2:
        b.unsupported(real.node)
        raise FailedError
    kind = "Add" if op.kind == "Sum" else op.kind
    like = renamed(real.node, node)
    exact = [_exact(b, operand) for operand in real.operands]
    if exact[0] and exact[1]:
        made: KernelOp = pair_s8(kind, exact[0].q, exact[1].q, q, bounds, op.total)
        return b.emit(made, [exact[0].tensor, exact[1].tensor], q, like)
    sides = [_side(b, operand, real.node) for operand in real.operands]
    size = b.graph.tensors[real.node.output].frame_elements
    island = island_s8(kind, sides[0][1], sides[1][1], size, q, bounds)
    if island is None:
        found = f"{kind} of two tensors with more than {MAX_PAIRS} different constants in front of it"
        hint = "Quantize the result of the constant's operator too (QuantizeLinear after it)"
        b.fail(real.node, found, f"at most {MAX_PAIRS} pairs of constants in a frame", hint)
        raise FailedError
    return b.emit(island, [tensor for tensor, _ in sides], q, like)


def _exact(b: Builder, real: Real) -> Codes | None:
    """The operand as codes where it is a stored tensor or moved codes."""
    if isinstance(real, Codes):
        return real
    if isinstance(real, RawInput) and real.tensor in b.raw_params:
        return b.as_codes(real, b.graph.nodes[0])
    moved = isinstance(real, Pending) and (isinstance(real.node.op, MOVES) or selects(real.node.op))
    if moved and isinstance(real, Pending) and all(_exact(b, operand) for operand in real.operands):
        return b.as_codes(real, real.node)
    return None


def _side(b: Builder, real: Real, node: Node) -> tuple[str, Side]:
    """A real operand as a function of one stored tensor."""
    constant, apply = None, None
    if isinstance(real, Pending) and isinstance(real.node.op, Binary) and real.node.op.constant is not None:
        inner = real.node.op
        constant = inner.constant
        apply = partial(_swapped if inner.swapped else apply_pair, inner.kind)
        real = real.operands[0]
    functions = real.functions if isinstance(real, Chain) else ()
    codes = b.as_codes(real.base if isinstance(real, Chain) else real, node)
    before = numeric.chain(*(function_of(f) for f in functions)) if functions else _same
    return codes.tensor, Side(codes.q, before, constant, apply)


def _same(x: float) -> float:
    return x


def _swapped(kind: str, x: float, value: float) -> float:
    return apply_pair(kind, value, x)
