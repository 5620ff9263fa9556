"""The patterns P1 to P34 of real exports: each is built exactly (C equal to the reference, compared with onnxruntime),
or refused by name, with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from checks import Workshop, check_op
from models import Act, Net, float_node
from onnx import TensorProto, helper, numpy_helper

from codegen import CodegenError, build
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

Array = np.ndarray


class Net2(Net):
    """A `Net` with steps on real tensors that no quantizer follows."""

    def raw(self, op_type: str, name: str, real: Array, consts: Sequence[Any] = (), **attrs: Any) -> tuple[str, Array]:
        """A node on a real tensor; constants are arrays. Returns the tensor and its sample."""
        arrays = [np.asarray(c) for c in consts]
        out = self.node(op_type, [name, *(self.const(c) for c in arrays)], "y", **attrs)
        return out, float_node(op_type, [real, *arrays], attrs, self.opset)

    def conv_real(self, x: Act, channels: int, kernel: Sequence[int], **attrs: Any) -> tuple[str, Array]:
        """Conv whose result stays real."""
        w = self.weights([channels, x.real.shape[1] // attrs.get("group", 1), *kernel])
        b, real = self.bias(x, w, channels, "int32")
        out = self.node("Conv", [self.dequantize(x), self.dequantized(w), b], "y", **attrs)
        return out, float_node("Conv", [x.real, w.real, real], attrs, self.opset)

    def with_scale(self, name: str, real: Array, scale: float, zero: int) -> Act:
        return self.quantize(name, real, Act("", real, np.float32(scale), zero))


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def floats(*values: float) -> Array:
    return np.asarray(values, np.float32)


def refused(model: onnx.ModelProto, tmp_path: Path, *texts: str) -> None:
    """`build` ends with one error that has all these words."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CodegenError) as caught:
        build(path)
    assert caught.value.exit_code == 3
    for text in texts:
        assert text in str(caught.value), str(caught.value)


def constants(net: Net) -> dict[str, Array]:
    return {c.name: numpy_helper.to_array(c) for c in net.constants}


# --- Graph frame -------------------------------------------------------------------------------------------------


def test_p01_float_border(shop: Workshop) -> None:
    net = Net("uint8", seed=1)
    net.output(net.conv(net.input([1, 3, "T"], border="float"), 4, [3], pads=[1, 1]), "float")
    check_op(shop, net.model())


def test_p01_codes_and_layout_before_the_first_dequantize(shop: Workshop) -> None:
    """tf2onnx: int8 [N, T, C] input, transposed as codes."""
    net = Net("int8", seed=2)
    x = net.code_op("Transpose", net.input([1, "T", 3]), perm=[0, 2, 1])
    net.output(net.code_op("Transpose", net.conv(x, 4, [3]), perm=[0, 2, 1]))
    check_op(shop, net.model())


def test_p01_no_final_quantize(shop: Workshop) -> None:
    """Brevitas: the output is the float Conv."""
    net = Net2("int8", seed=3, per_channel=True)
    y, _ = net.conv_real(net.input([1, 3, "T"], border="float"), 4, [3], pads=[2, 0])
    net.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 4, "t"]))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25])
def test_p02_opsets_and_ir_versions(shop: Workshop, opset: int) -> None:
    """Also imports of domains that no node uses, and axes as attribute or input."""
    net = Net("int8", seed=4, opset=opset)
    y = net.conv(net.input([1, 3, "T"]), 4, [3], pads=[1, 1], then=[("Clip", (0.0, 6.0))])
    if opset < 13:
        y = net.code_op("Unsqueeze", y, axes=[3]) if opset > 10 else y
        y = net.code_op("Squeeze", y, axes=[3]) if opset > 10 else y
    else:
        y = net.code_op("Squeeze", net.code_op("Unsqueeze", y, [ints(3)]), [ints(3)])
    net.output(y)
    model = net.model()
    for domain in ("ai.onnx.ml", "ai.onnx.training", "com.microsoft.nchwc", "org.pytorch.aten"):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    model.ir_version = {10: 6, 11: 6, 13: 7, 15: 8, 18: 9}.get(opset, 10)
    check_op(shop, model)


def test_p02_constant_nodes(shop: Workshop) -> None:
    """The legacy exporter's Constant nodes instead of initializers."""
    net = Net("int8", seed=5)
    net.output(net.add(x := net.input([1, 3, "T"]), net.conv(x, 3, [3], pads=[2, 0])))
    model = net.model()
    made = [helper.make_node("Constant", [], [t.name], value=t) for t in model.graph.initializer]
    nodes = [*made, *model.graph.node]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    check_op(shop, model)


def test_p02_external_data(shop: Workshop, tmp_path: Path) -> None:
    net = Net("int8", seed=6)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3]))
    path = tmp_path / "model.onnx"
    onnx.save(net.model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size > 0
    check_op(shop, path)


def test_p02_functions_are_inlined(shop: Workshop) -> None:
    """A model-local function around a part of the network."""
    net = Net("int8", seed=7)
    x = net.input([1, 3, "T"])
    y = net.node("Twice", [x.name], domain="local")
    net.output(net.conv(Act(y, x.real, x.scale, x.zero), 4, [3]))
    model = net.model()
    body = [helper.make_node("Identity", ["a"], ["b"]), helper.make_node("Identity", ["b"], ["c"])]
    model.functions.append(helper.make_function("local", "Twice", ["a"], ["c"], body, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("local", 1))
    check_op(shop, model)


@pytest.mark.parametrize(
    ("dims", "declared"),
    [
        ([1, 3, "time"], [1, 4, "(((time - 1)//2)) + 1"]),
        ([1, 3, "T"], [1, 4, "floor(time/2 - 1/2) + 1"]),
        (["Convy_dim_0", 3, "Convy_dim_0"], ["Convy_dim_0", 4, "Convy_dim_0"]),
        (["unk__85", 3, "unk__86"], ["unk__85", 4, "unk__87"]),
        (["N", 3, "T"], [1, 4, 20]),
    ],
)
def test_p03_names_of_dynamic_axes(shop: Workshop, dims: list[Any], declared: list[Any]) -> None:
    """Symbols mean nothing but which axis is free; declared output shapes are not believed."""
    net = Net("int8", seed=8)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3], strides=[2], pads=[1, 1]))
    model = net.model()
    for value, shape in ((model.graph.input[0], dims), (model.graph.output[0], declared)):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.INT8, shape))
    g = check_op(shop, model, runtime="none" if declared[2] == 20 else "equal")
    assert g.graph.clip_length is None


def test_p04_dead_parameters_shared_identity_and_listed_initializers(shop: Workshop) -> None:
    net = Net("int8", seed=9)
    x = net.input([1, 3, "T"])
    w = net.weights([3, 3, 3])
    shared = [net.node("Identity", [name]) for name in (w.codes, w.scale_name, w.zero_name)]
    real = float_node("Conv", [x.real, w.real], {}, 17)
    y = net.quantize(net.node("Conv", [net.dequantize(x), net.node("DequantizeLinear", shared)]), real)
    real = float_node("Conv", [y.real, w.real], {}, 17)
    net.output(net.quantize(net.node("Conv", [net.dequantize(y), net.dequantized(w)]), real))
    net.const(floats(3.0), "dead")
    net.node("Sigmoid", [net.dequantize(x)], "unused")
    model = net.model()
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    g = check_op(shop, model)
    assert len(g.graph.nodes) == 2 and len(g.graph.inputs) == 1


# --- Weights and bias --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_dtype", ["int8", "uint8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_p05_weights(shop: Workshop, per_channel: bool, weight_dtype: str) -> None:
    """Conv axis 0, Gemm transB, MatMul axis 1, scalars; uint8 weights have zero points."""
    net = Net("int8", seed=10, per_channel=per_channel, weight_dtype=weight_dtype)
    y = net.conv(net.input([1, 4, "T"]), 6, [3], pads=[2, 0])
    y = net.matmul(net.code_op("Transpose", y, perm=[0, 2, 1]), 5)
    y = net.gemm(net.code_op("Reshape", y, [ints(-1, 5)]), 4)
    net.output(y)
    check_op(shop, net.model())


def test_p05_weights_without_zero_point(shop: Workshop) -> None:
    net = Net("int8", seed=11)
    x = net.input([1, 3, "T"])
    w = net.weights([4, 3, 3])
    out = net.node("Conv", [net.dequantize(x), net.node("DequantizeLinear", [w.codes, w.scale_name])])
    net.output(net.quantize(out, float_node("Conv", [x.real, w.real], {}, 17)))
    check_op(shop, net.model())


@pytest.mark.parametrize("bias", ["int32", "float", None])
@pytest.mark.parametrize("form", ["qdq", "qop"])
def test_p06_bias(shop: Workshop, bias: str | None, form: str) -> None:
    net = Net("int8", seed=12, form=form, per_channel=True)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3], bias=bias))
    check_op(shop, net.model(), runtime="ties" if bias == "float" and form == "qdq" else "equal")


def asymmetric_bias(net: Net, channels: int) -> tuple[str, Array]:
    codes = net.rng.integers(-128, 128, channels).astype(np.int8)
    scale, zero = np.float32(0.0097), np.int8(-101)
    out = net.node("DequantizeLinear", [net.const(codes), net.const(scale), net.const(zero)], "br")
    return out, ((codes.astype(np.int32) - int(zero)) * scale).astype(np.float32)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("rounded", [False, True])
def test_p07_matmul_and_add_of_an_asymmetric_bias(shop: Workshop, swapped: bool, rounded: bool) -> None:
    """int8 bias with zero point, either operand first, with or without a Q/DQ pair (kept: it rounds) between."""
    net = Net2("int8", seed=13, per_channel=True)
    x = net.input([1, "T", 6])
    w = net.weights([6, 4], 1, 6)
    y, real = net.node("MatMul", [net.dequantize(x), net.dequantized(w)]), x.real @ w.real
    if rounded:
        middle = net.quantize(y, real)
        y, real = net.dequantize(middle), middle.real
    b, b_real = asymmetric_bias(net, 4)
    out = net.node("Add", [b, y] if swapped else [y, b])
    net.output(net.quantize(out, real + b_real))
    g = check_op(shop, net.model(), runtime="ties")
    assert len(g.graph.nodes) == 1 + rounded


@pytest.mark.parametrize("add", ["float", "int32"])
def test_p07_matmul_and_add_fused(shop: Workshop, add: str) -> None:
    """tf2onnx: int32 bias, no quantizer between."""
    net = Net("int8", seed=14)
    net.output(net.matmul(net.input([1, "T", 6]), 4, add=add))
    assert len(check_op(shop, net.model(), runtime="ties").graph.nodes) == 1


@pytest.mark.parametrize("form", ["float", "float clip", "int8 clip"])
def test_p08_weights_behind_quantizers(shop: Workshop, form: str) -> None:
    """AddQDQPairToWeight and Brevitas: float -> Q -> Clip(-127, 127) -> DQ; int8 -> Clip -> DQ."""
    net = Net("int8", seed=15)
    x = net.input([1, 3, "T"])
    w = net.weights([4, 3, 3])
    codes = w.codes
    if form.startswith("float"):
        codes = net.node("QuantizeLinear", [net.const(w.real), w.scale_name, w.zero_name])
    if form.endswith("clip"):
        codes = net.node("Clip", [codes, net.const(np.int8(-127)), net.const(np.int8(127))])
    weights = net.node("DequantizeLinear", [codes, w.scale_name, w.zero_name])
    real = float_node("Conv", [x.real, w.real], {}, 17)
    net.output(net.quantize(net.node("Conv", [net.dequantize(x), weights]), real))
    check_op(shop, net.model())


def test_p09_shared_weights(shop: Workshop) -> None:
    net = Net("int8", seed=16)
    x = net.input([1, 4, "T"])
    w = net.weights([4, 4, 1])
    read = net.dequantized(w)
    for _ in range(2):
        real = float_node("Conv", [x.real, w.real], {}, 17)
        x = net.quantize(net.node("Conv", [net.dequantize(x), read]), real)
    net.output(x)
    check_op(shop, net.model())


# --- Activations between a product and its quantizer -------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_p10_relu_removed(shop: Workshop, dtype: str) -> None:
    """The saturation at the least code is the Relu."""
    net = Net2(dtype, seed=17)
    y, real = net.conv_real(net.input([1, 3, "T"]), 4, [3])
    least = -128 if dtype == "int8" else 0
    net.output(net.with_scale(y, np.maximum(real, 0), 6 / 255, least))
    check_op(shop, net.model())


@pytest.mark.parametrize("then", [[("Relu", ())], [("Clip", (0.0, 6.0))], [("Relu", ()), ("Clip", (0.0, 1.5))]])
def test_p11_relu_explicit(shop: Workshop, then: list[tuple[str, Sequence[float]]]) -> None:
    net = Net("int8", seed=18)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3], then=then))
    check_op(shop, net.model())


@pytest.mark.parametrize(("function", "zero"), [("Relu", 0), ("Clip", -16)])
def test_p12_p13_relu_between_equal_pairs(shop: Workshop, function: str, zero: int) -> None:
    """Symmetric activations, and PT2E's Clip(0, 6): rounded before and after with the same parameters."""
    net = Net2("int8", seed=19, zero=zero)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    consts = [np.float32(0), np.float32(6)] if function == "Clip" else []
    out, real = net.raw(function, net.dequantize(y), y.real, consts)
    net.output(net.conv(net.quantize(out, real, y), 2, [1]))
    check_op(shop, net.model())


@pytest.mark.parametrize("shape", [(4, 1), (1, 4, 1), (1,)])
@pytest.mark.parametrize("form", ["qdq", "qop"])
def test_p14_prelu(shop: Workshop, shape: tuple[int, ...], form: str) -> None:
    """A float slope per channel or one for all, never quantized."""
    net = Net2("int8", seed=20, form=form)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    slope = np.linspace(0.1, 0.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    out, real = net.raw("PRelu", net.dequantize(y), y.real, [slope])
    net.output(net.quantize(out, real))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [
        ("LeakyRelu", {"alpha": 0.2}),
        ("Elu", {"alpha": 0.7}),
        ("Selu", {}),
        ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
        ("HardSwish", {}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Softplus", {}),
        ("Erf", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("Gelu", {}),
    ],
)
def test_p14_functions_become_tables(shop: Workshop, op_type: str, attrs: dict[str, Any]) -> None:
    net = Net2("int8", seed=21, opset=20)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    net.output(net.real_op(op_type, [y], **attrs))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("kind", ["hardswish", "gelu", "silu", "silu rounded"])
def test_p14_decomposed_functions(shop: Workshop, kind: str) -> None:
    """HardSigmoid * x, the Erf chain, Sigmoid * x with and without a quantizer between: one table, or exact steps."""
    net = Net2("int8", seed=22)
    x = net.conv(net.input([1, 3, "T"]), 4, [3])
    read = net.dequantize(x)
    if kind == "hardswish":
        gate, gate_real = net.raw("HardSigmoid", read, x.real, alpha=1 / 6, beta=0.5)
    elif kind == "gelu":
        gate, gate_real = net.raw("Div", read, x.real, [np.float32(np.sqrt(2))])
        gate, gate_real = net.raw("Erf", gate, gate_real)
        gate, gate_real = net.raw("Add", gate, gate_real, [np.float32(1)])
    else:
        gate, gate_real = net.raw("Sigmoid", read, x.real)
    if kind == "silu rounded":
        rounded = net.quantize(gate, gate_real)
        gate, gate_real = net.dequantize(rounded), rounded.real
    out, real = net.node("Mul", [read, gate]), x.real * gate_real
    if kind == "gelu":
        out, real = net.raw("Mul", out, real, [np.float32(0.5)])
    net.output(net.quantize(out, real))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("scale", [(0.00271, -128), (1 / 256, -128)])
@pytest.mark.parametrize("op_type", ["Sigmoid", "Softmax"])
def test_p15_calibrated_output_scales(shop: Workshop, op_type: str, scale: tuple[float, int]) -> None:
    net = Net("int8", seed=23)
    y = net.conv(net.input([1, 3, "T"]), 5, [1])
    attrs = {"axis": 1} if op_type == "Softmax" else {}
    net.output(net.real_op(op_type, [y], scale=scale, **attrs))
    check_op(shop, net.model(), runtime="ties")


# --- Data movement that requantizes ------------------------------------------------------------------------------


def chomp(net: Net2, x: Act, room: int) -> tuple[str, Array]:
    """Conv with pads on both sides, cut at the end: a causal convolution."""
    y = net.conv(x, 4, [room + 1], pads=[room, room])
    return net.raw("Slice", net.dequantize(y), y.real, [ints(0), ints(-room), ints(2), ints(1)])


def test_p16_chomp_that_requantizes(shop: Workshop) -> None:
    net = Net2("int8", seed=24)
    out, real = chomp(net, net.input([1, 3, "T"]), 2)
    net.output(net.with_scale(out, np.maximum(real, 0), float(real.max()) / 255, -128))
    g = check_op(shop, net.model())
    assert g.graph.clip_length is None


def test_p16_chomp_with_relu(shop: Workshop) -> None:
    net = Net2("uint8", seed=25)
    out, real = chomp(net, net.input([1, 3, "T"]), 2)
    net.output(net.quantize(*net.raw("Relu", out, real)))
    check_op(shop, net.model())


def test_p17_double_pairs(shop: Workshop) -> None:
    """Q -> DQ -> Q -> DQ, with equal and with other parameters."""
    net = Net2("int8", seed=26)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    y = net.quantize(net.dequantize(y), y.real, y)
    y = net.with_scale(net.dequantize(y), y.real, float(y.scale) * 1.37, 5)
    net.output(net.conv(y, 2, [1]))
    # onnxruntime's optimizer merges the two pairs into one with a scale of its own: compared without it.
    g = check_op(shop, net.model(), runtime="none")
    assert len(g.graph.nodes) == 3
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(g.path), options, providers=["CPUExecutionProvider"])
    feed = random_feed(g.graph, 37)
    (port,) = g.graph.outputs
    assert np.array_equal(session.run(None, feed)[0], whole_clip.run(g.graph, feed)[port.name])


@pytest.mark.parametrize("on_codes", [False, True])
def test_p18_movement_with_equal_parameters(shop: Workshop, on_codes: bool) -> None:
    net = Net2("int8", seed=27)
    x = net.conv(net.input([1, 3, "T"]), 6, [3])

    def move(y: Act, op_type: str, *consts: Array, **attrs: Any) -> Act:
        if on_codes:
            return net.code_op(op_type, y, consts, **attrs)
        return net.real_op(op_type, [y], consts=consts, same=True, **attrs)

    x = move(x, "Transpose", perm=[0, 2, 1])
    x = move(x, "Unsqueeze", ints(2))
    x = move(x, "Reshape", ints(1, -1, 3, 2))
    x = move(x, "Gather", ints(1), axis=3)
    x = move(x, "Squeeze", ints(3))
    x = move(x, "Transpose", perm=[0, 2, 1])
    x = move(x, "MaxPool", kernel_shape=[2], strides=[2])
    out = net.node("Resize", [x.name if on_codes else net.dequantize(x), "", net.const(floats(1, 1, 2))], "y",
                   mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    real = np.repeat(x.real, 2, axis=2)
    net.output(Act(out, real, x.scale, x.zero) if on_codes else net.quantize(out, real, x))
    check_op(shop, net.model())


PADS = ints(0, 0, 2, 0, 0, 1)


@pytest.mark.parametrize("value", ["zero", "empty", "absent"])
def test_p19_pad_in_a_pair(shop: Workshop, value: str) -> None:
    net = Net2("int8", seed=28)
    x = net.input([1, 3, "T"])
    inputs = [net.dequantize(x), net.const(PADS)] + {"zero": [net.const(np.float32(0))], "empty": [""], "absent": []}[
        value
    ]
    out = net.node("Pad", inputs, mode="constant")
    real = float_node("Pad", [x.real, PADS], {}, 17)
    net.output(net.conv(net.quantize(out, real, x), 4, [3]))
    check_op(shop, net.model())


def test_p19_pad_on_codes(shop: Workshop) -> None:
    net = Net2("int8", seed=29)
    x = net.input([1, 3, "T"])
    net.output(net.conv(net.code_op("Pad", x, [PADS, np.int8(x.zero)]), 4, [3]))
    check_op(shop, net.model())


def test_p19_pad_in_front_of_the_first_quantizer(shop: Workshop) -> None:
    net = Net2("int8", seed=30)
    net.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "T"]))
    real = net.rng.normal(0, 1, (1, 3, 64)).astype(np.float32)
    out, real = net.raw("Pad", "x", real, [PADS])
    net.output(net.conv(net.quantize(out, real), 4, [3]), "float")
    check_op(shop, net.model())


def test_p19_pads_from_a_shape_subgraph(shop: Workshop) -> None:
    """The legacy exporter's F.pad: ConstantOfShape, Concat, Reshape, Slice with step -1, Transpose, Reshape, Cast."""
    net = Net2("int8", seed=31)
    x = net.input([1, 3, "T"])
    n = net.node
    rest = n("ConstantOfShape", [net.const(ints(4))], value=helper.make_tensor("v", TensorProto.INT64, [1], [0]))
    pads = n("Concat", [net.const(ints(2, 0)), rest], axis=0)
    pads = n("Reshape", [pads, net.const(ints(-1, 2))])
    step = [net.const(ints(v)) for v in (-1, -(2**63) + 1, 0, -1)]
    pads = n("Transpose", [n("Slice", [pads, *step])], perm=[1, 0])
    pads = n("Cast", [n("Reshape", [pads, net.const(ints(-1))])], to=TensorProto.INT64)
    out = n("Pad", [net.dequantize(x), pads], mode="constant")
    real = float_node("Pad", [x.real, ints(0, 0, 2, 0, 0, 0)], {}, 17)
    net.output(net.conv(net.quantize(out, real, x), 4, [3]))
    g = check_op(shop, net.model())
    assert g.graph.clip_length is None


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_p19_other_modes_are_refused(tmp_path: Path, mode: str) -> None:
    net = Net2("int8", seed=32, opset=19)
    x = net.input([1, 3, "T"])
    out, real = net.raw("Pad", net.dequantize(x), x.real, [PADS], mode=mode)
    net.output(net.conv(net.quantize(out, real, x), 4, [3]))
    refused(net.model(), tmp_path, f"mode={mode}", "Pad with zeros")


@pytest.mark.parametrize("form", ["qdq", "qop"])
def test_p20_operands_of_other_scales(shop: Workshop, form: str) -> None:
    """Add and Concat requantize each operand; QLinearConcat has its result's parameters first."""
    net = Net2("int8", seed=33, form=form)
    x = net.input([1, 3, "T"])
    a, b = net.conv(x, 4, [3], pads=[1, 1]), net.conv(x, 4, [1])
    y = net.add(a, b)
    real = np.concatenate([y.real, a.real], 1)
    if form == "qdq":
        y = net.quantize(net.node("Concat", [net.dequantize(y), net.dequantize(a)], axis=1), real)
    else:
        scale, zero = net.calibrate(real)
        operands = [n for act in (y, a) for n in (act.name, *net._params(act.scale, act.zero))]
        out = net.node("QLinearConcat", [*net._params(scale, zero), *operands], "q", "com.microsoft", axis=1)
        y = net._settle(out, real, scale, zero)
    net.output(y)
    check_op(shop, net.model(), runtime="ties")


# --- Products and pools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [2, 3])
def test_p21_keras_sandwich(shop: Workshop, axis: int) -> None:
    """[N, T, C] -> Unsqueeze, Transpose, Conv2D [O, I, 1, k] or [O, I, k, 1], Squeeze, Transpose."""
    net = Net2("int8", seed=34)
    x = net.code_op("Transpose", net.input([1, "T", 3]), perm=[0, 2, 1])
    x = net.code_op("Unsqueeze", x, [ints(axis)])
    kernel, pads, d = ([1, 3], [0, 4, 0, 0], [1, 2]) if axis == 2 else ([3, 1], [4, 0, 0, 0], [2, 1])
    y = net.conv(x, 4, kernel, pads=pads, dilations=d, then=[("Relu", ())])
    y = net.code_op("Transpose", net.code_op("Squeeze", y, [ints(axis)]), perm=[0, 2, 1])
    net.output(y)
    g = check_op(shop, net.model())
    assert len(g.graph.nodes) == 1


def test_p21_unfolded_scale_per_channel(shop: Workshop) -> None:
    """Mul by [1, C, 1]: a BatchNormalization that was not folded."""
    net = Net2("int8", seed=35)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    out, real = net.raw("Mul", net.dequantize(y), y.real, [net.rng.normal(0, 1, (1, 4, 1)).astype(np.float32)])
    net.output(net.quantize(out, real))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("after_conv", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_p21_batch_normalization(shop: Workshop, after_conv: bool, per_channel: bool) -> None:
    """Behind the convolution (folded into it), or behind a quantizer (tables); negative and zero factors."""
    net = Net2("int8", seed=36, per_channel=per_channel)
    x = net.input([1, 3, "T"])
    if after_conv:
        y, real = net.conv_real(x, 6, [3])
    else:
        act = net.conv(x, 6, [3])
        y, real = net.dequantize(act), act.real
    gamma = net.rng.normal(1, 0.5, 6)
    gamma[:2] = -0.7, 0.0
    params = [gamma, net.rng.normal(0, 0.5, 6), net.rng.normal(0, 0.5, 6), np.abs(net.rng.normal(1, 0.2, 6))]
    y, real = net.raw("BatchNormalization", y, real, [np.float32(p) for p in params])
    net.output(net.quantize(*net.raw("Relu", y, real)))
    g = check_op(shop, net.model(), runtime="ties")
    assert len(g.graph.nodes) == 1 + (not after_conv)


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ([5], {"pads": [4, 0]}),
        ([5], {"pads": [2, 2]}),
        ([4], {"pads": [1, 2]}),
        ([3, 3], {"pads": [4, 1, 5, 1]}),
        ([4], {"auto_pad": "SAME_UPPER"}),
        ([4], {"auto_pad": "SAME_LOWER"}),
        ([3], {"auto_pad": "NOTSET"}),
        ([3], {"auto_pad": "VALID"}),
    ],
)
def test_p22_padding(shop: Workshop, kernel: list[int], attrs: dict[str, Any]) -> None:
    net = Net("int8", seed=37)
    net.output(net.conv(net.input([1, 3, "T", 5] if len(kernel) == 2 else [1, 3, "T"]), 4, kernel, **attrs))
    check_op(shop, net.model())


def qlinear_unary(net: Net, op_type: str, x: Act, real: Array, **attrs: Any) -> Act:
    scale, zero = net.calibrate(real)
    inputs = [x.name, *net._params(x.scale, x.zero), *net._params(scale, zero)]
    return net._settle(net.node(f"QLinear{op_type}", inputs, "q", "com.microsoft", **attrs), real, scale, zero)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_p23_qlinear_operators(shop: Workshop, dtype: str) -> None:
    net = Net2(dtype, seed=38, form="qop")
    x = net.input([1, 3, "T"])
    y = net.conv(x, 4, [3], pads=[1, 1])
    y = net.add(y, net.conv(x, 4, [1]))
    y = net.add(y, y, "Mul")
    y = qlinear_unary(net, "Sigmoid", y, float_node("Sigmoid", [y.real], {}, 17))
    y = qlinear_unary(net, "LeakyRelu", y, y.real, alpha=0.1)
    attrs = {"kernel_shape": [2], "strides": [2]}
    y = qlinear_unary(net, "AveragePool", y, float_node("AveragePool", [y.real], attrs, 17), **attrs)
    y = net.code_op("Transpose", y, perm=[0, 2, 1])
    net.output(net.matmul(y, 5))
    check_op(shop, net.model(), runtime="none")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_p23_qlinear_heads(shop: Workshop, dtype: str) -> None:
    """QLinearGlobalAveragePool, QGemm, QLinearSoftmax on a clip."""
    net = Net2(dtype, seed=39, form="qop")
    y = net.conv(net.input([1, 2, 9, 7]), 4, [3, 3])
    y = qlinear_unary(net, "GlobalAveragePool", y, y.real.mean((2, 3), keepdims=True))
    y = net.gemm(net.code_op("Flatten", y), 5)
    y = qlinear_unary(net, "Softmax", y, float_node("Softmax", [y.real], {"axis": 1}, 17), axis=1, opset=17)
    net.output(y)
    check_op(shop, net.model(), runtime="ties")


def test_p23_channels_last(shop: Workshop) -> None:
    """What onnxruntime's optimizer makes of QLinearConv: com.microsoft, data in NHWC, weights as they were."""
    net = Net2("uint8", seed=40, form="qop")
    x = net.input([1, "T", 5, 3])
    turned = Act("", x.real.transpose(0, 3, 1, 2), x.scale, x.zero)
    y = net.conv(turned, 4, [3, 3], pads=[2, 1, 0, 1])
    node = net.nodes[-1]
    node.input[0], node.domain = x.name, "com.microsoft"
    node.attribute.append(helper.make_attribute("channels_last", 1))
    net.output(Act(y.name, y.real.transpose(0, 2, 3, 1), y.scale, y.zero))
    check_op(shop, net.model())


@pytest.mark.parametrize("fixed", [False, True])
def test_p24_linear_per_frame(shop: Workshop, fixed: bool) -> None:
    """Reshape -> Gemm -> Reshape around a Linear layer, with a baked-in length or -1."""
    net = Net2("int8", seed=41)
    x = net.input([1, 20 if fixed else "T", 6])
    y = net.gemm(net.code_op("Reshape", x, [ints(-1, 6)]), 5)
    net.output(net.code_op("Reshape", y, [ints(1, 20 if fixed else -1, 5)]))
    check_op(shop, net.model(), length=20)


@pytest.mark.parametrize(
    ("op_type", "consts", "attrs", "opset"),
    [
        ("GlobalAveragePool", [], {}, 17),
        ("ReduceMean", [], {"axes": [2, 3]}, 17),
        ("ReduceMean", [], {"axes": [-1, -2], "keepdims": 0}, 17),
        ("ReduceMean", [ints(2, 3)], {"keepdims": 0}, 18),
        ("AveragePool", [], {"kernel_shape": [9, 7]}, 17),
        ("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, 17),
        ("AveragePool", [], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, 19),
    ],
)
def test_p25_averages(shop: Workshop, op_type: str, consts: list[Array], attrs: dict[str, Any], opset: int) -> None:
    net = Net2("int8", seed=42, opset=opset)
    y = net.conv(net.input([1, 2, 9, 7]), 4, [3, 3], pads=[1, 1, 1, 1])
    net.output(net.real_op(op_type, [y], consts=consts, **attrs))
    check_op(shop, net.model(), runtime="ties")


def test_p25_mean_of_one_axis(shop: Workshop) -> None:
    """dynamo's 1-D adaptive pool: Unsqueeze(-2) -> ReduceMean([-1, -2]) -> Squeeze(-2)."""
    net = Net2("int8", seed=43, opset=18)
    y = net.conv(net.input([1, 2, 12]), 16, [3])
    y = net.code_op("Unsqueeze", y, [ints(-2)])
    y = net.real_op("ReduceMean", [y], consts=[ints(-1, -2)], keepdims=1)
    net.output(net.code_op("Squeeze", y, [ints(-2)]))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("kind", ["flatten", "reshape", "infer", "shape", "allowzero"])
def test_p26_flatten(shop: Workshop, kind: str) -> None:
    net = Net2("int8", seed=44)
    y = net.conv(net.input([1, 2, 6, 5]), 4, [3, 3])
    if kind == "flatten":
        y = net.code_op("Flatten", y)
    elif kind == "shape":
        size = net.node("Shape", [y.name])
        batch = net.node("Gather", [size, net.const(np.int64(0))], axis=0)
        batch = net.node("Unsqueeze", [batch, net.const(ints(0))])
        target = net.node("Concat", [batch, net.const(ints(-1))], axis=0)
        y = Act(net.node("Reshape", [y.name, target]), y.real.reshape(1, -1), y.scale, y.zero)
    else:
        target = {"reshape": ints(1, 48), "infer": ints(-1, 48), "allowzero": ints(1, 48)}[kind]
        y = net.code_op("Reshape", y, [target], **({"allowzero": 1} if kind == "allowzero" else {}))
    net.output(net.gemm(y, 3))
    check_op(shop, net.model())


@pytest.mark.parametrize("weights", ["quantized", "float"])
@pytest.mark.parametrize("rank", [1, 2])
def test_p27_transposed_convolution(shop: Workshop, weights: str, rank: int) -> None:
    """Quantized weights (QDQ), or left float (QOperator); output_padding."""
    net = Net2("int8", seed=45)
    x = net.input([1, 3, "T"] if rank == 1 else [1, 3, "T", 4])
    w = net.weights([3, 4, *([4] * rank)], 1, 12)
    attrs = {"strides": [2] * rank, "output_padding": [0] * rank}
    read = net.const(w.real) if weights == "float" else net.dequantized(w)
    out = net.node("ConvTranspose", [net.dequantize(x), read], **attrs)
    net.output(net.quantize(out, float_node("ConvTranspose", [x.real, w.real], attrs, 17)))
    check_op(shop, net.model(), runtime="none" if weights == "float" else "ties")


def test_p27_resize(shop: Workshop) -> None:
    net = Net2("int8", seed=46)
    y = net.conv(net.input([1, 3, "T"]), 4, [3], pads=[1, 1])
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    out = net.node("Resize", [net.dequantize(y), "", net.const(floats(1, 1, 2))], **attrs)
    net.output(net.conv(net.quantize(out, np.repeat(y.real, 2, 2), y), 3, [3], pads=[1, 1]))
    check_op(shop, net.model())


@pytest.mark.parametrize("kind", ["split", "slices"])
def test_p28_glu(shop: Workshop, kind: str) -> None:
    """Split(num_outputs=2), or Shape -> Gather -> Add -> Div -> Mul -> two Slices."""
    net = Net2("int8", seed=47, opset=18)
    y = net.conv(net.input([1, 3, "T"]), 8, [3])
    if kind == "split":
        parts = [net.name("p"), net.name("p")]
        net.nodes.append(helper.make_node("Split", [net.dequantize(y)], parts, "split", axis=1, num_outputs=2))
    else:
        size = net.node("Gather", [net.node("Shape", [y.name]), net.const(ints(1))], axis=0)
        half = net.node("Div", [net.node("Add", [size, net.const(ints(1))]), net.const(ints(2))])
        begin, end = net.node("Mul", [half, net.const(ints(0))]), net.node("Mul", [half, net.const(ints(1))])
        last = net.node("Mul", [half, net.const(ints(2))])
        axes = net.const(ints(1))
        read = net.dequantize(y)
        parts = [net.node("Slice", [read, begin, end, axes]), net.node("Slice", [read, end, last, axes])]
    halves = [y.real[:, :4], y.real[:, 4:]]
    acts = [net.quantize(part, real, y) for part, real in zip(parts, halves, strict=True)]
    gate = net.real_op("Sigmoid", [acts[1]])
    net.output(net.real_op("Mul", [acts[0], gate]))
    check_op(shop, net.model(), runtime="ties")


def test_p28_last_frame(shop: Workshop) -> None:
    net = Net2("int8", seed=48)
    y = net.conv(net.input([1, 3, 20]), 4, [3])
    y = net.code_op("Gather", y, [np.int64(-1)], axis=2)
    net.output(net.gemm(y, 12))
    check_op(shop, net.model())


# --- Recurrence, products of other kinds, and what is refused ----------------------------------------------------


def recurrent(op_type: str, **attrs: Any) -> onnx.ModelProto:
    net = Net2("int8", seed=49)
    x = net.code_op("Transpose", net.input([1, "T", 4]), perm=[1, 0, 2])
    gates = {"GRU": 3, "LSTM": 4}[op_type]
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    w = net.const(np.zeros((directions, gates * 5, 4), np.float32))
    r = net.const(np.zeros((directions, gates * 5, 5), np.float32))
    out = net.node(op_type, [net.dequantize(x), w, r], hidden_size=5, **attrs)
    net.output(net.quantize(out, np.linspace(-1, 1, 64 * 5, dtype=np.float32).reshape(64, 1, 1, 5)))
    net.nodes[-1].name = "last"
    return net.model()


@pytest.mark.parametrize("op_type", ["GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_p29_recurrent_nodes_are_refused(tmp_path: Path, op_type: str, direction: str) -> None:
    refused(recurrent(op_type, direction=direction), tmp_path, f"({op_type})", "codegen ops")


@pytest.mark.parametrize(
    ("equation", "dims", "shape"),
    [("bct,cd->bdt", [1, 6, "T"], (6, 4)), ("btgi,gih->btgh", [1, "T", 2, 3], (2, 3, 4))],
)
def test_p30_einsum_with_float_weights(shop: Workshop, equation: str, dims: list[Any], shape: tuple[int, ...]) -> None:
    net = Net2("int8", seed=50)
    x = net.input(dims)
    w = net.rng.normal(0, 0.5, shape).astype(np.float32)
    out, real = net.raw("Einsum", net.dequantize(x), x.real, [w], equation=equation)
    net.output(net.quantize(out, real))
    check_op(shop, net.model(), runtime="none")


@pytest.mark.parametrize("op_type", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_p31_normalization_is_refused(tmp_path: Path, op_type: str) -> None:
    net = Net2("int8", seed=51, opset=21)
    x = net.input([1, 4, "T"])
    if op_type == "LayerNormalization":
        x = net.code_op("Transpose", x, perm=[0, 2, 1])
    ones = [np.ones(4, np.float32), np.zeros(4, np.float32)]
    attrs = {"num_groups": 2} if op_type == "GroupNormalization" else {}
    out = net.node(op_type, [net.dequantize(x), *(net.const(c) for c in ones)], **attrs)
    net.output(net.quantize(out, x.real))
    refused(net.model(), tmp_path, op_type)


def test_p32_dynamic_quantization_is_refused(tmp_path: Path) -> None:
    net = Net2("int8", seed=52)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "T", 4])
    outs = ["q", "s", "z"]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], outs, "dynamic"),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["acc"], "product"),
        helper.make_node("Cast", ["acc"], ["real"], "cast", to=1),
        helper.make_node("Mul", ["real", "s"], ["y"], "scale"),
    ]
    w = numpy_helper.from_array(np.ones((4, 3), np.int8), "w")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    assert net.nodes == []
    refused(model, tmp_path, "dynamic (DynamicQuantizeLinear, node 0)", "quantize_static")


@pytest.mark.parametrize("kind", ["int16", "int4"])
def test_p33_other_widths_are_refused(tmp_path: Path, kind: str) -> None:
    net = Net2("int8", seed=53, opset=21)
    x = net.input([1, 3, "T"], border="float")
    if kind == "int16":
        net.constants[1].CopyFrom(numpy_helper.from_array(np.int16(0), net.constants[1].name))
        y = net.node("DequantizeLinear", [x.name, net.constants[0].name, net.constants[1].name])
    else:
        tensor = helper.make_tensor("w4", TensorProto.INT4, [4, 3, 1], [1] * 12)
        net.constants.append(tensor)
        w = net.node("DequantizeLinear", ["w4", net.const(np.float32(0.1))])
        y = net.node("Conv", [net.dequantize(x), w])
    net.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))
    refused(net.model(), tmp_path, "int16" if kind == "int16" else "int4", "8 bit" if kind == "int4" else "QInt8")


@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan", "ScatterND", "NonZero"])
def test_p34_control_flow_is_refused_by_name(tmp_path: Path, op_type: str) -> None:
    """With the module path and the way out: --cut-input and --cut-output."""
    net = Net2("int8", seed=54)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    out = net.node(op_type, [net.dequantize(y)])
    net.nodes[-1].name = "front"
    body = helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "body", [], [])
    if op_type in ("If", "Loop", "Scan"):
        net.nodes[-1].attribute.append(helper.make_attribute("body", body))
    trace = 'File "/home/me/net.py", line 12, in forward'
    for key, value in (("name_scopes", "['', 'front.stft', 'if']"), ("stack_trace", trace)):
        net.nodes[-1].metadata_props.append(onnx.StringStringEntryProto(key=f"pkg.torch.onnx.{key}", value=value))
    net.output(net.quantize(out, y.real))
    refused(net.model(), tmp_path, f"front ({op_type}", "at front.stft (net.py:12)", "--cut-output")


def test_p34_frontends_as_tables(shop: Workshop) -> None:
    """Pow(2), Sqrt and Log of one tensor are tables."""
    net = Net2("int8", seed=55)
    y = net.conv(net.input([1, 3, "T"]), 4, [3])
    out, real = net.raw("Pow", net.dequantize(y), y.real, [np.float32(2)])
    y = net.quantize(out, real, zero=-128)
    out, real = net.raw("Add", net.dequantize(y), y.real, [np.float32(0.01)])
    out, real = net.raw("Sqrt", out, real)
    out, real = net.raw("Log", out, real)
    net.output(net.quantize(out, real))
    check_op(shop, net.model(), runtime="ties")


def test_p27_float_output_of_a_transposed_convolution(shop: Workshop) -> None:
    """What the QOperator format leaves at the end of a decoder: float weights, and accumulators as the output."""
    net = Net2("int8", seed=56)
    x = net.input([1, 3, "T"])
    w = net.rng.normal(0, 1, (3, 1, 4)).astype(np.float32)
    out, _ = net.raw("ConvTranspose", net.dequantize(x), x.real, [w], strides=[2])
    net.outputs.append(helper.make_tensor_value_info(out, TensorProto.FLOAT, None))
    g = check_op(shop, net.model(), runtime="none")
    (port,) = g.graph.outputs
    assert port.decoding is not None and port.decoding.kind == "accumulator"
    feed = random_feed(g.graph, 20)
    real = whole_clip.run(g.graph, feed)[port.name]
    (given,) = onnxruntime.InferenceSession(net.model().SerializeToString()).run(None, feed)
    # The weights were rounded to 8 bits here: half a step for each of the 6 products of one output.
    step = float(np.abs(w).max()) / 127 / 2
    assert (
        np.abs(real - given).max()
        <= 6 * step * float(np.abs(feed[g.graph.inputs[0].name].astype(np.float64)).max()) * 1.01
    )


PATTERNS: dict[str, Callable[..., Any]] = {n: f for n, f in globals().items() if n.startswith("test_p")}


def test_every_pattern_has_a_test() -> None:
    numbers = {
        int(part[1:]) for name in PATTERNS for part in name.split("_")[1:3] if part[0] == "p" and part[1:].isdigit()
    }
    assert numbers == set(range(1, 35))
