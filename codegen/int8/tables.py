"""Functions of one code as tables, one for all channels or one for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, shift_of
from codegen.int8.unary import function_of, is_clamp, with_constant
from codegen.ir.graph import Const, QParams
from codegen.ir.op import Op
from codegen.ir.real import Affine, Binary, Unary
from codegen.numerics import reference as numeric
from codegen.ops.base import KernelOp
from codegen.ops.pair import SelectS8
from codegen.ops.table import MOST_TABLES, LutChannelsS8, LutS8, channel_tables


def constant_tables(
    kind: str,
    x: QParams,
    y: QParams,
    constant: Const,
    swapped: bool,
    before: Sequence[Unary],
    after: Sequence[Unary],
    total: bool = False,
) -> LutChannelsS8 | None:
    """`after(before(x) kind constant)` as tables, one for each distinct constant; None beyond MOST_TABLES.

    A quantized constant of Add, Sub or Mul is the second operand of the exact pair; everything else is literal
    DequantizeLinear -> functions -> QuantizeLinear.
    """
    frame = constant.array.reshape(-1)
    values, index = np.unique(frame, return_inverse=True)
    if len(values) > MOST_TABLES:
        return None
    qx, qy = (x.scale, x.zero_point), (y.scale, y.zero_point)
    exact = constant.is_quantized and kind in ("Add", "Sub", "Mul") and not before and not swapped
    exact = exact and all(is_clamp(f) for f in after) and constant.array.dtype in (np.int8, np.uint8)
    tables = []
    for value in values:
        if exact:
            table = _pair_row(kind, x, y, constant, int(value), total)
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


def _pair_row(kind: str, x: QParams, y: QParams, constant: Const, code: int, total: bool) -> npt.NDArray[np.int8]:
    """The results of the exact pair for all codes with one constant code."""
    assert constant.scale is not None
    shift = shift_of(constant.array.dtype)
    zero = int(np.asarray(constant.zero()).ravel()[0]) - shift
    qc = (float(constant.scale.ravel()[0]), zero)
    a = x.type.values()
    b = np.full(x.type.count, code - shift, np.int64)
    qx, qy = (x.scale, x.zero_point), (y.scale, y.zero_point)
    if kind == "Mul":
        return numeric.mul(a, b, qx, qc, qy, total=total)
    return numeric.add(a, b, qx, qc, qy, sign_b=-1 if kind == "Sub" else 1, total=total)


def affine_tables(
    op: Affine, x: QParams, y: QParams, before: Sequence[Unary], after: Sequence[Unary]
) -> LutChannelsS8 | None:
    """`after(affine(before(x)))` as one table per distinct channel, None beyond MOST_TABLES."""
    pairs, index = np.unique(np.stack([op.scale, op.offset], axis=1), axis=0, return_inverse=True)
    if len(pairs) > MOST_TABLES:
        return None
    heads, tails = [function_of(f) for f in before], [function_of(f) for f in after]
    tables = []
    for scale, offset in pairs.tolist():

        def line(value: float, scale: float = scale, offset: float = offset) -> float:
            return scale * value + offset

        chain = numeric.chain(*heads, line, *tails)
        tables.append(numeric.unary_table(chain, (x.scale, x.zero_point), (y.scale, y.zero_point)))
    return channel_tables(tables, index.reshape(-1)[op.channel])


def compares(op: Op) -> bool:
    """Whether an operator picks one of the numbers it is given: on codes it does with them what it does with reals."""
    return (isinstance(op, Unary) and is_clamp(op)) or (isinstance(op, Binary) and op.kind in ("Max", "Min"))


def compared(op: Op, shift: int) -> KernelOp | None:
    """Relu, Clip, Max and Min of codes as numbers, which are stored less `shift`. None: no such operator.

    Source: ONNX Relu-14, Clip-12, Max-13 and Min-13 on integer tensors. Scales play no part.
    """
    if not compares(op):
        return None
    codes = INT8.values() + shift
    if isinstance(op, Unary):
        function = function_of(op)
        return LutS8(_stored([function(float(code)) for code in codes], shift))
    assert isinstance(op, Binary)
    if op.constant is None:
        return SelectS8(op.kind)
    values, index = np.unique(op.constant.array.reshape(-1).astype(np.int64), return_inverse=True)
    pick = np.maximum if op.kind == "Max" else np.minimum
    tables = [_stored(pick(codes, value), shift) for value in values]
    return LutS8(tables[0]) if len(tables) == 1 else channel_tables(tables, index)


def _stored(codes: npt.ArrayLike, shift: int) -> npt.NDArray[np.int8]:
    return np.clip(np.asarray(codes, np.float64) - shift, *INT8.bounds).astype(INT8.dtype)


def grid_table(x: QParams, functions: Sequence[Unary]) -> numeric.Int8Array | None:
    """The codes of functions of all codes, with the same QParams; None where a result lies between two codes."""
    q = (x.scale, x.zero_point)
    chain = numeric.chain(*(function_of(f) for f in functions))
    table = numeric.unary_table(chain, q, q)
    values = numeric.dequantize(numeric.CODES, q)
    wanted = np.asarray([np.float32(chain(float(v))) for v in values], np.float32)
    return table if np.array_equal(numeric.dequantize(table.astype(np.int64), q), wanted) else None
