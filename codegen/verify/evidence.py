from __future__ import annotations

import platform
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from codegen.codes import to_stored
from codegen.errors import printable
from codegen.ir.graph import Graph, Node, Port
from codegen.ops.base import KernelOp
from codegen.reference import whole_clip

Array = npt.NDArray[Any]
TIES = "rounds after adding the zero point: other codes on ties"
RUNTIME_FLOAT = "computed in float by onnxruntime"
DECLARED: Mapping[str, tuple[float, str]] = {
    "Add": (1, TIES),
    "Sub": (1, RUNTIME_FLOAT),
    "Mul": (1, TIES),
    "AveragePool": (1, "sums floats; here an exact sum and one rounding"),
    "GlobalAveragePool": (1, "where it is not fused it sums floats"),
    "ReduceMean": (1, "sums floats; here as GlobalAveragePool"),
    "ReduceSum": (1, "sums floats"),
    "Concat": (1, "rescales in float"),
    "Softmax": (1, "integer softmax, within one code of the real result"),
    "LogSoftmax": (1, "integer log softmax, within one code of the real result"),
    "Sigmoid": (1, "vector functions of its own"),
    "Tanh": (1, "vector functions of its own"),
    "LeakyRelu": (1, "vector functions of its own"),
}
"""Operators whose codes may differ from onnxruntime's: by how much, and why (docs/numbers.md)."""


FUSES = frozenset("Conv Gemm MatMul Add Mul AveragePool GlobalAveragePool Concat Sigmoid LeakyRelu Softmax".split())
"""Operators with an integer kernel that a DequantizeLinear -> operator -> QuantizeLinear group should become."""


BOUNDS = frozenset("QuantizeLinear Relu Clip DequantizeLinear".split())
MOVES = frozenset("Transpose Reshape Squeeze Unsqueeze Flatten Identity".split())


@dataclass
class OperatorEvidence:
    """All nodes of one operator: values compared, equal, the largest difference in codes."""

    op: str
    nodes: int = 0
    values: int = 0
    different: int = 0
    largest: float = 0.0
    kernels: set[str] = field(default_factory=set)
    unfused: int = 0
    worst: str = ""

    @property
    def deviation(self) -> str:
        """'' where equal, what is declared for the operator, or that nothing is."""
        if not self.different:
            return ""
        limit, reason = DECLARED.get(self.op, (0.0, ""))
        if self.unfused and self.largest <= 1:
            return f"declared: {RUNTIME_FLOAT}, not fused"
        return f"declared: {reason}" if self.largest <= limit else f"NOT DECLARED, most in {self.worst}"

    @property
    def declared(self) -> bool:
        return not self.deviation.startswith("NOT")

    def to_json(self) -> dict[str, Any]:
        own = vars(self) | {"kernels": sorted(self.kernels), "equal": self.values - self.different}
        return own | {"deviation": self.deviation}


def session_options(ort: Any) -> Any:
    """One thread, int8 activations allowed, and exact sums on x64 processors without VNNI (they saturate 16 bits)."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if not _has_vnni():
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return options


def _has_vnni() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    try:
        return "vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


class TappedRuntime:
    """onnxruntime with every quantized tensor of the int8 graph as an output."""

    def __init__(self, ort: Any, path: Path, graph: Graph) -> None:
        model = onnx.load(path)
        make_fusible(model)
        self.names = _add_outputs(model, graph)
        with tempfile.TemporaryDirectory() as temporary:
            options = session_options(ort)
            options.optimized_model_filepath = str(Path(temporary) / "optimized.onnx")
            data = model.SerializeToString()
            self.session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
        self.producers = {name: node for node in optimized.graph.node for name in node.output}

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(self.names, self.session.run(self.names, dict(feed)), strict=True))

    def kernel(self, name: str, op_type: str) -> str:
        """The operator that really computes a tensor: looked up through layout changes, and Relu and Clip of codes."""
        through = MOVES | BOUNDS if op_type in FUSES else MOVES
        node = self.producers.get(name)
        while node is not None and node.op_type in through and node.input[0] in self.producers:
            node = self.producers[node.input[0]]
        return "" if node is None else str(node.op_type)


def make_fusible(model: onnx.ModelProto) -> None:
    """Rewrite a model so that its operators stand directly between DequantizeLinear and QuantizeLinear.

    The function stays: layout changes move to the codes, and rounding commutes with Relu and Clip (both are monotone).
    """
    graph = model.graph
    made = {name: node for node in graph.node for name in node.output}
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(value.name for value in graph.output)
    quantizers = {node.input[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        source = made.get(node.input[0]) if node.input else None
        if source is not None and node.op_type in MOVES and source.op_type == "DequantizeLinear":
            replacement = _moved(node, source)
            made[node.output[0]] = replacement[-1]
        elif source is not None and _is_bound(node, source, readers, quantizers):
            replacement = _rounded_first(node, quantizers[node.output[0]])
        else:
            replacement = [node]
        nodes += replacement
    del graph.node[:]
    graph.node.extend(nodes)


def _moved(node: onnx.NodeProto, dequantize: onnx.NodeProto) -> list[onnx.NodeProto]:
    """DequantizeLinear -> move as move -> DequantizeLinear."""
    codes = f"{node.output[0]}/codes"
    move, real = onnx.NodeProto(), onnx.NodeProto()
    move.CopyFrom(node)
    move.input[0], move.output[0] = dequantize.input[0], codes
    real.CopyFrom(dequantize)
    real.name = f"{dequantize.name}/{node.output[0]}"
    real.input[0], real.output[0] = codes, node.output[0]
    return [move, real]


def _is_bound(
    node: onnx.NodeProto, source: onnx.NodeProto, readers: Counter[str], quantizers: Mapping[str, onnx.NodeProto]
) -> bool:
    """Whether the node is a Relu or Clip between an operator that should fuse and its QuantizeLinear."""
    alone = readers[node.input[0]] == 1 and readers[node.output[0]] == 1 and node.output[0] in quantizers
    return alone and node.op_type in ("Relu", "Clip") and source.op_type in FUSES


def _rounded_first(node: onnx.NodeProto, quantize: onnx.NodeProto) -> list[onnx.NodeProto]:
    """QuantizeLinear -> DequantizeLinear, with the parameters that follow the bound, in front of it."""
    codes, real = f"{node.input[0]}/codes", f"{node.input[0]}/rounded"
    pair = []
    for kind, x, y in (("QuantizeLinear", node.input[0], codes), ("DequantizeLinear", codes, real)):
        pair.append(helper.make_node(kind, [x, *quantize.input[1:]], [y], f"{node.name}/{kind}"))
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    bound.input[0] = real
    return [*pair, bound]


def _add_outputs(model: onnx.ModelProto, graph: Graph) -> list[str]:
    """Make the code tensors that the reference has outputs of the model; returns their names."""
    inner = {name for node in model.graph.node for name in node.output}
    known = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
    names = []
    for name, view in graph.taps.items():
        q = graph.tensors[view.tensor].qparams
        if name not in inner or q is None or known.get(name) == TensorProto.FLOAT:
            continue
        if name not in known:
            kind = helper.np_dtype_to_tensor_dtype(q.border.dtype)
            model.graph.output.append(helper.make_tensor_value_info(name, kind, None))
        names.append(name)
    return names


def compare_operators(
    graph: Graph, runtime: TappedRuntime, feed: Mapping[str, Array], rows: dict[str, OperatorEvidence]
) -> list[str]:
    """Add one run to `rows` (by operator); returns what could not be compared or did not fuse."""
    theirs = runtime.run(feed)
    codes = {p.tensor: whole_clip.quantize_input(np.asarray(feed[p.name]), p) for p in graph.inputs}
    names = {graph.taps[name].tensor: name for name in reversed(runtime.names)}
    notes = []
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        shaped = [codes[x].reshape(codes[x].shape[0], *graph.tensors[x].frame_shape) for x in node.inputs]
        ours = node.op.reference(shaped)
        codes[node.output] = ours.reshape(ours.shape[0], -1)
        name = names.get(node.output)
        if name is None:
            continue
        found = _frames(theirs[name], graph, name)
        if found is None or found.shape != codes[node.output].shape:
            notes.append(f"{node.where}: {printable(name)} was not compared: it has another shape here")
            continue
        kernel = runtime.kernel(name, node.op_type)
        unfused = node.op_type in FUSES and kernel == node.op_type
        if unfused:
            notes.append(f"{node.where}: onnxruntime did not fuse it: it ran in float")
        _count(rows, node, kernel, unfused, codes[node.output], found)
        codes[node.output] = found
    return notes


def _frames(x: Array, graph: Graph, name: str) -> Array | None:
    """onnxruntime's codes as int8 frames, or None where the tensor here has another shape."""
    view = graph.taps[name]
    try:
        frames = whole_clip.to_frames(x, view)
    except ValueError:
        return None
    return to_stored(frames)


def _count(
    rows: dict[str, OperatorEvidence], node: Node, kernel: str, unfused: bool, ours: Array, theirs: Array
) -> None:
    op = (node.op_type or type(node.op).__name__).removeprefix("QLinear")
    row = rows.setdefault(op, OperatorEvidence(op))
    delta = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    row.nodes += 1
    row.values += delta.size
    row.different += int((delta > 0).sum())
    row.kernels.add(kernel)
    row.unfused += unfused
    if delta.max(initial=0) > row.largest:
        row.largest, row.worst = float(delta.max()), node.where


SUM_ERROR = 1e-5
"""Of the largest value: what float32 sums of another order may differ by."""


def is_sums(port: Port) -> bool:
    """Whether an output is int32 accumulators, which have no step of the network: they are compared as real values."""
    return port.decoding is not None and port.decoding.kind == "accumulator"


def output_difference(port: Port, ours: Array, theirs: Array) -> Array:
    """|difference| in steps of the output: codes, or code steps of a float output. Of accumulators: in real values."""
    delta = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    if port.decoding is None:
        return delta / (port.qparams.scale if port.qparams and ours.dtype == np.float32 else 1.0)
    if is_sums(port):
        return delta
    values = np.unique(port.decoding.values.astype(np.float64))
    nearest = np.abs(values[_nearest(values, theirs)] - theirs.astype(np.float64))
    step = float(np.diff(values).max(initial=0.0)) or 1.0
    return np.where(delta <= nearest, 0.0, np.maximum(delta / step, 1.0))


def _nearest(values: Array, x: Array) -> Array:
    """Index of the nearest of ascending `values`."""
    at = np.clip(np.searchsorted(values, x), 1, max(1, len(values) - 1))
    left, right = values[at - 1], values[np.minimum(at, len(values) - 1)]
    return np.asarray(np.where(np.abs(x - left) <= np.abs(right - x), at - 1, np.minimum(at, len(values) - 1)))
