"""Kernels of windows: convolutions, transposed convolutions and pools, whole frames or tile by tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.geometry import Geometry
from codegen.ir.time import Window
from codegen.kernels.base import CKernel, Constants, Emission, Site, proved
from codegen.kernels.literals import typed
from codegen.kernels.rounding import exceptions, folded, linear, requantize
from codegen.kernels.structs import ONE, Array, Ref, Struct
from codegen.numerics.linear import fit_average
from codegen.ops.base import Table
from codegen.ops.conv import ConvAccS8, Convolution, ConvS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.transposed import ConvTransposeAccS8, ConvTransposeS8, TransposedConvolution
from codegen.plan.kernels import Target

MOST_TAPS = 32
"""RT_MOST_TAPS of runtime_c/rt_conv_s8.h."""

Weights = npt.NDArray[np.integer[Any]]


def axis(size: int, out: int, w: Window) -> Struct | str:
    """rt_axis_t of a window over `size` positions that gives `out`."""
    if (size, out, w.taps, w.stride, w.dilation, w.left) == (1, 1, 1, 1, 1, 0):
        return ONE
    members = {"size": size, "out": out, "taps": w.taps, "stride": w.stride, "dilation": w.dilation, "before": w.left}
    return Struct("rt_axis_t", members)


def first_frame(w: Window) -> str:
    """C expression for the first frame that output frame j reads."""
    scaled = "j" if w.stride == 1 else f"j * {w.stride}"
    return scaled if w.left == 0 else f"{scaled} {'-' if w.left > 0 else '+'} {abs(w.left)}"


def lead(g: Geometry, channels_in: int, channels_out: int) -> int:
    """`Kernel.lead` of loops that go from position to position of one output frame, for any frame that they read.

    The output of a position ends at most where the lowest input begins that it or a later position reads.
    """
    depth, width = g.reads()
    first = (depth[0][:, None] * g.size_in[1] + width[0]).reshape(-1) * channels_in
    lowest = np.minimum.accumulate(first[::-1])[::-1]
    ends = np.arange(1, first.size + 1) * channels_out
    return int((ends - lowest).max())


def lead_back(g: Geometry, channels_in: int, channels_out: int) -> int:
    """The same from the last position to the first: the output of a position begins at least where the highest input
    ends that it or an earlier position reads."""
    depth, width = g.reads()
    end = ((depth[1][:, None] - 1) * g.size_in[1] + width[1]).reshape(-1) * channels_in
    highest = np.maximum.accumulate(end)
    return max(0, int((highest - np.arange(end.size) * channels_out).max()))


def _packed(weights: Weights, groups: int) -> tuple[Weights, int, str]:
    """Weights [out, time, depth, width, in / groups] as the kernel wants them: the array, its tap_step, its axes.

    A depthwise kernel takes neighbouring channels of one tap at once.
    """
    co, *taps, per = weights.shape
    if per == 1 and co == groups and 0 < np.prod(taps) <= MOST_TAPS:
        return np.ascontiguousarray(np.moveaxis(weights[..., 0], 0, -1)), co, "[time][depth][width][out]"
    return np.ascontiguousarray(weights), 0, "[out][time][depth][width][in / groups]"


def _weights_and_bias(op: Convolution | TransposedConvolution, part: Weights, what: str) -> tuple[Table, Table, int]:
    """The tables of one convolution, and its tap_step."""
    packed, tap_step, axes = _packed(part, op.groups)
    flat = part.reshape(part.shape[0], -1)
    comment = f"{what}{axes} = {' x '.join(map(str, packed.shape))}"
    weights = typed(packed, f"{op.origin}: {comment}" if op.origin else comment)
    return weights, typed(folded(op.bias, flat, op.x_zero_point), "bias - x zero point * sum of weights"), tap_step


def _common(g: Geometry, channels_in: int, channels_out: int) -> dict[str, Any]:
    """The numbers that the templates of whole frames and tiles share."""
    return {
        "rows": g.time.taps,
        "first": first_frame(g.time),
        "dilation": g.time.dilation,
        "width_in": g.size_in[1],
        "in_channels": channels_in,
        "y_depth": g.size_out[1] * channels_out,
        "y_width": channels_out,
    }


class _Product(CKernel):
    """Convolution kernels come in four: int8 or int16 weights, codes or int32 accumulators."""

    def __init__(self, wide: bool, accumulators: bool) -> None:
        self.wide, self.accumulators = wide, accumulators
        self.name = f"rt_conv{'_acc' if accumulators else ''}_s8{'_w16' if wide else ''}"

    def fits(self, op: Any, target: Target, tile: bool) -> str:
        if (op.weights.dtype == np.int16) != self.wide:
            return f"weights are {op.weights.dtype}"
        return super().fits(op, target, tile)

    def _requantize(self, op: Any, site: Site) -> tuple[dict[str, Struct], dict[str, Table]]:
        if self.accumulators:
            return {}, {}
        struct, tables = requantize(proved(op, site.target))
        return {"requantize": struct}, tables


class Conv(_Product):
    """rt_conv_t: positions one after another, all channels of one at a time."""

    tiled = "rt_conv"

    def lead(self, op: Convolution, operand: int) -> int | None:
        return None if self.accumulators else lead(op.geometry, *op.channels)

    def lead_back(self, op: Convolution, operand: int) -> int | None:
        return None if self.accumulators else lead_back(op.geometry, *op.channels)

    def emit(self, op: Convolution, site: Site) -> Emission:
        g, (ci, co) = op.geometry, op.channels
        rounded, tables = self._requantize(op, site)
        weights, bias, tap_step = _weights_and_bias(op, op.weights, "")
        members = {
            "rows": g.time.taps,
            "depth": axis(g.size_in[0], g.size_out[0], g.depth),
            "width": axis(g.size_in[1], g.size_out[1], g.width),
            "in_channels": ci,
            "out_channels": co,
            "group_in": ci // op.groups,
            "group_out": co // op.groups,
            "y_depth": g.size_out[1] * co,
            "y_width": co,
            "zero_point": op.x_zero_point,
            "backwards": int(site.backwards),
            "tap_step": tap_step,
            "weights": Ref("w"),
            "bias": Ref("b"),
            **rounded,
        }
        numbers = _common(g, ci, co) | {"weight_bytes": op.weights.itemsize}
        constants = {"conv": Struct("rt_conv_t", members)}
        return Emission("conv", ("rt_conv_s8",), (self.name,), numbers, {"w": weights, "b": bias, **tables}, constants)


class ConvTranspose(_Product):
    """One ordinary convolution for each output phase."""

    def emit(self, op: TransposedConvolution, site: Site) -> Emission:
        rounded, more = self._requantize(op, site)
        co, _, _, _, per = op.weights.shape
        tables: dict[str, Table] = {}
        convs: list[Struct] = []
        times: dict[int, dict[str, Any]] = {}
        for time, depth, width in op.combos():
            rows = time.taps if time else (0,)
            part = op.weights[:, list(rows)][:, :, list(depth.taps)][:, :, :, list(width.taps)]
            weights, bias, tap_step = _weights_and_bias(op, part, "one phase, ")
            key = f"p{len(convs)}"
            tables |= ({f"{key}_w": weights} if part.size else {}) | {f"{key}_b": bias}
            at = depth.start * op.size_out[1] * co + width.start * co
            shift = time.first if time else 0
            entry: dict[str, Any] = {
                "phase": time.start if time else 0,
                "rows": len(rows),
                "dilation": time.dilation if time else 1,
                "shift": f" {'+' if shift >= 0 else '-'} {abs(shift)}" if shift else "",
                "calls": [],
            }
            times.setdefault(entry["phase"], entry)["calls"].append((len(convs), f" + {at}" if at else ""))
            members = {
                "rows": len(rows),
                "depth": axis(op.size_in[0], depth.out, depth.window()),
                "width": axis(op.size_in[1], width.out, width.window()),
                "in_channels": per * op.groups,
                "out_channels": co,
                "group_in": per,
                "group_out": co // op.groups,
                "y_depth": op.depth.stride * op.size_out[1] * co,
                "y_width": op.width.stride * co,
                "zero_point": op.x_zero_point,
                "tap_step": tap_step,
                **({"weights": Ref(f"{key}_w")} if part.size else {}),
                "bias": Ref(f"{key}_b"),
                **rounded,
            }
            convs.append(Struct("rt_conv_t", members))
        stride = op.time.stride if op.time else 1
        power = stride & (stride - 1) == 0
        numbers = {
            "times": list(times.values()),
            "most_rows": max(1, *(t["rows"] for t in times.values())),
            "stride": stride,
            "group": f"j >> {stride.bit_length() - 1}" if power else f"rt_floor_div(j, {stride})",
        }
        constants = {"conv": Array("rt_conv_t", tuple(convs))}
        return Emission("convt", ("rt_conv_s8",), (self.name,), numbers, tables | more, constants)


class _Pool(CKernel):
    """Positions one after another, all channels of one at a time."""

    def lead(self, op: Any, operand: int) -> int:
        return lead(op.geometry, op.channels, op.channels)

    def lead_back(self, op: Any, operand: int) -> int:
        return lead_back(op.geometry, op.channels, op.channels)


class MaxPool(_Pool):
    name, tiled = "rt_maxpool_s8", "rt_maxpool"

    def emit(self, op: MaxPoolS8, site: Site) -> Emission:
        members = _pool_members(op.geometry, op.channels, {}) | {"backwards": int(site.backwards)}
        numbers = _common(op.geometry, op.channels, op.channels)
        return Emission("maxpool", (self.name,), numbers=numbers, constants={"pool": Struct("rt_maxpool_t", members)})


class AveragePool(_Pool):
    name, tiled = "rt_avgpool_s8", "rt_avgpool"

    def emit(self, op: AveragePoolS8, site: Site) -> Emission:
        g = op.geometry
        qx, qy = (op.x.scale, op.x.zero_point), (op.y.scale, op.y.zero_point)
        lists: dict[str, Array] = {}
        divisors = []
        for count in op.counts():
            fitted, listed = fit_average(qx, qy, count, *op.bounds), f"exceptions{count}"
            lists |= exceptions(fitted.exceptions, listed)
            divisors.append(Struct("rt_divisor_t", {"count": count, "divide": linear(fitted, listed)}))
        counts = {
            "depth_counts": _counted(op, g.depth, g.size_in[0]),
            "width_counts": _counted(op, g.width, g.size_in[1]),
        }
        members = _pool_members(g, op.channels, counts) | {
            "backwards": int(site.backwards),
            "zero_point": op.x.zero_point,
            "divisors": "divisors",
            "divisor_count": len(divisors),
        }
        constants: Constants = {
            **lists,
            "divisors": Array("rt_divisor_t", tuple(divisors)),
            "pool": Struct("rt_avgpool_t", members),
        }
        more = {"right": g.time.right, "include_pad": int(op.count_include_pad)}
        numbers = _common(g, op.channels, op.channels) | more
        return Emission("avgpool", (self.name,), numbers=numbers, constants=constants, padding_frames=False)


def _pool_members(g: Geometry, channels: int, counts: dict[str, Struct]) -> dict[str, Any]:
    return {
        "rows": g.time.taps,
        "depth": axis(g.size_in[0], g.size_out[0], g.depth),
        "width": axis(g.size_in[1], g.size_out[1], g.width),
        **counts,
        "in_channels": channels,
        "channels": channels,
        "y_depth": g.size_out[1] * channels,
        "y_width": channels,
    }


def _counted(op: AveragePoolS8, w: Window, size: int) -> Struct:
    """First position of an axis that an average divides by, and one past the last."""
    first, end = (-w.left, size + w.right) if op.count_include_pad else (0, size)
    return Struct("rt_range_t", {"first": first, "end": end})


KERNELS = {
    ConvS8: (Conv(False, False), Conv(True, False)),
    ConvAccS8: (Conv(False, True), Conv(True, True)),
    ConvTransposeS8: (ConvTranspose(False, False), ConvTranspose(True, False)),
    ConvTransposeAccS8: (ConvTranspose(False, True), ConvTranspose(True, True)),
    MaxPoolS8: (MaxPool(),),
    AveragePoolS8: (AveragePool(),),
}
