"""`--cut-input` and `--cut-output`: a part of a model, at codes or reals; what cannot be cut says what is near."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import runtime_run
from models import Net
from onnx import helper

from codegen import CodegenError, Options, build
from codegen.cli import main
from codegen.frontend.cut import Cuts, cut
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed, verify

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(a) for a in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def three_layers() -> tuple[onnx.ModelProto, dict[str, str]]:
    """x -> first -> middle -> last, float at the border; names of the tensors around the quantizers."""
    net = Net("int8", seed=3)
    a = net.conv(net.input([1, 3, "T"], border="float"), 4, [3], pads=[2, 0], then=[("Relu", ())])
    b = net.conv(a, 5, [3], pads=[1, 1])
    net.output(net.conv(b, 2, [1]), "float")
    model = onnx.shape_inference.infer_shapes(net.model())
    made = {name: node for node in model.graph.node for name in node.output}
    readers = [node for node in model.graph.node if b.name in node.input]
    return model, {"a": a.name, "b": b.name, "b_float": made[b.name].input[0], "b_read": readers[0].output[0]}


@pytest.fixture
def part(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    model, names = three_layers()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path, names


@pytest.mark.parametrize("side", ["b", "b_float", "b_read"])
def test_both_halves_make_the_whole(part: tuple[Path, dict[str, str]], side: str) -> None:
    """Whichever of the three names is given, the codes are cut; the two parts in a row are the whole model."""
    path, names = part
    head = Options(cut_output=(names[side],))
    tail = Options(cut_input=(names[side],))
    whole = load_int8(path, Options())
    first, second = load_int8(path, head), load_int8(path, tail)
    assert [p.name for p in first.outputs] == [p.name for p in second.inputs] == [names["b"]]
    assert first.outputs[0].dtype == second.inputs[0].dtype == "int8"
    feed = random_feed(whole)
    middle = whole_clip.run(first, feed)
    got = whole_clip.run(second, middle)
    want = whole_clip.run(whole, feed)
    (name,) = want
    assert np.array_equal(got[name], want[name])
    assert np.array_equal(want[name], runtime_run(path, feed)[name])
    for options in (head, tail):
        result = verify(path, options)
        assert result.passed and result.runtime and all(item.equal for item in result.runtime)


def test_both_ends(run: Run, part: tuple[Path, dict[str, str]]) -> None:
    path, names = part
    code, out, err = run("build", path, "-o", "out", "--cut-input", names["a"], "--cut-output", names["b"])
    assert (code, err) == (0, "") and "output" in out
    code, out, _ = run("verify", path, "--cut-input", names["a"], "--cut-output", names["b"])
    assert code == 0 and out.strip().splitlines()[-1].startswith("OK")
    Path("codegen.toml").write_text(f'cut_output = ["{names["a"]}"]\n')
    code, out, _ = run("analyze", path)
    assert code == 0 and f"output {names['a']}" in out
    Path("codegen.toml").write_text('cut_output = "text"\n')
    code, _, err = run("analyze", path)
    assert code == 2 and "a list" in err


def test_a_cut_leaves_out_what_cannot_be_built(tmp_path: Path) -> None:
    """Unknown operators before and after the part do not matter; the error about them names the way out."""
    model, names = three_layers()
    graph = model.graph
    graph.node.insert(0, helper.make_node("Frobnicate", ["raw"], ["x_made"], "front"))
    for node in graph.node[1:]:
        for i, name in enumerate(node.input):
            if name == "x":
                node.input[i] = "x_made"
    graph.input[0].name = "raw"
    end = graph.output[0].name
    graph.node.append(helper.make_node("Frobnicate", [end], ["end"], "back"))
    graph.output[0].name = "end"
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CodegenError) as caught:
        build(path)
    assert "front" in str(caught.value) and "--cut-input" in str(caught.value)
    files = build(path, Options(cut_input=(names["a"],), cut_output=(names["b"],)))
    assert "src/model.h" in files


@pytest.mark.parametrize(
    ("option", "name", "texts"),
    [
        ("--cut-output", "q9x", ["no tensor", "q9"]),
        ("--cut-input", "nothing like it", ["no tensor", "near it"]),
        ("--cut-output", "n_q9", ["this is a node", "q9"]),
        ("--cut-input", "w5", ["constant"]),
    ],
)
def test_wrong_names(run: Run, part: tuple[Path, dict[str, str]], option: str, name: str, texts: list[str]) -> None:
    path, names = part
    graph = onnx.load(path).graph
    name = name.replace("q9", names["a"]).replace("w5", graph.initializer[2].name)
    code, _, err = run("build", path, "-o", "out", option, name)
    assert code == 2 and all(text.replace("q9", names["a"]) in err for text in texts), err


def test_unconnected_and_shapeless_cuts(run: Run, part: tuple[Path, dict[str, str]]) -> None:
    path, names = part
    code, _, err = run("build", path, "-o", "out", "--cut-input", names["b"], "--cut-output", names["a"])
    assert code == 2 and "no output of the cut model depends on it" in err
    model = onnx.load(path)
    del model.graph.value_info[:]
    made = {name: node for node in model.graph.node for name in node.output}
    made[made[names["b"]].input[0]].op_type = "Frobnicate"  # what shape inference cannot see through
    with pytest.raises(CodegenError, match="its shape is not known"):
        cut(model, Cuts((names["b"],)))


def test_a_real_cut_stays_real(part: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Between Conv and Relu there are no codes: the output is float, accumulators with scales."""
    path, _ = part
    model = onnx.load(path)
    relu = next(node for node in model.graph.node if node.op_type == "Relu")
    result = verify(path, Options(cut_output=(relu.input[0],)))
    assert result.passed and result.c[0].values > 0
