"""Products of activations on codes: exact sums of bounded size, one rounding."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, shift_of
from codegen.int8.weights import quantized_constant
from codegen.ir.graph import Const, QParams
from codegen.ir.real import Contract, EinsumChain
from codegen.numerics import reference as numeric
from codegen.numerics.exact import INT32_MAX, NumericsError, check_scale
from codegen.ops.base import KernelOp
from codegen.ops.einsum import EinsumS8
from codegen.ops.matmul import MatMulS8


def contract_s8(op: Contract, operands: Sequence[QParams], y: QParams, bounds: tuple[int, int]) -> MatMulS8:
    """The int8 form. Raises NumericsError where the accumulator may leave int32 or a constant has no int8 form."""
    a = operands[0]
    if op.constant is None:
        b, weights = operands[-1], None
        scale = numeric.scale_product(a.scale, np.asarray([b.scale], np.float32), y.scale)
        zeros, channel = (a.zero_point, b.zero_point), (0,) * len(op.out)
    else:
        constant = quantized_constant(op.constant, 0)
        weights, zero = int8_codes(constant)
        assert constant.scale is not None
        scale = numeric.scale_product(a.scale, constant.scale.astype(np.float32).reshape(-1), y.scale)
        zeros = (a.zero_point, zero)
        channel = op.channel if scale.size > 1 else (0,) * len(op.out)
    made = MatMulS8(op.out, op.summed, zeros, scale, channel, y.zero_point, bounds, weights)
    low, high = made.interval()
    if low.min() < -INT32_MAX - 1 or high.max() > INT32_MAX:
        found = f"its sums of {made.terms} products can reach {int(low.min())}..{int(high.max())}, beyond int32"
        raise NumericsError(found)
    return made


def int8_codes(constant: Const) -> tuple[npt.NDArray[np.int8], int]:
    """Flat int8 codes and the zero point of a quantized constant; uint8 codes move by SHIFT.

    Zero points that differ by channel are taken off the codes where int8 holds the result.
    """
    codes, zeros = constant.array.astype(np.int64), np.asarray(constant.zero()).astype(np.int64)
    shift = shift_of(constant.array.dtype)
    codes, zeros = codes - shift, zeros - shift
    if len(np.unique(zeros)) == 1:
        zero = int(zeros.ravel()[0])
    else:
        codes, zero = codes - constant.per_axis(zeros), 0
    if not INT8.holds(codes.min(initial=0), codes.max(initial=0)):
        raise NumericsError("weights whose zero points differ by channel leave the int8 range")
    return codes.astype(INT8.dtype).reshape(-1), zero


INT16_MAX = (1 << 15) - 1


def einsum_s8(op: EinsumChain, operands: Sequence[QParams], y: QParams, bounds: tuple[int, int]) -> EinsumS8:
    """The int8 form; shifts follow from the ranges of the codes. Raises NumericsError where int32 is too small."""
    codes, scales, zeros = [], [float(q.scale) for q in operands], [q.zero_point for q in operands]
    ranges = [(q.type.low - q.zero_point, q.type.high - q.zero_point) for q in operands]
    for constant in op.constants:
        single_scale = constant.scale is None or constant.scale.size == 1
        made = quantized_constant(constant if single_scale else Const(constant.real()), None)
        array, zero = int8_codes(made)
        assert made.scale is not None
        codes.append(array)
        zeros.append(zero)
        scales.append(float(made.scale.ravel()[0]))
        ranges.append((int(array.min(initial=0)) - zero, int(array.max(initial=0)) - zero))
    shifts = []
    for i, step in enumerate(op.steps):
        low, high = _product_range(ranges[step.left], ranges[step.right], step.terms)
        if max(-low, high) > INT32_MAX:
            raise NumericsError(f"its sums of {step.terms} products can reach {low}..{high}, beyond int32")
        if i == len(op.steps) - 1:
            break
        limit = _limit(op, len(zeros) + i, ranges, len(zeros))
        shift = 0
        while max(-((low + ((1 << shift) >> 1)) >> shift), (high + ((1 << shift) >> 1)) >> shift) > limit:
            shift += 1
        shifts.append(shift)
        half = (1 << shift) >> 1
        ranges.append(((low + half) >> shift, (high + half) >> shift))
    value = prod(scales) * 2.0 ** sum(shifts) / float(y.scale)
    scale = np.asarray([check_scale(np.float32(value))], np.float32)
    return EinsumS8(
        op.streams, op.steps, tuple(shifts), tuple(zeros), tuple(codes), scale, y.zero_point, bounds, (low, high)
    )


def contraction_s8(
    op: Contract | EinsumChain, operands: Sequence[QParams], y: QParams, bounds: tuple[int, int]
) -> KernelOp:
    """The int8 form of a contraction of any number of operands."""
    if isinstance(op, EinsumChain):
        return einsum_s8(op, operands, y, bounds)
    return contract_s8(op, operands, y, bounds)


def constants_of(op: Contract | EinsumChain) -> tuple[Const, ...]:
    if isinstance(op, EinsumChain):
        return op.constants
    return () if op.constant is None else (op.constant,)


def _product_range(a: tuple[int, int], b: tuple[int, int], terms: int) -> tuple[int, int]:
    corners = [x * y for x in a for y in b]
    return terms * min(*corners, 0), terms * max(*corners, 0)


def _limit(op: EinsumChain, result: int, ranges: Sequence[tuple[int, int]], count: int) -> int:
    """The largest magnitude that the step which reads `result` bears: int16, and its own sum inside int32."""
    reader = next(step for step in op.steps if result in (step.left, step.right))
    other = reader.right if reader.left == result else reader.left
    if other >= count:
        limit = isqrt(INT32_MAX // reader.terms)
    else:
        low, high = ranges[other]
        limit = INT32_MAX // (reader.terms * max(-low, high, 1))
    if limit < 1:
        raise NumericsError(f"a sum of {reader.terms} products of three and more operands does not fit int32")
    return min(INT16_MAX, limit)
