"""`analyze` on any model: literals worked by hand, operators that `build` refuses, joins, dependencies by nudging."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checks import Workshop
from models import Act, Net
from onnx import TensorProto, helper, numpy_helper

from codegen import CodegenError, Options, analyze, build
from codegen.plan.receptive_field import dependency, reverse
from codegen.reference.whole_clip import run_codes
from codegen.report.rows import Report

Triple = tuple[Any, Any, Any]


class FloatNet:
    """A float model, node by node: what people analyze before they quantize."""

    def __init__(self, dims: list[int | str], opset: int = 17) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.dims, self.opset, self.count = dims, opset, 0

    def const(self, array: np.ndarray) -> str:
        self.count += 1
        self.constants.append(numpy_helper.from_array(array, f"c{self.count}"))
        return f"c{self.count}"

    def node(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> str:
        self.count += 1
        outs = [f"v{self.count}", *(f"v{self.count}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, inputs, outs, f"n{self.count}", domain=domain, **attrs))
        return outs[0]

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, **attrs: Any) -> str:
        return self.node("Conv", x, self.const(np.ones((outputs, inputs, kernel), np.float32)), **attrs)

    def save(self, path: Path, *outputs: str) -> Path:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.dims)
        outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", [x], outs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        path.write_bytes(model.SerializeToString())
        return path


def triples(report: Report) -> list[Triple]:
    return [(n.extent.S, n.extent.a, n.extent.b) for n in report.nodes if n.extent and not n.extent.ended]


def five_layers(quantized: bool, tmp_path: Path) -> Path:
    strides = (1, 1, 2, 1, 1)
    path = tmp_path / "five.onnx"
    if quantized:
        net = Net("int8", seed=1)
        x = net.input([1, 2, "T"])
        for s in strides:
            x = net.conv(x, 2, [3], pads=[1, 1], strides=[s])
        net.output(x)
        path.write_bytes(net.model().SerializeToString())
        return path
    floats = FloatNet([1, 2, "T"])
    y = "x"
    for s in strides:
        y = floats.conv(y, 2, 2, 3, pads=[1, 1], strides=[s])
    return floats.save(path, y)


@pytest.mark.parametrize("quantized", [False, True])
def test_chain_of_five_layers(tmp_path: Path, quantized: bool) -> None:
    report = analyze(five_layers(quantized, tmp_path))
    assert [t[0] for t in triples(report)] == [1, 1, 2, 2, 2]
    assert [t[1] for t in triples(report)] == [-1, -2, -3, -5, -7]
    assert [t[2] for t in triples(report)] == [1, 2, 3, 5, 7]
    assert [n.extent.rf for n in report.nodes if n.extent] == [3, 5, 7, 11, 15]
    assert [n.extent.lookahead for n in report.nodes if n.extent] == [1, 2, 3, 5, 7]
    assert report.outputs[0].lookahead == 7


def test_chain_of_five_layers_backwards_and_by_index(shop: Workshop, tmp_path: Path) -> None:
    g = shop.build(five_layers(True, tmp_path))
    time = g.graph.time_graph()
    output = g.graph.outputs[0].tensor
    need = reverse(time, output)
    order = [g.graph.inputs[0].tensor, *(n.output for n in g.graph.nodes)]
    assert [need[t].frames for t in order] == [15, 13, 11, 5, 3, 1]
    assert (need[order[0]].S, need[order[0]].padding) == (2, 7)
    sets = dependency(time, 64, output)
    assert [sets[j] for j in (0, 1, 8, 15)] == [set(range(8)), set(range(10)), set(range(9, 24)), set(range(23, 38))]


SINGLE: dict[str, tuple[Callable[[Net, Act], Act], Triple]] = {
    "dilated": (lambda n, x: n.conv(x, 2, [3], dilations=[2], pads=[2, 2]), (1, -2, 2)),
    "causal": (lambda n, x: n.conv(x, 2, [3], pads=[2, 0]), (1, -2, 0)),
    "pool": (lambda n, x: n.code_op("MaxPool", x, kernel_shape=[2], strides=[2]), (2, 0, 1)),
    "delay": (lambda n, x: n.code_op("Pad", x, [np.asarray([0, 0, 2, 0, 0, -2], np.int64)]), (1, -2, -2)),
    "crop": (lambda n, x: n.code_op("Slice", x, [np.asarray([v], np.int64) for v in (3, 2**31, 2)]), (1, 3, 3)),
    "pointwise": (lambda n, x: n.real_op("Relu", [x]), (1, 0, 0)),
}


@pytest.mark.parametrize("case", SINGLE)
def test_single_operators(tmp_path: Path, case: str) -> None:
    make, want = SINGLE[case]
    net = Net("int8", seed=1)
    net.output(make(net, net.input([1, 2, "T"])))
    path = tmp_path / "one.onnx"
    path.write_bytes(net.model().SerializeToString())
    report = analyze(path)
    assert triples(report)[-1] == want
    assert report.outputs[0].lookahead == max(want[2], 0)


def test_float_models_are_analyzed_and_refused_by_build(tmp_path: Path) -> None:
    net = FloatNet([1, 3, "T"])
    y = net.node("Relu", net.conv("x", 3, 4, 5, pads=[4, 0], strides=[2]))
    path = net.save(tmp_path / "float.onnx", net.node("Tanh", y))
    report = analyze(path)
    assert triples(report) == [(2, -4, 0)] * 3
    assert any("quantize_static" in note for note in report.notes)
    with pytest.raises(CodegenError) as caught:
        build(path)
    assert caught.value.exit_code == 3


def rnn(net: FloatNet, kind: str, direction: str = "forward") -> str:
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind]
    directions = 2 if direction == "bidirectional" else 1
    w = net.const(np.ones((directions, gates * 4, 3), np.float32))
    r = net.const(np.ones((directions, gates * 4, 4), np.float32))
    return net.node(kind, "x", w, r, hidden_size=4, direction=direction)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_recurrent_layers(tmp_path: Path, kind: str) -> None:
    """[S, -inf, b]: every frame so far; in both directions, or backwards, the whole sequence."""
    net = FloatNet(["T", 1, 3])
    report = analyze(net.save(tmp_path / "rnn.onnx", rnn(net, kind)), Options(stream="0"))
    assert triples(report)[-1] == (1, None, 0)
    assert report.nodes[-1].extent is not None and report.nodes[-1].extent.rf is None
    for direction in ("bidirectional", "reverse"):
        net = FloatNet(["T", 1, 3])
        report = analyze(net.save(tmp_path / "both.onnx", rnn(net, kind, direction)), Options(stream="0"))
        assert direction in report.outputs[0].extent.ended


def test_cumsum_after_a_stride(tmp_path: Path) -> None:
    net = FloatNet([1, 2, "T"])
    y = net.conv("x", 2, 2, 3, strides=[2], pads=[0, 1])
    report = analyze(net.save(tmp_path / "cumsum.onnx", net.node("CumSum", y, net.const(np.asarray(2, np.int64)))))
    assert triples(report) == [(2, 0, 2), (2, None, 2)]


def test_ends_of_streams(tmp_path: Path) -> None:
    """A mean over time ends the stream: one result per sequence. Softmax over time is refused, with its node."""
    net = FloatNet([1, 2, "T"])
    y = net.node("ReduceMean", net.conv("x", 2, 2, 3), axes=[2], keepdims=0)
    report = analyze(net.save(tmp_path / "mean.onnx", y))
    assert report.outputs[0].extent.ended and triples(report) == [(1, 0, 2)]
    net = FloatNet([1, 2, "T"])
    path = net.save(tmp_path / "softmax.onnx", net.node("Softmax", net.conv("x", 2, 2, 3), axis=2))
    assert "Softmax over the stream axis" in analyze(path).outputs[0].extent.ended
    with pytest.raises(CodegenError):
        build(path)


def test_unknown_operators_do_not_stop_the_analysis(tmp_path: Path) -> None:
    """What can be said is said; the node that is not known is named in a note."""
    net = FloatNet([1, 2, "T"])
    a = net.conv("x", 2, 2, 3)
    path = net.save(tmp_path / "odd.onnx", a, net.node("Frobnicate", a))
    report = analyze(path)
    assert triples(report) == [(1, 0, 2)]
    assert any("Frobnicate" in note for note in report.notes)


def test_join_remarks(tmp_path: Path) -> None:
    """Unequal lookahead is a warning, another centre a note, unequal stride an error that names both."""

    def joined(left: dict[str, Any], right: dict[str, Any]) -> Path:
        net = FloatNet([1, 2, "T"])
        a, b = net.conv("x", 2, 2, 3, **left), net.conv("x", 2, 2, **right)
        return net.save(tmp_path / "join.onnx", net.node("Add", a, b))

    warned = analyze(joined({"pads": [2, 0]}, {"kernel": 3, "pads": [1, 1]}))
    assert any(note.startswith("warning: ") and "lookahead" in note for note in warned.notes)
    noted = analyze(joined({"pads": [2, 0]}, {"kernel": 5, "pads": [4, 0]}))
    assert any("centres" in note and not note.startswith("warning: ") for note in noted.notes)
    quiet = analyze(joined({"pads": [1, 1]}, {"kernel": 5, "pads": [2, 2]}))
    assert not any("operands have different" in note for note in quiet.notes)


def test_join_of_unequal_strides_is_an_error_that_names_both(tmp_path: Path) -> None:
    net = Net("int8", seed=1)
    x = net.input([1, 2, "T"])
    slow = net.conv(x, 2, [2], strides=[2])
    fast = Act(x.name, x.real[:, :, : slow.real.shape[2]], x.scale, x.zero)
    net.output(net.add(slow, fast))
    path = tmp_path / "rates.onnx"
    path.write_bytes(net.model().SerializeToString())
    with pytest.raises(CodegenError) as caught:
        build(path)
    text = str(caught.value)
    assert caught.value.exit_code == 3 and text.count("\n") < 3
    assert "stride 2" in text and "stride 1" in text and x.name in text


def probe_slice(net: Net, x: Act) -> Act:
    bounds = [np.asarray([v], np.int64) for v in (1, -2, 2)]
    return net.code_op("Slice", x, bounds)


PROBES: dict[str, Callable[[Net, Act], Act]] = {
    "conv": lambda n, x: n.conv(x, 3, [3], pads=[1, 1]),
    "conv_stride": lambda n, x: n.conv(x, 3, [3], strides=[2], pads=[1, 0]),
    "conv_dilated": lambda n, x: n.conv(x, 3, [3], dilations=[3], pads=[6, 2], strides=[2]),
    "depthwise": lambda n, x: n.conv(x, 4, [2], group=2),
    "relu": lambda n, x: n.real_op("Relu", [x], same=True),
    "clip": lambda n, x: n.real_op("Clip", [x], consts=[np.float32(-3), np.float32(3)]),
    "max_pool": lambda n, x: n.code_op("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 1]),
    "max_pool_ceil": lambda n, x: n.code_op("MaxPool", x, kernel_shape=[2], strides=[2], ceil_mode=1),
    "add": lambda n, x: n.add(x, n.conv(x, 2, [3], pads=[2, 0])),
    "pad": lambda n, x: n.code_op("Pad", x, [np.asarray([0, 0, 3, 0, 0, 2], np.int64)]),
    "slice": probe_slice,
    "softmax": lambda n, x: n.real_op("Softmax", [x], axis=1, scale=(1 / 256, -128)),
    "matmul": lambda n, x: n.matmul(n.code_op("Transpose", x, perm=[0, 2, 1]), 3),
    "requantize": lambda n, x: n.real_op("Identity", [x]),
    "chain": lambda n, x: n.conv(
        n.code_op("MaxPool", n.conv(x, 3, [4], strides=[2]), kernel_shape=[2]), 2, [3], strides=[2]
    ),
}


@pytest.mark.parametrize("case", PROBES)
def test_dependency_probe(shop: Workshop, case: str) -> None:
    """An output frame moves when an input frame is changed (some of a few random changes) exactly if it reads it."""
    net = Net("int8", seed=len(case))
    net.output(PROBES[case](net, net.input([1, 2, "T"])))
    graph = shop.build(net.model()).graph
    source, output, length = graph.inputs[0].tensor, graph.outputs[0].tensor, 21
    rng = np.random.default_rng(11)
    moved: list[set[int]] = [set() for _ in dependency(graph.time_graph(), length, output)]
    for _ in range(8):
        x = rng.integers(-128, 128, (length, 2)).astype(np.int8)
        before = run_codes(graph, {source: x})[output]
        for i in range(length):
            for change in (np.asarray([127, 127]), np.asarray([-128, -128]), -1 - x[i], rng.integers(-128, 128, 2)):
                nudged = x.copy()
                nudged[i] = change
                after = run_codes(graph, {source: nudged})[output]
                for j in np.flatnonzero((before != after).reshape(len(before), -1).any(axis=1)):
                    moved[j].add(i)
    assert moved == dependency(graph.time_graph(), length, output)
