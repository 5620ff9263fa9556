"""Values worked by hand, stage by stage, in the reference and in the generated C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from checks import PLAIN, Workshop
from onnx import TensorProto, helper, numpy_helper

from codegen.host import HostModel
from codegen.reference import whole_clip
from codegen.verify.observe import reference_stages

Array = npt.NDArray[Any]
Image = Sequence[Sequence[int]]


class Small:
    """A model on one image [1, 1, H, W] whose scales are 1, node by node; `zero` and `dtype` of all activations."""

    def __init__(self, dtype: str, zero: int, shape: tuple[int, int]) -> None:
        kind = TensorProto.UINT8 if dtype == "uint8" else TensorProto.INT8
        self.constants = [
            numpy_helper.from_array(np.float32(1), "s"),
            numpy_helper.from_array(np.dtype(dtype).type(zero), "z"),
        ]
        self.nodes: list[onnx.NodeProto] = []
        self.ports = [
            helper.make_tensor_value_info("x", kind, [1, 1, *shape]),
            helper.make_tensor_value_info("y", kind, None),
        ]
        self.last = "x"

    def then(self, *ops: tuple[str, dict[str, Any]]) -> Small:
        """DequantizeLinear, these operators, QuantizeLinear."""
        n = len(self.nodes)
        real = f"r{n}"
        self.nodes.append(helper.make_node("DequantizeLinear", [self.last, "s", "z"], [real]))
        for k, (op, attrs) in enumerate(ops):
            inputs = [real, "w"] if op == "Conv" else [real]
            real = f"r{n}_{k}"
            self.nodes.append(helper.make_node(op, inputs, [real], **attrs))
        self.last = f"q{n}"
        self.nodes.append(helper.make_node("QuantizeLinear", [real, "s", "z"], [self.last]))
        return self

    def model(self) -> onnx.ModelProto:
        self.nodes[-1].output[0] = "y"
        weights = [
            numpy_helper.from_array(np.ones((1, 1, 1, 1), np.int8), "wc"),
            numpy_helper.from_array(np.int8(0), "wz"),
        ]
        weights.append(numpy_helper.from_array(np.float32(0.5), "ws"))
        head = [helper.make_node("DequantizeLinear", ["wc", "ws", "wz"], ["w"])]
        graph = helper.make_graph(
            [*head, *self.nodes], "g", self.ports[:1], self.ports[1:], [*self.constants, *weights]
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def both(shop: Workshop, model: onnx.ModelProto, image: Image) -> tuple[list[dict[str, list[int]]], list[int]]:
    """(stages of every node, output), after checking that reference and C agree on all of it; uint8 codes less 128."""
    g = shop.build(model)
    (port,) = g.graph.inputs
    feed = {"x": np.asarray(image, port.dtype).reshape(1, 1, len(image), -1)}
    library = shop.library(g, "gcc", (*PLAIN, "-DM_TRACE"))
    host = HostModel(g.manifest, library, trace=True)
    got = host.run(feed, [1])["y"]
    assert np.array_equal(got, whole_clip.run(g.graph, feed)["y"])
    recorded, stages = host.trace(), []
    for node, wanted in reference_stages(g.graph, feed):
        made = {stage: values.reshape(-1).tolist() for stage, values in wanted.items()}
        assert {s: v.reshape(-1).tolist() for s, v in recorded[node.name].items()} == made
        stages.append(made)
    return stages, got.reshape(-1).tolist()


POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_multiplier_one_half(shop: Workshop) -> None:
    """Fused convolution and Relu, then a pool: every stage is seen."""
    model = Small("int8", 0, (2, 2)).then(("Conv", {}), ("Relu", {})).then(("MaxPool", POOL)).model()
    stages, out = both(shop, model, [[-2, 4], [6, -8]])
    assert stages[0] == {
        "accumulator": [-2, 4, 6, -8],
        "requantized": [-1, 2, 3, -4],
        "activated": [0, 2, 3, 0],
    }
    assert stages[1] == {"pooled": [3]}
    assert out == [3]


def test_relu_as_an_operator_of_its_own(shop: Workshop) -> None:
    model = Small("int8", 0, (2, 2)).then(("Conv", {})).then(("Relu", {})).then(("MaxPool", POOL)).model()
    stages, out = both(shop, model, [[-2, 4], [6, -8]])
    assert stages[0]["activated"] == [-1, 2, 3, -4]
    assert stages[1] == {"activated": [0, 2, 3, 0]}
    assert out == [3]


def test_ties_go_to_even(shop: Workshop) -> None:
    model = Small("int8", 0, (1, 8)).then(("Conv", {})).model()
    _, out = both(shop, model, [[-7, -5, -3, -1, 1, 3, 5, 7]])
    assert out == [-4, -2, -2, 0, 0, 2, 2, 4]


def test_relu_with_zero_point_128(shop: Workshop) -> None:
    model = Small("uint8", 128, (2, 2)).then(("Relu", {})).then(("MaxPool", POOL)).model()
    stages, out = both(shop, model, [[126, 132], [134, 120]])
    assert [code + 128 for code in stages[0]["activated"]] == [128, 132, 134, 128]
    assert [code + 128 for code in stages[1]["pooled"]] == [134]
    assert out == [134]


@pytest.mark.parametrize("pads", [None, [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
def test_pads_never_win(shop: Workshop, pads: list[int] | None) -> None:
    """Zero point 0 is above every code of the window: a pad with it would win."""
    attrs = {"kernel_shape": [2, 2], "strides": [1, 1]} | ({"pads": pads} if pads else {})
    stages, out = both(shop, Small("int8", 0, (2, 2)).then(("MaxPool", attrs)).model(), [[-8, -5], [-3, -6]])
    wanted = {
        None: [-3],
        (0, 0, 1, 1): [-3, -5, -3, -6],
        (1, 1, 0, 0): [-8, -5, -3, -3],
        (1, 1, 1, 1): [-8, -5, -5, -3, -3, -5, -3, -3, -6],
    }[tuple(pads) if pads else None]
    assert out == wanted and stages[0] == {"pooled": wanted} and max(out) == -3


@pytest.mark.parametrize(
    ("size", "ceil_mode", "wanted"),
    [
        (4, 0, [5, 7, 13, 15]),
        (4, 1, [5, 7, 13, 15]),
        (3, 0, [4]),
        (3, 1, [4, 5, 7, 8]),
        (2, 0, [3]),
    ],
)
def test_floor_and_ceil(shop: Workshop, size: int, ceil_mode: int, wanted: list[int]) -> None:
    """A 4x4 input pools to four values, a 3x3 to one; in ceil mode to four, the last ones from what is left."""
    attrs = POOL | {"ceil_mode": ceil_mode}
    image = np.arange(size * size).reshape(size, size).tolist()
    stages, out = both(shop, Small("int8", 0, (size, size)).then(("MaxPool", attrs)).model(), image)
    assert out == wanted and stages[0] == {"pooled": wanted}


@pytest.mark.parametrize(("ceil_mode", "wanted"), [(0, [2]), (1, [2, 4, 6, 8])])
def test_average_stages(shop: Workshop, ceil_mode: int, wanted: list[int]) -> None:
    """[0 1; 3 4] sums to 8; what is left of a ceil window is divided by its own cells: 7 and 13 by 2, 8 by 1."""
    attrs = POOL | {"ceil_mode": ceil_mode}
    image = np.arange(9).reshape(3, 3).tolist()
    stages, out = both(shop, Small("int8", 0, (3, 3)).then(("AveragePool", attrs)).model(), image)
    assert stages[0]["accumulator"] == ([8, 7, 13, 8] if ceil_mode else [8])
    assert stages[0]["pooled"] == out == wanted
