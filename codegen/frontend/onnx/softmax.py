"""Softmax, LogSoftmax and Hardmax."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.real import Softmax
from codegen.ir.view import View


def lower_softmax(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Softmax-13 over one axis; before opset 13 over all axes from `axis` (default 1) on, flattened."""
    x = args[0]
    assert isinstance(x, View)
    rank = len(x.axes)
    if ctx.model.opset >= 13:
        axes = [int(node.attrs.get("axis", -1)) % rank]
    else:
        axes = list(range(int(node.attrs.get("axis", 1)) % rank, rank))
    over_time = any(piece.is_time for i in axes for piece in x.axes[i])
    rest = [i for i in x.storage_order() if i not in axes]
    x = ctx.arrange(x, [*rest, *axes], node)
    # The stream axis does not count: the analyzer's operator is the same for every length, and `build` refuses it.
    size = prod(piece.size for i in axes for piece in x.axes[i] if not piece.is_time)
    return [ctx.elementwise(x, Softmax(node.op_type, size, over_time), node)]


LOWER = {("", "Softmax"): lower_softmax, ("", "LogSoftmax"): lower_softmax, ("", "Hardmax"): lower_softmax}
ANALYZED = {"Hardmax": "no int8 form"}
RULES = dict.fromkeys(("Softmax", "LogSoftmax"), "over axes inside the frame; within one code of the real value")
