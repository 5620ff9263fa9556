"""ONNX's backend node tests, as quantized models: which there are, how a float one is wrapped, what must come out.

Quantized node tests stay as they are, with their parameters as constants. A float node test becomes int8 codes ->
DequantizeLinear -> node -> QuantizeLinear, scales calibrated on its own data; its float answer is onnx.reference's on
the dequantized inputs. Tests are declared for the newest opset that the importer knows (later ones added types only).
`python tests/support/backend_cases.py` prints the scoreboard as Markdown.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from codegen.frontend.load import OPSETS
from codegen.frontend.onnx import LOWER

Array = npt.NDArray[Any]
AS_THEY_ARE = ("QLinearConv", "QLinearMatMul", "QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger")
# Inputs that are activations in a quantized node test; everything else is a parameter.
LIVE = {"QLinearMatMul": (0, 3), "MatMulInteger": (0, 1)}
# Inputs that are weights or parameters of a float operator although they are float.
PARAMETERS = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (1, 2),
    "Clip": (1, 2),
    "Resize": (1, 2),
    "Upsample": (1,),
    "Pad": (2,),
    "Dropout": (1, 2),
}


@dataclass
class NodeTest:
    """One model made of a node test. `want`: codes per output, equal (`exact`) or within a step of the float answer."""

    name: str
    op: str
    model: onnx.ModelProto
    feed: dict[str, Array]
    want: dict[str, Array]
    exact: bool


@dataclass
class Score:
    """Of one operator: how many ran, passed, were refused and why, or failed."""

    passed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> int:
        return len(self.passed) + len(self.refused) + len(self.failed)


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def node_tests(letters: str = LETTERS) -> Iterator[tuple[str, str, list[NodeTest]]]:
    """(test name, operator, variants to try in turn) of the node tests of operators that the importer knows.

    letters: of operators that begin with one of them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    known = {op for domain, op in LOWER if domain == ""} | set(AS_THEY_ARE)
    for case in sorted(cases, key=lambda c: c.name):
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in known or graph.node[0].domain not in ("", "ai.onnx"):
            continue
        op = graph.node[0].op_type
        if op[0] not in letters:
            continue
        values = _arrays(case.data_sets[0])
        if values is None:
            continue
        inputs, outputs = values
        if op in AS_THEY_ARE or any(x.dtype in (np.int8, np.uint8) for x in inputs[:1]):
            yield case.name, op, [_as_it_is(case.name, op, case.model, inputs, outputs)]
        elif inputs and inputs[0].dtype == np.float32:
            variants = list(_wrapped(case.name, op, case.model, inputs))
            if variants:
                yield case.name, op, variants


def _arrays(data: Any) -> tuple[list[Array], list[Array]] | None:
    """Inputs and outputs as arrays; None where one is something else (sequences, strings, 4-bit, bfloat16)."""
    parts = []
    for side in data:
        arrays = [np.asarray(numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v) for v in side]
        if any(isinstance(v, list | tuple) for v in side) or any(a.dtype.kind not in "fiub" for a in arrays):
            return None
        parts.append(arrays)
    return parts[0], parts[1]


def _named(model: onnx.ModelProto, inputs: list[Array]) -> dict[str, Array]:
    return {port.name: value for port, value in zip(model.graph.input, inputs, strict=True)}


def _as_it_is(name: str, op: str, model: onnx.ModelProto, inputs: list[Array], outputs: list[Array]) -> NodeTest:
    """The node test with its parameters as constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import[0].version = min(made.opset_import[0].version, OPSETS[-1])
    made.ir_version = min(made.ir_version, 10)
    values = _named(model, inputs)
    node = model.graph.node[0]
    live = {node.input[i] for i in LIVE.get(op, (0,))}
    del made.graph.input[:]
    made.graph.input.extend(port for port in model.graph.input if port.name in live)
    made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items() if n not in live)
    want = {port.name: value for port, value in zip(model.graph.output, outputs, strict=True)}
    return NodeTest(name, op, made, {n: v for n, v in values.items() if n in live}, want, True)


def _calibrated(x: Array) -> tuple[np.float32, np.int8]:
    """Asymmetric int8 over the range of the data, 0 included."""
    low, high = min(float(x.min(initial=0.0)), 0.0), max(float(x.max(initial=0.0)), 0.0)
    scale = np.float32((high - low) / 255) if high > low else np.float32(1.0)
    return scale, np.int8(np.clip(np.rint(-128 - low / float(scale)), -128, 127))


def _wrapped(name: str, op: str, model: onnx.ModelProto, inputs: list[Array]) -> Iterator[NodeTest]:
    """A float node test between DequantizeLinear and QuantizeLinear: all float operands live, then only the first."""
    node = model.graph.node[0]
    values = _named(model, inputs)
    slots = [n for n in node.input if n]
    if any(not np.isfinite(v).all() for v in values.values() if v.dtype.kind == "f"):
        return
    parameters = {node.input[i] for i in PARAMETERS.get(op, ()) if i < len(node.input)}
    floats = [n for n in slots if n in values and values[n].dtype == np.float32 and n not in parameters]
    for live in [floats, floats[:1]] if len(floats) > 1 else [floats]:
        made = _wrap(name, op, model, values, set(live))
        if made is not None:
            yield made


def _wrap(name: str, op: str, model: onnx.ModelProto, values: dict[str, Array], live: set[str]) -> NodeTest | None:
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[0])
    nodes, constants, ports = [], [], []
    feed, real = {}, {}
    for n, value in values.items():
        weights = n in node.input and list(node.input).index(n) == 1 and op in ("Conv", "ConvTranspose", "Gemm")
        if n not in live and not weights:
            constants.append(numpy_helper.from_array(value, n))
            real[n] = value
            continue
        scale, zero = _calibrated(value)
        if weights:
            scale, zero = np.float32(max(float(np.abs(value).max(initial=0)), 1e-6) / 127), np.int8(0)
        codes = np.clip(np.rint(value / scale) + zero, -128, 127).astype(np.int8)
        real[n] = ((codes.astype(np.int32) - int(zero)) * scale).astype(np.float32)
        constants += [
            numpy_helper.from_array(np.asarray(scale), f"{n}_s"),
            numpy_helper.from_array(np.asarray(zero), f"{n}_z"),
        ]
        nodes.append(helper.make_node("DequantizeLinear", [f"{n}_q", f"{n}_s", f"{n}_z"], [n]))
        if weights:
            constants.append(numpy_helper.from_array(codes, f"{n}_q"))
        else:
            ports.append(helper.make_tensor_value_info(f"{n}_q", onnx.TensorProto.INT8, codes.shape))
            feed[f"{n}_q"] = codes
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answers = ReferenceEvaluator(model).run(None, real)
    except Exception:
        return None
    nodes.append(node)
    outputs, want = [], {}
    for port, answer in zip(model.graph.output, map(np.asarray, answers), strict=True):
        if answer.dtype != np.float32 or not np.isfinite(answer).all():
            outputs.append(port)
            continue
        scale, zero = _calibrated(answer)
        if op == "Softmax":
            scale, zero = np.float32(1 / 256), np.int8(-128)
        constants += [
            numpy_helper.from_array(np.asarray(scale), f"{port.name}_ys"),
            numpy_helper.from_array(np.asarray(zero), f"{port.name}_yz"),
        ]
        nodes.append(
            helper.make_node("QuantizeLinear", [port.name, f"{port.name}_ys", f"{port.name}_yz"], [f"{port.name}_y"])
        )
        outputs.append(helper.make_tensor_value_info(f"{port.name}_y", onnx.TensorProto.INT8, answer.shape))
        want[f"{port.name}_y"] = answer.astype(np.float64) / float(scale) + int(zero)
    graph = helper.make_graph(nodes, "node_test", ports, outputs, constants)
    opset = helper.make_opsetid("", max(10, min(model.opset_import[0].version, OPSETS[-1])))
    made = helper.make_model(graph, opset_imports=[opset], ir_version=min(model.ir_version, 10))
    return NodeTest(name, op, made, feed, want, False)


def difference(test: NodeTest, got: dict[str, Array], reference: dict[str, Array]) -> str:
    """What is wrong with the C's result; empty if it equals the reference and is the answer."""
    for name, want in test.want.items():
        value = got[name]
        if value.shape != want.shape:
            return f"{name}: shape {value.shape}, expected {want.shape}"
        if not np.array_equal(value, reference[name]):
            return f"{name}: C differs from the reference"
        if test.exact:
            if not np.array_equal(value, want):
                return f"{name}: {value.ravel()[:4]} instead of {want.ravel()[:4]}"
        else:
            worst = float(np.abs(np.clip(want, -128, 127) - value.astype(np.float64)).max(initial=0.0))
            if worst > 1.0:
                return f"{name}: {worst:.3g} steps from the float answer"
    return ""


def markdown(scores: dict[str, Score]) -> str:
    """The scoreboard: one row per operator."""
    rows = ["| operator | run | passed | refused | failed | reasons of refusals |", "|---|---:|---:|---:|---:|---|"]
    for op, score in sorted(scores.items()):
        reasons = "; ".join([*dict.fromkeys(reason(text) for text in score.refused.values())][:3])
        cells = [op, score.run, len(score.passed), len(score.refused), len(score.failed), reasons]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def reason(text: str) -> str:
    """The part of a refusal that does not name the node."""
    found = text.split(": ", 2)[-1].split(";", 1)[0].split(". ", 1)[0]
    return found if len(found) < 90 else found[:87] + "..."
