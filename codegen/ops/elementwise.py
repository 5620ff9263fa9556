"""Pointwise operators of one and two operands, on reals (import) and on codes (kernels)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, check_one_stream
from codegen.ir.graph import Const, QParams
from codegen.ir.view import Piece, View, same_lengths
from codegen.ops.base import Op

STAGE = "import"


@dataclass(frozen=True, eq=False)
class Quantize(Op):
    """real -> code: saturate(round_half_even(x / scale) + zero_point) (ONNX QuantizeLinear-10)."""

    qparams: QParams


@dataclass(frozen=True, eq=False)
class Dequantize(Op):
    """code -> real: (code - zero_point) * scale (ONNX DequantizeLinear-10)."""

    qparams: QParams


@dataclass(frozen=True, eq=False)
class Unary(Op):
    """A real function of one real: `kind` is the ONNX name, `params` its numbers."""

    kind: str
    params: tuple[tuple[str, float], ...] = ()

    def describe(self) -> str:
        return " ".join(f"{name}={value:g}" for name, value in self.params)


@dataclass(frozen=True, eq=False)
class Binary(Op):
    """`kind` of two operands; a constant operand stands in `constant` as a whole frame, and `swapped` puts it first."""

    kind: str
    constant: Const | None = None
    swapped: bool = False


def qparams_of(node: OnnxNode, scale: Const | None, zero: Const | None, dtype: str | None = None) -> QParams:
    """Per-tensor QParams from the scale and zero point of a node, moved to int8. Any one-element shape is a scalar."""
    if scale is None or scale.array.size != 1:
        size = "missing" if scale is None else f"of {scale.array.size} elements"
        found = f"activation scale {size}"
        raise unsupported(
            STAGE, node.title, found, "one scale per activation tensor", "Quantize activations per tensor"
        )
    value = float(np.float32(scale.array.ravel()[0]))
    check_scale(node, np.asarray([value]))
    zero_type = np.dtype(dtype or "uint8") if zero is None else zero.array.dtype
    if zero_type not in (np.int8, np.uint8):
        raise unsupported(
            STAGE,
            node.title,
            f"activation type {zero_type}",
            "int8 and uint8 activations are supported",
            "Quantize with QInt8 or QUInt8 activations",
        )
    code = 0 if zero is None else int(zero.array.ravel()[0])
    unsigned = zero_type == np.uint8
    return QParams(value, code - 128 if unsigned else code, unsigned)


def check_scale(node: OnnxNode, scales: np.ndarray) -> None:
    """Scales must be finite and greater than zero (no runtime checks it, and every later number depends on it)."""
    if np.size(scales) == 0:
        raise unsupported(STAGE, node.title, "a scale of 0 elements", "one scale, or one per channel")
    bad = [float(s) for s in np.asarray(scales).ravel() if not np.isfinite(s) or s <= 0]
    if bad:
        raise unsupported(STAGE, node.title, f"scale {bad[0]}", "scales must be finite and > 0", "Calibrate again")


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
    return Const(np.clip(codes, info.min, info.max).astype(zero_array.dtype))


def lower_dequantize(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, scale, zero = (*args, None)[:3]
    assert isinstance(scale, Const)
    if isinstance(x, View):
        stored = ctx.code_type(x)
        q = qparams_of(node, scale, zero if isinstance(zero, Const) else None, stored)
        if stored is not None and q.unsigned != (stored == "uint8"):
            found = f"a zero point of type {'uint8' if q.unsigned else 'int8'} for a tensor of type {stored}"
            raise unsupported(STAGE, node.title, found, "both must have one type", "Quantize the model again")
        return [ctx.elementwise(x, Dequantize(q), node)]
    assert isinstance(x, Const)
    check_scale(node, scale.array)
    axis = _axis(node, x.array.ndim, scale.array.size)
    if scale.array.size > 1 and (x.array.ndim == 0 or scale.array.size != x.array.shape[axis]):
        found = f"{scale.array.size} scales for axis {axis} of a constant of shape {list(x.array.shape)}"
        raise unsupported(STAGE, node.title, found, "one scale, or one per index of the axis")
    zero_array = zero.array if isinstance(zero, Const) else None
    if zero_array is not None and zero_array.dtype != x.array.dtype:
        found = f"zero point of type {zero_array.dtype} for a tensor of type {x.array.dtype}"
        raise unsupported(STAGE, node.title, found, "both must have one type", "Quantize the model again")
    if x.array.dtype not in (np.int8, np.uint8, np.int32):
        found = f"constant of type {x.array.dtype}"
        raise unsupported(STAGE, node.title, found, "int8, uint8 and int32 constants", "Quantize weights to 8 bits")
    if zero_array is not None and zero_array.size not in (1, scale.array.size):
        raise unsupported(STAGE, node.title, f"{zero_array.size} zero points for {scale.array.size} scales")
    return [Const(x.array, scale.array.astype(np.float32), zero_array, axis)]


def _axis(node: OnnxNode, rank: int, count: int) -> int:
    axis = int(node.attrs.get("axis", 1))
    if count == 1:
        return 0
    if not -rank <= axis < rank:
        raise unsupported(STAGE, node.title, f"axis {axis} of a tensor of rank {rank}", "an axis inside the rank")
    return axis % rank


def _known_attributes(node: OnnxNode, known: set[str]) -> None:
    extra = sorted(set(node.attrs) - known)
    if extra:
        raise unsupported(STAGE, node.title, f"attribute {extra[0]}", f"known are {', '.join(sorted(known))}")
    if node.attrs.get("block_size"):
        raise unsupported(STAGE, node.title, "blocked quantization", "per tensor or per axis", "Quantize per channel")


def lower_unary(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x = args[0]
    assert isinstance(x, View)
    params = tuple(sorted((k, float(v)) for k, v in node.attrs.items() if isinstance(v, int | float)))
    if node.attrs.get("approximate") == "tanh":
        params = (*params, ("tanh", 1.0))
    return [ctx.elementwise(x, Unary(node.op_type, params), node)]


def lower_clip(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Clip: bounds are inputs since opset 11, attributes before."""
    x = args[0]
    assert isinstance(x, View)
    bounds = []
    for i, (name, missing) in enumerate((("min", -np.inf), ("max", np.inf))):
        value = args[i + 1] if len(args) > i + 1 else None
        if isinstance(value, View):
            raise unsupported(STAGE, node.title, f"its {name} is computed at run time", "a constant bound")
        number = float(node.attrs.get(name, missing)) if value is None else float(value.real().ravel()[0])
        bounds.append((name, number))
    return [ctx.elementwise(x, Unary("Clip", tuple(bounds)), node)]


def lower_identity(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    assert args[0] is not None
    return [args[0]]


def lower_dropout(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Nothing in inference; training_mode is an input since opset 12."""
    ratio, training = (*args[1:], None, None)[:2]
    if isinstance(training, View) or (training is not None and bool(training.array.any())):
        keeps_all = isinstance(ratio, Const) and not ratio.array.any()
        if not keeps_all:
            raise unsupported(STAGE, node.title, "training_mode is on", "inference", "Export with model.eval()")
    return lower_identity(node, args, ctx)


def lower_binary(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Add, Mul, Sub, ... of two operands, broadcast as numpy does; more operands (Max, Min, Sum) pair by pair."""
    result = args[0]
    for operand in args[1:]:
        assert result is not None and operand is not None
        result = _binary(node, result, operand, ctx)
    assert result is not None
    return [result]


def _binary(node: OnnxNode, a: View | Const, b: View | Const, ctx: Lowering) -> View:
    if isinstance(a, Const) or isinstance(b, Const):
        swapped = isinstance(a, Const)
        view, const = (b, a) if swapped else (a, b)
        assert isinstance(view, View) and isinstance(const, Const)
        return _with_constant(node, view, const, swapped, ctx)
    rank = max(len(a.axes), len(b.axes))
    views = [View(v.tensor, ((),) * (rank - len(v.axes)) + v.axes) for v in (a, b)]
    check_one_stream(node, views)
    a, b = same_lengths(views)
    shape = np.broadcast_shapes(a.shape, b.shape)
    if a.shape != shape and b.shape == shape:
        big = b
    else:
        big = a
    if big.shape != shape:
        found = f"operands of shapes {list(a.shape)} and {list(b.shape)}: both are broadcast"
        raise unsupported(STAGE, node.title, found, "one operand has the shape of the result")
    order = big.storage_order()
    left, right = (_same_layout(node, v, order, shape, big.time_axis, ctx) for v in (a, b))
    source = ctx.tensor(left)
    length = min(source.length, ctx.tensor(right).length)
    out = ctx.emit(Binary(node.op_type), [left.tensor, right.tensor], source.frame_shape, length, node)
    return View(out, left.axes)


def _same_layout(
    node: OnnxNode, x: View, order: Sequence[int], shape: tuple[int, ...], stream_axis: int | None, ctx: Lowering
) -> View:
    """`x` row-major over `order`, its axes of size 1 repeated to `shape`."""
    if not x.time_is_alone():
        raise unsupported(STAGE, node.title, "the stream axis is merged with another axis here", "an axis of its own")
    axes = list(x.axes)
    for i, size in enumerate(shape):
        if x.shape[i] == size:
            continue
        if i == stream_axis:
            found = "one operand has one frame for the whole stream, the other one frame per step"
            raise unsupported(STAGE, node.title, found, "both change with the stream", "Remove the global branch")
        axes[i] = (Piece(size, 0),)
    return ctx.arrange(View(x.tensor, tuple(axes)), order, node)


def _with_constant(node: OnnxNode, x: View, const: Const, swapped: bool, ctx: Lowering) -> View:
    """The constant broadcast to one whole frame, in the frame's own order. It must not vary along the stream axis."""
    rank = max(len(x.axes), const.array.ndim)
    x = View(x.tensor, ((),) * (rank - len(x.axes)) + x.axes)
    time = x.time_axis
    grown = const.array.reshape((1,) * (rank - const.array.ndim) + const.array.shape)
    # Before any broadcast: where the stream is endless, the constant has the length of the window it was trained for.
    if time is not None and grown.shape[time] != 1 and (ctx.endless or grown.shape[time] == x.shape[time]):
        found = f"a constant that varies along the stream axis (shape {list(const.array.shape)})"
        raise unsupported(STAGE, node.title, found, "constants are the same for every frame", "Remove position terms")
    shape = np.broadcast_shapes(x.shape, const.array.shape)
    if shape != x.shape:
        found = f"a constant of shape {list(const.array.shape)} enlarges an operand of shape {list(x.shape)}"
        raise unsupported(STAGE, node.title, found, "constants broadcast to the other operand")
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    frame = ctx.tensor(x)

    def spread(values: np.ndarray) -> np.ndarray:
        values = np.asarray(values).reshape((1,) * (rank - np.ndim(values)) + np.shape(values))
        target = tuple(1 if i == time else n for i, n in enumerate(x.shape))
        return np.broadcast_to(values, target).transpose(order).reshape(frame.frame_shape)

    value = Const(spread(const.array))
    if const.is_quantized and const.scale is not None and const.scale.size == 1:
        value = Const(spread(const.array), const.scale, const.zero_point)
    elif const.is_quantized:
        value = Const(spread(const.real()))
    out = ctx.emit(Binary(node.op_type, value, swapped), [x.tensor], frame.frame_shape, frame.length, node)
    return View(out, x.axes)


UNARY = (
    "Relu LeakyRelu Elu Selu Celu Sigmoid Tanh HardSigmoid HardSwish Softplus Softsign Gelu Erf Exp Log Sqrt Neg Abs "
    "Reciprocal Floor Ceil Round Sign Sin Cos ThresholdedRelu Mish Swish"
).split()
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
BINARY = "Add Sub Mul Div Max Min Pow Sum PRelu".split()

LOWER = {
    **{("", name): lower_unary for name in UNARY},
    **{("", name): lower_binary for name in BINARY},
    ("", "Clip"): lower_clip,
    ("", "Identity"): lower_identity,
    ("", "Dropout"): lower_dropout,
    ("", "QuantizeLinear"): lower_quantize,
    ("", "DequantizeLinear"): lower_dequantize,
    ("com.microsoft", "QuantizeLinear"): lower_quantize,
    ("com.microsoft", "DequantizeLinear"): lower_dequantize,
}
RULES = {
    **dict.fromkeys(_QUANTIZERS, "one scale per activation, finite and > 0; constants also per channel"),
    **dict.fromkeys(("Relu", "Clip"), "folds into the operator before it, or max(q, zero point)"),
    **{
        name: "between DequantizeLinear and QuantizeLinear: chains of any length become one table of 256 codes"
        for name in UNARY
        if name != "Relu"
    },
    **dict.fromkeys(("Identity", "Dropout"), "removed"),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Sum"),
        "two activations that broadcast (one of them has the result's shape), or a constant; exact, one rounding",
    ),
    **dict.fromkeys(("Max", "Min"), "two activations, or a constant"),
    **dict.fromkeys(
        ("Div", "Pow", "PRelu"), "a constant that is the same for every frame, at most 256 different values"
    ),
}
