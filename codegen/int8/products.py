from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8
from codegen.int8.weights import NOTE as QUANTIZED
from codegen.int8.weights import quantized_constant
from codegen.ir.graph import Const, Node, QParams
from codegen.ir.real import Affine, Conv, ConvTranspose, DenseOverTime
from codegen.numerics import reference as numeric
from codegen.numerics.exact import INT32_MAX, NumericsError
from codegen.ops.conv import ConvAccS8, ConvS8, Requantize
from codegen.ops.reduce import DenseOverTimeS8
from codegen.ops.transposed import ConvTransposeAccS8, ConvTransposeS8

FLOAT_HINT = (
    "Quantize it with `codegen quantize` or onnxruntime's quantize_static (QDQ format, int8 activations and weights)"
)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Product = Conv | DenseOverTime | ConvTranspose


class FailedError(Exception):
    """A value could not be expressed; the reason has already been reported."""


class Reporter(Protocol):
    """Where faults and notes go."""

    notes: list[str]

    def fail(self, node: Node, found: str, allowed: str = "", hint: str = "") -> None: ...


def product_s8(
    report: Reporter, node: Node, op: Product, x: QParams, y: QParams, bounds: tuple[int, int]
) -> ConvS8 | DenseOverTimeS8 | ConvTransposeS8:
    """The int8 form of a product whose result is quantized with `y`, its codes inside `bounds`."""
    array, scales, bias, origin = _operands(report, node, op, x)
    try:
        requant = Requantize(numeric.scale_product(x.scale, scales, y.scale), y.zero_point, *bounds)
    except NumericsError as error:
        found = f"x_scale {x.scale:g} * w_scale {scales.min():g}..{scales.max():g} / y_scale {y.scale:g}: {error}"
        report.fail(node, found, hint="Calibrate the model again")
        raise FailedError from error
    made: ConvS8 | DenseOverTimeS8 | ConvTransposeS8
    if isinstance(op, DenseOverTime):
        made = DenseOverTimeS8(array, bias, x.zero_point, requant, origin=origin)
    elif isinstance(op, ConvTranspose):
        sizes = (op.size_in, op.size_out)
        made = ConvTransposeS8(
            op.time, op.depth, op.width, *sizes, array, bias, op.groups, x.zero_point, requant, origin=origin
        )
    else:
        made = ConvS8(op.geometry, array, bias, op.groups, x.zero_point, requant, origin=origin)
    _check_int32(report, node, *made.bounds())
    return made


def accumulate_s8(report: Reporter, node: Node, op: Conv | ConvTranspose, x: QParams) -> ConvAccS8 | ConvTransposeAccS8:
    """The product as int32 accumulators with their real scale x_scale * w_scale per channel."""
    array, scales, bias, origin = _operands(report, node, op, x)
    real = np.float32(x.scale) * scales
    made: ConvAccS8 | ConvTransposeAccS8
    if isinstance(op, ConvTranspose):
        sizes = (op.size_in, op.size_out)
        made = ConvTransposeAccS8(
            op.time, op.depth, op.width, *sizes, array, bias, op.groups, x.zero_point, real, origin=origin
        )
    else:
        made = ConvAccS8(op.geometry, array, bias, op.groups, x.zero_point, real, origin=origin)
    _check_int32(report, node, *made.bounds())
    return made


def _operands(
    report: Reporter, node: Node, op: Product, x: QParams
) -> tuple[npt.NDArray[np.integer[Any]], Floats, Ints, str]:
    """(weights less their zero points as int8 or int16, float32 scale per channel, bias per channel, what they are)."""
    out_axis = 1 if isinstance(op, DenseOverTime) else 0
    weights = op.weights
    if not weights.is_quantized:
        weights = quantized_constant(weights, out_axis)
        report.notes.append(f"{node.where}: float weights {QUANTIZED}")
    assert weights.scale is not None
    codes = weights.array.astype(np.int64) - weights.per_axis(weights.zero()).astype(np.int64)
    channels = codes.shape[out_axis]
    scales = np.broadcast_to(weights.scale.astype(np.float32).ravel(), (channels,)).copy()
    bias = _bias(report, node, op.bias, np.float32(x.scale) * scales, channels)
    narrow = INT8.holds(codes.min(initial=0), codes.max(initial=0))
    low, high = (f"{scale:g}" for scale in (scales.min(), scales.max()))
    origin = f"{weights.origin or 'weights'}, scale {low if low == high else f'{low}..{high}'}"
    return codes.astype(INT8.dtype if narrow else np.int16), scales, bias, origin


def _check_int32(report: Reporter, node: Node, low: Ints, high: Ints) -> None:
    if low.min() >= -INT32_MAX - 1 and high.max() <= INT32_MAX:
        return
    worst = int(np.argmax(np.maximum(-low, high)))
    found = f"channel {worst} can accumulate {int(low[worst])}..{int(high[worst])}, beyond int32"
    report.fail(node, found, "sums inside int32", "Check its bias and weight scales, or split the layer")
    raise FailedError


def _requantized(real: npt.NDArray[np.float64], product: Floats) -> str:
    """How well biases fit the scales of their accumulators, in words."""
    with np.errstate(all="ignore"):
        steps = real / product.astype(np.float64)
        error = float(np.nanmax(np.abs(steps - np.rint(steps)), initial=0.0))
        exact = bool(np.all(np.abs(steps - np.rint(steps)) <= 1e-5 * np.maximum(1.0, np.abs(steps))))
    return "its values were requantized exactly" if exact else f"its values were rounded, by at most {error:.2g} steps"


def _bias(report: Reporter, node: Node, bias: Const | None, product: Floats, channels: int) -> Ints:
    """Bias in units of x_scale * w_scale: the file's int32 where its scale says so, else the real values rounded."""
    if bias is None:
        return np.zeros(channels, np.int64)
    if bias.array.size not in (1, channels):
        report.fail(node, f"a bias of {bias.array.size} values for {channels} channels", "one value per channel")
        raise FailedError
    values = np.broadcast_to(bias.array.reshape(-1), (channels,))
    if bias.scale is not None and bias.array.dtype == np.int32:
        scale = np.broadcast_to(bias.scale.astype(np.float64).ravel(), (channels,))
        zero = np.broadcast_to(np.asarray(bias.zero()).ravel(), (channels,)).astype(np.int64)
        close = np.abs(scale - product.astype(np.float64)) <= 1e-5 * np.abs(product)
        if bool(np.all(close | (values == zero))):
            return np.asarray(values.astype(np.int64) - zero)
        real = (values.astype(np.float64) - zero) * scale
        report.notes.append(f"{node.where}: bias scale is not x_scale * w_scale; {_requantized(real, product)}")
        steps = real / product.astype(np.float64)
    else:
        # In float32, as onnxruntime and its quantizer round a float bias: they decide the ties.
        real = np.broadcast_to(bias.real().astype(np.float64).reshape(-1), (channels,))
        with np.errstate(all="ignore"):
            steps = (real.astype(np.float32) / product).astype(np.float64)
    rounded = np.rint(steps)
    bad = ~np.isfinite(rounded) | (np.abs(rounded) > INT32_MAX)
    if bad.any():
        worst = int(np.argmax(bad))
        found = f"bias {real[worst]:g} of channel {worst} does not fit int32 at scale {product[worst]:g}"
        report.fail(node, found, "biases inside int32", "Check the weight scales, or calibrate again")
        raise FailedError
    return np.asarray(rounded.astype(np.int64))


def folded(op: Affine, product: Conv | ConvTranspose) -> Conv | ConvTranspose | None:
    """The product with the linear functions in its weights' scales and its bias, where its channels are the same."""
    weights = product.weights
    channels = weights.array.shape[0]
    if len(op.scale) != channels or not np.array_equal(op.channel, np.resize(np.arange(channels), op.channel.size)):
        return None
    column = (-1, *[1] * (weights.array.ndim - 1))
    if weights.scale is None:
        made = Const((weights.array * op.scale.reshape(column)).astype(np.float32), origin=weights.origin)
    else:
        # Scales must stay above 0: a negative factor goes to the codes, a factor of 0 makes them 0.
        codes = weights.array.astype(np.int32) - weights.per_axis(weights.zero()).astype(np.int32)
        codes = codes * np.sign(op.scale).astype(np.int32).reshape(column)
        factor = np.where(op.scale == 0.0, 1.0, np.abs(op.scale))
        scales = np.broadcast_to(weights.scale.astype(np.float64).ravel(), (channels,)) * factor
        made = Const(codes, scales.astype(np.float32), None, 0, weights.origin)
    before = 0.0 if product.bias is None else product.bias.real().astype(np.float64).reshape(-1)
    return replace(product, weights=made, bias=Const(before * op.scale + op.offset))
