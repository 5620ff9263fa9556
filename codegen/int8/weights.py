from __future__ import annotations

import numpy as np

from codegen.codes import INT8
from codegen.ir.graph import Const
from codegen.numerics.exact import NumericsError

NOTE = "quantized at build time, symmetric int8, one scale per output channel; `verify` shows the distance to float"


def quantized_constant(constant: Const, axis: int | None) -> Const:
    """The constant as int8 codes with zero point 0, one scale per index of `axis` (None: one scale).

    scale = max|w| / 127 in float32 (1 for a channel of zeros), code = round half to even of w / scale. A constant that
    is quantized already is returned as it is. Raises NumericsError for values that are not finite.
    """
    if constant.is_quantized:
        return constant
    values = constant.array.astype(np.float64)
    if not np.isfinite(values).all():
        raise NumericsError("its constant has values that are not finite")
    others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
    largest = np.abs(values).max(axis=others, initial=0.0)
    scale = np.where(largest > 0, largest / INT8.high, 1.0).astype(np.float32)
    smallest = np.float32(np.finfo(np.float32).tiny)
    scale = np.maximum(scale, smallest)
    made = Const(values, scale.reshape(-1), None, 0 if axis is None else axis)
    codes = np.clip(np.rint(values / made.per_axis(scale.reshape(-1)).astype(np.float64)), -INT8.high, INT8.high)
    return Const(codes.astype(INT8.dtype), scale.reshape(-1), None, made.axis, constant.origin)
