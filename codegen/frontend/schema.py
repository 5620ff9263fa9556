"""What a node may say: attributes and operand counts by the operator's own version. An unknown attribute is an error:
ignoring it would silently build another model than the author meant."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from codegen.errors import IMPORT, printable, unsupported
from codegen.frontend.load import OnnxNode

WINDOW = {
    "auto_pad",
    "ceil_mode",
    "count_include_pad",
    "dilations",
    "group",
    "kernel_shape",
    "pads",
    "storage_order",
    "strides",
    "channels_last",
}
CONTRIB: Mapping[str, set[str]] = {
    "DequantizeLinear": {"axis", "block_size"},
    "QuantizeLinear": {"axis", "block_size", "saturate"},
    "QGemm": {"alpha", "transA", "transB"},
    "QLinearAdd": set(),
    "QLinearAveragePool": WINDOW,
    "QLinearConcat": {"axis"},
    "QLinearConv": WINDOW,
    "QLinearGlobalAveragePool": {"channels_last"},
    "QLinearLeakyRelu": {"alpha"},
    "QLinearMul": set(),
    "QLinearSigmoid": set(),
    "QLinearSoftmax": {"axis", "opset"},
}


def check(node: OnnxNode, opset: int) -> None:
    """Raise CodegenError for attributes or operand counts that the operator does not have."""
    if node.domain:
        allowed = CONTRIB.get(node.op_type)
        required: set[str] = set()
        counts = (0, 1 << 30)
    else:
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        except onnx.defs.SchemaError:
            return
        allowed = set(schema.attributes)
        required = {name for name, attribute in schema.attributes.items() if attribute.required}
        counts = (schema.min_input, schema.max_input)
    if allowed is None:
        return
    extra = sorted(set(node.attrs) - allowed)
    if extra:
        found = f"attribute {printable(extra[0])} does not exist for {node.op_type} at opset {opset}"
        known = ", ".join(sorted(allowed)) or "none"
        raise unsupported(IMPORT, node.title, found, f"known are {known}", "Check the file with onnx.checker")
    missing = sorted(required - set(node.attrs))
    if missing:
        found = f"attribute {missing[0]} is missing"
        raise unsupported(IMPORT, node.title, found, hint="Check the file with onnx.checker")
    if not counts[0] <= len(node.inputs) <= counts[1]:
        found = f"{len(node.inputs)} inputs for {node.op_type} at opset {opset}"
        raise unsupported(IMPORT, node.title, found, f"{counts[0]} to {counts[1]} are allowed")
