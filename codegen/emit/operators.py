"""Operator -> template and its numbers. One entry per operator class; nothing else knows the C kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.emit import products
from codegen.emit.literals import integer, requantize_initializer, typed
from codegen.ir.time import Upsample, Window
from codegen.numerics.forms import RequantParams
from codegen.numerics.linear import LinearParams, MulParams, fit_average, fit_ratio
from codegen.numerics.reference import average_ratio
from codegen.numerics.softmax import LogSoftmaxParams
from codegen.ops.base import KernelOp, Table
from codegen.ops.conv import ConvAccS8, Convolution, ConvS8
from codegen.ops.einsum import EinsumS8
from codegen.ops.matmul import MatMulS8
from codegen.ops.move import CollectS8, ConcatS8, Copy, LastS8, PadFrames, Truncate, UpsampleS8
from codegen.ops.pair import IslandS8, PairS8, SelectS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.reduce import DenseOverTimeS8, ReduceS8, SlidingReduceS8
from codegen.ops.softmax import SoftmaxS8
from codegen.ops.table import LutChannelsS8, LutS8
from codegen.ops.transposed import ConvTransposeAccS8, ConvTransposeS8, TransposedConvolution
from codegen.plan.rounding import proof_of

MOST_TAPS = 32
"""RT_MOST_TAPS of runtime_c/rt_conv_s8.h; a test compares them."""


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


def _window_numbers(op: Convolution | MaxPoolS8 | AveragePoolS8) -> dict[str, Any]:
    g = op.geometry
    channels_in, channels_out = op.channels if isinstance(op, Convolution) else (op.channels, op.channels)
    return {
        "rows": g.time.taps,
        "first": first_frame(g.time),
        "dilation": g.time.dilation,
        "depth": axis(g.size_in[0], g.size_out[0], g.depth),
        "width": axis(g.size_in[1], g.size_out[1], g.width),
        "in_channels": channels_in,
        "y_depth": g.size_out[1] * channels_out,
        "y_width": channels_out,
    }


def _proved(op: KernelOp) -> RequantParams:
    proof = proof_of(op)
    assert proof is not None
    return proof.params


def _packed(weights: npt.NDArray[np.integer[Any]], groups: int) -> tuple[npt.NDArray[np.integer[Any]], int, str]:
    """Weights [out, time, depth, width, in / groups] as the kernel wants them: the array, its tap_step, its axes.

    A depthwise kernel takes neighbouring channels of one tap at once.
    """
    co, *taps, per = weights.shape
    if per == 1 and co == groups and 0 < np.prod(taps) <= MOST_TAPS:
        return np.ascontiguousarray(np.moveaxis(weights[..., 0], 0, -1)), co, "[time][depth][width][out]"
    return np.ascontiguousarray(weights), 0, "[out][time][depth][width][in / groups]"


def _conv(op: Convolution, prefix: str) -> Emission:
    wide = op.weights.dtype == np.int16
    kernel = ("rt_conv_s8" if isinstance(op, ConvS8) else "rt_conv_acc_s8") + ("_w16" if wide else "")
    # The kernel multiplies raw codes: the input zero point is taken off here once (modulo 2^32, as the sum itself is).
    folded = _folded(op.bias, op.weights.reshape(op.weights.shape[0], -1), op.x_zero_point)
    initializer, tables = "{0}", dict[str, Table]()
    if isinstance(op, ConvS8):
        initializer, tables = requantize_initializer(_proved(op), prefix)
    ci, co = op.channels
    numbers = _window_numbers(op) | {
        "out_channels": co,
        "group_in": ci // op.groups,
        "group_out": co // op.groups,
        "zero_point": op.x_zero_point,
        "kernel": kernel,
        "weight_bytes": op.weights.itemsize,
        "requantize": initializer,
    }
    packed, tap_step, axes = _packed(op.weights, op.groups)
    numbers["tap_step"] = tap_step
    weights = Table("int16_t" if wide else "int8_t", packed, f"{axes} = {' x '.join(map(str, packed.shape))}")
    bias = Table("int32_t", folded, "bias - x zero point * sum of weights")
    return Emission("conv", (kernel, "rt_requantize", "rt_stream"), numbers, {"w": weights, "b": bias, **tables})


def _maxpool(op: MaxPoolS8, prefix: str) -> Emission:
    return Emission("maxpool", ("rt_maxpool_s8", "rt_stream"), _window_numbers(op))


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
        "lut": None,
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


def _truncate(op: Truncate, prefix: str) -> Emission:
    copied = copy_numbers([op.size], [1], [1], 0, 0, 0)
    return Emission("copy", ("rt_copy_s8", "rt_stream"), {"copy_list": [copied], "operands": 1})


def _concat(op: ConcatS8, prefix: str) -> Emission:
    total = sum(op.sizes) * op.inner
    tables: dict[str, Table] = {}
    copies, at = [], 0
    for operand, size in enumerate(op.sizes):
        width = size * op.inner
        copied = copy_numbers([op.outer, width], [width, 1], [total, 1], operand, 0, at)
        values = op.tables[operand] if op.tables else None
        if values is not None:
            tables[f"lut{operand}"] = typed(values, f"operand {operand}: change of scale, by code + 128")
            copied |= {"lut": f"{prefix}_lut{operand}", "outer": op.outer, "width": width, "total": total}
        copies.append(copied)
        at += width
    kernels = ("rt_copy_s8", "rt_stream", *(["rt_lut_s8"] if tables else []))
    return Emission("copy", kernels, {"copy_list": copies}, tables)


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
        exceptions = p.linear.exceptions
        fields = f"{p.zero_a}, {p.zero_b}, {linear_initializer(p.linear)}"
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


def _lut_channels(op: LutChannelsS8, prefix: str) -> Emission:
    tables = {"of": typed(op.table_of, "table of each element"), "luts": typed(op.tables, "by table and code + 128")}
    return Emission("lut_channels", ("rt_lut_channels_s8", "rt_stream"), {"period": op.table_of.size}, tables)


def linear_initializer(p: LinearParams, exceptions: str = "exceptions") -> str:
    head = _numbers([p.multiplier, p.rounding, p.parity, p.flip])
    tail = _numbers([len(p.exceptions), p.lo, p.hi, p.left_shift, p.right_shift])
    return f"{{{head}, {exceptions if p.exceptions else 'NULL'}, {tail}}}"


def _exceptions(p: LinearParams, name: str = "exceptions") -> str:
    """Declaration of the exception list, or nothing."""
    if not p.exceptions:
        return ""
    items = ", ".join(f"{{{integer(x)}, {code}}}" for x, code in p.exceptions)
    return f"    static const rt_exception_t {name}[{len(p.exceptions)}] = {{{items}}};"


def _avgpool(op: AveragePoolS8, prefix: str) -> Emission:
    qx, qy = (op.x.scale, op.x.zero_point), (op.y.scale, op.y.zero_point)
    divisors, exceptions = [], []
    for count in op.counts():
        fitted = fit_average(qx, qy, count, *op.bounds)
        exceptions.append(_exceptions(fitted, f"exceptions{count}"))
        divisors.append(f"{{{count}, {linear_initializer(fitted, f'exceptions{count}')}}}")
    g = op.geometry
    numbers = _window_numbers(op) | {
        "divisors": divisors,
        "exceptions": [text for text in exceptions if text],
        "counts": [_counted(op, g.depth, g.size_in[0]), _counted(op, g.width, g.size_in[1])],
        "right": g.time.right,
        "zero_point": op.x.zero_point,
        "include_pad": int(op.count_include_pad),
    }
    return Emission("avgpool", ("rt_avgpool_s8", "rt_stream"), numbers)


def _counted(op: AveragePoolS8, w: Window, size: int) -> tuple[int, int]:
    """First position of an axis that an average divides by, and one past the last."""
    return (-w.left, size + w.right) if op.count_include_pad else (0, size)


def _reduce(op: ReduceS8, prefix: str) -> Emission:
    results = op.block[0] * op.block[2]
    flip = ""
    tables: dict[str, Table] = {}
    if op.kind in ("Max", "Min"):
        sign = -1 if op.kind == "Min" else 0
        flip, ctype, accumulate = f"{sign}, ", "uint8_t", "rt_best_s8"
        finish: dict[str, Any] = {"call": f"rt_best_codes_s8(acc, {results}, {sign}, y)"}
    else:
        ctype, accumulate = "int32_t", "rt_sum_s8"
        offset = integer(op.count * op.x.zero_point)
        if op.kind == "Mean":
            initializer, tables = requantize_initializer(_proved(op), prefix)
            finish = {"call": f"rt_mean_codes_s8(acc, {results}, {offset}, &requantize, y)", "requantize": initializer}
        else:
            linear = fit_sum(op)
            finish = {
                "call": f"rt_average_codes_s8(acc, {results}, {offset}, &divide, y)",
                "linear": linear_initializer(linear),
                "exceptions": _exceptions(linear),
            }
    finish = {"requantize": "", "linear": "", "exceptions": "", **finish}
    numbers = {
        "block": op.block,
        "results": results,
        "flip": flip,
        "ctype": ctype,
        "accumulate": accumulate,
        "finish": finish,
    }
    return Emission("reduce" if op.over_time else "reduce_frame", ("rt_reduce_s8", "rt_stream"), numbers, tables)


def _sliding(op: SlidingReduceS8, prefix: str) -> Emission:
    made = _reduce(op.reduce, prefix)
    template = "reduce_running" if op.running() else "reduce_sliding"
    return replace(made, template=template, numbers=made.numbers | {"frames": op.reduce.frames})


def fit_sum(op: ReduceS8) -> LinearParams:
    """Exact division of the sum ('Average'), or rescaling of the sum itself ('Sum')."""
    qx, qy = op.quants()
    if op.kind == "Average":
        return fit_average(qx, qy, op.count, *op.bounds)
    low, high = op.interval()
    lo, hi = op.bounds
    return fit_ratio(average_ratio(qx, qy, 1), low, high, qy[1], lo=lo, hi=hi)


def _folded(bias: Any, weights: Any, zero: int) -> Any:
    """bias - zero point * sum of weights, modulo 2^32; weights [Co, K]."""
    sums = weights.astype(np.int64).sum(axis=1)
    return ((bias - zero * sums + (1 << 31)) % (1 << 32) - (1 << 31)).astype(np.int32)


def _dense_time(op: DenseOverTimeS8, prefix: str) -> Emission:
    initializer, tables = requantize_initializer(_proved(op), prefix)
    frames, outputs, frame = op.weights.shape
    flat = op.weights.transpose(1, 0, 2).reshape(outputs, -1)
    wide = op.weights.dtype == np.int16
    numbers = {
        "outputs": outputs,
        "frame": frame,
        "requantize": initializer,
        "kernel": "rt_dense_accumulate_s8_w16" if wide else "rt_dense_accumulate_s8",
    }
    named = {
        "w": typed(op.weights, f"[time][out][frame] = {frames} x {outputs} x {frame}"),
        "b": typed(_folded(op.bias, flat, op.x_zero_point), "bias - x zero point * sum of weights"),
    }
    return Emission("dense_time", ("rt_reduce_s8", "rt_stream"), numbers, {**named, **tables})


def _convt(op: TransposedConvolution, prefix: str) -> Emission:
    initializer = "{0}"
    tables: dict[str, Table] = {}
    if isinstance(op, ConvTransposeS8):
        initializer, tables = requantize_initializer(_proved(op), prefix)
    co, _, _, _, per = op.weights.shape
    stride = op.time.stride if op.time else 1
    convs: list[dict[str, Any]] = []
    times: dict[int, dict[str, Any]] = {}
    for time, depth, width in op.combos():
        rows = time.taps if time else (0,)
        part = op.weights[:, list(rows)][:, :, list(depth.taps)][:, :, :, list(width.taps)]
        key = f"p{len(convs)}"
        flat = part.reshape(co, -1)
        packed, tap_step, axes = _packed(part, op.groups)
        if flat.size:
            tables[f"{key}_w"] = typed(packed, f"one phase, {axes} = {' x '.join(map(str, packed.shape))}")
        tables[f"{key}_b"] = typed(_folded(op.bias, flat, op.x_zero_point), "bias - x zero point * sum of weights")
        at = depth.start * op.size_out[1] * co + width.start * co
        phase = time.start if time else 0
        shift = time.first if time else 0
        entry = times.setdefault(
            phase,
            {
                "phase": phase,
                "rows": len(rows),
                "dilation": time.dilation if time else 1,
                "shift": f" {'+' if shift >= 0 else '-'} {abs(shift)}" if shift else "",
                "calls": [],
            },
        )
        entry["calls"].append((len(convs), f" + {at}" if at else ""))
        convs.append(
            {
                "rows": len(rows),
                "depth": axis(op.size_in[0], depth.out, depth.window()),
                "width": axis(op.size_in[1], width.out, width.window()),
                "y_depth": op.depth.stride * op.size_out[1] * co,
                "y_width": op.width.stride * co,
                "tap_step": tap_step,
                "weights": f"{prefix}_{key}_w" if flat.size else "NULL",
                "bias": f"{prefix}_{key}_b",
            }
        )
    wide = op.weights.dtype == np.int16
    power = stride & (stride - 1) == 0
    numbers = {
        "convs": convs,
        "times": list(times.values()),
        "most_rows": max(1, *(t["rows"] for t in times.values())),
        "in_channels": per * op.groups,
        "out_channels": co,
        "group_in": per,
        "group_out": co // op.groups,
        "zero_point": op.x_zero_point,
        "requantize": initializer,
        "stride": stride,
        "group": f"j >> {stride.bit_length() - 1}" if power else f"rt_floor_div(j, {stride})",
        "kernel": ("rt_conv_s8" if isinstance(op, ConvTransposeS8) else "rt_conv_acc_s8") + ("_w16" if wide else ""),
    }
    return Emission("convt", (str(numbers["kernel"]), "rt_requantize", "rt_stream"), numbers, tables)


def _upsample(op: UpsampleS8, prefix: str) -> Emission:
    rule = op.time
    source = "j"
    if isinstance(rule, Upsample):
        f = rule.factor
        inner = f"j + {rule.offset}" if rule.offset else "j"
        source = f"({inner}) >> {f.bit_length() - 1}" if f & (f - 1) == 0 else f"rt_floor_div({inner}, {f})"
        if rule.offset:
            source = f"rt_min({source}, x0.length - 1)"
    sizes = [len(steps) for steps in op.index]
    runs = [_runs(steps) for steps in op.index]
    copies = []
    strides_in = [int(np.prod(op.frame_in[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
    strides_out = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
    for combo in product(*runs):
        at_in = sum(run.source * s for run, s in zip(combo, strides_in, strict=True))
        at_out = sum(run.start * s for run, s in zip(combo, strides_out, strict=True))
        pairs = []
        for run, s_in, s_out in zip(combo, strides_in, strides_out, strict=True):
            pairs.append((run.steps, s_in, s_out * run.repeat))
            pairs.append((run.repeat, 0, s_out))
        pairs = [pair for pair in pairs if pair[0] > 1] or [(1, 1, 1)]
        outer, last = pairs[:-4], pairs[-4:]
        for offsets in product(*(range(n) for n, _, _ in outer)):
            more_in = sum(i * s for i, (_, s, _) in zip(offsets, outer, strict=True))
            more_out = sum(i * s for i, (_, _, s) in zip(offsets, outer, strict=True))
            sizes, steps_in, steps_out = ([pair[i] for pair in last] for i in range(3))
            copies.append(copy_numbers(sizes, steps_in, steps_out, 0, at_in + more_in, at_out + more_out))
    return Emission("upsample", ("rt_copy_s8", "rt_stream"), {"copy_list": copies, "source": source})


@dataclass(frozen=True)
class Run:
    """Output steps start .. start + steps*repeat - 1 read sources source, source + 1, ..., each `repeat` times."""

    start: int
    source: int
    steps: int
    repeat: int


def _runs(index: tuple[int, ...]) -> list[Run]:
    """An axis as runs of equal repetition (clamped ends repeat more often or less)."""
    groups: list[tuple[int, int]] = []
    for source in index:
        if groups and groups[-1][0] == source:
            groups[-1] = (source, groups[-1][1] + 1)
        else:
            groups.append((source, 1))
    runs: list[Run] = []
    start = 0
    for source, repeat in groups:
        last = runs[-1] if runs else None
        if last and last.repeat == repeat and last.source + last.steps == source:
            runs[-1] = replace(last, steps=last.steps + 1)
        else:
            runs.append(Run(start, source, 1, repeat))
        start += repeat
    return runs


def _collect(op: CollectS8, prefix: str) -> Emission:
    """No code (`codegen.plan.layout.execution_order` leaves it out)."""
    return Emission("", (), {})


def _last(op: LastS8, prefix: str) -> Emission:
    return Emission("last", ("rt_stream",), {})


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


def _island(op: IslandS8, prefix: str) -> Emission:
    tables: dict[str, Table] = {"of": typed(op.island_of, "functions of each element")}
    seen: dict[bytes, str] = {}
    islands = []

    def table(values: Any, key: str) -> str:
        data = values.astype(np.int32)
        name = seen.setdefault(data.tobytes(), key)
        if name == key:
            tables[key] = typed(data, "by code + 128")
        return f"{prefix}_{name}"

    for i, p in enumerate(op.params):
        left, right = table(p.table_a, f"a{i}"), table(p.table_b, f"b{i}")
        exceptions = f"exceptions{i}" if p.exceptions else "NULL"
        tail = _numbers([len(p.exceptions), p.lo, p.hi])
        initializer = f"{{{left}, {right}, {_numbers([p.rounding, p.shift, p.parity, p.flip])}, {exceptions}, {tail}}}"
        islands.append({"index": i, "exceptions": p.exceptions, "initializer": initializer})
    numbers = {"islands": islands, "period": op.island_of.size, "product": int(op.params[0].product)}
    return Emission("island", ("rt_island_s8", "rt_stream"), numbers, tables)


def _select(op: SelectS8, prefix: str) -> Emission:
    return Emission("select", ("rt_island_s8", "rt_stream"), {"flip": 0 if op.kind == "Max" else -1})


def _matmul(op: MatMulS8, prefix: str) -> Emission:
    numbers, tables = products.matmul(op, prefix, _proved(op))
    return Emission("matmul", ("rt_matmul_s8", "rt_requantize", "rt_stream"), numbers, tables)


def _einsum(op: EinsumS8, prefix: str) -> Emission:
    numbers, tables = products.einsum(op, prefix, _proved(op))
    return Emission("einsum", ("rt_einsum_s8", "rt_matmul_s8", "rt_requantize", "rt_stream"), numbers, tables)


EMITTERS: dict[type[KernelOp], Callable[[Any, str], Emission]] = {
    ConvS8: _conv,
    ConvAccS8: _conv,
    MaxPoolS8: _maxpool,
    LutS8: _lut,
    Copy: _copy,
    ConcatS8: _concat,
    PadFrames: _pad,
    Truncate: _truncate,
    PairS8: _pair,
    SoftmaxS8: _softmax,
    LutChannelsS8: _lut_channels,
    AveragePoolS8: _avgpool,
    ReduceS8: _reduce,
    SlidingReduceS8: _sliding,
    DenseOverTimeS8: _dense_time,
    ConvTransposeS8: _convt,
    ConvTransposeAccS8: _convt,
    UpsampleS8: _upsample,
    LastS8: _last,
    CollectS8: _collect,
    IslandS8: _island,
    SelectS8: _select,
    MatMulS8: _matmul,
    EinsumS8: _einsum,
}
