"""BatchNormalization with constant statistics: one linear function per channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from codegen.errors import unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import LowerFunction, Lowering
from codegen.ir.graph import Const, QParams
from codegen.ir.view import View
from codegen.numerics import reference as numeric
from codegen.ops.base import Op
from codegen.ops.conv import Conv
from codegen.ops.elementwise import Unary
from codegen.ops.int8 import LutChannelsS8, channel_tables
from codegen.ops.resample import ConvTranspose
from codegen.ops.unary import function_of

STAGE = "import"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Affine(Op):
    """Real scale[c] * x + offset[c]; `channel` is c of every element of a frame, in memory order."""

    scale: Floats
    offset: Floats
    channel: npt.NDArray[np.int64]


def lower_batch_norm(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """(x - mean) / sqrt(var + epsilon) * scale + B over axis 1 (ONNX BatchNormalization-15, inference)."""
    x, *params = args[:5]
    assert isinstance(x, View)
    if node.attrs.get("training_mode") or any(node.outputs[1:]):
        raise unsupported(STAGE, node.title, "training mode", "inference", "Export the model in eval mode")
    constants = [p.real().astype(np.float64).ravel() for p in params if isinstance(p, Const)]
    if len(constants) != 4:
        raise unsupported(STAGE, node.title, "parameters computed at run time", "constants")
    channels = x.shape[1]
    if any(c.size != channels or not np.isfinite(c).all() for c in constants):
        found = f"parameters of sizes {[c.size for c in constants]} for {channels} channels"
        raise unsupported(STAGE, node.title, found, "one finite value per channel")
    if x.time_axis == 1 or not x.time_is_alone():
        found = "the stream axis is part of its channels"
        raise unsupported(STAGE, node.title, found, "another axis", "Name another with --stream")
    gamma, beta, mean, variance = constants
    spread = variance + float(np.float32(node.attrs.get("epsilon", 1e-5)))
    if spread.min() <= 0:
        raise unsupported(STAGE, node.title, f"variance {variance.min():g}", "variances are >= 0")
    scale = gamma / np.sqrt(spread)
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    target = tuple(1 if i == x.time_axis else n for i, n in enumerate(x.shape))
    index = np.arange(channels).reshape(-1, *[1] * (len(x.axes) - 2))
    channel = np.broadcast_to(index, target).transpose(order).reshape(-1)
    return [ctx.elementwise(x, Affine(scale, beta - mean * scale, channel), node)]


def folded(op: Affine, product: Conv | ConvTranspose) -> Conv | ConvTranspose | None:
    """The product with the linear functions in its weights' scales and its bias, where its channels are the same."""
    weights = product.weights
    channels = weights.array.shape[0]
    if len(op.scale) != channels or not np.array_equal(op.channel, np.resize(np.arange(channels), op.channel.size)):
        return None
    column = (-1, *[1] * (weights.array.ndim - 1))
    if weights.scale is None:
        made = Const((weights.array * op.scale.reshape(column)).astype(np.float32))
    else:
        # Scales must stay above 0: a negative factor goes to the codes, a factor of 0 makes them 0.
        codes = weights.array.astype(np.int32) - weights.per_axis(weights.zero()).astype(np.int32)
        codes = codes * np.sign(op.scale).astype(np.int32).reshape(column)
        factor = np.where(op.scale == 0.0, 1.0, np.abs(op.scale))
        scales = np.broadcast_to(weights.scale.astype(np.float64).ravel(), (channels,)) * factor
        made = Const(codes, scales.astype(np.float32), None, 0)
    before = 0.0 if product.bias is None else product.bias.real().astype(np.float64).reshape(-1)
    return replace(product, weights=made, bias=Const(before * op.scale + op.offset))


def affine_tables(
    op: Affine, x: QParams, y: QParams, before: Sequence[Unary], after: Sequence[Unary]
) -> LutChannelsS8 | None:
    """`after(affine(before(x)))` as one table per distinct channel, None where there are more than 256."""
    pairs, index = np.unique(np.stack([op.scale, op.offset], axis=1), axis=0, return_inverse=True)
    if len(pairs) > 256:
        return None
    heads, tails = [function_of(f) for f in before], [function_of(f) for f in after]
    tables = []
    for scale, offset in pairs.tolist():

        def line(value: float, scale: float = scale, offset: float = offset) -> float:
            return scale * value + offset

        chain = numeric.chain(*heads, line, *tails)
        tables.append(numeric.unary_table(chain, (x.scale, x.zero_point), (y.scale, y.zero_point)))
    return channel_tables(tables, index.reshape(-1)[op.channel])


LOWER: dict[tuple[str, str], LowerFunction] = {("", "BatchNormalization"): lower_batch_norm}
RULES = {
    "BatchNormalization": "constant parameters; folded into a product before it, else a table per channel (256 at most)"
}
