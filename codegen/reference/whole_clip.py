"""Numpy reference: the whole clip at once, integer-exact, ignorant of streaming."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, UINT8, from_stored, to_stored
from codegen.ir.graph import Decoding, Graph, Port, QParams
from codegen.ir.view import Piece, View
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp

Array = npt.NDArray[Any]


def to_frames(x: Array, view: View) -> Codes:
    """ONNX array -> frames [T, elements] as they lie in memory. The inverse of `from_frames`.

    Where no ONNX axis is the stream, axis 0 counts frames if the model has 1 there (several steps or windows in one
    array), or if it comes on top of the model's axes; else the array is one frame.
    """
    pieces, sizes = [], []
    steps = _counts_steps(view)
    if view.time_axis is None and x.ndim == len(view.axes) + 1 and not steps:
        view, steps = View(view.tensor, ((), *view.axes)), True
    if x.ndim != len(view.axes):
        raise ValueError(f"an array of {x.ndim} axes; the model has {len(view.axes)}")
    for i, axis in enumerate(view.axes):
        inner = prod(p.size for p in axis if not p.is_time)
        timed = any(p.is_time for p in axis)
        if not timed and x.shape[i] != inner and not (steps and i == 0):
            raise ValueError(f"axis {i} has {x.shape[i]} elements; the model has {inner}")
        for p in axis:
            pieces.append(p)
            sizes.append(x.shape[i] // max(inner, 1) if p.is_time else p.size)
    order = _memory_order(pieces)
    if any(p.is_time for p in pieces):
        frames = x.reshape(sizes).transpose(order)
        return np.ascontiguousarray(frames.reshape(frames.shape[0], prod(frames.shape[1:])))
    count = x.shape[0] if steps else 1
    frames = x.reshape([count, *sizes]).transpose([0, *(k + 1 for k in order)])
    return np.ascontiguousarray(frames.reshape(count, prod(sizes)))


def _counts_steps(view: View) -> bool:
    return view.time_axis is None and len(view.axes) > 0 and view.shape[0] == 1


def _memory_order(pieces: list[Piece]) -> list[int]:
    """Places of the pieces from the outermost in memory to the innermost, the stream first."""
    return sorted(range(len(pieces)), key=lambda k: (not pieces[k].is_time, -(pieces[k].stride or 0)))


def from_frames(frames: Array, view: View) -> Array:
    """Frames [T, elements] -> ONNX array."""
    count = frames.shape[0]
    pieces = [p for axis in view.axes for p in axis]
    order = _memory_order(pieces)
    sizes = [count if pieces[k].is_time else pieces[k].size for k in order]
    shape = [prod(count if p.is_time else p.size for p in axis) for axis in view.axes]
    if any(p.is_time for p in pieces):
        return frames.reshape(sizes).transpose(np.argsort(order)).reshape(shape)
    inverse = np.argsort(order) if order else np.zeros(0, np.int64)
    x = frames.reshape([count, *sizes]).transpose([0, *(int(k) + 1 for k in inverse)])
    if _counts_steps(view):
        return x.reshape([count, *shape[1:]])
    return x.reshape(shape) if count == 1 else x.reshape([count, *shape])


def quantize_input(x: Array, port: Port) -> Codes:
    """Border values of a graph input -> frames of int8 codes."""
    frames = to_frames(x, port.view)
    if port.dtype in (INT8.name, UINT8.name):
        return to_stored(frames.astype(port.dtype))
    q = port.qparams or QParams(1.0, 0)
    return numeric.quantize(frames.astype(np.float32), (q.scale, q.zero_point))


def dequantize_output(frames: Codes, port: Port) -> Array:
    """Frames of int8 codes -> values of a graph output in its ONNX type and layout."""
    if port.decoding is not None:
        return from_frames(_decoded(frames, port.decoding), port.view)
    x = from_frames(frames, port.view)
    if port.dtype in (INT8.name, UINT8.name) or port.qparams is None:
        return from_stored(x, port.border)
    return numeric.dequantize(x.astype(np.int64), (port.qparams.scale, port.qparams.zero_point))


def _decoded(frames: Array, decoding: Decoding) -> Array:
    """float32 values of frames of codes or accumulators."""
    if decoding.kind == "table":
        return np.asarray(decoding.values[frames.astype(np.int64) - INT8.low])
    channels = decoding.values.size
    real = frames.reshape(-1, channels).astype(np.float32) * decoding.values.astype(np.float32)
    return np.asarray(real.reshape(frames.shape))


def run_codes(graph: Graph, inputs: Mapping[str, Codes]) -> dict[str, Codes]:
    """Codes of every tensor, int8 [frames, *frame_shape], from the codes of the input tensors."""
    if not graph.carried:
        return _evaluate(graph, inputs)
    steps = len(next(iter(inputs.values())))
    sizes = {c.tensor: graph.tensors[c.tensor].frame_elements for c in graph.carried}
    state = {c.tensor: np.full((1, sizes[c.tensor]), c.initial, INT8.dtype) for c in graph.carried}
    results: list[dict[str, Codes]] = []
    for j in range(steps):
        values = _evaluate(graph, {name: x[j : j + 1] for name, x in inputs.items()} | state)
        results.append(values)
        for c in graph.carried:
            codes = values[c.source].reshape(1, -1)
            state[c.tensor] = codes if c.table is None else c.table[codes.astype(np.int64) - INT8.low]
    if not results:
        return _evaluate(graph, {**inputs, **{name: x[:0] for name, x in state.items()}})
    return {name: np.concatenate([values[name] for values in results]) for name in results[0]}


def _evaluate(graph: Graph, inputs: Mapping[str, Codes]) -> dict[str, Codes]:
    values: dict[str, Codes] = {}
    for name, frames in inputs.items():
        values[name] = frames.reshape(frames.shape[0], *graph.tensors[name].frame_shape)
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        result = node.op.reference([values[name] for name in node.inputs])
        values[node.output] = result.reshape(result.shape[0], *graph.tensors[node.output].frame_shape)
    return values


def run(graph: Graph, x: Mapping[str, Array], taps: Collection[str] | None = None) -> dict[str, Array]:
    """Outputs by ONNX name for whole-clip inputs by ONNX name, in the model's own layout and type.

    `taps`: ONNX names of internal tensors to return too, as int8 codes (uint8 models: less 128). `taps=[]` adds none;
    `taps=None` likewise. Use `graph.taps` for the names there are.
    """
    codes = run_codes(graph, {port.tensor: quantize_input(np.asarray(x[port.name]), port) for port in graph.inputs})
    result = {port.name: dequantize_output(_flat(codes[port.tensor]), port) for port in graph.outputs}
    for name in taps or ():
        view = graph.taps[name]
        result[name] = from_frames(_flat(codes[view.tensor]), view)
    return result


def _flat(frames: Codes) -> Codes:
    return frames.reshape(frames.shape[0], prod(frames.shape[1:]))
