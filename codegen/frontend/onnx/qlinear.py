from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import LowerFunction, Lowering
from codegen.frontend.onnx.conv import lower_conv
from codegen.frontend.onnx.elementwise import binary, lower_unary
from codegen.frontend.onnx.pool import lower_pool
from codegen.frontend.onnx.products import lower_gemm, lower_matmul
from codegen.frontend.onnx.quantize import lower_dequantize, lower_quantize
from codegen.frontend.onnx.reduce import lower_global
from codegen.frontend.onnx.shape import lower_concat
from codegen.frontend.onnx.softmax import lower_softmax
from codegen.ir.graph import Const
from codegen.ir.view import View

Args = Sequence[View | Const | None]
Results = Sequence[View | Const]


def _real(
    node: OnnxNode,
    x: View | Const | None,
    scale: View | Const | None,
    zero: View | Const | None,
    ctx: Lowering,
    axis: int,
    suffix: str,
) -> View | Const:
    """DequantizeLinear of one operand."""
    attrs = {"axis": axis}
    dequantize = replace(node, op_type="DequantizeLinear", attrs=attrs, outputs=(f"{node.outputs[0]}/{suffix}",))
    return lower_dequantize(dequantize, [x, scale, zero], ctx)[0]


def _code(
    node: OnnxNode, x: View | Const, scale: View | Const | None, zero: View | Const | None, ctx: Lowering
) -> View | Const:
    return lower_quantize(replace(node, op_type="QuantizeLinear", attrs={}), [x, scale, zero], ctx)[0]


def _inner(node: OnnxNode, op_type: str) -> OnnxNode:
    return replace(node, op_type=op_type, outputs=(f"{node.outputs[0]}/real",))


def lower_qlinear_conv(node: OnnxNode, args: Args, ctx: Lowering) -> Results:
    """QLinearConv: x, x_scale, x_zp, w, w_scale, w_zp, y_scale, y_zp, bias int32 (scale x_scale * w_scale)."""
    x = _real(node, args[0], args[1], args[2], ctx, 1, "x")
    w = _real(node, args[3], args[4], args[5], ctx, 0, "w")
    bias = args[8] if len(args) > 8 else None
    assert isinstance(x, View)
    rank, channels_last = len(x.axes), bool(node.attrs.get("channels_last"))  # the latter: com.microsoft only
    if channels_last:
        x = x.transpose([0, rank - 1, *range(1, rank - 1)])
    y = lower_conv(_inner(node, "Conv"), [x, w, _bias(bias, args[1], args[4])], ctx)[0]
    assert isinstance(y, View)
    if channels_last:
        y = y.transpose([0, *range(2, rank), 1])
    return [_code(node, y, args[6], args[7], ctx)]


def _bias(bias: View | Const | None, x_scale: View | Const | None, w_scale: View | Const | None) -> Const | None:
    if bias is None:
        return None
    assert isinstance(bias, Const) and isinstance(x_scale, Const) and isinstance(w_scale, Const)
    scale = (w_scale.array.astype("float32") * x_scale.array.astype("float32").ravel()[0]).astype("float32")
    return Const(bias.array, scale.ravel(), None, 0)


def lower_qlinear_matmul(node: OnnxNode, args: Args, ctx: Lowering) -> Results:
    a = _real(node, args[0], args[1], args[2], ctx, -2, "a")
    b = _real(node, args[3], args[4], args[5], ctx, -1, "b")
    y = lower_matmul(_inner(node, "MatMul"), [a, b], ctx)[0]
    assert y is not None
    return [_code(node, y, args[6], args[7], ctx)]


def lower_qgemm(node: OnnxNode, args: Args, ctx: Lowering) -> Results:
    """com.microsoft QGemm: A, a_scale, a_zp, B, b_scale, b_zp, C (int32), y_scale, y_zp; real without y_scale."""
    args = [*args, *([None] * (9 - len(args)))]
    a = _real(node, args[0], args[1], args[2], ctx, 0, "a")
    b = _real(node, args[3], args[4], args[5], ctx, 0 if node.attrs.get("transB") else 1, "b")
    inner = replace(_inner(node, "Gemm"), attrs={k: v for k, v in node.attrs.items() if k != "alpha"})
    if float(node.attrs.get("alpha", 1.0)) != 1.0:
        raise unsupported(IMPORT, node.title, f"alpha={node.attrs['alpha']}", "alpha=1", "Fold it into the weights")
    y = lower_gemm(inner, [a, b, _bias(args[6], args[1], args[4])], ctx)[0]
    assert y is not None
    return [y if args[7] is None else _code(node, y, args[7], args[8], ctx)]


def lower_qlinear_binary(node: OnnxNode, args: Args, ctx: Lowering) -> Results:
    a = _real(node, args[0], args[1], args[2], ctx, 0, "a")
    b = _real(node, args[3], args[4], args[5], ctx, 0, "b")
    assert a is not None and b is not None
    y = binary(_inner(node, node.op_type.removeprefix("QLinear")), a, b, ctx, total=True)
    return [_code(node, y, args[6], args[7] if len(args) > 7 else None, ctx)]


def lower_qlinear_concat(node: OnnxNode, args: Args, ctx: Lowering) -> Results:
    """com.microsoft QLinearConcat: y_scale, y_zp, then (x, scale, zp) for each operand."""
    operands = [_real(node, args[i], args[i + 1], args[i + 2], ctx, 0, f"x{i}") for i in range(2, len(args), 3)]
    y = lower_concat(_inner(node, "Concat"), operands, ctx)[0]
    assert y is not None
    return [_code(node, y, args[0], args[1], ctx)]


def _unary(function: LowerFunction) -> LowerFunction:
    """com.microsoft QLinear operators of one operand: x, x_scale, x_zp, y_scale, y_zp."""

    def lower(node: OnnxNode, args: Args, ctx: Lowering) -> Results:
        inner = _inner(node, node.op_type.removeprefix("QLinear"))
        attrs = {k: v for k, v in node.attrs.items() if k != "opset"}
        channels_last = bool(attrs.pop("channels_last", 0))
        x = _real(node, args[0], args[1], args[2], ctx, 0, "x")
        assert isinstance(x, View)
        rank = len(x.axes)
        if channels_last:
            x = x.transpose([0, rank - 1, *range(1, rank - 1)])
        y = function(replace(inner, attrs=attrs), [x], ctx)[0]
        assert isinstance(y, View)
        if channels_last:
            y = y.transpose([0, *range(2, rank), 1])
        return [_code(node, y, args[3], args[4] if len(args) > 4 else None, ctx)]

    return lower


MS = "com.microsoft"
UNARY: dict[str, LowerFunction] = {
    "QLinearSigmoid": lower_unary,
    "QLinearLeakyRelu": lower_unary,
    "QLinearSoftmax": lower_softmax,
    "QLinearAveragePool": lower_pool,
    "QLinearGlobalAveragePool": lower_global,
}

LOWER: dict[tuple[str, str], LowerFunction] = {
    ("", "QLinearConv"): lower_qlinear_conv,
    (MS, "QLinearConv"): lower_qlinear_conv,
    ("", "QLinearMatMul"): lower_qlinear_matmul,
    (MS, "QGemm"): lower_qgemm,
    (MS, "QLinearAdd"): lower_qlinear_binary,
    (MS, "QLinearMul"): lower_qlinear_binary,
    (MS, "QLinearConcat"): lower_qlinear_concat,
    **{(MS, name): _unary(function) for name, function in UNARY.items()},
}

RULES = {
    "QLinearConv": "as Conv",
    "QLinearMatMul": "as MatMul",
    "QGemm": "as Gemm, alpha 1; a float result without y_scale",
    "QLinearAdd": "as Add",
    "QLinearMul": "as Mul",
    "QLinearConcat": "as Concat",
    **{name: f"as {name.removeprefix('QLinear')}" for name in UNARY},
}
