"""What users are told: the tensor that is not quantized, the plan that could work, lengths in terms of T."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import Workshop
from models import Net
from onnx import TensorProto, helper
from test_refusals import REFUSALS

from codegen import CodegenError, analyze
from codegen.errors import Problem
from codegen.frontend.read import TRIAL_LENGTH, TRIALS, general, general_text
from codegen.ir.graph import Decoding, Port
from codegen.ir.view import View, compact
from codegen.options import Options
from codegen.pipeline import build
from codegen.verify import Verification, verification
from codegen.verify.evidence import OperatorEvidence

LONGEST_HERE = 10_000
"""No model of these tests has a number as large: what is larger is a trial length, or was computed from one."""


def refused(path: Path, options: Options | None = None) -> str:
    with pytest.raises(CodegenError) as caught:
        build(path, options)
    assert caught.value.exit_code == 3
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "twin", "wanted"),
    [
        ("[1, 40320, 24]", "[1, 80640, 24]", "[1, T, 24]"),
        ("40320 of 40322", "80640 of 80642", "T of T + 2"),
        ("5,040 frames", "10,080 frames", "1/8 T frames"),
        ("80639 frames", "161279 frames", "2 T - 1 frames"),
        ("conv2 has 24", "conv2 has 24", "conv2 has 24"),
        ("40320 frames", "something else", "40320 frames"),
    ],
)
def test_numbers_that_grow_with_the_length(text: str, twin: str, wanted: str) -> None:
    assert general_text(text, twin, 40320) == wanted
    assert general(Problem("n", text), Problem("n", twin), 40320).found == wanted


@pytest.mark.parametrize("name", REFUSALS)
def test_no_message_shows_a_trial_length(shop: Workshop, name: str) -> None:
    path = shop.save(REFUSALS[name][0]())
    texts = [refused(path)]
    try:
        texts += analyze(path).notes
    except CodegenError as error:
        texts.append(str(error))
    for text in texts:
        large = [n for n in map(int, re.findall(r"\d+", text.replace(",", ""))) if n > LONGEST_HERE]
        assert not large, text
    assert TRIAL_LENGTH > LONGEST_HERE and TRIALS < TRIAL_LENGTH


@pytest.mark.parametrize("name", REFUSALS)
def test_every_refusal_says_what_to_do(shop: Workshop, name: str) -> None:
    with pytest.raises(CodegenError) as caught:
        build(shop.save(REFUSALS[name][0]()))
    assert all(problem.hint for problem in caught.value.problems)


def test_unequal_lengths_of_a_stream_are_differences(shop: Workshop) -> None:
    net = Net(seed=1)
    x = net.input([1, 3, "T"])
    a, b = net.conv(x, 4, [5]), net.conv(x, 4, [3])
    net.output(net.quantize(net.node("Add", [net.dequantize(a), net.dequantize(b)], "sum"), a.real))
    text = refused(shop.save(net.model()))
    assert "has 2 more" in text and "at every length" in text


def unquantized(op: str, second: bool, **attrs: object) -> onnx.ModelProto:
    """`op` on codes whose result is multiplied with codes before anything quantizes it."""
    net = Net(seed=2)
    x = net.input([1, 3, "T"])
    a, b = net.conv(x, 4, [3]), net.conv(x, 4, [3])
    operands = [net.dequantize(a), *([net.dequantize(b)] if second else [])]
    middle = net.node(op, operands, "middle", **attrs)
    net.output(net.quantize(net.node("Mul", [middle, net.dequantize(b)], "product"), a.real * b.real))
    return net.model()


@pytest.mark.parametrize(("op", "second"), [("Add", True), ("Softmax", False), ("Sub", True)])
def test_the_tensor_without_a_quantizelinear_is_named(shop: Workshop, op: str, second: bool) -> None:
    text = refused(shop.save(unquantized(op, second, **({"axis": 1} if op == "Softmax" else {}))))
    assert f"({op}" in text and re.search(r"its result \w*middle\w* has no QuantizeLinear, and n_\w+ \(Mul\)", text), (
        text
    )
    assert "cannot run on int8 codes" not in text and "codegen quantize" not in text


@pytest.mark.parametrize(("op", "second"), [("Div", True), ("ReduceProd", False), ("Hardmax", False)])
def test_an_operator_without_an_integer_form_is_named(shop: Workshop, op: str, second: bool) -> None:
    attrs: dict[str, object] = {"ReduceProd": {"axes": [1]}, "Hardmax": {"axis": 1}}.get(op, {})
    text = refused(shop.save(unquantized(op, second, **attrs)))
    assert f"{op} has no integer form" in text and "codegen quantize" not in text


def test_an_input_that_nothing_quantizes_is_named(shop: Workshop) -> None:
    net = Net(seed=2)
    a = net.conv(net.input([1, 3, "T"], name="codes"), 3, [1])
    net.inputs.append(helper.make_tensor_value_info("raw", TensorProto.FLOAT, [1, 3, "T"]))
    net.output(net.quantize(net.node("Add", ["raw", net.dequantize(a)], "sum"), a.real))
    text = refused(shop.save(net.model()))
    assert "input raw, which has no QuantizeLinear" in text


def test_what_blocks_the_plan_that_could_work_is_shown(shop: Workshop) -> None:
    """A global branch keeps a clip from streaming; whole, an operator without an integer form is in the way."""
    net = Net(seed=4)
    y = net.conv(net.input([1, 3, 12]), 4, [3], pads=[1, 1])
    mean = net.real_op("GlobalAveragePool", [y])
    joined = net.add(y, mean, "Mul")
    net.output(net.quantize(net.node("Div", [net.dequantize(joined), net.dequantize(y)], "ratio"), y.real))
    for options in (Options(), Options(stream="2")):
        text = refused(shop.save(net.model()), options)
        assert "Div has no integer form" in text


@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_recurrent_layer_is_what_blocks_every_plan(shop: Workshop, op: str, layout: int, axis: int) -> None:
    """Its results have their shapes in every plan: no later Reshape is blamed, and no declared shape."""
    net = Net(seed=5)
    steps, batch = (7, 1) if axis == layout else (1, 7)
    x = net.input([batch, steps, 3] if layout else [steps, batch, 3])
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    w, r = (net.const(np.zeros((1, gates * 4, n), np.float32)) for n in (3, 4))
    real = net.node(op, [net.dequantize(x), w, r], "y", hidden_size=4, layout=layout)
    flat = net.node("Reshape", [real, net.const(np.asarray([7, 4], np.int64))], "flat")
    net.output(net.quantize(flat, np.linspace(-1, 1, 28).reshape(7, 4)))
    for options in (Options(), Options(stream=str(axis)), Options(plan="whole")):
        text = refused(shop.save(net.model()), options)
        assert f"{op} has no integer form" in text and "do not fit" not in text and len(text.splitlines()) == 1


def test_what_one_node_moves_is_one_entry(shop: Workshop) -> None:
    net = Net(seed=6)
    x = net.conv(net.input([1, 4, "T"]), 6, [3])
    net.nodes.append(helper.make_node("Split", [x.name], ["first", "second"], "halves", axis=1))
    for name, real in zip(("first", "second"), np.split(x.real, 2, axis=1), strict=True):
        net.output(replace(x, name=name, real=real))
    (moved,) = [note for note in analyze(shop.save(net.model())).notes if "only moved" in note]
    assert moved.startswith("6 B") and moved.count("halves (Split)") == 1 and moved.endswith("6 B")


def test_a_named_stream_falls_back_to_whole_too(shop: Workshop) -> None:
    net = Net(seed=4)
    y = net.conv(net.input([1, 3, 12]), 4, [3], pads=[1, 1])
    net.output(net.add(y, net.real_op("GlobalAveragePool", [y]), "Mul"))
    for options in (Options(), Options(stream="2")):
        report = analyze(shop.save(net.model()), options)
        assert report.kind.startswith("whole") and any("one push is the whole clip" in note for note in report.notes)


def test_unequal_centres_are_one_line(shop: Workshop) -> None:
    net = Net(seed=3)
    y = net.conv(net.input([1, 3, "T"]), 4, [3], pads=[2, 0])
    for _ in range(6):
        y = net.add(y, net.conv(y, 4, [3], pads=[2, 0]))
    net.output(y)
    notes = analyze(shop.save(net.model())).notes
    (line,) = [note for note in notes if "centres" in note]
    assert line.startswith("6 joins take operands of unequal centres") and "and 3 more" in line


def test_analyze_of_a_float_model_says_what_stays_in_the_way(shop: Workshop, tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "T"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    w = onnx.numpy_helper.from_array(np.ones((3, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[2, 0]),
        helper.make_node("Div", ["a", "x"], ["b"], "ratio"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    path = tmp_path / "float.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    notes = [note for note in analyze(path).notes if "after quantization" in note]
    assert len(notes) == 1 and "ratio" in notes[0] and "Div has no integer form" in notes[0]


def test_accumulators_are_compared_as_real_values() -> None:
    """A distance says something about the network: never a multiple of an accumulator's tiny step."""
    view = View("a", tuple(compact([1, 2, 5])))
    scales = np.asarray([1e-6, 1e-6], np.float32)
    port = Port("a", "a", view, "float32", (1, 2, 5), decoding=Decoding("accumulator", scales))
    ours = np.full((1, 2, 5), 3.0, np.float32)
    near, far = ours + np.float32(2e-5), ours + np.float32(0.25)
    close = verification._compare_output("t", port, ours, near)
    assert close.equal and close.largest == pytest.approx(2e-5, rel=0.1) and close.unit == "(real values)"
    wrong = verification._compare_output("t", port, ours, far)
    assert wrong.different == ours.size and wrong.largest == pytest.approx(0.25)


def test_nothing_is_undeclared_and_ok() -> None:
    row = OperatorEvidence("Conv", nodes=1, values=10, different=3, largest=9.0, worst="conv1")
    result = Verification(operators={"Conv": row})
    assert not row.declared and "NOT DECLARED" in "\n".join(result.lines())
    assert result.lines()[-1].startswith("DIFFERENT") and "Conv" in result.lines()[-1]
    row.largest = row.different = 0
    assert result.lines()[-1].startswith("OK")
