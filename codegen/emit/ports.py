"""Inputs and outputs as the header shows them: types, shapes, scales, bounds of what a call hands out."""

from __future__ import annotations

from typing import Any

from codegen.codes import INT8, shift_of
from codegen.emit.model import Compiled
from codegen.emit.names import comment
from codegen.emit.node import extent_text
from codegen.emit.storage import address_of
from codegen.ir.graph import Port
from codegen.kernels.literals import float_literal, float_rows
from codegen.plan import outputs as plan_outputs


def port_context(c: Compiled, port: Port, name: str, is_output: bool) -> dict[str, Any]:
    s = c.layout.storage[port.tensor]
    q = port.qparams
    tensor = c.graph.tensors[port.tensor]
    border = port.border if tensor.type == INT8 else tensor.type
    context: dict[str, Any] = {
        "id": name,
        "MACRO": name.upper(),
        "comment": comment(port.name),
        "ctype": border.ctype,
        "bytes": tensor.frame_elements,
        "lane": s.lane,
        "target": None if is_output or s.fresh == "input" else address_of(s, c.names),
        "frame_text": comment(_frame_text(port, tensor.frame_shape)),
        "scale": None if q is None else float_literal(q.scale),
        "zero_point": 0 if q is None else q.zero_point + shift_of(border.dtype),
        "decoding": None if port.decoding is None else port.decoding.kind,
        "decoding_count": 0 if port.decoding is None else port.decoding.values.size,
        "decoding_rows": "" if port.decoding is None else float_rows(port.decoding.values),
        "low": border.low,
        "high": border.high,
    }
    context["quantization"] = _quantization(port, context)
    if is_output:
        context.update(_output_numbers(c, port))
    return context


def _quantization(port: Port, context: dict[str, Any]) -> str:
    if port.decoding is not None and port.decoding.kind == "accumulator":
        return "int32 accumulators, one scale per channel (see the float header)"
    if port.decoding is not None:
        return "codes of the function's input; its 256 values are in the float header"
    if port.qparams is None:
        return "raw codes"
    return f"scale {context['scale']}, zero point {context['zero_point']}"


def _output_numbers(c: Compiled, port: Port) -> dict[str, Any]:
    extent = c.extents[port.tensor]
    time = c.graph.time_graph()
    if c.graph.clip_length is not None:
        frames = c.plan.finished(c.graph.clip_length)[port.tensor]
        text = f"({frames} * ((n) / {c.graph.clip_length} + 2))"
        bound = {"P": frames, "M": c.graph.clip_length, "c": 2 * frames * c.graph.clip_length, "finish": 2 * frames}
    else:
        push = plan_outputs.out_bound(time, port.tensor, finish=False)
        most = plan_outputs.finish_max(time, port.tensor)
        scaled = "(n)" if push.P == 1 else f"(n) * {push.P}"
        value = f"({scaled} + {push.c})" if push.M == 1 else f"(({scaled} + {push.c}) / {push.M})"
        at_finish = push.c // push.M
        text = value if at_finish >= most else f"({value} > {most} ? {value} : {most})"
        bound = {"P": push.P, "M": push.M, "c": push.c, "finish": most}
    lookahead = 0 if extent.ended or extent.lookahead is None else -(-extent.lookahead // 1)
    return {"max_out": text, "bound": bound, "lookahead": int(lookahead), "timing": comment(extent_text(extent))}


def _frame_text(port: Port, frame_shape: tuple[int, ...]) -> str:
    """How the ONNX axes lie in a frame: `[8] = ONNX axis 1 of [1, 8, T]`."""
    axes = port.view.storage_order()
    used = [str(i) for i in axes if any(not p.is_time and p.size > 1 for p in port.view.axes[i])]
    shape = "[" + ", ".join(str(n) for n in port.shape) + "]"
    order = f"ONNX axes {', '.join(used)} of {shape}, last one contiguous" if used else f"one value of {shape}"
    return f"{list(frame_shape)} ({order})"
