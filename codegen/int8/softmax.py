"""Softmax on codes."""

from __future__ import annotations

from codegen.ir.graph import QParams
from codegen.numerics.softmax import fit_log_softmax, fit_softmax
from codegen.ops.softmax import SoftmaxS8


def softmax_s8(kind: str, size: int, x: QParams, y: QParams) -> SoftmaxS8 | None:
    """The integer Softmax or LogSoftmax, or None for another kind."""
    qx, qy = (x.scale, x.zero_point), (y.scale, y.zero_point)
    if kind == "Softmax":
        return SoftmaxS8(kind, size, fit_softmax(qx, qy, size))
    if kind == "LogSoftmax":
        return SoftmaxS8(kind, size, fit_log_softmax(qx, qy, size))
    return None
