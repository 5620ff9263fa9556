"""Recurrent and dynamic operators: known, so that analyze can say why they are refused."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.real import Sequential
from codegen.ir.time import Join, Recurrent, Rule, Unstreamable
from codegen.ir.view import Axis, Piece, View


def lower_rnn(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """GRU, LSTM, RNN: X [T, N, I] -> Y [T, directions, N, H], Y_h [directions, N, H] (ONNX GRU-14, layout 0)."""
    x, hidden = args[0], args[2]
    assert isinstance(x, View) and isinstance(hidden, Const)
    batch_first = bool(node.attrs.get("layout", 0))
    direction = node.attrs.get("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    size = int(node.attrs.get("hidden_size") or hidden.array.shape[-1])
    at = 1 if batch_first else 0
    batch = x.shape[1 - at]
    rule: Rule = (
        Recurrent() if direction == "forward" else Unstreamable(f"{direction} {node.op_type} along the stream axis")
    )
    if x.time_axis != at:
        # The recurrence runs inside a frame (over frequency, say): along the stream it is pointwise.
        rule = Join()
    source = ctx.tensor(x)
    name = ctx.emit(Sequential(node.op_type, rule), [x.tensor], [directions, batch, size], source.length, node)
    time: Axis = (Piece(source.length, None),) if x.time_axis == at else ()
    frame: list[Axis] = [
        (Piece(directions, batch * size),) if directions > 1 else (),
        (Piece(batch, size),) if batch > 1 else (),
        (Piece(size, 1),) if size > 1 else (),
    ]
    y = View(name, (frame[1], time, frame[0], frame[2]) if batch_first else (time, *frame))
    results: list[View | Const] = [y]
    for output in node.outputs[1:]:
        if output:
            last = Sequential(node.op_type, Unstreamable("final state"), "final state")
            state = ctx.emit(last, [x.tensor], [directions, batch, size], 1, node, output)
            results.append(View(state, tuple(frame)))
    return results


def lower_cumsum(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    x, axis = args[0], args[1]
    assert isinstance(x, View) and isinstance(axis, Const)
    i = int(axis.array.ravel()[0]) % len(x.axes)
    if not any(piece.is_time for piece in x.axes[i]):
        return [ctx.elementwise(x, Sequential("CumSum", Join()), node)]
    rule: Rule = Unstreamable("reverse CumSum along the stream axis") if node.attrs.get("reverse") else Recurrent()
    return [ctx.elementwise(x, Sequential("CumSum", rule), node)]


def lower_norm(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Normalisations; over the stream axis they need the whole sequence."""
    x = args[0]
    assert isinstance(x, View)
    at = x.time_axis
    if node.op_type == "LayerNormalization":
        over_time = at is not None and at >= int(node.attrs.get("axis", -1)) % len(x.axes)
    elif node.op_type == "LpNormalization":
        over_time = at == int(node.attrs.get("axis", -1)) % len(x.axes)
    elif node.op_type == "LRN":
        over_time = at == 1
    else:
        over_time = at is not None and at != 0
    rule: Rule = Unstreamable(f"{node.op_type} over the stream axis") if over_time else Join()
    return [ctx.elementwise(x, Sequential(node.op_type, rule), node)]


def lower_dynamic(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    raise unsupported(
        IMPORT,
        node.title,
        "dynamic quantization: its scale depends on the whole tensor",
        "static scales are allowed",
        "Quantize with onnxruntime's quantize_static (or `codegen quantize`)",
    )


DYNAMIC = ("DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")


LOWER = {
    **{("", name): lower_rnn for name in ("GRU", "LSTM", "RNN")},
    ("", "CumSum"): lower_cumsum,
    **{
        ("", name): lower_norm
        for name in (
            "LayerNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LpNormalization",
            "LRN",
        )
    },
    **{("", name): lower_dynamic for name in DYNAMIC},
    **{("com.microsoft", name): lower_dynamic for name in ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul")},
}


ANALYZED = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), "no int8 form yet; bidirectional and reverse need the whole sequence"),
    "CumSum": "no int8 form",
    **dict.fromkeys(
        ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization", "LRN"),
        "no int8 form; over the stream axis it needs the whole sequence",
    ),
    **dict.fromkeys(
        (*DYNAMIC, "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"),
        "dynamic quantization: its scale depends on the whole tensor; use static scales",
    ),
}
