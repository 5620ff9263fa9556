"""Every operator, one case a row: numpy reference == streamed C, and the reference against onnxruntime.

Cases compare "equal" with onnxruntime, except where it decides ties otherwise ("ties", within one code): its Add and
Mul kernels round after adding the zero point, its Softmax runs in float, and where it does not fuse a product it sums
floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from checks import Workshop, assert_same, check_op
from models import Act, Net
from onnx import TensorProto, helper, numpy_helper

from codegen.errors import CodegenError
from codegen.frontend.load import OPSETS
from codegen.host import HostModel
from codegen.reference import whole_clip
from codegen.verify import random_feed

RELU = [("Relu", ())]
FORMS = ["qdq", "qop"]
DTYPES = ["int8", "uint8"]


def one(net: Net, x: Act, build: Callable[[Net, Act], Act]) -> onnx.ModelProto:
    net.output(build(net, x))
    return net.model()


CONV_1D: dict[str, dict[str, Any]] = {
    "plain": {"channels": 5, "kernel": [3]},
    "pointwise": {"channels": 5, "kernel": [1]},
    "same": {"channels": 5, "kernel": [3], "pads": [1, 1]},
    "causal": {"channels": 5, "kernel": [4], "pads": [3, 0]},
    "future": {"channels": 5, "kernel": [4], "pads": [0, 3]},
    "uneven": {"channels": 3, "kernel": [5], "pads": [1, 3]},
    "pads_beyond_kernel": {"channels": 3, "kernel": [2], "pads": [4, 5]},
    "stride2": {"channels": 5, "kernel": [3], "strides": [2], "pads": [1, 1]},
    "stride3_gaps": {"channels": 5, "kernel": [2], "strides": [3]},
    "stride4_k5": {"channels": 2, "kernel": [5], "strides": [4], "pads": [2, 1]},
    "dilated": {"channels": 5, "kernel": [3], "dilations": [2], "pads": [2, 2]},
    "dilated_stride": {"channels": 4, "kernel": [3], "dilations": [3], "strides": [2], "pads": [6, 0]},
    "groups": {"channels": 6, "kernel": [3], "group": 2, "pads": [1, 1]},
    "depthwise": {"channels": 4, "kernel": [3], "group": 4, "pads": [2, 0]},
    "depthwise_multiplier": {"channels": 12, "kernel": [3], "group": 4, "pads": [1, 1]},
    "no_bias": {"channels": 5, "kernel": [3], "bias": None},
    "relu": {"channels": 5, "kernel": [3], "then": RELU},
    "clip": {"channels": 5, "kernel": [3], "then": [("Clip", (-0.5, 0.75))]},
    "relu6_like": {"channels": 5, "kernel": [3], "pads": [1, 1], "then": [("Clip", (0.0, 1.0))]},
    "valid": {"channels": 5, "kernel": [3], "auto_pad": "VALID", "strides": [2]},
    "same_upper": {"channels": 5, "kernel": [4], "auto_pad": "SAME_UPPER"},
    "same_lower": {"channels": 5, "kernel": [4], "auto_pad": "SAME_LOWER"},
    "notset": {"channels": 5, "kernel": [3], "auto_pad": "NOTSET", "pads": [1, 0]},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CONV_1D)
def test_conv_1d(shop: Workshop, case: str, form: str, dtype: str) -> None:
    per_channel = (len(case) + len(form)) % 2 == 0
    net = Net(dtype, form=form, seed=len(case), per_channel=per_channel)
    check_op(shop, one(net, net.input([1, 4, "T"]), lambda n, x: n.conv(x, **CONV_1D[case])))


CONV_2D: dict[str, dict[str, Any]] = {
    "plain": {"channels": 3, "kernel": [3, 3]},
    "same": {"channels": 3, "kernel": [3, 3], "pads": [1, 1, 1, 1]},
    "causal": {"channels": 3, "kernel": [3, 3], "pads": [2, 1, 0, 1]},
    "uneven": {"channels": 3, "kernel": [2, 4], "pads": [1, 0, 0, 3]},
    "stride": {"channels": 4, "kernel": [3, 3], "strides": [2, 3], "pads": [1, 2, 1, 0]},
    "dilated": {"channels": 3, "kernel": [3, 2], "dilations": [2, 3], "pads": [4, 1, 0, 2]},
    "depthwise": {"channels": 4, "kernel": [3, 3], "group": 2, "pads": [1, 1, 1, 1], "then": RELU},
    "whole_width": {"channels": 5, "kernel": [2, 7]},
    "same_upper": {"channels": 3, "kernel": [4, 4], "auto_pad": "SAME_UPPER"},
    "same_lower": {"channels": 3, "kernel": [4, 4], "auto_pad": "SAME_LOWER"},
    "same_upper_stride_inside": {"channels": 3, "kernel": [3, 3], "strides": [1, 2], "auto_pad": "SAME_UPPER"},
}


@pytest.mark.parametrize("dims", [["N", 2, "T", 7], [1, 2, 11, 7], ["N", 2, 7, "T"]], ids=["rows", "clip", "columns"])
@pytest.mark.parametrize("case", CONV_2D)
def test_conv_2d(shop: Workshop, case: str, dims: list[int | str]) -> None:
    options = dict(CONV_2D[case])
    if dims[-1] == "T":  # the stream is the last axis: turn the case around
        for key in ("kernel", "strides", "dilations"):
            if key in options:
                options[key] = options[key][::-1]
        if "pads" in options:
            top, left, bottom, right = options["pads"]
            options["pads"] = [left, top, right, bottom]
    dtype, form = DTYPES[len(case) % 2], FORMS[len(case) // 2 % 2]
    net = Net(dtype, form=form, seed=len(case), per_channel=len(case) % 3 == 0)
    check_op(shop, one(net, net.input(dims), lambda n, x: n.conv(x, **options)))


CLIP_AUTO_PAD = [
    (kind, kernel, stride, dilation, length)
    for kind in ("SAME_UPPER", "SAME_LOWER", "VALID")
    for kernel, stride, dilation, length in ((4, 2, 1, 11), (3, 3, 1, 12), (2, 3, 1, 10), (5, 2, 1, 9))
]


@pytest.mark.parametrize(("kind", "kernel", "stride", "dilation", "length"), CLIP_AUTO_PAD)
def test_auto_pad_with_a_stride_needs_a_fixed_length(
    shop: Workshop, kind: str, kernel: int, stride: int, dilation: int, length: int
) -> None:
    def model(time: int | str) -> onnx.ModelProto:
        net = Net("int8", seed=kernel)
        attrs = {"strides": [stride], "dilations": [dilation], "auto_pad": kind}
        return one(net, net.input([1, 3, time]), lambda n, x: n.conv(x, 4, [kernel], **attrs))

    check_op(shop, model(length))
    if kind == "VALID":
        check_op(shop, model("T"))
        return
    with pytest.raises(CodegenError, match="padding depends on T") as caught:
        shop.build(model("T"))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("bias", ["int32", "float", None])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_conv_bias_forms(shop: Workshop, bias: str | None, per_channel: bool, dtype: str) -> None:
    net = Net(dtype, seed=7, per_channel=per_channel)
    # A float bias is rounded to x_scale * w_scale; onnxruntime does the same only where it fuses the node.
    runtime = "ties" if bias == "float" else "equal"
    check_op(shop, one(net, net.input([1, 4, "T"]), lambda n, x: n.conv(x, 6, [3], bias=bias)), runtime=runtime)


@pytest.mark.parametrize(
    ("dtype", "zero"),
    [*(("uint8", zero) for zero in (128, 0, 255, 77)), *(("int8", zero) for zero in (0, -128, 127, -3))],
)
@pytest.mark.parametrize("form", FORMS)
def test_activation_zero_points(shop: Workshop, dtype: str, zero: int, form: str) -> None:
    """Padding is the zero point's code, whatever it is."""
    net = Net(dtype, form=form, seed=zero % 7, zero=zero)
    x = net.input([1, 3, "T"])
    y = net.conv(x, 5, [3], pads=[2, 1])
    check_op(shop, one(net, y, lambda n, v: n.conv(v, 4, [4], pads=[1, 2], strides=[2])))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_uint8_weights_with_zero_points(shop: Workshop, form: str, per_channel: bool) -> None:
    """Weights less their zero point need more than 8 bits. onnxruntime takes only per-tensor zero points there."""
    net = Net("uint8", form=form, seed=3, per_channel=per_channel, weight_dtype="uint8")
    runtime = "none" if per_channel else "equal"
    model = one(net, net.input([1, 4, "T"]), lambda n, x: n.conv(x, 5, [3], pads=[1, 1]))
    check_op(shop, model, runtime=runtime)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["Relu", "Clip"])
def test_clamps_between_quantized_pairs(shop: Workshop, op: str, dtype: str) -> None:
    """DequantizeLinear -> Relu or Clip -> QuantizeLinear with the same scale (max(q, zp)) and with another one."""
    consts = [np.float32(-0.4), np.float32(0.9)] if op == "Clip" else []
    for same in (True, False):
        net = Net(dtype, seed=2)
        x = net.input([1, 4, "T"])
        y = net.conv(x, 4, [3])
        check_op(shop, one(net, y, lambda n, v, same=same: n.real_op(op, [v], consts=consts, same=same)))


def test_clip_with_one_bound_and_relu_without_its_own_quantization(shop: Workshop) -> None:
    net = Net("int8", seed=4)
    x = net.input([1, 4, "T"])
    y = net.conv(x, 4, [3])
    real = net.node("Clip", [net.dequantize(y), "", net.const(np.float32(0.5))])
    y = net.quantize(real, np.minimum(y.real, 0.5), like=y)
    real = net.node("Relu", [net.dequantize(y)])
    real = net.node("MaxPool", [real], kernel_shape=[2])
    y = net.quantize(real, np.maximum(y.real, 0), like=y)
    net.output(y)
    check_op(shop, net.model())


POOLS: dict[str, tuple[list[int | str], dict[str, Any]]] = {
    "k2s2": ([1, 4, "T"], {"kernel_shape": [2], "strides": [2]}),
    "k3s1_pads": ([1, 4, "T"], {"kernel_shape": [3], "pads": [1, 1]}),
    "k3s2_uneven": ([1, 4, "T"], {"kernel_shape": [3], "strides": [2], "pads": [0, 2]}),
    "dilated": ([1, 4, "T"], {"kernel_shape": [3], "dilations": [2], "pads": [2, 0]}),
    "ceil": ([1, 4, "T"], {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}),
    "ceil_k3s2_pads": ([1, 4, "T"], {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "ceil_mode": 1}),
    "same_upper": ([1, 4, "T"], {"kernel_shape": [4], "auto_pad": "SAME_UPPER"}),
    "2d": (["N", 3, "T", 6], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "2d_pads": (["N", 3, "T", 6], {"kernel_shape": [3, 3], "pads": [2, 1, 0, 1]}),
    "2d_ceil": (["N", 3, "T", 5], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    "2d_clip_ceil": ([1, 3, 7, 5], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    "2d_inside": (["N", 3, "T", 6], {"kernel_shape": [1, 3], "strides": [1, 3]}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("on_codes", [False, True], ids=["dq_q", "codes"])
@pytest.mark.parametrize("case", POOLS)
def test_max_pool(shop: Workshop, case: str, on_codes: bool, dtype: str) -> None:
    dims, attrs = POOLS[case]
    net = Net(dtype, seed=len(case))
    x = net.conv(net.input(dims), 4, [1] * (len(dims) - 2))
    y = net.code_op("MaxPool", x, **attrs) if on_codes else net.real_op("MaxPool", [x], same=True, **attrs)
    net.output(y)
    for length in (36, 37):
        check_op(shop, net.model(), length=length)


def test_max_pool_to_another_scale_and_after_relu(shop: Workshop) -> None:
    net = Net("int8", seed=1)
    x = net.input([1, 3, "T"])
    y = net.conv(x, 4, [3])
    net.output(net.real_op("MaxPool", [y], kernel_shape=[3], strides=[2]))
    net.output(net.real_op("Relu", [net.real_op("MaxPool", [y], same=True, kernel_shape=[2])], same=True))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("then", [[], RELU, [("Clip", (-1.0, 1.5))]], ids=["plain", "relu", "clip"])
def test_add_of_two_scales(shop: Workshop, form: str, dtype: str, then: list[Any]) -> None:
    """Operands of different scale and lookahead; onnxruntime's kernel rounds ties otherwise."""
    net = Net(dtype, form=form, seed=6)
    x = net.input([1, 4, "T"])
    early, late = net.conv(x, 4, [3], pads=[2, 0]), net.conv(x, 4, [7], pads=[1, 5])
    net.output(net.add(early, late, then=[] if form == "qop" else then))
    check_op(shop, net.model(), runtime="ties")


def test_add_of_a_tensor_with_itself_and_with_a_broadcast(shop: Workshop) -> None:
    net = Net("int8", seed=8)
    x = net.input(["N", 3, "T", 5])
    y = net.conv(x, 3, [3, 1], pads=[2, 0, 0, 0])
    narrow = net.conv(x, 3, [1, 5])
    net.output(net.add(y, y))
    net.output(net.add(y, narrow))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trans_b", [True, False])
@pytest.mark.parametrize("bias", ["int32", "float", None])
def test_gemm(shop: Workshop, dtype: str, trans_b: bool, bias: str | None) -> None:
    net = Net(dtype, seed=9, per_channel=trans_b)
    x = net.input([1, 10])
    y = net.gemm(net.gemm(x, 8, bias=bias, trans_b=trans_b), 6, bias=bias, trans_b=trans_b)
    net.output(y)
    check_op(shop, net.model(), runtime="ties" if bias == "float" else "equal")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [[1, 10], ["T", 10], [1, "T", 10], [1, 3, "T", 10]], ids=str)
def test_qgemm_and_qlinear_matmul(shop: Workshop, dtype: str, dims: list[int | str]) -> None:
    net = Net(dtype, form="qop", seed=9, per_channel=False)
    x = net.input(dims)
    y = net.gemm(x, 8) if len(dims) == 2 else net.matmul(x, 8)
    net.output(net.matmul(y, 6))
    check_op(shop, net.model())


@pytest.mark.parametrize("add", [None, "float", "int32"])
@pytest.mark.parametrize("dims", [[1, 10], [1, "T", 10], ["N", "T", 10]], ids=str)
def test_matmul_and_constant_add(shop: Workshop, add: str | None, dims: list[int | str]) -> None:
    """onnxruntime adds the constant in float after the product: ties may fall otherwise."""
    net = Net("int8", seed=10, per_channel=True)
    y = net.matmul(net.matmul(net.input(dims), 8, add=add), 6, add=add)
    net.output(y)
    check_op(shop, net.model(), runtime="ties" if add else "equal")


PADS: dict[str, tuple[list[int | str], list[int]]] = {
    "left": ([1, 3, "T"], [0, 0, 2, 0, 0, 0]),
    "right": ([1, 3, "T"], [0, 0, 0, 0, 0, 3]),
    "both": ([1, 3, "T"], [0, 0, 4, 0, 0, 1]),
    "crop_left": ([1, 3, "T"], [0, 0, -2, 0, 0, 1]),
    "crop_right": ([1, 3, "T"], [0, 0, 0, 0, 0, -3]),
    "channels": ([1, 3, "T"], [0, 1, 0, 0, 2, 0]),
    "frame": (["N", 2, "T", 4], [0, 0, 0, 1, 0, 0, 0, 2]),
    "all": (["N", 2, "T", 4], [0, 1, 2, 1, 0, 1, 1, -1]),
    "clip": ([1, 2, 8, 4], [0, 0, 2, 1, 0, 0, 1, 1]),
}


@pytest.mark.parametrize("alone", [False, True], ids=["before_conv", "alone"])
@pytest.mark.parametrize("case", PADS)
def test_pad(shop: Workshop, case: str, alone: bool) -> None:
    dims, pads = PADS[case]
    net = Net("int8", seed=len(case))
    x = net.input(dims)
    y = x if alone else net.conv(x, 3, [2] * (len(dims) - 2))
    y = net.real_op("Pad", [y], consts=[np.asarray(pads, np.int64)], same=True)
    net.output(y if alone else net.conv(y, 4, [3] + [1] * (len(dims) - 3)))
    check_op(shop, net.model())


def test_pad_value_codes_and_attribute_form(shop: Workshop) -> None:
    """A value other than 0; Pad on the codes (its value is a code); pads as an attribute before opset 11."""
    pads = np.asarray([0, 0, 2, 0, 0, 1], np.int64)
    net = Net("uint8", seed=1)
    x = net.input([1, 3, "T"])
    y = net.real_op("Pad", [x], consts=[pads, np.float32(0.7)], same=True)
    net.output(net.conv(y, 4, [3]))
    check_op(shop, net.model())
    net = Net("uint8", seed=1)
    x = net.input([1, 3, "T"])
    net.output(net.conv(net.code_op("Pad", x, [pads, np.uint8(9)]), 4, [3]))
    check_op(shop, net.model())
    net = Net("uint8", seed=1, opset=10)
    x = net.input([1, 3, "T"])
    net.output(net.conv(net.real_op("Pad", [x], same=True, pads=pads.tolist()), 4, [3]))
    check_op(shop, net.model())


SLICES: dict[str, tuple[list[int | str], tuple[list[int], list[int], list[int], list[int]]]] = {
    "drop_first": ([1, 4, "T"], ([2], [2**31 - 1], [2], [1])),
    "drop_last": ([1, 4, "T"], ([0], [-3], [2], [1])),
    "drop_both": ([1, 4, "T"], ([1], [-2], [-1], [1])),
    "channels": ([1, 4, "T"], ([1], [3], [1], [1])),
    "every_other_channel": ([1, 4, "T"], ([0], [4], [1], [2])),
    "reversed_channels": ([1, 4, "T"], ([-1], [-(2**31)], [1], [-1])),
    "width": (["N", 2, "T", 6], ([1], [5], [3], [2])),
    "two_axes": (["N", 4, "T", 6], ([1, 1], [3, -1], [1, 2], [1, 1])),
}


@pytest.mark.parametrize("on_codes", [False, True], ids=["dq_q", "codes"])
@pytest.mark.parametrize("case", SLICES)
def test_slice(shop: Workshop, case: str, on_codes: bool) -> None:
    dims, bounds = SLICES[case]
    net = Net("int8", seed=len(case))
    x = net.conv(net.input(dims), 4, [2] + [1] * (len(dims) - 3))
    consts = [np.asarray(v, np.int64) for v in bounds]
    y = net.code_op("Slice", x, consts) if on_codes else net.real_op("Slice", [x], consts=consts, same=True)
    net.output(y)
    check_op(shop, net.model())


def test_chomp_after_padding_on_both_sides(shop: Workshop) -> None:
    """The causal convolution of many TCNs: pad both sides by k - 1, then cut the end off."""
    net = Net("int8", seed=5)
    x = net.input([1, 4, "T"])
    y = net.conv(x, 4, [3], pads=[4, 4], dilations=[2])
    y = net.real_op("Slice", [y], consts=[np.asarray(v, np.int64) for v in ([0], [-4], [2])], same=True)
    net.output(net.add(x, y))
    g = check_op(shop, net.model(), runtime="ties")
    assert "lookahead 0" in g.files["src/m.h"], "the cut takes the lookahead away"


SOFTMAX = [(opset, axis) for opset in (11, 12, 13, 17) for axis in (1, -1, 2)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("opset", "axis"), SOFTMAX)
def test_softmax(shop: Workshop, opset: int, axis: int, dtype: str) -> None:
    """[1, T, C] over channels; before opset 13 all axes from `axis` on are one, so that axis 1 reaches the stream."""
    net = Net(dtype, seed=opset, opset=opset)
    x = net.matmul(net.input([1, "T", 6]), 7)
    net.output(net.real_op("Softmax", [x], axis=axis, scale=(1 / 256, 0 if dtype == "uint8" else -128)))
    if axis == 1:
        with pytest.raises(CodegenError, match="stream axis"):
            shop.build(net.model())
        return
    check_op(shop, net.model(), runtime="ties")


def test_softmax_defaults_and_middle_axes(shop: Workshop) -> None:
    """Without an axis: the last one since opset 13, all behind the batch before. Over channels of NCT and NCTW."""
    net = Net("int8", seed=1, opset=11)
    x = net.gemm(net.input([1, 9]), 12)
    net.output(
        net.real_op("Softmax", [net.code_op("Reshape", x, [np.asarray([-1, 3, 4], np.int64)])], scale=(1 / 256, -128))
    )
    check_op(shop, net.model(), runtime="ties")
    for dims in ([1, 5, "T"], ["N", 5, "T", 3]):
        net = Net("int8", seed=2)
        x = net.conv(net.input(dims), 6, [1] * (len(dims) - 2))
        net.output(net.real_op("Softmax", [x], axis=1, scale=(1 / 256, -128)))
        check_op(shop, net.model(), runtime="ties")


def _ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def relabel_btc(net: Net) -> Act:
    """[1, T, C] -> Transpose -> Conv -> Transpose back: files from TensorFlow."""
    x = net.input([1, "T", 4])
    x = net.code_op("Transpose", x, perm=[0, 2, 1])
    return net.code_op("Transpose", net.conv(x, 5, [3], pads=[2, 0]), perm=[0, 2, 1])


def relabel_nhwc(net: Net) -> Act:
    x = net.input(["N", "T", 6, 3])
    x = net.real_op("Transpose", [x], same=True, perm=[0, 3, 1, 2])
    return net.real_op("Transpose", [net.conv(x, 5, [3, 3], pads=[2, 1, 0, 1])], same=True, perm=[0, 2, 3, 1])


def relabel_conv1d_as_2d(net: Net) -> Act:
    """Unsqueeze -> 2-D convolution of height 1 -> Squeeze."""
    x = net.input([1, 4, "T"])
    x = net.code_op("Unsqueeze", x, [_ints(2)])
    return net.code_op("Squeeze", net.conv(x, 5, [1, 3], pads=[0, 1, 0, 1]), [_ints(2)])


def relabel_reshape_frames(net: Net) -> Act:
    """[1, T, 12] -> [1, T, 3, 4] -> transposed inside the frame -> [1, T, 12] -> MatMul."""
    x = net.input([1, "T", 12])
    x = net.code_op("Reshape", x, [_ints(1, -1, 3, 4)])
    x = net.code_op("Transpose", x, perm=[0, 1, 3, 2])
    x = net.code_op("Reshape", x, [_ints(1, -1, 12)])
    return net.matmul(x, 5)


def relabel_flatten_rows(net: Net) -> Act:
    """[T, 3, 4] -> Flatten -> [T, 12] -> Gemm: the stream is axis 0."""
    x = net.input(["T", 3, 4])
    return net.gemm(net.code_op("Flatten", x, axis=1), 5)


def relabel_flatten_image(net: Net) -> Act:
    """No stream axis: [1, 12] -> [1, 3, 2, 2] -> Flatten -> Gemm, layer by layer."""
    x = net.gemm(net.input([1, 9]), 12)
    x = net.code_op("Reshape", x, [_ints(-1, 3, 2, 2)])
    x = net.code_op("Transpose", x, perm=[0, 2, 3, 1])
    return net.gemm(net.code_op("Flatten", x), 5)


def relabel_identities(net: Net) -> Act:
    x = net.input([1, 4, "T"])
    x = net.code_op("Identity", x)
    y = net.conv(x, 4, [2])
    return net.real_op("Identity", [y], same=True)


def relabel_conv_of_frames(net: Net) -> Act:
    """[1, C*W, T] -> Reshape -> [1, C, W, T] -> 2-D convolution whose last axis is the stream."""
    x = net.input([1, 12, "T"])
    x = net.code_op("Reshape", x, [_ints(1, 3, 4, -1)])
    return net.conv(x, 5, [3, 3], pads=[1, 2, 1, 0])


RELABEL = {
    f.__name__.removeprefix("relabel_"): f
    for f in (
        relabel_btc,
        relabel_nhwc,
        relabel_conv1d_as_2d,
        relabel_reshape_frames,
        relabel_flatten_rows,
        relabel_flatten_image,
        relabel_identities,
        relabel_conv_of_frames,
    )
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", RELABEL)
def test_relabelling(shop: Workshop, case: str, dtype: str) -> None:
    net = Net(dtype, seed=len(case))
    net.output(RELABEL[case](net))
    g = check_op(shop, net.model())
    if case in ("btc", "nhwc", "conv1d_as_2d", "flatten_rows", "identities"):
        assert not any(type(n.op).__name__ == "Copy" for n in g.graph.nodes), "relabelling moves no data"


def test_shape_subgraph_is_folded(shop: Workshop) -> None:
    """Reshape to a target computed by Shape -> Gather -> Concat, as exporters write `x.view(n, -1, t)`."""
    net = Net("int8", seed=3)
    x = net.input(["N", 3, "T", 4])
    shape = net.node("Shape", [x.name])
    n = net.node("Gather", [shape, net.const(np.asarray([0], np.int64))], axis=0)
    t = net.node("Gather", [shape, net.const(np.asarray([2], np.int64))], axis=0)
    moved = net.code_op("Transpose", x, perm=[0, 2, 1, 3])
    target = net.node("Concat", [n, t, net.const(np.asarray([-1], np.int64))], axis=0)
    out = net.node("Reshape", [moved.name, target])
    y = Act(out, moved.real.reshape(moved.real.shape[0], moved.real.shape[1], -1), x.scale, x.zero)
    net.output(net.matmul(y, 5))
    check_op(shop, net.model())


def test_stored_shapes_are_not_trusted(shop: Workshop) -> None:
    net = Net("int8", seed=3)
    x = net.input([1, 3, "T"])
    net.output(net.conv(x, 4, [3], pads=[1, 1]))
    model = net.model()
    for name in [n.output[0] for n in model.graph.node if n.op_type == "Conv"]:
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [9, 9, 9, 9]))
    check_op(shop, model, runtime="none")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("border", ["codes", "float"])
def test_without_a_stream_axis(shop: Workshop, dtype: str, border: str) -> None:
    """One push is the whole input; a second push is a second input."""
    net = Net(dtype, seed=12)
    x = net.input([1, 16], border=border)
    net.output(net.gemm(net.gemm(x, 9), 4), border)
    g = check_op(shop, net.model())
    assert g.manifest["clip_length"] == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opset", OPSETS)
def test_opsets(shop: Workshop, opset: int, form: str) -> None:
    """DequantizeLinear exists from 10 on; per-axis scales from 13; the shape of a QDQ chain is the same in all."""
    net = Net("uint8", form=form, seed=opset, opset=opset, per_channel=True)
    x = net.input(["N", 3, "T"], border="codes" if form == "qop" else "float")
    y = net.conv(x, 6, [3], pads=[1, 1], strides=[2], then=RELU)
    y = net.real_op("MaxPool", [y], same=True, kernel_shape=[2]) if form == "qdq" else y
    y = net.conv(y, 4, [2], then=[("Clip", (-0.5, 0.5))])
    net.output(y, "codes" if form == "qop" else "float")
    check_op(shop, net.model())


@pytest.mark.parametrize("opset", [OPSETS[0] - 1, OPSETS[-1] + 1])
def test_opsets_outside_the_range(shop: Workshop, opset: int) -> None:
    net = Net("uint8", seed=1)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3]))
    model = net.model()
    model.opset_import[0].version = opset
    with pytest.raises(CodegenError, match=f"opset {opset}") as caught:
        shop.build(model)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("hop", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_float_border_and_hops(shop: Workshop, hop: int, dtype: str) -> None:
    """Float in and out: the host quantizes and dequantizes, the C border has the type of the codes."""
    net = Net(dtype, seed=hop, per_channel=True)
    x = net.input([1, 3, "T"], border="float")
    y = net.conv(x, 5, [5], strides=[2], pads=[2, 2], then=RELU)
    net.output(net.conv(y, 3, [3], strides=[3], pads=[0, 1]), "float")
    check_op(shop, net.model(), hop=hop, length=41)


def test_constants_behind_constant_nodes_and_unsorted_nodes(shop: Workshop) -> None:
    """Weights in Constant nodes, nodes in reverse order."""
    net = Net("int8", seed=2)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3]))
    model = net.model()
    moved = [helper.make_node("Constant", [], [t.name], value=t) for t in model.graph.initializer]
    nodes = [*model.graph.node, *moved]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(nodes[::-1])
    check_op(shop, model, runtime="none")


def test_weights_quantized_in_the_file(shop: Workshop) -> None:
    """Float weights behind QuantizeLinear -> DequantizeLinear: the codes are computed once, at build time."""
    net = Net("int8", seed=2)
    x = net.input([1, 3, "T"])
    real = net.rng.normal(0, 0.4, (4, 3, 3)).astype(np.float32)
    scale, zero = net.const(np.float32(0.01)), net.const(np.int8(0))
    codes = net.node("QuantizeLinear", [net.const(real), scale, zero])
    w = net.node("DequantizeLinear", [codes, scale, zero])
    out = net.node("Conv", [net.dequantize(x), w])
    net.output(net.quantize(out, np.random.default_rng(0).normal(0, 1.5, (1, 4, 60))))
    check_op(shop, net.model())


def test_host_load_compiles_a_folder(shop: Workshop, tmp_path: Any) -> None:
    """codegen.host.load is what users call: its own compiler run, reset, push, finish, run, inputs and outputs."""
    from codegen import host
    from codegen.reference import run
    from codegen.verify.verification import random_feed

    net = Net("uint8", seed=2)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3], pads=[1, 1]))
    g = shop.build(net.model())
    model: HostModel = host.load(g.folder)
    assert [(p.name, p.dtype, p.stream_axis) for p in model.inputs] == [("x", "uint8", 2)]
    feed = random_feed(g.graph, 20, 1)
    want = run(g.path, feed)
    (name,) = want
    parts = [model.push({"x": feed["x"][:, :, :7]}), model.push({"x": feed["x"][:, :, 7:]}), model.finish()]
    np.testing.assert_array_equal(np.concatenate([p[name] for p in parts], axis=2), want[name])
    with pytest.raises(CodegenError, match="manifest"):
        host.load(tmp_path)


def test_numpy_helper_round_trip_of_the_builder() -> None:
    """The builder itself: codes of its sample use most of their range, in both forms."""
    for form in FORMS:
        net = Net("int8", form=form, seed=0)
        y = net.conv(net.input([1, 4, "T"]), 5, [3])
        codes = y.codes("int8")
        assert np.unique(codes).size > 60 and codes.min() < -100 and codes.max() > 100
        assert all(numpy_helper.to_array(c).size for c in net.constants)


@pytest.mark.parametrize("on_codes", [True, False])
def test_max_pool_indices_that_nobody_reads(shop: Workshop, on_codes: bool) -> None:
    check_op(shop, indexed_pool(on_codes, read=False))


@pytest.mark.parametrize("on_codes", [True, False])
def test_max_pool_indices_that_are_read(shop: Workshop, on_codes: bool) -> None:
    with pytest.raises(CodegenError, match="its Indices output at is read") as caught:
        shop.build(indexed_pool(on_codes, read=True))
    assert caught.value.exit_code == 3


def indexed_pool(on_codes: bool, read: bool) -> onnx.ModelProto:
    net = Net("int8", seed=8)
    x = net.conv(net.input([1, 3, 12]), 4, [3])
    pooled = helper.make_node(
        "MaxPool", [x.name if on_codes else net.dequantize(x)], ["best", "at"], "pool", kernel_shape=[2], strides=[2]
    )
    net.nodes.append(pooled)
    real = x.real.reshape(1, 4, 5, 2).max(axis=3)
    net.output(Act("best", real, x.scale, x.zero) if on_codes else net.quantize("best", real))
    if read:
        net.outputs.append(helper.make_tensor_value_info("at", TensorProto.INT64, [1, 4, 5]))
    return net.model()


ON_CODES: dict[str, tuple[str, str, tuple[int | None, ...]]] = {
    "relu": ("int8", "Relu", ()),
    "clip_int8": ("int8", "Clip", (-20, 60)),
    "clip_uint8": ("uint8", "Clip", (100, 180)),
    "clip_above": ("int8", "Clip", (None, 10)),
    "clip_below": ("uint8", "Clip", (130,)),
}


@pytest.mark.parametrize("case", ON_CODES)
def test_clamps_of_codes_themselves(shop: Workshop, case: str) -> None:
    """Bounds are codes, whatever the zero point is (exporters write Q -> Clip(int8) -> DQ)."""
    dtype, op, bounds = ON_CODES[case]
    net = Net(dtype, seed=4)
    x = net.conv(net.input([1, 3, "T"]), 4, [3], pads=[2, 0])
    y = net.code_op(op, x, [np.asarray(b, dtype) for b in bounds if b is not None] if bounds[:1] != (None,) else [])
    if bounds[:1] == (None,):
        high = net.const(np.asarray(bounds[1], dtype))
        y = Act(net.node(op, [x.name, "", high], "k"), x.real, x.scale, x.zero)
    assert y.name != x.name
    net.output(net.conv(y, 5, [2]))
    net.output(y)
    check_op(shop, net.model())


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("what", ["two", "constant", "constants"])
def test_max_and_min_of_codes_themselves(shop: Workshop, op: str, dtype: str, what: str) -> None:
    """Compared as numbers; onnxruntime has no such kernel for 8 bits, so numpy says what is right."""
    net = Net(dtype, seed=5)
    x = net.input([1, 4, "T"])
    values = {"constant": np.asarray([115], dtype), "constants": np.asarray([90, 100, 115, 127], dtype).reshape(4, 1)}
    other = Act("x", x.real, x.scale, x.zero) if what == "two" else None
    a = net.conv(x, 4, [1])
    operand = net.conv(other, 4, [1]).name if other else net.const(values[what])
    net.output(Act(net.node(op, [a.name, operand], "picked"), a.real, a.scale, a.zero))
    g = shop.build(net.model())
    feed = random_feed(g.graph, 50)
    inner = whole_clip.run_codes(g.graph, {"x": whole_clip.quantize_input(feed["x"], g.graph.inputs[0])})
    got = whole_clip.run(g.graph, feed)[g.graph.outputs[0].name]
    pick = np.maximum if op == "Max" else np.minimum
    node = next(n for n in g.graph.nodes if n.output == g.graph.outputs[0].tensor)
    shift = 128 if dtype == "uint8" else 0
    operands = [inner[name].astype(np.int64).reshape(50, 4) + shift for name in node.inputs]
    right = operands[1] if what == "two" else values[what].astype(np.int64).reshape(1, -1)
    assert_same(got.reshape(4, 50).T.astype(np.int64), pick(operands[0], right), op)
    model = shop.host(g)
    assert_same(model.run(feed, [1, 7])[g.graph.outputs[0].name], got, "C")


@pytest.mark.parametrize("first", ["int8", "uint8"])
def test_an_input_quantized_twice(shop: Workshop, first: str) -> None:
    """int8, and uint8 with a zero point 128 higher, are one code: one input of C in the first one's type."""
    net = Net(first, seed=6)
    x = net.input([1, 3, "T"], border="float")
    other = "uint8" if first == "int8" else "int8"
    zero = np.asarray(x.zero + (128 if other == "uint8" else -128), other)
    again = net.node("QuantizeLinear", ["x", net.const(np.asarray(x.scale)), net.const(zero)], "again")
    real = net.node("DequantizeLinear", [again, net.const(np.asarray(x.scale)), net.const(zero)], "real")
    both = net.quantize(net.node("Add", [real, net.dequantize(net.conv(x, 3, [1]))], "sum"), x.real * 1.5)
    net.output(both)
    g = check_op(shop, net.model(), runtime="ties")
    assert g.manifest["inputs"][0]["code_dtype"] == first


def test_an_input_quantized_with_two_zero_points_is_refused(shop: Workshop) -> None:
    net = Net("int8", seed=6)
    x = net.input([1, 3, "T"], border="float")
    zero = np.asarray(x.zero + 9, np.int8)
    again = net.node("QuantizeLinear", ["x", net.const(np.asarray(x.scale)), net.const(zero)], "again")
    real = net.node("DequantizeLinear", [again, net.const(np.asarray(x.scale)), net.const(zero)], "real")
    net.output(net.quantize(net.node("Add", [real, net.dequantize(x)], "sum"), x.real * 1.5))
    with pytest.raises(CodegenError, match="do not determine each other"):
        shop.build(net.model())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("zeros", [(0, 0, 1), (3, -5, 7), (1, 2, 4)])
@pytest.mark.parametrize("constant", [False, True])
def test_qlinear_pairs_round_after_the_zero_point(
    shop: Workshop, op: str, dtype: str, zeros: tuple[int, int, int], constant: bool
) -> None:
    """Every pair of codes, with scales that make many ties: onnxruntime's codes, all of them."""
    shift, kind = 128 if dtype == "uint8" else 0, TensorProto.DataType.Value(dtype.upper())
    net = Net(dtype, seed=1)
    numbers = zip((0.5, 0.25, 1.0), zeros, strict=True)
    a, b, y = ([net.const(np.float32(s)), net.const(np.asarray(z + shift, dtype))] for s, z in numbers)
    codes = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    net.inputs.append(helper.make_tensor_value_info("x", kind, [1, 16, "T"]))
    feed, second = {"x": np.tile(codes, (16, 1))[None]}, net.const(codes[::16].reshape(16, 1))
    if not constant:
        net.inputs.append(helper.make_tensor_value_info("w", kind, [1, 16, "T"]))
        feed, second = {"x": np.repeat(codes, 256).reshape(1, 16, -1), "w": np.tile(codes, 256).reshape(1, 16, -1)}, "w"
    out = net.node(op, ["x", *a, second, *b, *y], "pair", domain="com.microsoft")
    net.output(Act(out, np.zeros((1, 16, 8), np.float32), np.float32(1), 0))
    check_op(shop, net.model(), feed)
