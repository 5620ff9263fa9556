"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.codes import INT8, UINT8, shift_of
from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const, QParams
from codegen.ir.real import Dequantize, Quantize
from codegen.ir.view import View


def qparams_of(node: OnnxNode, scale: Const | None, zero: Const | None, dtype: str | None = None) -> QParams:
    """Per-tensor QParams from the scale and zero point of a node, moved to int8. Any one-element shape is a scalar."""
    if scale is None or scale.array.size != 1:
        size = "missing" if scale is None else f"of {scale.array.size} elements"
        found = f"activation scale {size}"
        raise unsupported(
            IMPORT, node.title, found, "one scale per activation tensor", "Quantize activations per tensor"
        )
    value = float(np.float32(scale.array.ravel()[0]))
    check_scale(node, np.asarray([value]))
    zero_type = np.dtype(dtype or "uint8") if zero is None else zero.array.dtype
    if zero_type not in (INT8.dtype, UINT8.dtype):
        raise unsupported(
            IMPORT,
            node.title,
            f"activation type {zero_type}",
            "int8 and uint8 activations are supported",
            "Quantize with QInt8 or QUInt8 activations",
        )
    code = 0 if zero is None else int(zero.array.ravel()[0])
    shift = shift_of(zero_type)
    return QParams(value, code - shift, shift != 0)


def check_scale(node: OnnxNode, scales: np.ndarray) -> None:
    """Scales must be finite and greater than zero (no runtime checks it, and every later number depends on it)."""
    if np.size(scales) == 0:
        raise unsupported(IMPORT, node.title, "a scale of 0 elements", "one scale, or one per channel")
    bad = [float(s) for s in np.asarray(scales).ravel() if not np.isfinite(s) or s <= 0]
    if bad:
        raise unsupported(IMPORT, node.title, f"scale {bad[0]}", "scales must be finite and > 0", "Calibrate again")


def lower_quantize(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, scale, zero = (*args, None)[:3]
    assert isinstance(scale, Const)
    if isinstance(x, Const):
        return [_quantize_constant(node, x, scale, zero if isinstance(zero, Const) else None)]
    assert isinstance(x, View)
    _known_attributes(node, {"axis", "saturate", "output_dtype", "block_size", "precision"})
    dtype = {2: "uint8", 3: "int8"}.get(int(node.attrs.get("output_dtype", 0)))
    q = qparams_of(node, scale, zero if isinstance(zero, Const) else None, dtype)
    return [ctx.elementwise(x, Quantize(q), node)]


def _quantize_constant(node: OnnxNode, x: Const, scale: Const, zero: Const | None) -> Const:
    check_scale(node, scale.array)
    axis = _axis(node, x.array.ndim, scale.array.size)
    zero_array = np.zeros(scale.array.shape, np.uint8) if zero is None else zero.array
    shaped = Const(x.array, scale.array, zero_array, axis)
    values = x.real().astype(np.float32) / shaped.per_axis(scale.array.astype(np.float32))
    info = np.iinfo(zero_array.dtype)
    codes = np.rint(values).astype(np.float64) + shaped.per_axis(zero_array.astype(np.int64))
    return Const(np.clip(codes, info.min, info.max).astype(zero_array.dtype), origin=x.origin)


def lower_dequantize(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, scale, zero = (*args, None)[:3]
    assert isinstance(scale, Const)
    if isinstance(x, View):
        stored = ctx.code_type(x)
        q = qparams_of(node, scale, zero if isinstance(zero, Const) else None, stored)
        if stored is not None and q.border.name != stored:
            found = f"a zero point of type {q.border.name} for a tensor of type {stored}"
            raise unsupported(IMPORT, node.title, found, "both must have one type", "Quantize the model again")
        return [ctx.elementwise(x, Dequantize(q), node)]
    assert isinstance(x, Const)
    check_scale(node, scale.array)
    axis = _axis(node, x.array.ndim, scale.array.size)
    if scale.array.size > 1 and (x.array.ndim == 0 or scale.array.size != x.array.shape[axis]):
        found = f"{scale.array.size} scales for axis {axis} of a constant of shape {list(x.array.shape)}"
        raise unsupported(IMPORT, node.title, found, "one scale, or one per index of the axis")
    zero_array = zero.array if isinstance(zero, Const) else None
    if zero_array is not None and zero_array.dtype != x.array.dtype:
        found = f"zero point of type {zero_array.dtype} for a tensor of type {x.array.dtype}"
        raise unsupported(IMPORT, node.title, found, "both must have one type", "Quantize the model again")
    if x.array.dtype not in (np.int8, np.uint8, np.int32):
        found = f"constant of type {x.array.dtype}"
        raise unsupported(IMPORT, node.title, found, "int8, uint8 and int32 constants", "Quantize weights to 8 bits")
    if zero_array is not None and zero_array.size not in (1, scale.array.size):
        raise unsupported(IMPORT, node.title, f"{zero_array.size} zero points for {scale.array.size} scales")
    return [Const(x.array, scale.array.astype(np.float32), zero_array, axis, x.origin)]


def _axis(node: OnnxNode, rank: int, count: int) -> int:
    axis = int(node.attrs.get("axis", 1))
    if count == 1:
        return 0
    if not -rank <= axis < rank:
        raise unsupported(
            IMPORT, node.title, f"axis {axis} of a tensor of rank {rank}", "an axis inside the rank", "Quantize again"
        )
    return axis % rank


def _known_attributes(node: OnnxNode, known: set[str]) -> None:
    extra = sorted(set(node.attrs) - known)
    if extra:
        raise unsupported(IMPORT, node.title, f"attribute {extra[0]}", f"known are {', '.join(sorted(known))}")
    if node.attrs.get("block_size"):
        raise unsupported(IMPORT, node.title, "blocked quantization", "per tensor or per axis", "Quantize per channel")


_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
LOWER = {
    ("", "QuantizeLinear"): lower_quantize,
    ("", "DequantizeLinear"): lower_dequantize,
    ("com.microsoft", "QuantizeLinear"): lower_quantize,
    ("com.microsoft", "DequantizeLinear"): lower_dequantize,
}

RULES = {
    **dict.fromkeys(_QUANTIZERS, "one scale per activation, finite and > 0; constants also per channel"),
}
