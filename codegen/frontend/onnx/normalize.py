"""BatchNormalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import LowerFunction, Lowering
from codegen.ir.graph import Const
from codegen.ir.real import Affine
from codegen.ir.view import View


def lower_batch_norm(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """(x - mean) / sqrt(var + epsilon) * scale + B over axis 1 (ONNX BatchNormalization-15, inference)."""
    x, *params = args[:5]
    assert isinstance(x, View)
    if node.attrs.get("training_mode") or any(node.outputs[1:]):
        raise unsupported(IMPORT, node.title, "training mode", "inference", "Export the model in eval mode")
    constants = [p.real().astype(np.float64).ravel() for p in params if isinstance(p, Const)]
    if len(constants) != 4:
        raise unsupported(IMPORT, node.title, "parameters computed at run time", "constants")
    channels = x.shape[1]
    if any(c.size != channels or not np.isfinite(c).all() for c in constants):
        found = f"parameters of sizes {[c.size for c in constants]} for {channels} channels"
        raise unsupported(IMPORT, node.title, found, "one finite value per channel")
    if x.time_axis == 1 or not x.time_is_alone():
        found = "the stream axis is part of its channels"
        raise unsupported(IMPORT, node.title, found, "another axis", "Name another with --stream")
    gamma, beta, mean, variance = constants
    spread = variance + float(np.float32(node.attrs.get("epsilon", 1e-5)))
    if spread.min() <= 0:
        raise unsupported(IMPORT, node.title, f"variance {variance.min():g}", "variances are >= 0")
    scale = gamma / np.sqrt(spread)
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    target = tuple(1 if i == x.time_axis else n for i, n in enumerate(x.shape))
    index = np.arange(channels).reshape(-1, *[1] * (len(x.axes) - 2))
    channel = np.broadcast_to(index, target).transpose(order).reshape(-1)
    return [ctx.elementwise(x, Affine(scale, beta - mean * scale, channel), node)]


LOWER: dict[tuple[str, str], LowerFunction] = {("", "BatchNormalization"): lower_batch_norm}
RULES = {
    "BatchNormalization": "constant parameters; folded into a product before it, else a table per channel (256 at most)"
}
