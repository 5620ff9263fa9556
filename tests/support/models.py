"""Small quantized ONNX models, made in memory.

A `Net` grows node by node. Every value carries a sample: each operator is run in float on it (onnxruntime, one node
at a time), and the quantization parameters of the result come from what that gives, so that codes spread over their
range and no tensor is dead. Both forms that quantizers write are made: QDQ and QLinear operators ("qop").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
ELEMENT = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}
SAMPLE_LENGTH = 64


@dataclass(frozen=True)
class Act:
    """A quantized activation: the tensor that holds its codes, and a sample of its real values."""

    name: str
    real: Array
    scale: np.float32
    zero: int

    def codes(self, dtype: str) -> Array:
        info = np.iinfo(dtype)
        return np.clip(np.rint(self.real / self.scale) + self.zero, info.min, info.max).astype(dtype)


@dataclass(frozen=True)
class Weights:
    """Constant weights: quantized codes, scale and zero point names, the real values, scales."""

    codes: str
    scale_name: str
    zero_name: str
    real: Array
    scale: Array
    axis: int


def float_node(
    op_type: str, arrays: Sequence[Array | None], attrs: Mapping[str, Any], opset: int, domain: str = ""
) -> Array:
    """The first output of one operator on concrete arrays, by onnxruntime."""
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    node = helper.make_node(op_type, names, ["o"], domain=domain, **attrs)
    present = {f"i{k}": np.asarray(a) for k, a in enumerate(arrays) if a is not None}
    values = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in present.items()
    ]
    first = next(iter(present.values()))
    kind = helper.np_dtype_to_tensor_dtype(first.dtype)
    graph = helper.make_graph([node], "f", values, [helper.make_tensor_value_info("o", kind, None)])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, present)[0])


class Net:
    """A model under construction. `dtype` of activations, `form` "qdq" or "qop", `wrap` renames every tensor."""

    def __init__(
        self,
        dtype: str = "int8",
        *,
        form: str = "qdq",
        opset: int = 17,
        seed: int = 0,
        per_channel: bool = False,
        weight_dtype: str = "int8",
        zero: int | None = None,
        wrap: Callable[[str], str] = lambda name: name,
    ) -> None:
        self.dtype, self.form, self.opset = dtype, form, opset
        self.per_channel, self.weight_dtype, self.zero = per_channel and opset >= 13, weight_dtype, zero
        if form == "qop":
            self.per_channel = per_channel
        self.wrap = wrap
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return self.wrap(f"{stem}{self.count}")

    def const(self, array: Array, stem: str = "c") -> str:
        name = self.name(stem)
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op_type: str, inputs: Sequence[str], stem: str = "t", domain: str = "", **attrs: Any) -> str:
        """Append a node with one output; returns the tensor."""
        out = self.name(stem)
        self.nodes.append(helper.make_node(op_type, list(inputs), [out], self.wrap(f"n_{out}"), domain=domain, **attrs))
        return out

    def input(
        self,
        dims: Sequence[int | str],
        *,
        name: str = "x",
        border: str = "codes",
        length: int = SAMPLE_LENGTH,
        scale: float | None = None,
    ) -> Act:
        """A graph input; symbol "T" has `length` steps in the sample, other symbols one. border: "codes" or "float"."""
        shape = [length if d == "T" else 1 if isinstance(d, str) else d for d in dims]
        if len(dims) == 2 and "T" not in dims:
            shape[0] = length  # one row has too few values to calibrate with
        real = self.rng.normal(0.1, 1.0, shape).astype(np.float32)
        name = self.wrap(name)
        kind = "float32" if border == "float" else self.dtype
        self.inputs.append(helper.make_tensor_value_info(name, ELEMENT[kind], list(dims)))
        if border == "float":
            return self.quantize(name, real)
        scale_, zero = self.calibrate(real)
        return Act(name, real, np.float32(scale) if scale else scale_, zero)

    def calibrate(self, values: Array, zero: int | None = None) -> tuple[np.float32, int]:
        """Scale and zero point that use the whole range of codes; a few per cent of the sample saturate."""
        info = np.iinfo(self.dtype)
        low, high = min(0.0, float(np.quantile(values, 0.01))), max(0.0, float(np.quantile(values, 0.99)))
        if high - low < 1e-6:
            high = low + 1.0
        zero = self.zero if zero is None else zero
        if zero is not None:
            room = [(-low) / max(zero - info.min, 1), high / max(info.max - zero, 1)]
            return np.float32(max(*room, 1e-6)), zero
        scale = np.float32((high - low) / 255.0)
        return scale, int(np.clip(np.rint(info.min - low / scale), info.min, info.max))

    def quantize(self, real_name: str, values: Array, like: Act | None = None, zero: int | None = None) -> Act:
        """QuantizeLinear with the parameters of `like`, else calibrated ones."""
        scale, z = (like.scale, like.zero) if like else self.calibrate(values, zero)
        names = self._params(scale, z)
        codes = self.node("QuantizeLinear", [real_name, *names], "q")
        return self._settle(codes, values, scale, z)

    def _settle(self, codes: str, values: Array, scale: np.float32, zero: int) -> Act:
        raw = Act(codes, values.astype(np.float32), scale, zero)
        return Act(codes, ((raw.codes(self.dtype).astype(np.int32) - zero) * scale).astype(np.float32), scale, zero)

    def _params(self, scale: Array | np.float32, zero: int) -> list[str]:
        return [self.const(np.float32(scale), "s"), self.const(np.dtype(self.dtype).type(zero), "z")]

    def dequantize(self, x: Act) -> str:
        return self.node("DequantizeLinear", [x.name, *self._params(x.scale, x.zero)], "r")

    def weights(self, shape: Sequence[int], axis: int = 0, fan_in: int | None = None) -> Weights:
        """Random weights, symmetric int8 or asymmetric uint8, scales per tensor or along `axis`."""
        fan = fan_in or int(np.prod(shape)) // shape[axis]
        real = self.rng.normal(0, 1 / np.sqrt(fan), shape).astype(np.float32)
        others = tuple(i for i in range(len(shape)) if i != axis)
        least = real.min(axis=others if self.per_channel else None)
        most = real.max(axis=others if self.per_channel else None)
        spread = [1] * len(shape)
        if self.per_channel:
            spread[axis] = shape[axis]
        if self.weight_dtype == "int8":
            scale = np.asarray(np.maximum(abs(least), abs(most)) / 127.0 + 1e-6, np.float32)
            zero = np.zeros(scale.shape, np.int8)
        else:
            least, most = np.minimum(least, 0), np.maximum(most, 0)
            scale = np.asarray((most - least) / 255.0 + 1e-6, np.float32)
            zero = np.asarray(np.clip(np.rint(-least / scale), 0, 255), np.uint8)
        s, z = scale.reshape(spread), zero.astype(np.int32).reshape(spread)
        info = np.iinfo(self.weight_dtype)
        codes = np.clip(np.rint(real / s) + z, info.min, info.max)
        used = ((codes - z) * s).astype(np.float32)
        names = (self.const(codes.astype(self.weight_dtype), "w"), self.const(scale, "ws"), self.const(zero, "wz"))
        return Weights(*names, used, scale, axis)

    def dequantized(self, w: Weights) -> str:
        attrs = {"axis": w.axis} if w.scale.size > 1 else {}
        return self.node("DequantizeLinear", [w.codes, w.scale_name, w.zero_name], "wr", **attrs)

    def bias(self, x: Act, w: Weights, channels: int, kind: str) -> tuple[str, Array]:
        """kind "int32" (behind DequantizeLinear), "codes" (the bare int32, for QLinear operators) or "float"."""
        real = self.rng.normal(0, 0.3, channels).astype(np.float32)
        if kind == "float":
            return self.const(real, "b"), real
        scale = np.asarray(np.float32(x.scale) * w.scale, np.float32)
        codes = np.rint(real / scale).astype(np.int32)
        used = (codes * scale).astype(np.float32)
        name = self.const(codes, "b")
        if kind == "codes":
            return name, used
        zeros = self.const(np.zeros(scale.shape, np.int32), "bz")
        attrs = {"axis": 0} if scale.size > 1 else {}
        return self.node("DequantizeLinear", [name, self.const(scale, "bs"), zeros], "br", **attrs), used

    def conv(
        self,
        x: Act,
        channels: int,
        kernel: Sequence[int],
        *,
        bias: str | None = "int32",
        then: Sequence[tuple[str, Sequence[float]]] = (),
        **attrs: Any,
    ) -> Act:
        """Conv, then Relu/Clip in float (`then`), then quantized. QLinear form has none between: bounds by range."""
        group = attrs.get("group", 1)
        w = self.weights([channels, x.real.shape[1] // group, *kernel])
        qop = self.form == "qop"
        b, b_real = self.bias(x, w, channels, "codes" if qop else bias) if bias else ("", None)
        real = float_node("Conv", [x.real, w.real, b_real], attrs, self.opset)
        if qop:
            for op, bounds in then:
                real = np.maximum(real, 0) if op == "Relu" else np.clip(real, *bounds)
            return self._qlinear("QLinearConv", x, w, real, [b] if b else [], "", attrs)
        out = self.node("Conv", [self.dequantize(x), self.dequantized(w), *([b] if b else [])], "y", **attrs)
        return self.clamped(out, real, then)

    def clamped(self, name: str, real: Array, then: Sequence[tuple[str, Sequence[float]]]) -> Act:
        for op, bounds in then:
            if op == "Relu":
                name, real = self.node("Relu", [name]), np.maximum(real, 0)
            elif self.opset < 11:
                name, real = self.node("Clip", [name], min=bounds[0], max=bounds[1]), np.clip(real, *bounds)
            else:
                ends = [self.const(np.float32(v)) for v in bounds]
                name, real = self.node("Clip", [name, *ends]), np.clip(real, *bounds)
        return self.quantize(name, real)

    def _qlinear(
        self, op_type: str, x: Act, w: Weights, real: Array, tail: Sequence[str], domain: str, attrs: Mapping[str, Any]
    ) -> Act:
        scale, zero = self.calibrate(real)
        xs, ys = self._params(x.scale, x.zero), self._params(scale, zero)
        middle = [w.codes, w.scale_name, w.zero_name]
        order = [x.name, *xs, *middle, *tail, *ys] if op_type == "QGemm" else [x.name, *xs, *middle, *ys, *tail]
        return self._settle(self.node(op_type, order, "q", domain, **attrs), real, scale, zero)

    def gemm(self, x: Act, channels: int, *, bias: str | None = "int32", trans_b: bool = True) -> Act:
        """Gemm on [N, K] (QGemm in the qop form)."""
        inputs = x.real.shape[-1]
        shape = [channels, inputs] if trans_b else [inputs, channels]
        w = self.weights(shape, 0 if trans_b else 1, inputs)
        qop = self.form == "qop"
        b, b_real = self.bias(x, w, channels, "codes" if qop else bias) if bias else ("", None)
        attrs = {"transB": int(trans_b)}
        real = float_node("Gemm", [x.real, w.real, b_real], attrs, self.opset)
        if qop:
            return self._qlinear("QGemm", x, w, real, [b], "com.microsoft", attrs)
        out = self.node("Gemm", [self.dequantize(x), self.dequantized(w), *([b] if b else [])], "y", **attrs)
        return self.quantize(out, real)

    def matmul(self, x: Act, channels: int, *, add: str | None = None) -> Act:
        """MatMul with constant weights (QLinearMatMul as qop), then an Add of a constant: "float" or "int32"."""
        inputs = x.real.shape[-1]
        w = self.weights([inputs, channels], 1, inputs)
        real = x.real @ w.real
        if self.form == "qop":
            return self._qlinear("QLinearMatMul", x, w, real, [], "", {})
        out = self.node("MatMul", [self.dequantize(x), self.dequantized(w)], "y")
        if add:
            b, b_real = self.bias(x, w, channels, add)
            out, real = self.node("Add", [out, b]), real + b_real
        return self.quantize(out, real)

    def real_op(
        self,
        op_type: str,
        xs: Sequence[Act],
        *,
        consts: Sequence[Array] = (),
        same: bool = False,
        then: Sequence[tuple[str, Sequence[float]]] = (),
        scale: tuple[float, int] | None = None,
        **attrs: Any,
    ) -> Act:
        """DequantizeLinear of every operand -> operator -> QuantizeLinear (`same`: with the operand's parameters)."""
        real = float_node(op_type, [*(x.real for x in xs), *consts], attrs, self.opset)
        inputs = [*(self.dequantize(x) for x in xs), *(self.const(c) for c in consts)]
        out = self.node(op_type, inputs, "y", **attrs)
        if then:
            return self.clamped(out, real, then)
        like = xs[0] if same else None
        if scale:
            like = Act("", real, np.float32(scale[0]), scale[1])
        return self.quantize(out, real, like)

    def code_op(self, op_type: str, x: Act, consts: Sequence[Array] = (), **attrs: Any) -> Act:
        """An operator on the codes themselves; scale and zero point stay."""
        codes = float_node(op_type, [x.codes(self.dtype), *consts], attrs, max(self.opset, 12))
        out = self.node(op_type, [x.name, *(self.const(c) for c in consts)], "k", **attrs)
        return Act(out, ((codes.astype(np.int32) - x.zero) * x.scale).astype(np.float32), x.scale, x.zero)

    def add(self, a: Act, b: Act, op_type: str = "Add", then: Sequence[tuple[str, Sequence[float]]] = ()) -> Act:
        """Sum of two activations (QLinearAdd in the qop form)."""
        if self.form != "qop":
            return self.real_op(op_type, [a, b], then=then)
        real = a.real + b.real if op_type == "Add" else a.real * b.real
        scale, zero = self.calibrate(real)
        order = [a.name, *self._params(a.scale, a.zero), b.name, *self._params(b.scale, b.zero)]
        out = self.node(f"QLinear{op_type}", [*order, *self._params(scale, zero)], "q", "com.microsoft")
        return self._settle(out, real, scale, zero)

    def output(self, x: Act, border: str = "codes", name: str | None = None) -> None:
        """Declare a graph output: the codes, or their dequantized values; `name` gives it a name of its own."""
        tensor = self.dequantize(x) if border == "float" else x.name
        if name is not None:
            out = self.wrap(name)
            self.nodes.append(helper.make_node("Identity", [tensor], [out], self.wrap(f"n_{name}")))
            tensor = out
        kind = "float32" if border == "float" else self.dtype
        dims = [f"d{len(self.outputs)}_{i}" for i in range(x.real.ndim)]
        self.outputs.append(helper.make_tensor_value_info(tensor, ELEMENT[kind], dims))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "net", self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        if any(node.domain == "com.microsoft" for node in self.nodes):
            imports.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def causal_chain(seed: int = 0, dtype: str = "int8", border: str = "codes", channels: int = 4) -> onnx.ModelProto:
    """conv k3 causal -> maxpool 2/2 -> conv k3 same: the small model of many tests."""
    net = Net(dtype, seed=seed)
    x = net.input([1, channels, "T"], border=border)
    y = net.conv(x, 6, [3], pads=[2, 0], then=[("Relu", ())])
    y = net.real_op("MaxPool", [y], same=True, kernel_shape=[2], strides=[2])
    net.output(net.conv(y, 3, [3], pads=[1, 1]), border)
    return net.model()


def residual(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """A dilated branch with lookahead joined with its own input, twice; the second skip is causal."""
    net = Net(dtype, seed=seed, per_channel=True)
    x = net.input([1, 4, "T"])
    y = net.add(x, net.conv(x, 4, [3], pads=[2, 2], dilations=[2]))
    z = net.conv(y, 4, [4], pads=[3, 0], then=[("Relu", ())])
    net.output(net.add(z, y))
    return net.model()


def two_outputs(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """One trunk, an output at its rate and one at a third of it."""
    net = Net(dtype, seed=seed)
    x = net.input(["N", 3, "T"])
    y = net.conv(x, 5, [3], pads=[1, 1])
    net.output(net.conv(y, 2, [1]), name="fast")
    net.output(net.conv(y, 3, [5], strides=[3], pads=[2, 2]), name="slow")
    return net.model()


def two_inputs(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """Two streams of equal rate, joined."""
    net = Net(dtype, seed=seed)
    a, b = net.input([1, 3, "T"], name="left"), net.input([1, 3, "T"], name="right")
    net.output(net.add(net.conv(a, 4, [3], pads=[2, 0]), net.conv(b, 4, [2], pads=[0, 1])))
    return net.model()


def image_clip(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """A 2-D network of fixed size: rows are the stream, the clip ends by itself."""
    net = Net(dtype, seed=seed)
    x = net.input([1, 2, 9, 7])
    y = net.conv(x, 4, [3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    y = net.conv(y, 4, [3, 3], pads=[1, 1, 1, 1], group=4)
    net.output(net.real_op("MaxPool", [y], same=True, kernel_shape=[2, 2], strides=[1, 1]))
    return net.model()


def shrinking_clip(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """An image that a stride makes small, and many layers then: their tensors need less RAM whole than rows of each."""
    net = Net(dtype, seed=seed)
    y = net.conv(net.input([1, 2, 16, 16]), 8, [3, 3], pads=[1, 1, 1, 1], strides=[2, 2], then=[("Relu", ())])
    for _ in range(6):
        y = net.conv(y, 8, [3, 3], pads=[1, 1, 1, 1], then=[("Relu", ())])
    y = net.code_op("Flatten", net.real_op("GlobalAveragePool", [y]), axis=1)
    net.output(net.gemm(y, 4))
    return net.model()


def dense_only(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """No stream axis: a two-layer perceptron on [1, 12]."""
    net = Net(dtype, seed=seed)
    x = net.input([1, 12])
    net.output(net.gemm(net.gemm(x, 7), 5))
    return net.model()


def wide_stream(seed: int = 0, dtype: str = "uint8") -> onnx.ModelProto:
    """[N, C, T, W] with a symbolic batch and time: 2-D convolutions over rows that arrive one by one."""
    net = Net(dtype, seed=seed)
    x = net.input(["N", 2, "T", 6])
    y = net.conv(x, 4, [3, 3], pads=[2, 1, 0, 1], then=[("Relu", ())])
    net.output(net.conv(y, 3, [2, 6], strides=[2, 1]))
    return net.model()


def softmax_head(seed: int = 0, dtype: str = "int8") -> onnx.ModelProto:
    """A classifier for every frame: conv, 1x1 conv, softmax over channels."""
    net = Net(dtype, seed=seed)
    x = net.input([1, 3, "T"])
    y = net.conv(net.conv(x, 6, [4], pads=[3, 0]), 5, [1])
    least = 0 if dtype == "uint8" else -128
    net.output(net.real_op("Softmax", [y], axis=1, scale=(1 / 256, least)))
    return net.model()


DIVERSE: dict[str, Callable[[], onnx.ModelProto]] = {
    "causal_chain": causal_chain,
    "float_border": lambda: causal_chain(3, "uint8", "float"),
    "residual": residual,
    "two_outputs": two_outputs,
    "two_inputs": two_inputs,
    "image_clip": image_clip,
    "shrinking_clip": shrinking_clip,
    "dense_only": dense_only,
    "wide_stream": wide_stream,
    "softmax_head": softmax_head,
}
