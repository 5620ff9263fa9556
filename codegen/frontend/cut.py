"""A part of a model: `--cut-input` and `--cut-output` name tensors where it starts and ends.

Quantized tensors have two names, one on either side of their QuantizeLinear or DequantizeLinear; a cut at a real tensor
that is nothing but such a side is made at the codes.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from codegen.errors import CodegenError, Problem

STAGE = "cut"
SHOWN = 4


@dataclass(frozen=True)
class Cuts:
    """Tensors that become inputs, and tensors that become the only outputs (none: those of the model)."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


NO_CUTS = Cuts()


def cut(proto: onnx.ModelProto, cuts: Cuts) -> onnx.ModelProto:
    """The model between the cuts. Raises CodegenError (2) for tensors that are unknown, constant or not connected."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    graph = model.graph
    problems = [problem for name in (*cuts.inputs, *cuts.outputs) if (problem := _unknown(graph, name))]
    if problems:
        raise CodegenError(STAGE, problems, 2)
    starts = list(dict.fromkeys(_codes(graph, name, at_input=True) for name in cuts.inputs))
    ends = list(dict.fromkeys(_codes(graph, name, at_input=False) for name in cuts.outputs))
    values = _values(proto)
    if ends:
        outputs = [_value(graph, values, name, needs_shape=False) for name in ends]
        del graph.output[:]
        graph.output.extend(outputs)
    kept, needed = _needed(graph, set(starts))
    unused = [name for name in starts if name not in needed]
    if unused:
        found = "no output of the cut model depends on it"
        raise CodegenError(STAGE, [Problem(f"--cut-input {_shown(name)}", found) for name in unused], 2)
    inputs = [value for value in graph.input if value.name in needed and value.name not in starts]
    inputs += [_value(graph, values, name, needs_shape=True) for name in starts]
    del graph.input[:]
    graph.input.extend(inputs)
    del graph.node[:]
    graph.node.extend(kept)
    weights = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    return model


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _unknown(graph: onnx.GraphProto, name: str) -> Problem | None:
    made = [output for node in graph.node for output in node.output if output]
    known = [*(value.name for value in graph.input), *made]
    constants = {tensor.name for tensor in graph.initializer}
    if name in constants:
        return Problem(f"tensor {_shown(name)}", "it is a constant", "cuts are made at computed tensors")
    if name in known:
        return None
    where = f"tensor {_shown(name)}"
    node = next((node for node in graph.node if node.name == name), None)
    if node is not None:
        return Problem(where, "this is a node", "tensors", f"Its output is {_shown(node.output[0])}")
    near = difflib.get_close_matches(name, known, SHOWN, 0.4) or known[:SHOWN]
    return Problem(where, "no tensor has this name", f"near it: {', '.join(_shown(n) for n in near)}")


def _codes(graph: onnx.GraphProto, name: str, at_input: bool) -> str:
    """The codes of a real tensor that is one side of a QuantizeLinear or DequantizeLinear, else the tensor itself."""
    constants = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and name in node.output and node.input[0] not in constants:
            return str(node.input[0])
    readers = [node for node in graph.node if name in node.input]
    quantizers = [node for node in readers if node.op_type == "QuantizeLinear" and node.input[0] == name]
    only = len(quantizers) == len(readers) == 1
    if quantizers and (only or not at_input):
        return str(quantizers[0].output[0])
    return name


def _needed(graph: onnx.GraphProto, starts: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """Nodes between `starts` and the outputs, in the file's order, and the names of all tensors that they touch."""
    makers = {output: i for i, node in enumerate(graph.node) for output in node.output if output}
    needed: set[str] = set()
    kept: set[int] = set()
    waiting = [value.name for value in graph.output]
    while waiting:
        name = waiting.pop()
        if name in needed or not name:
            continue
        needed.add(name)
        if name in makers and name not in starts:
            kept.add(makers[name])
            waiting.extend(graph.node[makers[name]].input)
    return [node for i, node in enumerate(graph.node) if i in kept], needed


def _values(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Types and shapes as the file has them, else as onnx infers them."""
    graph = proto.graph
    known = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
    try:
        inferred = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:
        return known
    return {value.name: value for value in inferred.value_info} | known


def _value(
    graph: onnx.GraphProto, values: dict[str, onnx.ValueInfoProto], name: str, needs_shape: bool
) -> onnx.ValueInfoProto:
    value = onnx.ValueInfoProto()
    if name in values:
        value.CopyFrom(values[name])
    value.name = name
    tensor = value.type.tensor_type
    if not tensor.elem_type:
        tensor.elem_type = _element(graph, name)
    if needs_shape and not tensor.HasField("shape"):
        shape = _neighbour_shape(graph, values, name)
        if shape is None:
            hint = "Add shapes to the file (onnx.shape_inference.infer_shapes)"
            raise CodegenError(STAGE, Problem(f"--cut-input {_shown(name)}", "its shape is not known", "", hint), 2)
        tensor.shape.CopyFrom(shape)
    return value


def _neighbour_shape(
    graph: onnx.GraphProto, values: dict[str, onnx.ValueInfoProto], name: str
) -> onnx.TensorShapeProto | None:
    """The shape of the tensor on the other side of a quantizer: codes and reals have the same."""
    for node in graph.node:
        pair = (node.input[0], node.output[0]) if node.input and node.output else ("", "")
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and name in pair:
            other = values.get(pair[0] if pair[1] == name else pair[1])
            if other is not None and other.type.tensor_type.HasField("shape"):
                return other.type.tensor_type.shape
    return None


def _element(graph: onnx.GraphProto, name: str) -> int:
    """Codes have the type of their zero point (uint8 without one), everything else is real."""
    zeros = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        quantizes = node.op_type == "QuantizeLinear" and name in node.output
        if quantizes or (node.op_type == "DequantizeLinear" and node.input[0] == name):
            return int(zeros.get(_third(node), onnx.TensorProto.UINT8))
    return int(onnx.TensorProto.FLOAT)


def _third(node: onnx.NodeProto) -> str:
    names: Sequence[str] = node.input
    return names[2] if len(names) > 2 else ""
