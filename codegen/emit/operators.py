"""Operator -> template and its numbers. One entry per operator class; nothing else knows the C kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen.emit.literals import integer, requantize_initializer, typed
from codegen.ir.time import Window
from codegen.numerics.forms import exact_params
from codegen.numerics.linear import MulParams
from codegen.numerics.softmax import LogSoftmaxParams
from codegen.ops.base import KernelOp, Table
from codegen.ops.conv import ConvS8
from codegen.ops.int8 import ConcatS8, LutS8, PairS8, SoftmaxS8
from codegen.ops.pool import MaxPoolS8
from codegen.ops.shape import Copy, PadFrames


@dataclass(frozen=True)
class Emission:
    """How one operator becomes C: its template, the runtime files it needs, its numbers and constant tables."""

    template: str
    kernels: tuple[str, ...]
    numbers: dict[str, Any]
    tables: dict[str, Table] = field(default_factory=dict)


def emission(op: KernelOp, prefix: str) -> Emission:
    """`prefix` names the node's tables."""
    return EMITTERS[type(op)](op, prefix)


def axis(size: int, out: int, w: Window) -> dict[str, int]:
    return {"size": size, "out": out, "taps": w.taps, "stride": w.stride, "dilation": w.dilation, "before": w.left}


def first_frame(w: Window) -> str:
    """C expression for the first frame that output frame j reads."""
    scaled = "j" if w.stride == 1 else f"j * {w.stride}"
    return scaled if w.left == 0 else f"{scaled} {'-' if w.left > 0 else '+'} {abs(w.left)}"


def _window_numbers(op: ConvS8 | MaxPoolS8) -> dict[str, Any]:
    g = op.geometry
    return {
        "rows": g.time.taps,
        "first": first_frame(g.time),
        "dilation": g.time.dilation,
        "depth": axis(g.size_in[0], g.size_out[0], g.depth),
        "width": axis(g.size_in[1], g.size_out[1], g.width),
    }


def _conv(op: ConvS8, prefix: str) -> Emission:
    wide = op.weights.dtype == np.int16
    kernel = "rt_conv_s8_w16" if wide else "rt_conv_s8"
    sums = op.weights.reshape(op.weights.shape[0], -1).astype(np.int64).sum(axis=1)
    # The kernel multiplies raw codes: the input zero point is taken off here once (modulo 2^32, as the sum itself is).
    folded = (op.bias - op.x_zero_point * sums + (1 << 31)) % (1 << 32) - (1 << 31)
    r = op.requantize
    initializer, tables = requantize_initializer(exact_params(r.scale, r.zero_point, r.lo, r.hi), prefix)
    ci, co = op.channels
    numbers = _window_numbers(op) | {
        "in_channels": ci,
        "out_channels": co,
        "groups": op.groups,
        "y_depth": op.geometry.size_out[1] * co,
        "y_width": co,
        "zero_point": op.x_zero_point,
        "kernel": kernel,
        "requantize": initializer,
    }
    shape = "[out][time][depth][width][in / groups] = " + " x ".join(str(n) for n in op.weights.shape)
    weights = Table("int16_t" if wide else "int8_t", op.weights, shape)
    bias = Table("int32_t", folded.astype(np.int32), "bias - x zero point * sum of weights")
    return Emission("conv", (kernel, "rt_requantize", "rt_stream"), numbers, {"w": weights, "b": bias, **tables})


def _maxpool(op: MaxPoolS8, prefix: str) -> Emission:
    numbers = _window_numbers(op) | {"channels": op.channels}
    return Emission("maxpool", ("rt_maxpool_s8", "rt_stream"), numbers)


def _lut(op: LutS8, prefix: str) -> Emission:
    return Emission("lut", ("rt_lut_s8", "rt_stream"), {}, {"lut": Table("int8_t", op.table, "by code + 128")})


def copy_numbers(
    sizes: list[int], source: list[int], target: list[int], operand: int = 0, source_at: int = 0, target_at: int = 0
) -> dict[str, Any]:
    """rt_copy_t of up to four axes, padded in front, with where it reads and writes."""
    missing = 4 - len(sizes)
    return {
        "sizes": [1] * missing + sizes,
        "from_strides": [0] * missing + source,
        "to_strides": [0] * missing + target,
        "operand": operand,
        "from_offset": source_at,
        "to_offset": target_at,
    }


def _copy(op: Copy, prefix: str) -> Emission:
    pieces = list(op.pieces)
    outer, inner = pieces[:-4], pieces[-4:]
    sizes = [p.size for p in inner] or [1]
    source = [p.stride or 0 for p in inner] or [0]
    target = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
    block = int(np.prod(sizes, dtype=np.int64))
    copies = []
    starts = [op.offset]
    for piece in outer:
        starts = [start + i * (piece.stride or 0) for start in starts for i in range(piece.size)]
    for i, start in enumerate(starts):
        copies.append(copy_numbers(sizes, source, target, 0, start, i * block))
    return Emission("copy", ("rt_copy_s8", "rt_stream"), {"copy_list": copies})


def _concat(op: ConcatS8, prefix: str) -> Emission:
    total = sum(op.sizes) * op.inner
    copies, at = [], 0
    for operand, size in enumerate(op.sizes):
        width = size * op.inner
        copies.append(copy_numbers([op.outer, width], [width, 1], [total, 1], operand, 0, at))
        at += width
    return Emission("copy", ("rt_copy_s8", "rt_stream"), {"copy_list": copies})


def _pad(op: PadFrames, prefix: str) -> Emission:
    sizes, source, target, source_at, target_at = [], [], [], 0, 0
    frame_out = op.frame_out
    for i, (size, (before, after)) in enumerate(zip(op.frame_in, op.frame, strict=True)):
        step_in = int(np.prod(op.frame_in[i + 1 :], dtype=np.int64))
        step_out = int(np.prod(frame_out[i + 1 :], dtype=np.int64))
        sizes.append(size + min(before, 0) + min(after, 0))
        source.append(step_in)
        target.append(step_out)
        source_at += max(-before, 0) * step_in
        target_at += max(before, 0) * step_out
    copy = copy_numbers(sizes or [1], source or [1], target or [1], 0, source_at, target_at)
    window = op.rule()
    assert isinstance(window, Window)
    numbers = {"inner": copy, "code": op.code, "first": first_frame(window)}
    return Emission("pad", ("rt_copy_s8", "rt_stream"), numbers)


def _pair(op: PairS8, prefix: str) -> Emission:
    p = op.params
    if isinstance(p, MulParams):
        inner = p.linear
        exceptions = inner.exceptions
        numbers = [inner.multiplier, inner.rounding, inner.parity, inner.flip]
        tail = [len(exceptions), inner.lo, inner.hi, inner.left_shift, inner.right_shift]
        fields = f"{p.zero_a}, {p.zero_b}, {{{_numbers(numbers)}, {_pointer(exceptions)}, {_numbers(tail)}}}"
        kernel = "rt_mul_s8"
    else:
        exceptions = p.exceptions
        split = p.split()
        head = [split[f"{x}_{part}"] for part in ("high", "low") for x in ("a", "b", "constant")]
        tail = [len(exceptions), p.lo, p.hi, split["shift"], p.flip, int(p.wide)]
        fields = f"{_numbers([*head, split['parity']])}, {_pointer(exceptions)}, {_numbers(tail)}"
        kernel = "rt_add_s8"
    numbers_out = {
        "struct": f"{kernel[:-3]}_t",
        "exception": "rt_exception_t" if isinstance(p, MulParams) else "rt_add_exception_t",
        "exceptions": exceptions,
        "kernel": kernel,
        "initializer": f"{{{fields}}}",
    }
    return Emission("pair", (kernel, "rt_stream"), numbers_out)


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(integer(int(v)) for v in values)


def _pointer(exceptions: Sequence[tuple[int, int]]) -> str:
    return "exceptions" if exceptions else "NULL"


def _softmax(op: SoftmaxS8, prefix: str) -> Emission:
    p = op.params
    tables = {"exp": typed(p.table.astype(np.uint32), "round(2^b exp(-d * x scale)), d = largest code - code")}
    if isinstance(p, LogSoftmaxParams):
        kernel = "rt_log_softmax"
        tables["difference"] = typed(p.difference.astype(np.int32), "d * x scale / y scale, in fixed point")
        tables["logs"] = typed(p.logs.astype(np.int32), "ln(1 + 2^-i) / y scale, in fixed point")
        values = [p.table_bits, p.shift, p.zero_point, p.lo, p.hi]
    else:
        kernel = "rt_softmax"
        values = [p.scale_mantissa, p.quotient_bits, p.zero_point, p.lo, p.hi]
    fields = ", ".join(f"{prefix}_{key}" for key in tables)
    numbers = {"size": op.size, "kernel": kernel, "initializer": f"{{{fields}, {_numbers(values)}}}"}
    return Emission("softmax", ("rt_softmax_s8", "rt_stream"), numbers, tables)


EMITTERS: dict[type[KernelOp], Callable[[Any, str], Emission]] = {
    ConvS8: _conv,
    MaxPoolS8: _maxpool,
    LutS8: _lut,
    Copy: _copy,
    ConcatS8: _concat,
    PadFrames: _pad,
    PairS8: _pair,
    SoftmaxS8: _softmax,
}
