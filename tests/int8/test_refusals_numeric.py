"""Scales, zero points, biases and sums that have no exact integer form: one clear error that names the node; and the
unusual ones that have."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from checks import Workshop, assert_same, runtime_run
from onnx import TensorProto, helper, numpy_helper

from codegen import CodegenError, build
from codegen.ops.conv import ConvS8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

Array = npt.NDArray[Any]
KIND = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
DENORMAL = np.float32(1e-40)


def layer(**change: Any) -> onnx.ModelProto:
    """x -> DequantizeLinear -> Conv "the_conv" (2 channels, k3) -> QuantizeLinear "the_quantizer", numbers changed."""
    rng = np.random.default_rng(3)
    v: dict[str, Any] = {
        "xs": np.float32(0.05),
        "xz": np.int8(-3),
        "w": rng.integers(-127, 128, (2, 3, 3)).astype(np.int8),
        "ws": np.asarray([0.01, 0.02], np.float32),
        "wz": np.zeros(2, np.int8),
        "b": np.asarray([100, -2000], np.int32),
        "ys": np.float32(0.1),
        "yz": np.int8(5),
    }
    bias_scale = change.pop("bs", None)
    v |= change
    with np.errstate(all="ignore"):
        v["bs"] = np.asarray(v["xs"] * v["ws"] if bias_scale is None else bias_scale, np.float32)
    v["bz"] = np.zeros(v["bs"].shape, np.int32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xr"], "the_input"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], "the_weights", axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["br"], "the_bias", axis=0),
        helper.make_node("Conv", ["xr", "wr", "br"], ["yr"], "the_conv", pads=[1, 1]),
        helper.make_node("QuantizeLinear", ["yr", "ys", "yz"], ["y"], "the_quantizer"),
    ]
    ports = [
        helper.make_tensor_value_info("x", KIND[change.get("x_type", str(np.asarray(v["xz"]).dtype))], [1, 3, "T"]),
        helper.make_tensor_value_info("y", KIND[str(np.asarray(v["yz"]).dtype)], [1, 2, "T"]),
    ]
    constants = [numpy_helper.from_array(np.asarray(a), k) for k, a in v.items() if k != "x_type"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def refusal(shop: Workshop, model: onnx.ModelProto) -> str:
    with pytest.raises(CodegenError) as error:
        build(shop.save(model))
    assert error.value.exit_code == 3
    return str(error.value)


def built(shop: Workshop, model: onnx.ModelProto) -> Any:
    """The generated model, after checking C against the reference and the reference against onnxruntime."""
    g = shop.build(model)
    feed = random_feed(g.graph)
    want = whole_clip.run(g.graph, feed)["y"]
    assert_same(shop.host(g).run(feed, [1, 5])["y"], want, "C")
    assert_same(want, runtime_run(g.path, feed)["y"], "onnxruntime")
    return g


def test_the_layer_itself_builds(shop: Workshop) -> None:
    built(shop, layer())


BAD = {"zero": 0.0, "negative": -0.05, "NaN": np.nan, "infinite": np.inf, "denormal": DENORMAL}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("which", "node"), [("xs", "the_input"), ("ys", "the_quantizer"), ("ws", "the_weights")])
def test_scales(shop: Workshop, which: str, node: str, bad: str) -> None:
    value = np.float32(BAD[bad])
    if which == "ws":
        value = np.asarray([0.01, value], np.float32)
        if bad == "denormal":  # test_weight_scales_below_the_normal_range
            return
    text = refusal(shop, layer(**{which: value}, bs=np.asarray([1e-3, 1e-3])))
    assert "scale" in text
    # A denormal is a legal number of the file; what it does to the product is found at the operator.
    assert node in text or (bad == "denormal" and "the_conv" in text)


@pytest.mark.parametrize("bad", ["zero", "negative", "NaN", "infinite"])
def test_bias_scales(shop: Workshop, bad: str) -> None:
    text = refusal(shop, layer(bs=np.asarray([1e-3, BAD[bad]], np.float32)))
    assert "scale" in text and "the_bias" in text


@pytest.mark.parametrize(
    ("xs", "ws", "ys"),
    [
        (1e30, 1e30, 1.0),  # the product is infinite
        (1e20, 1e18, 1e-10),  # only the quotient is
    ],
)
def test_products_of_scales(shop: Workshop, xs: float, ws: float, ys: float) -> None:
    change = {"xs": np.float32(xs), "ws": np.full(2, ws, np.float32), "ys": np.float32(ys)}
    text = refusal(shop, layer(**change, b=np.zeros(2, np.int32), bs=np.full(2, 1e-3, np.float32)))
    assert "the_conv" in text and "scale" in text


@pytest.mark.parametrize(
    ("change", "node"),
    [
        ({"xz": np.uint8(3), "x_type": "int8"}, "the_input"),
        ({"wz": np.zeros(2, np.uint8)}, "the_weights"),
        ({"w": np.zeros((2, 3, 3), np.uint8)}, "the_weights"),
    ],
)
def test_zero_points_of_another_type(shop: Workshop, change: dict[str, Any], node: str) -> None:
    text = refusal(shop, layer(**change))
    assert node in text and "zero point of type" in text


def test_zero_point_of_another_type_after_a_quantizer(shop: Workshop) -> None:
    model = layer()
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.uint8(5), "other"))
    graph.node.append(helper.make_node("DequantizeLinear", ["y", "ys", "other"], ["z"], "the_reader"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    assert "the_reader" in refusal(shop, model)


def test_bias_of_another_scale_is_requantized_and_said(shop: Workshop) -> None:
    """Twice the scale: every value is exact in the right one."""
    scale = 2 * np.float32(0.05) * np.asarray([0.01, 0.02], np.float32)
    g = shop.build(layer(bs=scale))
    op = g.graph.nodes[0].op
    assert isinstance(op, ConvS8) and op.bias.tolist() == [200, -4000]
    assert any("the_conv" in note and "requantized exactly" in note for note in g.graph.notes)
    assert "bias scale" in g.files["report.json"]
    feed = random_feed(g.graph)
    assert_same(shop.host(g).run(feed, [4])["y"], whole_clip.run(g.graph, feed)["y"], "C")


def test_bias_of_another_scale_that_is_not_exact_is_rounded_and_said(shop: Workshop) -> None:
    """101 * 0.7 and -2001 * 0.35 accumulator steps."""
    g = shop.build(layer(b=np.asarray([101, -2001], np.int32), bs=np.full(2, 0.00035, np.float32)))
    op = g.graph.nodes[0].op
    assert isinstance(op, ConvS8) and op.bias.tolist() == [71, -700]
    assert any("rounded, by at most 0.35 steps" in note for note in g.graph.notes)


def test_bias_that_cannot_be_requantized(shop: Workshop) -> None:
    text = refusal(shop, layer(b=np.full(2, 2**31 - 1, np.int32), bs=np.full(2, 0.01, np.float32)))
    assert "the_conv" in text and "bias" in text and "int32" in text


def test_accumulators_beyond_int32(shop: Workshop) -> None:
    text = refusal(shop, layer(b=np.asarray([0, 2**31 - 1000], np.int32)))
    assert "the_conv" in text and "channel 1 can accumulate" in text and "beyond int32" in text


def test_accumulators_up_to_int32(shop: Workshop) -> None:
    """The bound itself: bias + largest sum is 2^31 - 1."""
    weights = np.ones((2, 3, 3), np.int8)
    most = 9 * (127 + 3)
    g = shop.build(layer(w=weights, b=np.asarray([2**31 - 1 - most, 0], np.int32)))
    feed = random_feed(g.graph)
    assert_same(shop.host(g).run(feed, [1])["y"], whole_clip.run(g.graph, feed)["y"], "C")
    assert "beyond int32" in refusal(shop, layer(w=weights, b=np.asarray([2**31 - most, 0], np.int32)))


@pytest.mark.parametrize(
    ("zero", "storage"), [([128, 128], np.int8), ([127, 128], np.int16), ([0, 255], np.int16), ([3, 130], np.int16)]
)
def test_uint8_weights(shop: Workshop, zero: list[int], storage: type) -> None:
    """Less their zero points they are int8 where all fit, int16 otherwise."""
    codes = np.random.default_rng(9).integers(0, 256, (2, 3, 3)).astype(np.uint8)
    codes[:, 0, 0], codes[:, 0, 1] = 0, 255
    model = layer(w=codes, wz=np.asarray(zero, np.uint8), xz=np.uint8(125), yz=np.uint8(130))
    g = shop.build(model)
    op = g.graph.nodes[0].op
    assert isinstance(op, ConvS8) and op.weights.dtype == storage
    assert ("rt_conv_s8_w16" in g.files["src/m.c"]) == (storage is np.int16)
    feed = random_feed(g.graph)
    want = whole_clip.run(g.graph, feed)["y"]
    assert_same(shop.host(g).run(feed, [1, 5])["y"], want, "C")
    if len(set(zero)) == 1:
        assert_same(want, runtime_run(g.path, feed)["y"], "onnxruntime")


def shifted_product(channels: int) -> onnx.ModelProto:
    """(x1 + one real constant per channel) * x2: an island with as many pairs of functions as channels."""
    shifts = (np.arange(channels, dtype=np.float32) / 64).reshape(channels, 1)
    constants = {"c": shifts, "s": np.float32(0.02), "z": np.int8(3), "ys": np.float32(0.25), "yz": np.int8(-20)}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["ar"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["br"]),
        helper.make_node("Add", ["ar", "c"], ["shifted"], "the_shift"),
        helper.make_node("Mul", ["shifted", "br"], ["yr"], "the_product"),
        helper.make_node("QuantizeLinear", ["yr", "ys", "yz"], ["y"]),
    ]
    port = {n: helper.make_tensor_value_info(n, TensorProto.INT8, [1, channels, "T"]) for n in "aby"}
    tensors = [numpy_helper.from_array(np.asarray(a), k) for k, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [port["a"], port["b"]], [port["y"]], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_islands_count_to_256(shop: Workshop) -> None:
    """256 pairs of functions fit the uint8 index of an island; 257 are refused, where the index would wrap."""
    built(shop, shifted_product(256))
    text = refusal(shop, shifted_product(257))
    assert "the_product" in text and "at most 256" in text


TINY = {
    "denormal weights": (0.05, 1e-40, 0.1),
    "denormal product": (1e-20, 1e-20, 1e-3),
    "denormal product, normal quotient": (1e-20, 1e-20, 1e-37),
    "denormal quotient": (1e-10, 1e-10, 1e25),
    "product of 0": (2e-38, 2e-38, 1.0),
    "one channel of two": (0.05, (0.01, 1e-42), 0.1),
}


@pytest.mark.parametrize("case", TINY)
def test_weight_scales_below_the_normal_range(shop: Workshop, case: str) -> None:
    """float32 arithmetic is exact there too: equal codes in onnxruntime, in the reference and in C."""
    xs, ws, ys = TINY[case]
    scales = np.broadcast_to(np.asarray(ws, np.float32), 2).copy()
    change = {"xs": np.float32(xs), "ws": scales, "ys": np.float32(ys)}
    model = layer(**change, b=np.zeros(2, np.int32), bs=np.full(2, 1e-3, np.float32))
    g = shop.build(model)
    feed = random_feed(g.graph, 40)
    want = whole_clip.run(g.graph, feed)
    got = shop.host(g).run(feed, [1, 5])
    theirs = runtime_run(g.path, feed)
    for port in g.graph.outputs:
        assert_same(got[port.name], want[port.name], "C")
        assert_same(want[port.name], theirs[port.name], "onnxruntime")
