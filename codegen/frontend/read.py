"""A file -> `Graph` of reals and codes: load, choose the stream axis, lower, check that the length does not matter."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from codegen.errors import IMPORT, CodegenError, Problem, printable, unsupported
from codegen.frontend.cut import NO_CUTS, Cuts
from codegen.frontend.load import Model, load
from codegen.frontend.lower import MAX_FRAME_ELEMENTS, lower
from codegen.frontend.onnx import LOWER
from codegen.frontend.stream_axis import WHOLE, PinnedInput, pin, with_stream_axis
from codegen.ir.graph import Graph, Port
from codegen.ir.real import Binary, Conv, ConvTranspose, Dequantize, Pool, Quantize, Unary
from codegen.ir.view import View
from codegen.ops.move import Copy, PadFrames

# Trial lengths of an endless stream: a multiple of every usual total stride, so that joins after strides agree.
TRIAL_LENGTH = 40320
TRIALS = 64
# Convolutions of one tap that have no spatial axis of their own: nothing streams because of them.
NUMBER = re.compile(r"(\d+(?:,\d{3})*)")
PRODUCTS = ("MatMul", "Gemm", "Einsum")


@dataclass(frozen=True)
class ReadModel:
    """The model's graph, and what stands in the way of building it."""

    model: Model
    graph: Graph
    problems: tuple[Problem, ...]


def read(path: Path, stream: str | None = None, cuts: Cuts = NO_CUTS) -> ReadModel:
    """Load and lower."""
    return read_model(load(path, cuts), stream)


def read_model(model: Model, stream: str | None = None) -> ReadModel:
    """Lower. Only faults of the file itself are raised; unsupported operators are listed in `problems`."""
    pinned, notes = pin(model, stream)
    if stream != WHOLE and all(p.stream_axis is None for p in pinned):
        pinned = _found_axis(model, pinned)
    graph, problems = _lower(model, pinned)
    if problems and stream is None and all(p.stream_axis is None for p in pinned):
        pinned = _tried_axis(model, pinned)
        graph, problems = _lower(model, pinned)
    wanted = [replace(p, frame_order=_wanted_order(graph, port)) for p, port in zip(pinned, graph.inputs, strict=True)]
    if wanted != pinned:
        graph, problems = _lower(model, wanted)
    graph = replace(graph, notes=(*notes, *graph.notes))
    return ReadModel(model, graph, tuple(problems))


def _wanted_order(graph: Graph, port: Port) -> tuple[int, ...] | None:
    """The order of a frame's axes that all readers of an input copy it into: then the border may as well have it."""
    tensors, orders = [port.tensor], set()
    while tensors:
        tensor = tensors.pop()
        for node in graph.readers(tensor):
            if isinstance(node.op, Quantize | Dequantize | Unary):
                tensors.append(node.output)
            elif isinstance(node.op, Copy) and node.op.offset == 0:
                orders.add(node.op.pieces)
            else:
                return None
    if len(orders) != 1:
        return None
    places = {axis[0]: i for i, axis in enumerate(port.view.axes) if len(axis) == 1 and not axis[0].is_time}
    pieces = orders.pop()
    if len(pieces) != len(places) or any(piece not in places for piece in pieces):
        return None
    timed = port.view.time_axis
    rest = [i for i in range(len(port.view.axes)) if i != timed and i not in places.values()]
    return (*rest, *(places[piece] for piece in pieces))


def _lower(model: Model, pinned: Sequence[PinnedInput]) -> tuple[Graph, list[Problem]]:
    if not any(p.endless for p in pinned):
        return lower(model, pinned, LOWER)
    best: tuple[int, Graph, list[Problem]] | None = None
    for extra in range(TRIALS):
        length = TRIAL_LENGTH + extra
        graph, problems = lower(model, [p.at(length) for p in pinned], LOWER)
        if best is None or len(problems) < len(best[2]):
            best = (length, graph, problems)
        if not problems:
            break
    assert best is not None
    length, graph, problems = best
    other, more = lower(model, [p.at(2 * length) for p in pinned], LOWER)
    if problems:
        twins = {problem.where: problem for problem in more}
        return graph, [general(problem, twins.get(problem.where, problem), length) for problem in problems]
    if not more:
        more = [
            Problem(node.where, "what it does depends on the length of the stream", "the same for every length")
            for node, twin in zip(graph.nodes, other.nodes, strict=False)
            if not same(node.op, twin.op)
        ]
    return graph, [*problems, *more]


def general(problem: Problem, twin: Problem, length: int) -> Problem:
    """A problem found at a trial length in terms of T, by its `twin` found at twice the length."""
    texts = (general_text(getattr(problem, f.name), getattr(twin, f.name), length) for f in dataclasses.fields(problem))
    return Problem(*texts)


def general_text(text: str, twin: str, length: int) -> str:
    """`text` with every number that grows with the length as a formula of T; as it is where more differs."""
    parts, others = NUMBER.split(text), NUMBER.split(twin)
    if parts[::2] != others[::2]:
        return text
    for i in range(1, len(parts), 2):
        a, b = (int(part[i].replace(",", "")) for part in (parts, others))
        if a != b:
            slope = Fraction(b - a, length)
            rest = a - slope * length
            scaled = "T" if slope == 1 else f"{slope.numerator} T" if slope.denominator == 1 else f"{slope} T"
            parts[i] = scaled if not rest else f"{scaled} {'+' if rest > 0 else '-'} {abs(rest)}"
    return "".join(parts)


def same(a: Any, b: Any) -> bool:
    """Structural equality of operators, arrays included."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _tried_axis(model: Model, pinned: list[PinnedInput]) -> list[PinnedInput]:
    """Volumes [N, C, D, H, W] do not fit one frame: the first spatial axis along which everything can be lowered."""
    for index, value in enumerate(pinned):
        for axis in range(2, len(value.shape)) if len(value.shape) == 5 else ():
            candidate = with_stream_axis(pinned, index, axis)
            if value.shape[axis] > 1 and not lower(model, candidate, LOWER)[1]:
                return candidate
    return pinned


def _found_axis(model: Model, pinned: list[PinnedInput]) -> list[PinnedInput]:
    """The stream axis of a model of fixed size: the first window's leading spatial axis, traced back to an input."""
    graph, _ = lower(model, pinned, LOWER)
    for node in graph.nodes:
        if not isinstance(node.op, Conv | Pool | ConvTranspose) or node.op_type in PRODUCTS:
            continue
        view = _onnx_input(graph, model, node.onnx_name, node.output)
        if view is None:
            continue
        for axis in view.axes[2:]:
            size = int(np.prod([p.size for p in axis]))
            if size > 1 and len(axis) == 1:
                found = _trace(graph, pinned, view.tensor, size, axis[0].stride)
                return found if found is not None else pinned
        return pinned
    return pinned


def _onnx_input(graph: Graph, model: Model, name: str, output: str) -> View | None:
    """The view of the first operand of the ONNX node that made a tensor."""
    for node in model.nodes:
        if output.split("#", maxsplit=1)[0].removesuffix("/real") in node.outputs or (node.name and node.name == name):
            return graph.taps.get(node.inputs[0])
    return None


def _trace(
    graph: Graph, pinned: list[PinnedInput], tensor: str, size: int, stride: int | None
) -> list[PinnedInput] | None:
    """Follow pointwise operators back to a graph input and find the axis with this size and stride."""
    producers = {node.output: node for node in graph.nodes}
    while tensor in producers:
        op = producers[tensor].op
        if isinstance(op, PadFrames):
            before = _unpadded(op, size, stride)
            if before is None:
                return None
            size, stride = before
        elif not isinstance(op, Quantize | Dequantize | Unary | Binary):
            return None
        tensor = producers[tensor].inputs[0]
    for index, port in enumerate(graph.inputs):
        if port.tensor != tensor:
            continue
        for axis, pieces in enumerate(port.view.axes):
            if len(pieces) == 1 and pieces[0].size == size and pieces[0].stride == stride:
                return with_stream_axis(pinned, index, axis)
    return None


def _unpadded(pad: PadFrames, size: int, stride: int | None) -> tuple[int, int] | None:
    """(size, stride) in the unpadded frame of the padded axis with this size and stride."""
    for i, length in enumerate(pad.frame_out):
        if length == size and prod(pad.frame_out[i + 1 :]) == stride:
            return pad.frame_in[i], prod(pad.frame_in[i + 1 :])
    return None


def require(read_model: ReadModel) -> Graph:
    """The graph, or CodegenError with everything that stands in the way."""
    if read_model.problems:
        raise CodegenError(IMPORT, read_model.problems)
    large = [t for t in read_model.graph.tensors.values() if t.frame_elements > MAX_FRAME_ELEMENTS]
    if large:
        found = f"{large[0].frame_elements} elements in one frame"
        hint = "Name another axis with --stream, or process smaller pieces"
        raise unsupported(IMPORT, f"tensor {printable(large[0].name)}", found, f"at most {MAX_FRAME_ELEMENTS}", hint)
    return read_model.graph
