"""Operators that compute each element of its own: functions of one operand, and pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, check_one_stream, merged_axis
from codegen.ir.graph import Const
from codegen.ir.real import Binary, Unary
from codegen.ir.view import Piece, View, same_lengths


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
            raise unsupported(IMPORT, node.title, f"its {name} is computed at run time", "a constant bound")
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
            raise unsupported(IMPORT, node.title, "training_mode is on", "inference", "Export with model.eval()")
    return lower_identity(node, args, ctx)


def lower_binary(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Add, Mul, Sub, ... of two operands, broadcast as numpy does; more operands (Max, Min, Sum) pair by pair."""
    result = args[0]
    for operand in args[1:]:
        assert result is not None and operand is not None
        result = binary(node, result, operand, ctx)
    assert result is not None
    return [result]


def binary(node: OnnxNode, a: View | Const, b: View | Const, ctx: Lowering, total: bool = False) -> View:
    """One pair; `total` as in `ir.real.Binary`."""
    if isinstance(a, Const) or isinstance(b, Const):
        swapped = isinstance(a, Const)
        view, const = (b, a) if swapped else (a, b)
        assert isinstance(view, View) and isinstance(const, Const)
        return _with_constant(node, view, const, swapped, ctx, total)
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
        raise unsupported(IMPORT, node.title, found, "one operand has the shape of the result")
    order = big.storage_order()
    left, right = (_same_layout(node, v, order, shape, big.time_axis, ctx) for v in (a, b))
    source = ctx.tensor(left)
    length = min(source.length, ctx.tensor(right).length)
    out = ctx.emit(Binary(node.op_type, total=total), [left.tensor, right.tensor], source.frame_shape, length, node)
    return View(out, left.axes)


def _same_layout(
    node: OnnxNode, x: View, order: Sequence[int], shape: tuple[int, ...], stream_axis: int | None, ctx: Lowering
) -> View:
    """`x` row-major over `order`, its axes of size 1 repeated to `shape`."""
    if not x.time_is_alone():
        raise merged_axis(node)
    axes = list(x.axes)
    for i, size in enumerate(shape):
        if x.shape[i] == size:
            continue
        if i == stream_axis:
            found = "one operand has one frame for the whole stream, the other one frame per step"
            raise unsupported(IMPORT, node.title, found, "both change with the stream", "Remove the global branch")
        axes[i] = (Piece(size, 0),)
    return ctx.arrange(View(x.tensor, tuple(axes)), order, node)


def _with_constant(node: OnnxNode, x: View, const: Const, swapped: bool, ctx: Lowering, total: bool = False) -> View:
    """The constant broadcast to one whole frame, in the frame's own order. It must not vary along the stream axis."""
    rank = max(len(x.axes), const.array.ndim)
    x = View(x.tensor, ((),) * (rank - len(x.axes)) + x.axes)
    time = x.time_axis
    grown = const.array.reshape((1,) * (rank - const.array.ndim) + const.array.shape)
    # Before any broadcast: where the stream is endless, the constant has the length of the window it was trained for.
    if time is not None and grown.shape[time] != 1 and (ctx.endless or grown.shape[time] == x.shape[time]):
        found = f"a constant that varies along the stream axis (shape {list(const.array.shape)})"
        raise unsupported(IMPORT, node.title, found, "constants are the same for every frame", "Remove position terms")
    shape = np.broadcast_shapes(x.shape, const.array.shape)
    if shape != x.shape:
        found = f"a constant of shape {list(const.array.shape)} enlarges an operand of shape {list(x.shape)}"
        raise unsupported(IMPORT, node.title, found, "constants broadcast to the other operand")
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
    out = ctx.emit(Binary(node.op_type, value, swapped, total), [x.tensor], frame.frame_shape, frame.length, node)
    return View(out, x.axes)


UNARY = (
    "Relu LeakyRelu Elu Selu Celu Sigmoid Tanh HardSigmoid HardSwish Softplus Softsign Gelu Erf Exp Log Sqrt Neg Abs "
    "Reciprocal Floor Ceil Round Sign Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh ThresholdedRelu Mish Swish"
).split()

BINARY = "Add Sub Mul Div Max Min Pow Sum PRelu".split()
LOWER = {
    **{("", name): lower_unary for name in UNARY},
    **{("", name): lower_binary for name in BINARY},
    ("", "Clip"): lower_clip,
    ("", "Identity"): lower_identity,
    ("", "Dropout"): lower_dropout,
}

RULES = {
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
