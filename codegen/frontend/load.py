"""A `.onnx` file -> `Model`: checked, sorted, its constants in memory. The only module that imports onnx to read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.inliner
from google.protobuf.message import DecodeError, Message
from onnx import external_data_helper, numpy_helper

from codegen.errors import CodegenError, Problem, input_error, printable, unsupported
from codegen.frontend.cut import NO_CUTS, Cuts, cut

STAGE = "load"
OPSETS = range(10, 26)
NEWEST_IR = int(onnx.IR_VERSION)  # what the installed onnx package reads
MAX_TENSOR_BYTES = 1 << 30
DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.BOOL: "bool",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.UINT16: "uint16",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT16: "float16",
}

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class OnnxNode:
    """One node as the file has it; `inputs` may hold '' for an absent optional input."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    index: int
    path: str = ""

    @property
    def title(self) -> str:
        """`name (Op, node 7)`, with the user's module path and source line where the file's metadata has them."""
        name = self.name or (self.outputs[0] if self.outputs else "?")
        text = f"{printable(name)} ({self.op_type}, node {self.index})"
        return f"{text} at {printable(self.path)}" if self.path else text


@dataclass(frozen=True)
class Value:
    """A graph input or output as declared: dimensions are numbers or symbols."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class Model:
    """What the file says, in plain Python."""

    name: str
    opset: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[OnnxNode, ...]
    constants: dict[str, Array]
    digest: str
    notes: tuple[str, ...] = field(default=())


def load(path: Path, cuts: Cuts = NO_CUTS) -> Model:
    """Read and check the file. Raises CodegenError (2: the file is unusable, 3: outside what the tool supports)."""
    proto, digest = _parse(path)
    if proto.functions:
        proto = _inlined(proto, path)
    if cuts:
        proto = cut(proto, cuts)
    opset = _opset(proto, path)
    graph = proto.graph
    constants = _constants(graph, path)
    nodes = [_node(node, index) for index, node in enumerate(graph.node)]
    inputs = tuple(_value(v) for v in graph.input if v.name not in constants)
    nodes = _sorted(_check_definitions(nodes, {v.name for v in inputs}, constants, path), set(constants), inputs)
    outputs = tuple(_value(v) for v in graph.output)
    for what, values in (("input", inputs), ("output", outputs)):
        names = [value.name for value in values]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            where = f"{what} {printable(twice)}"
            raise input_error(STAGE, where, "declared twice", "one declaration", "Remove one of them")
    if not outputs:
        raise input_error(STAGE, path.name, "the graph has no output", hint="Declare the tensors to compute as outputs")
    return Model(path.stem, opset, inputs, outputs, tuple(nodes), constants, digest)


def save_cut(path: Path, cuts: Cuts, target: Path) -> None:
    """The part of a model as a file of its own, for tools that take whole files. Raises CodegenError as `load` does."""
    load(path, cuts)
    proto = onnx.load(path)
    onnx.save(cut(_inlined(proto, path) if proto.functions else proto, cuts), target)


def _parse(path: Path) -> tuple[onnx.ModelProto, str]:
    import hashlib

    where = str(path)
    if not path.exists():
        raise input_error(STAGE, where, "no such file", hint="Check the path")
    if path.is_dir():
        raise input_error(STAGE, where, "this is a directory", "expected an .onnx file", "Name the file inside it")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise input_error(STAGE, where, f"the file cannot be read ({error.strerror})") from error
    if not data:
        raise input_error(STAGE, where, "the file is empty", hint="Export or copy the model again")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        hint = "It is truncated, or another kind of file: export or copy the model again"
        raise input_error(STAGE, where, "not a readable ONNX protobuf", hint=hint) from error
    bad = _not_utf8(proto)
    if bad is not None:
        found = f"a name or text in it is not UTF-8: {bad[:60]!r}"
        raise input_error(STAGE, where, found, hint="It is damaged, or another kind of file: export the model again")
    if proto.ir_version <= 0 or not proto.HasField("graph"):
        raise input_error(STAGE, where, "not an ONNX model (no ir_version or no graph)", hint="Export it as ONNX")
    if proto.ir_version > NEWEST_IR:
        raise input_error(
            STAGE,
            where,
            f"ONNX IR version {proto.ir_version}",
            f"supported are versions up to {NEWEST_IR}",
            "Export for an older IR version (set model.ir_version, or update this tool)",
        )
    return proto, hashlib.sha256(data).hexdigest()


def _not_utf8(message: Message) -> bytes | None:
    """A string field that is no text (protobuf hands it out as bytes), or None."""
    for descriptor, value in message.ListFields():
        values = [value] if isinstance(value, str | bytes | Message) else value
        if descriptor.type == descriptor.TYPE_STRING:
            bad = next((v for v in values if isinstance(v, bytes)), None)
        elif descriptor.type == descriptor.TYPE_MESSAGE:
            bad = next((found for v in values if (found := _not_utf8(v)) is not None), None)
        else:
            continue
        if bad is not None:
            return bad
    return None


def _inlined(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:
        found = f"its functions cannot be inlined ({printable(str(error)[:200])})"
        raise input_error(STAGE, path.name, found, hint="Export the model again") from error


def _opset(proto: onnx.ModelProto, path: Path) -> int:
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    opset = versions.get("", versions.get("ai.onnx"))
    if opset is None:
        if any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
            raise input_error(STAGE, path.name, "no opset_import for the standard operators", hint="Export it again")
        opset = OPSETS[-1]
    if opset not in OPSETS:
        allowed = f"supported are opsets {OPSETS[0]} to {OPSETS[-1]}"
        raise unsupported(STAGE, path.name, f"opset {opset}", allowed, "Convert with onnx.version_converter")
    return int(opset)


def _constants(graph: onnx.GraphProto, path: Path) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    problems = []
    for tensor in graph.initializer:
        if tensor.name in constants:
            problems.append(Problem(f"initializer {printable(tensor.name)}", "defined twice", hint="Export again"))
            continue
        try:
            constants[tensor.name] = read_tensor(tensor, path.parent)
        except CodegenError as error:
            problems.extend(error.problems)
    if graph.sparse_initializer:
        problems.append(Problem(path.name, "sparse initializers", "dense ones are supported", "Export dense weights"))
    if problems:
        raise CodegenError(STAGE, problems, 2)
    return constants


def read_tensor(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The tensor's values, after checking its size against its dimensions and its file against the model's folder."""
    where = f"initializer {printable(tensor.name)}"
    count = 1
    for dim in tensor.dims:
        if dim < 0:
            raise input_error(STAGE, where, f"dimension {dim}", "dimensions are >= 0")
        count *= dim
    if count * 8 > MAX_TENSOR_BYTES * 8 or count > MAX_TENSOR_BYTES:
        raise input_error(STAGE, where, f"{count} elements", f"at most {MAX_TENSOR_BYTES} are read")
    if external_data_helper.uses_external_data(tensor):
        _check_external(tensor, folder, where)
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:
            raise input_error(STAGE, where, f"its external data cannot be read ({error})") from error
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        found = f"its data does not fit its type and dimensions {list(tensor.dims)}"
        raise input_error(STAGE, where, found, hint="The file is damaged: export it again") from error


def _check_external(tensor: onnx.TensorProto, folder: Path, where: str) -> None:
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    root = os.path.realpath(folder)
    target = os.path.realpath(os.path.join(root, location.replace("\0", "")))
    if not location or "\0" in location or os.path.isabs(location) or os.path.commonpath([root, target]) != root:
        found = f"its external data lies outside the model's folder ({printable(location)})"
        raise input_error(STAGE, where, found, "only files beside the model are read", "Save the data beside the model")
    if not os.path.isfile(target):
        found = f"its external data file is missing ({printable(location)})"
        raise input_error(
            STAGE, where, found, "a file beside the model", "Copy it there, or export the model in one file"
        )


def _node(node: onnx.NodeProto, index: int) -> OnnxNode:
    attrs: dict[str, Any] = {}
    for attr in node.attribute:
        if attr.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            attrs[attr.name] = "subgraph"
        elif attr.type == onnx.AttributeProto.TENSOR:
            attrs[attr.name] = attr.t
        else:
            value = onnx.helper.get_attribute_value(attr)
            attrs[attr.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    domain = "" if node.domain == "ai.onnx" else node.domain
    return OnnxNode(
        node.op_type, domain, node.name, tuple(node.input), tuple(node.output), attrs, index, module_path(node)
    )


def module_path(node: onnx.NodeProto) -> str:
    """`encoder.conv1 (model.py:42)`: the user's module and source line where the node's metadata has them, or ''."""
    metadata = {entry.key: entry.value for entry in getattr(node, "metadata_props", [])}
    scopes = metadata.get("pkg.torch.onnx.name_scopes", "")
    parts = [part.strip(" '\"[]") for part in scopes.split(",")]
    module = next((part for part in parts[-2::-1] if part), "")
    line = _source_line(metadata.get("pkg.torch.onnx.stack_trace", ""))
    return f"{module} ({line})" if module and line else module or line


def _source_line(trace: str) -> str:
    """`model.py:42` of the innermost frame in the user's own files (the folder says nothing about the model)."""
    frames = re.findall(r'^ *File "([^"\n]+)", line (\d+)', trace, re.MULTILINE)
    own = [(file, line) for file, line in frames if not re.search(r"[/\\](site|dist)-packages[/\\]", file)]
    if not own:
        return ""
    file, line = own[-1]
    name = re.split(r"[/\\]", file)[-1]
    return f"{name}:{line}"


def _value(value: onnx.ValueInfoProto) -> Value:
    tensor = value.type.tensor_type
    dtype = DTYPES.get(tensor.elem_type, f"type {tensor.elem_type}")
    if not tensor.HasField("shape"):
        return Value(value.name, dtype, None)
    dims: list[int | str] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(int(dim.dim_value))
        else:
            dims.append(dim.dim_param or "?")
    return Value(value.name, dtype, tuple(dims))


def _check_definitions(
    nodes: list[OnnxNode], inputs: set[str], constants: dict[str, Array], path: Path
) -> list[OnnxNode]:
    defined = set(inputs) | set(constants)
    problems = []
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in defined:
                problems.append(Problem(node.title, f"tensor {printable(name)} is defined twice", hint="Export again"))
            defined.add(name)
    for node in nodes:
        for name in filter(None, node.inputs):
            if name not in defined:
                problems.append(
                    Problem(node.title, f"its input {printable(name)} is defined nowhere", "", "Export the model again")
                )
    if problems:
        raise CodegenError(STAGE, problems, 2)
    return nodes


def _sorted(nodes: list[OnnxNode], known: set[str], inputs: tuple[Value, ...]) -> list[OnnxNode]:
    """Nodes in an executable order (files need not be sorted); a cycle is an error."""
    ready = known | {value.name for value in inputs} | {""}
    out: list[OnnxNode] = []
    waiting = list(nodes)
    while waiting:
        later = []
        for node in waiting:
            if all(name in ready for name in node.inputs):
                out.append(node)
                ready.update(node.outputs)
            else:
                later.append(node)
        if len(later) == len(waiting):
            titles = ", ".join(node.title for node in later[:4])
            raise input_error(STAGE, titles, "the nodes depend on each other in a cycle", hint="Export the model again")
        waiting = later
    return out
