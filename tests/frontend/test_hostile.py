"""Hostile and contradictory files: every kind ends in one message and exit code 2 or 3, fast, in little memory; or in C
that compiles and equals the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fuzzing import run_case
from models import Net, causal_chain
from onnx import TensorProto, helper, numpy_helper

Change = Callable[[onnx.ModelProto], None]
HUGE = (1 << 20, 1 << 31, (1 << 63) - 1)


def outcome(data: bytes, folder: Path) -> tuple[dict[str, Any], str]:
    """What `codegen build` does, in a process with 2 GB and 20 seconds of processor time."""
    result = run_case(data, folder, verified=True)
    assert "fault" not in result, result
    return result, (folder / "log.txt").read_text()


def changed(change: Change, base: Callable[[], onnx.ModelProto] = causal_chain) -> bytes:
    model = base()
    change(model)
    return model.SerializeToString()


def node_of(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == op_type)


def tensor_of(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def attribute(op_type: str, name: str, value: Any) -> Change:
    def change(model: onnx.ModelProto) -> None:
        node = node_of(model, op_type)
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return change


def scale(value: float) -> Change:
    """The scale of the first DequantizeLinear."""

    def change(model: onnx.ModelProto) -> None:
        name = node_of(model, "DequantizeLinear").input[1]
        tensor_of(model, name).CopyFrom(numpy_helper.from_array(np.float32(value), name))

    return change


def zero_point(array: np.ndarray) -> Change:
    def change(model: onnx.ModelProto) -> None:
        name = node_of(model, "QuantizeLinear").input[2]
        tensor_of(model, name).CopyFrom(numpy_helper.from_array(array, name))

    return change


def cycle(model: onnx.ModelProto) -> None:
    conv = node_of(model, "Conv")
    reader = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.output[0] == conv.input[0])
    last = next(n for n in model.graph.node if n.op_type == "QuantizeLinear")
    reader.input[0] = last.output[0]


def duplicate_node(model: onnx.ModelProto) -> None:
    model.graph.node.append(node_of(model, "Conv"))


def duplicate_initializer(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def missing(model: onnx.ModelProto) -> None:
    node_of(model, "Conv").input[1] = "nowhere"


def dims(index: int, value: int) -> Change:
    def change(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[index].dim_value = value

    return change


def initializer_dims(values: list[int]) -> Change:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        del tensor.dims[:]
        tensor.dims.extend(values)

    return change


def short_data(model: onnx.ModelProto) -> None:
    tensor = next(t for t in model.graph.initializer if len(t.raw_data) > 4)
    tensor.raw_data = tensor.raw_data[:-1]


def external(location: str, **more: str) -> Change:
    def change(model: onnx.ModelProto) -> None:
        tensor = next(t for t in model.graph.initializer if len(t.raw_data) > 4)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))

    return change


def output_twice(model: onnx.ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


def input_twice(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def empty_weight_scale(model: onnx.ModelProto) -> None:
    weights = next(n for n in model.graph.node if node_of(model, "Conv").input[1] in n.output)
    tensor_of(model, weights.input[1]).CopyFrom(numpy_helper.from_array(np.zeros(0, np.float32), weights.input[1]))


def subgraph(model: onnx.ModelProto) -> None:
    inner = onnx.GraphProto()
    inner.CopyFrom(model.graph)
    conv = node_of(model, "Conv")
    made = helper.make_node("If", [conv.input[0]], ["chosen"], "choose", then_branch=inner, else_branch=inner)
    model.graph.node.insert(0, made)
    conv.input[0] = "chosen"


def unknown_domain(model: onnx.ModelProto) -> None:
    node_of(model, "Conv").domain = "org.evil"


def with_constant(op_type: str, values: list[int]) -> Change:
    """An operator between the input and its reader whose constant asks for very much."""

    def change(model: onnx.ModelProto) -> None:
        reader = next(n for n in model.graph.node if n.op_type == "Conv")
        array = np.asarray(values, np.int64)
        model.graph.initializer.append(numpy_helper.from_array(array, "evil"))
        inputs = {"ConstantOfShape": ["evil"], "Resize": [reader.input[0], "", "", "evil"]}
        names = inputs.get(op_type, [reader.input[0], "evil"])
        model.graph.node.append(helper.make_node(op_type, names, ["made"], "made"))
        reader.input[0] = "made"

    return change


KINDS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    **{f"scale {v}": (changed(scale(v)), ("scale", "finite and > 0")) for v in (0.0, -1.0, float("nan"), float("inf"))},
    "scale too small to divide by": (changed(scale(1e-45)), ()),
    "scale too large": (changed(scale(3e38)), ()),
    "zero point of another type": (changed(zero_point(np.int16(0))), ("int16",)),
    "zero point real": (changed(zero_point(np.float32(0))), ("float32",)),
    "zero points, several": (changed(zero_point(np.zeros(3, np.int8))), ()),
    "zero point empty": (changed(zero_point(np.zeros(0, np.int8))), ()),
    "output declared twice": (changed(output_twice), ("declared twice",)),
    "input declared twice": (changed(input_twice), ("declared twice",)),
    "scale without elements": (changed(empty_weight_scale), ("scale of 0 elements",)),
    "cycle": (changed(cycle), ("cycle",)),
    "duplicate node": (changed(duplicate_node), ("defined twice",)),
    "duplicate initializer": (changed(duplicate_initializer), ("defined twice",)),
    "missing tensor": (changed(missing), ("nowhere", "defined nowhere")),
    "unknown domain": (changed(unknown_domain), ("org.evil",)),
    "subgraph": (changed(subgraph), ("choose (If",)),
    "short data": (changed(short_data), ("does not fit",)),
    "initializer of a negative dimension": (changed(initializer_dims([-1])), ("dimension -1",)),
    "initializer of a huge dimension": (changed(initializer_dims([1 << 62])), ("at most",)),
    "initializer whose dimensions overflow": (changed(initializer_dims([1 << 32, 1 << 32])), ("at most",)),
    "channels zero": (changed(dims(1, 0)), ("zero",)),
    "length zero": (changed(dims(2, 0)), ("zero",)),
    **{f"channels {v}": (changed(dims(1, v)), ()) for v in HUGE},
    **{f"length {v}": (changed(dims(2, v)), ("at most",)) for v in HUGE},
    **{f"batch {v}": (changed(dims(0, v)), ()) for v in HUGE},
    **{
        f"Conv {name} {v}": (changed(attribute("Conv", name, [v])), ("at most",))
        for name in ("strides", "dilations")
        for v in HUGE
    },
    **{f"Conv pads {v}": (changed(attribute("Conv", "pads", [v, 0])), ("at most",)) for v in HUGE},
    "Conv strides 0": (changed(attribute("Conv", "strides", [0])), ("at least 1",)),
    "Conv dilations -1": (changed(attribute("Conv", "dilations", [-1])), ("at least 1",)),
    "Conv pads negative": (changed(attribute("Conv", "pads", [-1, 0])), ("negative pads",)),
    "Conv pads of another rank": (changed(attribute("Conv", "pads", [1])), ("one entry per spatial axis",)),
    "Conv group 0": (changed(attribute("Conv", "group", 0)), ("group",)),
    "Conv group too large": (changed(attribute("Conv", "group", 1 << 40)), ("group",)),
    "Conv kernel_shape": (changed(attribute("Conv", "kernel_shape", [1 << 40])), ("kernel_shape",)),
    **{f"MaxPool kernel_shape {v}": (changed(attribute("MaxPool", "kernel_shape", [v])), ("at most",)) for v in HUGE},
    "MaxPool kernel_shape 0": (changed(attribute("MaxPool", "kernel_shape", [0])), ("at least 1",)),
    "unknown attribute": (changed(attribute("Conv", "evil", 1)), ("evil", "does not exist")),
    "attribute of another type": (changed(attribute("Conv", "strides", "many")), ()),
    **{f"Pad by {v}": (changed(with_constant("Pad", [0, 0, v, 0, 0, 0])), ()) for v in HUGE},
    **{f"Resize to {v}": (changed(with_constant("Resize", [1, 4, v])), ()) for v in HUGE},
    **{f"Expand to {v}": (changed(with_constant("Expand", [v, 4, 1])), ()) for v in HUGE},
    **{f"Tile by {v}": (changed(with_constant("Tile", [1, 1, v])), ()) for v in HUGE},
    **{f"ConstantOfShape {v}": (changed(with_constant("ConstantOfShape", [v, v])), ("too large",)) for v in HUGE},
    **{f"Reshape to {v}": (changed(with_constant("Reshape", [1, v, -1])), ()) for v in (*HUGE, 0, -5)},
    **{
        f"external data {place!r}": (changed(external(place)), ("external data",))
        for place in ("../../etc/passwd", "/etc/passwd", "missing.bin", "", ".", "a\0b", "sub/../../x")
    },
    "external data too short": (changed(external("model.onnx", length=str(1 << 40))), ("initializer",)),
    "external data at a negative offset": (changed(external("model.onnx", offset="-5")), ("initializer",)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_refused_with_the_cause(tmp_path: Path, kind: str) -> None:
    data, texts = KINDS[kind]
    result, log = outcome(data, tmp_path)
    if texts:
        assert result["code"] in (2, 3), "it was built"
    for text in texts:
        assert text in log, log


def test_symlink_out_of_the_folder(tmp_path: Path) -> None:
    """A link beside the model that leads elsewhere is not followed."""
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(4096))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "data.bin").symlink_to(secret)
    result, log = outcome(changed(external("data.bin")), folder)
    assert result["code"] == 2 and "outside the model's folder" in log


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    data = causal_chain().SerializeToString()
    name = causal_chain().graph.node[0].output[0].encode()
    broken = data.replace(name, b"\xff" + name[1:])
    assert broken != data
    result, log = outcome(broken, tmp_path)
    assert result["code"] == 2 and "UTF-8" in log


def test_empty_names(tmp_path: Path) -> None:
    """A graph input without a name, a node that writes nothing."""

    def unnamed(model: onnx.ModelProto) -> None:
        model.graph.input[0].name = ""

    def silent(model: onnx.ModelProto) -> None:
        del node_of(model, "Conv").output[:]

    for i, change in enumerate((unnamed, silent)):
        result, _ = outcome(changed(change), tmp_path / str(i))
        assert result["code"] in (2, 3)


def test_deep_nesting(tmp_path: Path) -> None:
    """Subgraphs inside subgraphs, beyond what protobuf reads, and just inside."""
    for depth in (10, 25, 60, 200):
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [], [])
        data = graph.SerializeToString()
        for _ in range(depth):
            attr = wrapped(b"\x32", data, name=b"then_branch", kind=5)
            node = wrapped(b"\x2a", attr, op_type=b"If")
            data = b"\x0a" + varint(len(node)) + node
        model = causal_chain()
        raw = model.SerializeToString() + b"\x3a" + varint(len(data)) + data
        result, _ = outcome(raw, tmp_path / str(depth))
        assert result["code"] in (2, 3)


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def wrapped(tag: bytes, data: bytes, name: bytes = b"", op_type: bytes = b"", kind: int = 0) -> bytes:
    """A message with `data` in one field, and its name, operator or attribute type."""
    head = b"\x0a" + varint(len(name)) + name if name else b""
    head += b"\x22" + varint(len(op_type)) + op_type if op_type else b""
    tail = b"\xa0\x01" + varint(kind) if kind else b""
    return head + tag + varint(len(data)) + data + tail


@pytest.mark.parametrize("keep", [0.01, 0.3, 0.7, 0.99])
def test_truncated(tmp_path: Path, keep: float) -> None:
    data = causal_chain().SerializeToString()
    result, _ = outcome(data[: int(len(data) * keep)], tmp_path)
    assert result["code"] in (2, 3)


def test_random_bytes(tmp_path: Path) -> None:
    for seed in range(5):
        result, _ = outcome(np.random.default_rng(seed).bytes(2000), tmp_path)
        assert result["code"] == 2


def test_many_strides_make_one_long_schedule(tmp_path: Path) -> None:
    """Each stride is small enough; their product is what takes long."""
    net = Net("int8", seed=1)
    y = net.input([1, 2, "T"], length=512)
    for _ in range(3):
        y = net.conv(y, 2, [1], strides=[8])
    net.output(y)
    model = net.model()
    for node in model.graph.node:
        if node.op_type == "Conv":
            next(a for a in node.attribute if a.name == "strides").ints[0] = 900
    result, log = outcome(model.SerializeToString(), tmp_path)
    assert result["code"] == 3 and ("schedule" in log or "empty output" in log)


def test_codes_read_as_reals(tmp_path: Path) -> None:
    """A uint8 graph input that a QuantizeLinear reads: no output may vanish without a word."""

    def codes(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8

    result, log = outcome(changed(codes, lambda: causal_chain(3, "uint8", "float")), tmp_path)
    assert result["code"] == 3 and "read as real numbers" in log
