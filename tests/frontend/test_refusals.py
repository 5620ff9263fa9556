"""What cannot stream is refused by name: node, axis, reason, remedy (docs/streaming.md); all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from checks import Workshop
from models import Act, Net
from onnx import TensorProto, helper

from codegen import analyze, build
from codegen.errors import EXIT_UNSUPPORTED, CodegenError

Refusal = tuple[Callable[[], onnx.ModelProto], tuple[str, ...]]


def start(**options: Any) -> tuple[Net, Act]:
    net = Net(seed=3, **options)
    return net, net.input([1, 4, "T"])


def raw(net: Net, op: str, x: Act, *constants: np.ndarray, **attrs: Any) -> None:
    """DequantizeLinear -> operator -> QuantizeLinear, without running it: the parameters mean nothing here."""
    out = net.node(op, [net.dequantize(x), *(net.const(c) for c in constants)], "odd", **attrs)
    net.output(net.quantize(out, x.real))


def same_with_stride(mode: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        net, x = start()
        w = net.weights([3, 4, 3])
        out = net.node("Conv", [net.dequantize(x), net.dequantized(w)], "odd", auto_pad=mode, strides=[2])
        net.output(net.quantize(out, x.real))
        return net.model()

    return make


def one(op: str, *constants: np.ndarray, opset: int = 21, **attrs: Any) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        net, x = start(opset=opset)
        raw(net, op, x, *constants, **attrs)
        return net.model()

    return make


def recurrent(op: str, direction: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        net = Net(seed=3)
        x = net.input(["T", 1, 4])
        both = 2 if direction == "bidirectional" else 1
        gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
        w = [net.const(np.zeros((both, gates * 5, n), np.float32)) for n in (4, 5)]
        out = net.node(op, [net.dequantize(x), *w], "odd", hidden_size=5, direction=direction)
        net.output(net.quantize(out, x.real[:, np.newaxis]))
        return net.model()

    return make


def concat_time() -> onnx.ModelProto:
    net, x = start()
    out = net.node("Concat", [net.dequantize(x), net.dequantize(net.conv(x, 4, [1]))], "odd", axis=2)
    net.output(net.quantize(out, x.real))
    return net.model()


def slice_step() -> onnx.ModelProto:
    net, x = start()
    out = net.node("Slice", [x.name, *(net.const(np.asarray([v], np.int64)) for v in (0, 2**31 - 1, 2, 2))], "odd")
    net.output(Act(out, x.real, x.scale, x.zero))
    return net.model()


def position_term() -> onnx.ModelProto:
    """A constant that differs from frame to frame: a positional encoding of a fixed window, made endless."""
    net, x = start()
    raw(net, "Add", x, np.arange(40, dtype=np.float32).reshape(1, 1, 40))
    return net.model()


def control_flow(op: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        net, x = start()
        inside = helper.make_node("Identity", [x.name], ["inside"])
        body = helper.make_graph(
            [inside], "body", [], [helper.make_tensor_value_info("inside", TensorProto.INT8, None)]
        )
        if op == "If":
            node = helper.make_node(
                "If", [net.const(np.asarray(True))], ["odd"], "n_odd", then_branch=body, else_branch=body
            )
        else:
            step = [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            ]
            keep = helper.make_node("Identity", ["c"], ["go_on"])
            outs = [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), body.output[0]]
            loop = helper.make_graph([keep, inside], "body", step, outs)
            node = helper.make_node("Loop", [net.const(np.asarray(3)), ""], ["odd"], "n_odd", body=loop)
        net.nodes.append(node)
        net.output(Act("odd", x.real, x.scale, x.zero))
        return net.model()

    return make


def dynamic() -> onnx.ModelProto:
    net, x = start()
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", [net.dequantize(x)], ["q", "s", "z"], "n_odd"))
    net.nodes.append(helper.make_node("DequantizeLinear", ["q", "s", "z"], ["back"], "n_back"))
    net.output(net.quantize("back", x.real))
    return net.model()


def unequal_strides() -> onnx.ModelProto:
    net, x = start()
    slow = net.conv(x, 4, [2], strides=[2])
    slower = net.conv(slow, 4, [3], strides=[3], pads=[1, 1])
    out = net.node("Add", [net.dequantize(slow), net.dequantize(slower)], "odd")
    net.output(net.quantize(out, x.real))
    return net.model()


def sort_time() -> onnx.ModelProto:
    net, x = start()
    net.nodes.append(
        helper.make_node("TopK", [net.dequantize(x), net.const(np.asarray([2]))], ["odd", "index"], "n_odd", axis=2)
    )
    net.output(net.quantize("odd", x.real))
    return net.model()


ONES = (np.ones(4, np.float32), np.zeros(4, np.float32))
REFUSALS: dict[str, Refusal] = {
    "same_upper_stride": (
        same_with_stride("SAME_UPPER"),
        ("n_odd", "auto_pad=SAME_UPPER", "stream axis", "T", "explicit pads"),
    ),
    "same_lower_stride": (
        same_with_stride("SAME_LOWER"),
        ("n_odd", "auto_pad=SAME_LOWER", "stream axis", "T", "explicit pads"),
    ),
    "softmax_time": (one("Softmax", axis=2), ("n_odd", "Softmax", "stream axis")),
    "log_softmax_time": (one("LogSoftmax", axis=-1), ("n_odd", "LogSoftmax", "stream axis")),
    "instance_norm": (one("InstanceNormalization", *ONES), ("n_odd", "InstanceNormalization", "stream axis")),
    "group_norm": (one("GroupNormalization", *ONES, num_groups=2), ("n_odd", "GroupNormalization", "stream axis")),
    "layer_norm_time": (
        one("LayerNormalization", np.ones(1, np.float32), axis=1),
        ("n_odd", "LayerNormalization", "stream axis"),
    ),
    "bidirectional_gru": (recurrent("GRU", "bidirectional"), ("n_odd", "bidirectional", "stream axis")),
    "reverse_lstm": (recurrent("LSTM", "reverse"), ("n_odd", "reverse", "stream axis")),
    "bidirectional_rnn": (recurrent("RNN", "bidirectional"), ("n_odd", "bidirectional", "stream axis")),
    "reverse_cumsum": (one("CumSum", np.asarray(2), reverse=1), ("n_odd", "reverse", "CumSum", "stream axis")),
    "concat_time": (concat_time, ("n_odd", "joins along the stream axis", "Pad")),
    "slice_step": (slice_step, ("n_odd", "step 2 on the stream axis", "strided")),
    "sort_time": (sort_time, ("n_odd", "TopK")),
    "position_term": (position_term, ("n_odd", "constant", "stream axis")),
    "if": (control_flow("If"), ("n_odd", "If")),
    "loop": (control_flow("Loop"), ("n_odd", "Loop")),
    "dynamic": (dynamic, ("n_odd", "dynamic quantization", "quantize_static")),
    "unequal_strides": (unequal_strides, ("n_odd", "stride 2", "stride 6", "equal")),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(shop: Workshop, name: str) -> None:
    make, texts = REFUSALS[name]
    with pytest.raises(CodegenError) as caught:
        build(shop.save(make()))
    assert caught.value.exit_code == EXIT_UNSUPPORTED
    for text in texts:
        assert text in str(caught.value)
    assert all(problem.hint or problem.allowed for problem in caught.value.problems), "a refusal without a remedy"


@pytest.mark.parametrize("name", [n for n in REFUSALS if n not in ("if", "loop", "sort_time")])
def test_analyze_says_why(shop: Workshop, name: str) -> None:
    """`analyze` does not fail where `build` does; its notes give the reason."""
    make, _ = REFUSALS[name]
    assert any(
        "`build` refuses it" in note or "strides must be equal" in note for note in analyze(shop.save(make())).notes
    )


def test_unequal_join_names_both_paths(shop: Workshop) -> None:
    model = unequal_strides()
    codes = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    with pytest.raises(CodegenError) as caught:
        build(shop.save(model))
    assert f"{codes[0]} (stride 2)" in str(caught.value) and f"{codes[1]} (stride 6)" in str(caught.value)


def test_all_problems_in_one_go(shop: Workshop) -> None:
    """Faults that different stages find (attributes, operators, whole-sequence operators, joins) come together."""
    net, x = start()
    w = net.weights([4, 4, 3])
    padded = net.node("Conv", [net.dequantize(x), net.dequantized(w)], "same", auto_pad="SAME_UPPER", strides=[2])
    net.output(net.quantize(padded, x.real))
    net.nodes.append(
        helper.make_node("TopK", [net.dequantize(x), net.const(np.asarray([2]))], ["best", "at"], "n_best", axis=2)
    )
    net.output(net.quantize("best", x.real))
    net.output(net.quantize(net.node("Softmax", [net.dequantize(x)], "soft", axis=2), x.real))
    slow = net.conv(x, 4, [2], strides=[2])
    net.output(
        net.quantize(
            net.node("Add", [net.dequantize(slow), net.dequantize(net.conv(slow, 4, [3], strides=[3]))], "sum"), x.real
        )
    )
    with pytest.raises(CodegenError) as caught:
        build(shop.save(net.model()))
    text = str(caught.value)
    for part in (
        "n_same",
        "n_best",
        "n_soft",
        "n_sum",
        "auto_pad=SAME_UPPER",
        "TopK",
        "Softmax over the stream axis",
        "stride 6",
    ):
        assert part in text, f"{part} is missing in\n{text}"


def int64s(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


EMPTY: dict[str, tuple[str, tuple[np.ndarray, ...], dict[str, Any]]] = {
    "conv": ("Conv", (zeros(0, 4, 3),), {}),
    "conv_bias": ("Conv", (zeros(0, 4, 3), zeros(0)), {}),
    "conv_kernel": ("Conv", (zeros(3, 4, 0),), {}),
    "grouped": ("Conv", (zeros(0, 2, 3),), {"group": 2}),
    "transposed": ("ConvTranspose", (zeros(4, 0, 3),), {}),
    "transposed_kernel": ("ConvTranspose", (zeros(4, 2, 0),), {}),
    "max_pool": ("MaxPool", (), {"kernel_shape": [0]}),
    "average_pool": ("AveragePool", (), {"kernel_shape": [0]}),
    "matmul": ("MatMul", (zeros(5, 0),), {}),
    "slice": ("Slice", (int64s(2), int64s(2), int64s(1)), {}),
    "gather": ("Gather", (np.zeros((0,), np.int64),), {"axis": 1}),
    "split": ("Split", (int64s(0, 4),), {"axis": 1}),
    "pad": ("Pad", (int64s(0, -4, 0, 0, 0, 0),), {}),
    "expand": ("Expand", (int64s(0, 4, 5),), {}),
    "reshape": ("Reshape", (int64s(1, 0, 0, 0),), {"allowzero": 1}),
    "add": ("Add", (zeros(1, 0, 5),), {}),
}


@pytest.mark.parametrize("float_weights", [True, False])
@pytest.mark.parametrize("name", EMPTY)
def test_a_size_of_zero_is_refused(shop: Workshop, name: str, float_weights: bool) -> None:
    op, constants, attrs = EMPTY[name]
    net = Net(seed=3)
    x = net.input([1, 4, 5])
    inputs = [net.dequantize(x)]
    for array in constants:
        quantized = array.dtype == np.float32 and not float_weights
        codes = [net.const(array.astype(np.int8)), net.const(np.float32(0.5)), net.const(np.int8(0))]
        inputs.append(net.node("DequantizeLinear", codes, "w") if quantized else net.const(array))
    net.output(net.quantize(net.node(op, inputs, "odd", **attrs), x.real))
    with pytest.raises(CodegenError) as caught:
        build(shop.save(net.model()))
    assert caught.value.exit_code == EXIT_UNSUPPORTED and "odd" in str(caught.value)


DECLARED: dict[str, tuple[str, int, Sequence[int | str] | None, str]] = {
    "channels": ("codes", TensorProto.INT8, [1, 9, "T"], "declared shape [1, 9, T]; the graph computes [1, 4, T]"),
    "batch": ("codes", TensorProto.INT8, [2, 4, "T"], "declared shape [2, 4, T]"),
    "rank": ("codes", TensorProto.INT8, [1, "T"], "declared shape [1, T]"),
    "scalar": ("codes", TensorProto.INT8, [], "declared shape []"),
    "type": ("codes", TensorProto.FLOAT, [1, 4, "T"], "declared as float32; the graph computes int8"),
    "sign": ("codes", TensorProto.UINT8, [1, 4, "T"], "declared as uint8; the graph computes int8"),
    "real": ("float", TensorProto.INT8, [1, 4, "T"], "declared as int8; the graph computes float32"),
    "half": ("float", TensorProto.FLOAT16, [1, 4, "T"], "declared as float16; the graph computes float32"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_contradictory_output_is_refused(shop: Workshop, name: str) -> None:
    border, kind, dims, text = DECLARED[name]
    net, x = start()
    net.output(net.conv(x, 4, [3]), border)
    model = net.model()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, kind, dims))
    with pytest.raises(CodegenError) as caught:
        build(shop.save(model))
    assert caught.value.exit_code == EXIT_UNSUPPORTED and text in str(caught.value)


FITS = [([1, 4, 6], True), ([1, 4, 5], False), (["N", "C", "t"], True), (None, True)]


@pytest.mark.parametrize(("dims", "fits"), FITS)
def test_a_declared_clip(shop: Workshop, dims: Sequence[int | str] | None, fits: bool) -> None:
    """A clip's frames are part of the shape; symbols, and no shape at all, contradict nothing."""
    net = Net(seed=3)
    net.output(net.conv(net.input([1, 4, 8]), 4, [3]))
    model = net.model()
    name = model.graph.output[0].name
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.INT8, dims))
    if fits:
        assert build(shop.save(model))
        return
    with pytest.raises(CodegenError, match=r"declared shape \[1, 4, 5\]; the graph computes \[1, 4, 6\]"):
        build(shop.save(model))
