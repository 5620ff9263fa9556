"""`codegen quantize`: what it writes builds and verifies; data and files that do not fit are the user's fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import Run, Workshop
from models import Net, causal_chain
from onnx import TensorProto, helper, numpy_helper

from codegen import CodegenError
from codegen import quantize as module


def float_model() -> onnx.ModelProto:
    """Conv -> BatchNormalization -> Relu -> Conv with metadata as torch dynamo writes it."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.4, (6, 3, 3)).astype(np.float32)
    constants = {
        "w": weights,
        "v": rng.normal(0, 0.4, (2, 6, 1)).astype(np.float32),
        **{name: np.abs(rng.normal(1, 0.1, 6)).astype(np.float32) for name in ("g", "b", "m", "s")},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[2, 0]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "s"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], "last"),
    ]
    for node in nodes:
        scopes = f"['', 'body', 'body.{node.name}', 'op']"
        trace = 'File "/elsewhere/net.py", line 7, in forward\n  File "/x/site-packages/torch/nn.py", line 9, in f'
        node.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=scopes))
        node.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.stack_trace", value=trace))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "time"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, "time"])
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "float.onnx"
    path.write_bytes(float_model().SerializeToString())
    np.savez(tmp_path / "calib.npz", x=np.random.default_rng(1).normal(0, 1, (10, 3, 50)).astype(np.float32))
    return path


def test_quantized_model_builds_and_verifies(run: Run, model: Path, tmp_path: Path) -> None:
    code, out, err = run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx")
    assert (code, err) == (0, "") and "codegen build int8.onnx" in out and "body.last" in out and "net.py:7" in out
    assert "10 calibration clips" in out and "warning" not in out
    made = onnx.load(tmp_path / "int8.onnx")
    weights = [n for n in made.graph.node if n.op_type == "DequantizeLinear" and "w" in n.input[0].split("_")]
    scales = {t.name: t for t in made.graph.initializer}
    assert any(len(scales[n.input[1]].float_data or numpy_helper.to_array(scales[n.input[1]])) == 6 for n in weights)
    zeros = {numpy_helper.to_array(scales[n.input[2]]).dtype for n in made.graph.node if n.op_type == "QuantizeLinear"}
    assert zeros == {np.dtype(np.int8)}
    code, out, _ = run("verify", "int8.onnx")
    assert code == 0 and out.strip().splitlines()[-1].startswith("OK")
    code, out, _ = run("analyze", "int8.onnx")
    assert "net.py:7" in out, "the user's source line is in the table"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calib.npz", "float.onnx", "int8.onnx"]


def test_json(run: Run, model: Path) -> None:
    code, out, err = run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx", "--json")
    result = json.loads(out)
    assert (code, err) == (0, "") and result["clips"] == 10 and result["warnings"] == []
    assert all(layer["sqnr_db"] > 25 for layer in result["layers"])
    assert [layer["layer"] for layer in result["layers"]][-1] == "last"


def test_layers_that_lose_most_are_named(run: Run, model: Path) -> None:
    """A float model that int8 cannot hold: one value in thousands is 400 times the rest."""
    x = np.random.default_rng(1).normal(0, 0.01, (10, 3, 50)).astype(np.float32)
    x[0, 0, 0] = 100.0
    np.savez("calib.npz", x=x[[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]])
    code, out, _ = run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx", "--json")
    assert code == 0
    result = json.loads(out)
    layers = {layer["layer"]: layer for layer in result["layers"]}
    assert min(layer["sqnr_db"] for layer in layers.values()) < module.POOR_DB
    rows = tuple(
        module.LayerError(n, "Conv", "", n, 10.0, lost)
        for n, lost in (("a", 4), ("b", 9), ("c", 1), ("d", 5), ("e", 6))
    )
    assert [w.layer for w in module.Quantized("o", 1, rows, ()).warnings] == ["b", "e", "d"]


def test_existing_files_stay(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "int8.onnx").write_text("mine")
    code, _, err = run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx")
    assert code == 2 and "--force" in err and (tmp_path / "int8.onnx").read_text() == "mine"
    assert run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx", "--force")[0] == 0
    before = model.read_bytes()
    code, _, err = run("quantize", model, "--data", "calib.npz", "-o", model, "--force")
    assert code == 2 and "itself" in err and model.read_bytes() == before
    for target in (tmp_path, tmp_path / "missing" / "int8.onnx"):
        code, _, err = run("quantize", model, "--data", "calib.npz", "-o", target)
        assert code == 2 and str(target) in err


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"z": np.zeros((4, 3, 50)), "q": np.zeros(3)}, "no array x"),
        ({"x": np.zeros((4, 5, 50))}, "clips of [1, 3, 'time']"),
        ({"x": np.zeros((3, 50))}, "clips of"),
        ({"x": np.zeros((0, 3, 50))}, "at least one"),
        ({"x": np.zeros((4, 3, 0))}, "clips of"),
        ({"x": np.full((4, 3, 50), np.nan)}, "finite"),
        ({"x": np.asarray(["a", "b"])}, "finite"),
    ],
)
def test_bad_data(run: Run, model: Path, tmp_path: Path, arrays: dict[str, np.ndarray], text: str) -> None:
    np.savez(tmp_path / "calib.npz", **arrays)
    code, _, err = run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx")
    assert code == 2 and text in err, err
    assert not (tmp_path / "int8.onnx").exists()


def test_other_bad_files(run: Run, model: Path, tmp_path: Path) -> None:
    code, _, err = run("quantize", model, "--data", "missing.npz", "-o", "int8.onnx")
    assert code == 2 and "missing.npz" in err
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 no archive")
    code, _, err = run("quantize", model, "--data", "bad.npz", "-o", "int8.onnx")
    assert code == 2 and "bad.npz" in err
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    assert run("quantize", "broken.onnx", "--data", "calib.npz", "-o", "int8.onnx")[0] == 2
    (tmp_path / "already.onnx").write_bytes(causal_chain().SerializeToString())
    code, _, err = run("quantize", "already.onnx", "--data", "calib.npz", "-o", "int8.onnx")
    assert code == 2 and "quantized already" in err
    unknown = float_model()
    unknown.graph.node[2].op_type = "Frobnicate"
    (tmp_path / "unknown.onnx").write_bytes(unknown.SerializeToString())
    code, _, err = run("quantize", "unknown.onnx", "--data", "calib.npz", "-o", "int8.onnx")
    assert code == 2 and "onnxruntime" in err
    assert not (tmp_path / "int8.onnx").exists()


def test_without_onnxruntime(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "onnxruntime"]:
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run("quantize", model, "--data", "calib.npz", "-o", "int8.onnx")
    assert code == 2 and "onnx2stream[quant]" in err


def test_build_on_a_float_model_points_here(run: Run, model: Path) -> None:
    code, _, err = run("build", model, "-o", "out")
    assert code == 3 and "codegen quantize" in err


def test_clips_without_a_stack_and_steps_told(model: Path, tmp_path: Path) -> None:
    """One clip, a stack of [1, 3, T], the only array under another name; progress goes through `tell`."""
    rng = np.random.default_rng(2)
    for shape, clips in (((1, 3, 40), 1), ((5, 1, 3, 40), 5)):
        np.savez(tmp_path / "calib.npz", other=rng.normal(0, 1, shape))
        told: list[str] = []
        result = module.quantize(model, tmp_path / "calib.npz", tmp_path / "q.onnx", force=True, tell=told.append)
        assert result.clips == clips
        assert any(text == f"calibrating: clip {clips} of {clips}" for text in told) and "quantizing" in told


UNDEFINED = {
    "log": ([("Log", ())], "log"),
    "reciprocal": ([("Reciprocal", ())], "reciprocal"),
    "root": ([("Neg", ()), ("Sqrt", ())], "sqrt"),
    "power": ([("Pow", (-0.5,))], "pow"),
    "overflow": ([("Exp", ()), ("Exp", ()), ("Exp", ()), ("Exp", ())], "exp"),
}


def undefined(steps: list[tuple[str, tuple[float, ...]]]) -> onnx.ModelProto:
    """A float model whose functions leave the numbers where the Relu before them gives 0, or overflow."""
    rng = np.random.default_rng(0)
    constants = [numpy_helper.from_array(rng.normal(0, 0.6, (4, 3, 3)).astype(np.float32), "w")]
    constants.append(numpy_helper.from_array(rng.normal(0, 0.3, (2, 4, 1)).astype(np.float32), "v"))
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], "conv"), helper.make_node("Relu", ["a"], ["t0"], "relu")]
    for i, (op, numbers) in enumerate(steps):
        constants += [numpy_helper.from_array(np.float32(n), f"c{i}") for n in numbers]
        inputs = [f"t{i}", *(f"c{i}" for _ in numbers)]
        nodes.append(helper.make_node(op, inputs, [f"t{i + 1}"], f"{op.lower()}{i}"))
    nodes.append(helper.make_node("Conv", [f"t{len(steps)}", "v"], ["y"], "end"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "T"])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("case", UNDEFINED)
def test_functions_that_leave_the_numbers_are_named(run: Run, tmp_path: Path, case: str) -> None:
    steps, name = UNDEFINED[case]
    onnx.save(undefined(steps), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(2).normal(0, 1, (1, 3, 200)).astype(np.float32))
    code, out, err = run("quantize", "m.onnx", "--data", "d.npz", "-o", "q.onnx")
    assert code == 2 and name in err and "of a calibration clip" in err and "Warning" not in out + err
    assert not (tmp_path / "q.onnx").exists()


def test_an_infinity_inside_a_chain_is_no_fault(run: Run, tmp_path: Path) -> None:
    """exp(log(0)) is 0: only what is quantized must be finite."""
    onnx.save(undefined([("Log", ()), ("Exp", ())]), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(2).normal(0, 1, (1, 3, 200)).astype(np.float32))
    assert run("quantize", "m.onnx", "--data", "d.npz", "-o", "q.onnx")[0] == 0
    assert run("build", "q.onnx", "-o", "out")[0] == 0


@pytest.mark.parametrize("exponent", [-0.5, -1.0, -2.0, 0.5, 400.0])
@pytest.mark.parametrize("border", ["codes", "float"])
def test_powers_without_a_value(shop: Workshop, exponent: float, border: str) -> None:
    """0 to a negative power, roots of negative numbers, overflow: a table or a refusal, never a fault of ours."""
    net = Net("int8", seed=1)
    x = net.input([1, 3, "T"], scale=0.05)
    y = net.node("Pow", [net.dequantize(x), net.const(np.float32(exponent))], "power")
    if border == "codes":
        net.output(net.quantize(y, x.real))
    else:
        net.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))
    try:
        shop.build(net.model())
    except CodegenError as error:
        assert error.exit_code == 3 and "NaN" in str(error)


@pytest.mark.parametrize("op", ["Div", "LayerNormalization"])
def test_what_build_refuses_is_said_at_once(run: Run, tmp_path: Path, op: str) -> None:
    """An operator without an integer form, named by both commands alike, also where others follow it in float."""
    second = numpy_helper.from_array(np.ones(3, np.float32), "second")
    net = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1, 1]),
        helper.make_node("Transpose", ["c"], ["t"], "turn", perm=[0, 2, 1]),
        helper.make_node(op, ["t", "t" if op == "Div" else "second"], ["d"], "middle"),
        helper.make_node("Add", ["d", "t"], ["a"], "sum"),
        helper.make_node("Relu", ["a"], ["y"], "last"),
    ]
    weights = numpy_helper.from_array(np.random.default_rng(3).normal(size=(3, 3, 3)).astype(np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "time"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(net, "g", [x], [y], [weights, second])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "f.onnx")
    np.savez(tmp_path / "calib.npz", x=np.random.default_rng(1).normal(2, 1, (4, 3, 20)).astype(np.float32))
    code, out, _ = run("quantize", "f.onnx", "--data", "calib.npz", "-o", "int8.onnx")
    said = [line for line in out.splitlines() if "`build` refuses it" in line]
    assert code == 0 and "next: codegen build" not in out
    assert any(f"middle ({op}): {op} has no integer form" in line for line in said)
    _, out, err = run("build", "int8.onnx", "-o", "out")
    assert [line.split("refuses it: ")[1] for line in said] == [line.split(": ", 2)[2] for line in err.splitlines()]
