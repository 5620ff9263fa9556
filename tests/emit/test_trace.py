"""Observation: every stage of every node in C equals the reference, and planted faults are named where they arise."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import PLAIN, PREFIX, Generated, Workshop, require_tool
from models import DIVERSE, Net
from onnx import TensorProto, helper, numpy_helper

from codegen import CodegenError, cli, host
from codegen.emit.model import Compiled
from codegen.host import HostModel
from codegen.options import Options
from codegen.verify import verification
from codegen.verify.observe import compare_stages, first_difference, reference_stages
from codegen.verify.verification import random_feed

STRICT = "-std=c99 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror".split()
TRACE = f"-D{PREFIX.upper()}_TRACE"
Files = dict[str, str]


def traced(shop: Workshop, g: Generated) -> HostModel:
    return HostModel(g.manifest, shop.library(g, "gcc", (*PLAIN, TRACE)), trace=True)


def chain() -> onnx.ModelProto:
    """conv k3 causal + Relu, maxpool, conv k3 + Relu; zero point -20 everywhere, so that no fault hides behind 0."""
    net = Net(zero=-20, seed=5)
    x = net.input([1, 4, "T"])
    y = net.conv(x, 6, [3], pads=[2, 0], then=[("Relu", ())])
    y = net.real_op("MaxPool", [y], same=True, kernel_shape=[2], strides=[2])
    net.output(net.conv(y, 3, [3], pads=[1, 1], then=[("Relu", ())]))
    return net.model()


def quarter() -> onnx.ModelProto:
    """A 1x1 convolution with weight 1 whose accumulators are multiplied by exactly 1/4: ties everywhere."""
    values = {"xs": np.float32(1), "z": np.int8(0), "w": np.ones((1, 1, 1), np.int8), "ws": np.float32(0.25)}
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wr"]),
        helper.make_node("Conv", ["xr", "wr"], ["yr"], "the_conv"),
        helper.make_node("QuantizeLinear", ["yr", "xs", "z"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.INT8, [1, 1, "T"]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("name", DIVERSE)
def test_all_stages_equal_the_reference(shop: Workshop, name: str) -> None:
    g = shop.build(DIVERSE[name](), hop=1 + len(name) % 3)
    model = traced(shop, g)
    feed = random_feed(g.graph)
    for chunks in (None, (1,), (3, 1, 2)):
        model.run(feed, chunks)
        found = compare_stages(g.graph, feed, model.trace())
        assert first_difference(found) == "" and all(item.different == 0 for item in found)
        assert sum(item.values for item in found) > 0
    stages = {node.op_type: set(made) for node, made in reference_stages(g.graph, feed)}
    assert stages.get("Conv", stages.get("Gemm")) == {"accumulator", "requantized", "activated"}
    assert "MaxPool" not in stages or stages["MaxPool"] == {"pooled"}


def test_record_grows_and_resets(shop: Workshop) -> None:
    g = shop.build(chain())
    model = traced(shop, g)
    feed = random_feed(g.graph, 5000)
    model.run(feed)
    first = model.trace()
    assert sum(a.size for stages in first.values() for a in stages.values()) > 1 << 16
    assert first_difference(compare_stages(g.graph, feed, first)) == ""
    model.run(feed, [999])
    again = model.trace()
    assert all(np.array_equal(first[n][s], again[n][s]) for n in first for s in first[n])
    model.reset()
    assert not any(model.trace().values())


def test_build_trace_needs_no_flag(shop: Workshop) -> None:
    g = shop.build(chain(), trace=True)
    assert f"#define {PREFIX.upper()}_TRACE 1" in g.files[f"src/{PREFIX}_rt_trace.h"]
    model = host.load(g.folder)
    feed = random_feed(g.graph)
    model.run(feed)
    assert first_difference(compare_stages(g.graph, feed, model.trace())) == ""
    plain = shop.build(chain())
    changed = {name for name in g.files if g.files[name] != plain.files[name]}
    assert changed == {f"src/{PREFIX}_rt_trace.h", "manifest.json"}


def test_trace_needs_the_define(shop: Workshop) -> None:
    g = shop.build(chain())
    with pytest.raises(CodegenError, match="without it"):
        shop.host(g).trace()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", ["causal_chain", "residual", "image_clip", "softmax_head"])
def test_traced_code_is_clean(shop: Workshop, name: str, compiler: str) -> None:
    g = shop.build(DIVERSE[name]())
    shop.objects(g.sources, compiler, [*STRICT, TRACE])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_without_the_define_no_byte_changes(shop: Workshop, tmp_path: Path, compiler: str) -> None:
    """What the compiler sees equals the same text with every hook cut out, but for empty statements."""
    require_tool(compiler)
    for make in (chain, *DIVERSE.values()):
        g = shop.build(make())
        bare = tmp_path / make.__name__
        bare.mkdir(exist_ok=True)
        hooks = 0
        for name, text in g.files.items():
            if name.startswith("src/"):
                cut, count = re.subn(r"^ *M_RT_TRACE_(BEGIN|PLACE|VALUE|END)\(.*\);$", "", text, flags=re.MULTILINE)
                hooks += count
                (bare / name[4:]).write_text(cut)
        assert hooks > 2
        for source in g.sources:
            seen = []
            for folder in (source.parent, bare):
                command = [require_tool(compiler), "-std=c99", "-E", "-P", source.name]
                text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
                seen.append("".join(text.replace("((void)0);", "").split()))
            assert seen[0] == seen[1], source.name


# --- planted faults -----------------------------------------------------------------------------------------------


def replaced(files: Files, name: str, pattern: str, text: str | Callable[[re.Match[str]], str]) -> Files:
    """One file with the first match replaced; the pattern must be there."""
    changed, count = re.subn(pattern, text, files[name], count=1)
    assert count == 1, pattern
    return files | {name: changed}


def wrong_output_zero_point(files: Files) -> Files:
    """All codes of the first convolution one higher: R of p with one more unit."""
    shift = re.search(r"\.right_shift = (\d+),\s+\.form = M_RT_FORM_[AB]", files["src/m.c"])
    assert shift
    unit = 1 << int(shift[1])

    def raised(match: re.Match[str]) -> str:
        return match[1] + re.sub(r"-?\d+", lambda n: str(int(n[0]) + unit), match[2])

    return replaced(files, "src/m_weights.c", r"(m_\w+_rounding\[\d+\] = \{)([^}]*)", raised)


def wrong_input_zero_point(files: Files) -> Files:
    """The folded bias of the first convolution made for another zero point."""

    def moved(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + 7}"

    return replaced(files, "src/m_weights.c", r"(m_\w+_b\[\d+\] = \{\s*)(-?\d+)", moved)


def relu_against_zero(files: Files) -> Files:
    return replaced(files, "src/m.c", r"(\.zero_point = -20,\s+\.lo = )-20,", r"\g<1>0,")


def padding_with_zero(files: Files) -> Files:
    zeros = lambda m: m[1] + m[2].replace("-20", "0")  # noqa: E731
    return replaced(files, "src/m_weights.c", r"(m_pad_m20\[\d+\] = \{)([^}]*)", zeros)


def short_history(files: Files) -> Files:
    """The first convolution's input keeps one frame instead of two."""
    files = replaced(files, "src/m.c", r"(r->length\[\d+\], 4, )2(, r->st->x_head, NULL\})", r"\g<1>1\2")
    return replaced(files, "src/m.c", r"(m_rt_commit\(&r->st->x\[0\]\[0\], )2,", r"\g<1>1,")


def code_instead(code: str) -> Callable[[Files], Files]:
    """Another rounding in the runtime, after the right one."""
    pattern, planted = r"(    M_RT_TRACE_VALUE\(M_RT_ACCUMULATOR, acc\);)", rf"    code = {code};\n\1"
    return lambda files: replaced(files, f"src/{PREFIX}_rt_requantize.c", pattern, planted)


half_away = code_instead("acc >= 0 ? (acc + 2) >> 2 : -((2 - acc) >> 2)")
double_rounding = code_instead("(((acc + 1) >> 1) + 1) >> 1")
FAULTS = {
    "wrong zero point of the output": (chain, wrong_output_zero_point, 0, "requantized"),
    "wrong zero point of the input": (chain, wrong_input_zero_point, 0, "accumulator"),
    "Relu against literal 0": (chain, relu_against_zero, 0, "activated"),
    "padding with 0": (chain, padding_with_zero, 0, "accumulator"),
    "rounding half away from zero": (quarter, half_away, 0, "requantized"),
    "double rounding": (quarter, double_rounding, 0, "requantized"),
    "one history row short": (chain, short_history, 0, "accumulator"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_named(
    shop: Workshop, fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make, plant, index, stage = FAULTS[fault]
    path = shop.save(make())
    build = verification.build_files

    def planted(path: Path, options: Options) -> tuple[Compiled, Files]:
        compiled, files = build(path, options)
        return compiled, plant(files)

    monkeypatch.setattr(verification, "build_files", planted)
    result = verification.verify(path, Options(name=PREFIX))
    assert not result.passed
    node = shop.build(path).graph.nodes[index]
    found = next(item.first for item in result.stages if item.first)
    assert found is not None and (found.node, found.stage) == (node.where, stage), result.first
    assert found.c != found.reference
    earlier = [item for item in result.stages if item.different]
    assert earlier[0].stage == stage, "nothing before it differs"
    if fault == "padding with 0":
        assert found.frame == 0
    if fault == "one history row short":
        assert found.frame >= 1
    assert cli.main(["verify", str(path), "--name", PREFIX]) == 1
    out = capsys.readouterr().out
    assert f"first difference: {node.where}, stage {stage}, frame {found.frame}" in out
    assert f"channel {found.channel}: C {found.c}, reference {found.reference}" in out
    assert out.strip().splitlines()[-1].startswith("MISMATCH")


def test_a_late_fault_is_not_blamed_on_an_early_node(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One weight of the last convolution: its accumulators differ, nothing before them, and its channel is named."""
    path = shop.save(chain())
    build = verification.build_files

    def plant(path: Path, options: Options) -> tuple[Compiled, Files]:
        compiled, files = build(path, options)
        table = compiled.tables.of_node[compiled.graph.nodes[2].name]["w"]
        pattern = rf"(m_{table}\[\d+\] = \{{\s*)(-?\d+)"
        return compiled, replaced(files, "src/m_weights.c", pattern, lambda m: f"{m[1]}{-int(m[2]) or 9}")

    monkeypatch.setattr(verification, "build_files", plant)
    result = verification.verify(path, Options(name=PREFIX))
    found = next(item.first for item in result.stages if item.first)
    last = shop.build(path).graph.nodes[2]
    assert found is not None and (found.node, found.stage, found.channel) == (last.where, "accumulator", 0)


def test_verify_trace_on_request(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    path = shop.save(chain())
    assert cli.main(["verify", str(path), "--trace"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"traced: \d+ stages of the nodes, \d+ values, equal", out)
    assert out.strip().splitlines()[-1].startswith("OK: ")
