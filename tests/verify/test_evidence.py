"""What `verify` says about onnxruntime: operators on the kernels that ran, deviations declared, nothing silent."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
from checks import Workshop
from models import DIVERSE, Net

from codegen import cli
from codegen.options import Options
from codegen.verify import evidence
from codegen.verify.evidence import OperatorEvidence, make_fusible, session_options
from codegen.verify.verification import verify


def bounded(zero: int | None) -> onnx.ModelProto:
    """Conv + Relu, Add + Clip, a Reshape between DequantizeLinear and Gemm."""
    net = Net(zero=zero, seed=2)
    x = net.input([1, 4, 6])
    y = net.conv(x, 4, [3], pads=[1, 1], then=[("Relu", ())])
    net.output(net.add(y, net.conv(y, 4, [1]), then=[("Clip", (-1.0, 1.5))]))
    return net.model()


@pytest.mark.parametrize("zero", [None, -20])
def test_operators_with_bounds_fuse(shop: Workshop, zero: int | None) -> None:
    """A Relu whose zero point is not the lowest code keeps onnxruntime from fusing, so the copy is rewritten."""
    result = verify(shop.save(bounded(zero)), Options())
    assert result.passed and not [n for n in result.notes if "did not fuse" in n]
    conv, add = result.operators["Conv"], result.operators["Add"]
    assert conv.kernels == {"QLinearConv"} and conv.nodes == 2 and conv.values > 0 and conv.different == 0
    assert add.kernels == {"QLinearAdd"} and add.largest <= 1 and add.declared


@pytest.mark.parametrize("name", DIVERSE)
def test_diverse_models(shop: Workshop, name: str) -> None:
    result = verify(shop.save(DIVERSE[name]()), Options())
    assert result.passed and result.mismatches == 0 and result.values > 0
    assert all(row.declared for row in result.operators.values()), result.lines()
    exact = [row for op, row in result.operators.items() if op in ("Conv", "Gemm", "MatMul")]
    assert exact and all(row.different == 0 and row.unfused == 0 for row in exact)


def test_rewriting_keeps_the_function(shop: Workshop) -> None:
    path = shop.save(bounded(-20))
    model = onnx.load(path)
    make_fusible(model)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [onnxruntime.InferenceSession(m.SerializeToString(), options) for m in (onnx.load(path), model)]
    from codegen.pipeline import load_int8
    from codegen.verify.verification import random_feed

    feed = random_feed(load_int8(path))
    first, second = (s.run(None, feed)[0] for s in sessions)
    assert (first == second).all()


def test_what_runs_in_float_is_said(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(seed=4)
    x = net.input([1, 3, "T"])
    y = net.conv(x, 4, [3], pads=[1, 1])
    w = net.weights([2, 4, 1])
    net.output(net.conv(y, 2, [1]))
    out = net.node("Conv", [net.dequantize(y), net.dequantized(w)], "float_out")
    net.outputs.append(onnx.helper.make_tensor_value_info(out, onnx.TensorProto.FLOAT, None))
    assert cli.main(["verify", str(shop.save(net.model()))]) == 0
    text = capsys.readouterr().out
    assert text.strip().splitlines()[-1].startswith("OK: ") and "operator " in text


def test_deviations_are_declared_or_named() -> None:
    assert OperatorEvidence("Conv", 1, 10).deviation == ""
    assert not OperatorEvidence("Conv", 1, 10, 1, 1.0, {"QLinearConv"}, 0, "the node").declared
    assert "the node" in OperatorEvidence("Conv", 1, 10, 1, 1.0, {"QLinearConv"}, 0, "the node").deviation
    assert OperatorEvidence("Softmax", 1, 10, 1, 1.0).declared
    assert not OperatorEvidence("Softmax", 1, 10, 1, 2.0, worst="n").declared
    assert "float" in OperatorEvidence("Gemm", 1, 10, 1, 1.0, {"Gemm"}, 1).deviation


def test_session_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for vnni in (True, False):
        monkeypatch.setattr(evidence, "_has_vnni", lambda vnni=vnni: vnni)
        options = session_options(onnxruntime)
        assert options.get_session_config_entry("session.qdqisint8allowed") == "1"
        assert options.intra_op_num_threads == 1
        if not vnni:
            assert options.get_session_config_entry("session.x64quantprecision") == "1"


def test_json_has_every_operator(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    path: Path = shop.save(DIVERSE["softmax_head"]())
    assert cli.main(["verify", str(path), "--json", "--trace"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = {row["op"]: row for row in result["operators"]}
    assert rows["Conv"]["equal"] == rows["Conv"]["values"] > 0
    assert "Softmax" in rows and rows["Softmax"]["largest"] <= 1
    assert result["first_difference"] == "" and all(s["different"] == 0 for s in result["stages"])
