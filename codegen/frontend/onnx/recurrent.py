"""Recurrent and dynamic operators: known, so that analyze can say why they are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.real import Sequential
from codegen.ir.time import Join, Recurrent, Rule, Unstreamable
from codegen.ir.view import Axis, Piece, View, compact


def lower_rnn(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """GRU, LSTM, RNN: X [T, N, I] -> Y [T, directions, N, H], Y_h [directions, N, H] (ONNX GRU-14, layout 0)."""
    x, hidden = args[0], args[2]
    assert isinstance(x, View) and isinstance(hidden, Const)
    batch_first = bool(node.attrs.get("layout", 0))
    direction = node.attrs.get("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    size = int(node.attrs.get("hidden_size") or hidden.array.shape[-1])
    at = 1 if batch_first else 0
    over_time = x.time_axis == at
    rule: Rule = Join()  # inside a frame (over frequency, say), or of a whole clip: pointwise along the stream
    if over_time:
        rule = (
            Recurrent() if direction == "forward" else Unstreamable(f"{direction} {node.op_type} along the stream axis")
        )
    length = ctx.tensor(x).length
    steps, batch = (1 if i == x.time_axis else x.shape[i] for i in (at, 1 - at))
    frame = [batch, steps, directions, size] if batch_first else [steps, directions, batch, size]
    name = ctx.emit(Sequential(node.op_type, rule), [x.tensor], frame, length, node)
    results: list[View | Const] = [View(name, _with_time(frame, {at: at, 1 - at: 0 if batch_first else 2}, x, length))]
    for output in node.outputs[1:]:
        if output:
            last = Sequential(node.op_type, Unstreamable("final state") if over_time else Join(), "final state")
            frame = [batch, directions, size] if batch_first else [directions, batch, size]
            frames = 1 if over_time else length
            state = ctx.emit(last, [x.tensor], frame, frames, node, output)
            results.append(View(state, _with_time(frame, {1 - at: 0 if batch_first else 1}, x, frames)))
    return results


def _with_time(frame: Sequence[int], places: Mapping[int, int], x: View, length: int) -> tuple[Axis, ...]:
    """Axes of a row-major frame; the stream axis of `x`, where the result has it, at its place there."""
    axes = compact(frame)
    if x.time_axis is not None and x.time_axis in places:
        axes[places[x.time_axis]] = (Piece(length, None),)
    return tuple(axes)


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
