"""Numpy reference: the whole clip at once, integer-exact, ignorant of streaming."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Decoding, Graph, Port, QParams
from codegen.ir.view import View
from codegen.numerics import reference as numeric
from codegen.ops.base import Codes, KernelOp

Array = npt.NDArray[Any]


def to_frames(x: Array, view: View) -> Codes:
    """ONNX array -> frames [T, elements] as they lie in memory. The inverse of `from_frames`."""
    pieces = [(p, i) for i, axis in enumerate(view.axes) for p in axis]
    x = x.reshape([p.size if not p.is_time else x.shape[i] for p, i in _actual(x, view, pieces)])
    order = sorted(range(len(pieces)), key=lambda k: (not pieces[k][0].is_time, -(pieces[k][0].stride or 0)))
    timed = any(p.is_time for p, _ in pieces)
    frames = x.transpose(order)
    count, sizes = (frames.shape[0], frames.shape[1:]) if timed else (1, frames.shape)
    return np.ascontiguousarray(frames.reshape(count, prod(sizes)))


def _actual(x: Array, view: View, pieces: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    for i, axis in enumerate(view.axes):
        if not any(p.is_time for p in axis) and x.shape[i] != prod(p.size for p in axis):
            raise ValueError(f"axis {i} has {x.shape[i]} elements; the model has {prod(p.size for p in axis)}")
    return pieces


def from_frames(frames: Array, view: View) -> Array:
    """Frames [T, elements] -> ONNX array."""
    count = frames.shape[0]
    pieces = [p for axis in view.axes for p in axis]
    order = sorted(range(len(pieces)), key=lambda k: (not pieces[k].is_time, -(pieces[k].stride or 0)))
    sizes = [count if pieces[k].is_time else pieces[k].size for k in order]
    if not any(p.is_time for p in pieces):
        if count == 0:
            return np.zeros([0, *view.shape[1:]] if view.shape else [0], frames.dtype)
        frames = frames[:1]
    x = frames.reshape(sizes).transpose(np.argsort(order))
    shape = [prod(count if p.is_time else p.size for p in axis) for axis in view.axes]
    return x.reshape(shape)


def quantize_input(x: Array, port: Port) -> Codes:
    """Border values of a graph input -> frames of int8 codes."""
    frames = to_frames(x, port.view)
    if port.dtype == "uint8":
        return (frames.astype(np.int16) - 128).astype(np.int8)
    if port.dtype == "int8":
        return frames.astype(np.int8)
    q = port.qparams or QParams(1.0, 0)
    return numeric.quantize(frames.astype(np.float32), (q.scale, q.zero_point))


def dequantize_output(frames: Codes, port: Port) -> Array:
    """Frames of int8 codes -> values of a graph output in its ONNX type and layout."""
    if port.decoding is not None:
        return from_frames(_decoded(frames, port.decoding), port.view)
    x = from_frames(frames, port.view)
    if port.dtype == "uint8":
        return (x.astype(np.int16) + 128).astype(np.uint8)
    if port.dtype == "int8" or port.qparams is None:
        return x
    return numeric.dequantize(x.astype(np.int64), (port.qparams.scale, port.qparams.zero_point))


def _decoded(frames: Array, decoding: Decoding) -> Array:
    """float32 values of frames of codes or accumulators."""
    if decoding.kind == "table":
        return np.asarray(decoding.values[frames.astype(np.int64) + 128])
    channels = decoding.values.size
    real = frames.reshape(-1, channels).astype(np.float32) * decoding.values.astype(np.float32)
    return np.asarray(real.reshape(frames.shape))


def run_codes(graph: Graph, inputs: Mapping[str, Codes]) -> dict[str, Codes]:
    """Codes of every tensor, int8 [frames, *frame_shape], from the codes of the input tensors."""
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
