"""Operators that move, select or average codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.int8.expressions import Codes, kind_of, selects
from codegen.ir.graph import QParams, Tensor
from codegen.ir.op import Op
from codegen.ir.real import Concat, GlobalReduce, LastFrame, Pool, Resample
from codegen.ops.base import KernelOp
from codegen.ops.move import ConcatS8, Copy, LastS8, PadFrames, Truncate, UpsampleS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.reduce import ReduceS8


def moved(op: Op, operands: Sequence[Codes], tensors: Mapping[str, Tensor]) -> KernelOp | None:
    """The int8 form of an operator that moves or selects codes of one scale."""
    if isinstance(op, Copy | PadFrames | Truncate):
        return op
    if isinstance(op, Concat):
        return ConcatS8(op.outer, op.sizes, op.inner)
    if isinstance(op, Resample):
        return UpsampleS8(op.time, op.frame_in, op.index)
    if isinstance(op, LastFrame):
        return LastS8(op.rule())
    if isinstance(op, Pool) and op.kind == "Max":
        return MaxPoolS8(op.geometry, channels(op, tensors[operands[0].tensor]))
    if isinstance(op, GlobalReduce) and selects(op):
        q = operands[0].q
        return ReduceS8(kind_of(op), op.block, op.over_time, op.frames, q, q)
    return None


def channels(op: Pool, tensor: Tensor) -> int:
    """Channels of a pool's frames: the last dimension of a stored frame may be another axis where there is one."""
    depth, width = op.geometry.size_in
    return tensor.frame_elements // (depth * width)


def average_pool(
    op: Pool, tensor: Tensor, clip: int | None, x: QParams, y: QParams, bounds: tuple[int, int]
) -> KernelOp:
    """AveragePool; where one window covers a whole clip, a running sum instead of a window of all its frames."""
    g = op.geometry
    d, w = g.depth, g.width
    whole = (w.taps, d.taps, g.time.taps) == (g.size_in[1], g.size_in[0], tensor.length) and g.size_out == (1, 1)
    unpadded = all((a.left, a.right, a.dilation) == (0, 0, 1) for a in (g.time, d, w))
    if clip is not None and tensor.length > 1 and whole and unpadded:
        block = (1, g.size_in[0] * g.size_in[1], channels(op, tensor))
        return ReduceS8("Average", block, True, tensor.length, x, y, bounds)
    return AveragePoolS8(g, channels(op, tensor), op.count_include_pad, x, y, bounds)
