"""Gemm and MatMul."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.frontend.onnx.contraction import matmul_labels
from codegen.frontend.onnx.dense import dense, one_row, scaled, transposed
from codegen.frontend.onnx.labelled import product
from codegen.ir.graph import Const
from codegen.ir.view import View


def lower_gemm(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """alpha * A' B' + beta * C with constant B and C (ONNX Gemm-11)."""
    x, weights = args[0], args[1]
    bias = args[2] if len(args) > 2 else None
    assert isinstance(x, View)
    if isinstance(weights, View) and bias is None and float(node.attrs.get("alpha", 1.0)) == 1.0:
        return [_product_of_activations(node, x, weights, ctx)]
    if not isinstance(weights, Const) or isinstance(bias, View):
        found = "two operands computed at run time with a C or an alpha, or a C computed at run time"
        raise unsupported(IMPORT, node.title, found, "constant weights and bias", "Use MatMul")
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    if node.attrs.get("transA"):
        x = x.transpose([1, 0])
    if not node.attrs.get("transB"):
        weights = transposed(weights)
    weights = scaled(weights, alpha)
    bias = None if bias is None or beta == 0.0 else scaled(one_row(node, bias), beta)
    return [dense(node, x, weights, bias, ctx)]


def _product_of_activations(node: OnnxNode, a: View, b: View, ctx: Lowering) -> View:
    """Gemm of two activations without C: A' B'."""

    left = ["k", "m"] if node.attrs.get("transA") else ["m", "k"]
    right = ["n", "k"] if node.attrs.get("transB") else ["k", "n"]
    if len(a.axes) != 2 or len(b.axes) != 2 or a.shape[left.index("k")] != b.shape[right.index("k")]:
        raise unsupported(IMPORT, node.title, f"operands of shapes {list(a.shape)} and {list(b.shape)}")
    return product(node, [(a, left), (b, right)], ["m", "n"], ctx)


def lower_matmul(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:

    x, weights = args[0], args[1]
    if not isinstance(x, View) or not isinstance(weights, Const) or weights.array.ndim != 2 or len(x.axes) < 1:
        return lower_products(node, args, ctx)
    return [dense(node, x, transposed(weights), None, ctx)]


LOWER = {
    ("", "Gemm"): lower_gemm,
    ("", "MatMul"): lower_matmul,
}

RULES = {
    "Gemm": "constant weights and bias; transA, transB, alpha, beta; over the stream axis only in a clip, once",
    "MatMul": (
        "constant 2-D weights (over a clip's stream axis too, once), or two operands with batches that broadcast;"
        " an Add of one constant per column becomes its bias"
    ),
}


def lower_products(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """MatMul of any two operands (ONNX MatMul-13): batches broadcast, 1-D operands lose their axis."""
    a, b = args[0], args[1]
    assert a is not None and b is not None
    shapes = [tuple(v.array.shape) if isinstance(v, Const) else v.shape for v in (a, b)]
    left, right, out = matmul_labels(node, *shapes)
    sizes: dict[str, int] = {}
    for labels, shape in ((left, shapes[0]), (right, shapes[1])):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            if known != size and 1 not in (known, size):
                found = f"operands of shapes {list(shapes[0])} and {list(shapes[1])}"
                raise unsupported(IMPORT, node.title, found, "batch sizes that are equal or 1")
            sizes[label] = max(known, size)
    return [product(node, [(a, left), (b, right)], out, ctx)]
