"""The command line: exit codes, one message that names cause and remedy, never a traceback, nothing half-written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checks import Run, require_tool
from models import Net, causal_chain, image_clip
from onnx import TensorProto, helper

from codegen.emit.model import Compiled
from codegen.options import Options
from codegen.reference import whole_clip
from codegen.verify import verification


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.onnx"
    path.write_bytes(causal_chain().SerializeToString())
    return path


def float_model() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "T"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    w = onnx.numpy_helper.from_array(np.ones((4, 3, 3), np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def one_node(op_type: str, domain: str = "") -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "T"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], "odd", domain=domain)], "g", [x], [y])
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def truncated() -> bytes:
    data = causal_chain().SerializeToString()
    return data[: len(data) // 2]


BAD_FILES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 2, "empty"),
    "truncated": (truncated(), 2, "truncated"),
    "random": (np.random.default_rng(0).bytes(4096), 2, "ONNX"),
    "text": (b"this is no model\n" * 20, 2, "ONNX"),
    "zeros": (bytes(1000), 2, "ONNX"),
    "no_graph": (onnx.ModelProto(ir_version=8).SerializeToString(), 2, "graph"),
    "float": (float_model().SerializeToString(), 3, "quantize_static"),
    "unknown_op": (one_node("Frobnicate").SerializeToString(), 3, "Frobnicate"),
    "unknown_domain": (one_node("Relu", "org.example").SerializeToString(), 3, "org.example"),
    "newer_ir": (
        onnx.ModelProto(ir_version=99, graph=onnx.GraphProto(name="g")).SerializeToString(),
        2,
        "IR version 99",
    ),
}


@pytest.mark.parametrize("command", ["build", "verify"])
@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(run: Run, tmp_path: Path, case: str, command: str) -> None:
    data, expected, text = BAD_FILES[case]
    path = tmp_path / f"{case}.onnx"
    path.write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(command, path, *(["-o", tmp_path / "out"] if command == "build" else []))
    assert (code, out) == (expected, "")
    assert text in err and err.startswith("codegen: ")
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written on failure"


def test_float_model_names_both_ways_out(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    path.write_bytes(float_model().SerializeToString())
    _, _, err = run("build", path, "-o", "out")
    assert "codegen quantize" in err and "quantize_static" in err
    assert len(err.strip().splitlines()) == 1


def test_missing_file_and_directory(run: Run, tmp_path: Path) -> None:
    for path, text in ((tmp_path / "missing.onnx", "no such file"), (tmp_path, "directory")):
        for command in ("build", "analyze", "verify"):
            code, _, err = run(command, path, *(["-o", "out"] if command == "build" else []))
            assert code == 2 and text in err and str(path) in err


def test_all_bad_nodes_at_once(run: Run, tmp_path: Path) -> None:
    model = one_node("Frobnicate")
    model.graph.node.append(helper.make_node("Unheard", ["x"], ["z"], "second"))
    path = tmp_path / "bad.onnx"
    path.write_bytes(model.SerializeToString())
    code, _, err = run("build", path, "-o", "out")
    assert code == 3 and "odd (Frobnicate, node 0)" in err and "second (Unheard, node 1)" in err


def test_output_folders(run: Run, good: Path, tmp_path: Path) -> None:
    """New and empty folders, our own result, foreign files, a file in the way."""
    out = tmp_path / "deep" / "out"
    assert run("build", good, "-o", out)[0] == 0
    first = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert (out / "src/good.h").is_file() and (out / "report.json").is_file()
    assert run("build", good, "-o", out)[0] == 0, "rebuilding over its own output is fine"
    assert {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()} == first
    assert run("build", good, "-o", out, "--name", "other")[0] == 0
    assert not (out / "src/good.h").exists(), "files of the former build do not stay behind"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("build", good, "-o", empty)[0] == 0
    code, _, err = run("build", good, "-o", good)
    assert code == 2 and "file" in err and onnx.load(good)
    code, _, err = run("build", good, "-o", good / "below")
    assert code == 2 and str(good / "below") in err
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == [], "no staging folder stays behind"


def test_unwritable_folder(run: Run, good: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("this user can write anywhere")
    code, _, err = run("build", good, "-o", locked / "out")
    assert code == 2 and "cannot be written" in err


def test_json_forms(run: Run, good: Path, tmp_path: Path) -> None:
    code, out, err = run("build", good, "-o", "out", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report == json.loads((tmp_path / "out/report.json").read_text())
    assert {"state_bytes", "scratch_bytes", "weight_bytes", "macs_per_frame"} <= set(report["totals"])
    code, out, _ = run("analyze", good, "--json")
    analysis = json.loads(out)
    assert code == 0 and analysis["nodes"][0]["window"]["S"] == 1 and analysis["nodes"] == report["nodes"]
    code, out, _ = run("verify", good, "--json")
    result = json.loads(out)
    assert code == 0 and result["passed"] and result["mismatches"] == 0 and result["values"] > 0
    code, out, err = run("build", tmp_path / "missing.onnx", "-o", "new", "--json")
    failure = json.loads(out)
    assert code == failure["exit_code"] == 2 and failure["problems"][0]["found"] == "no such file" and "missing" in err


def test_verify_prints_what_it_compared(run: Run, good: Path) -> None:
    code, out, err = run("verify", good)
    assert (code, err) == (0, "")
    assert out.strip().splitlines()[-1].startswith("OK: ") and "0 mismatches" in out and "onnxruntime" in out


def test_verify_with_real_data(run: Run, good: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "real.npz", x=np.random.default_rng(1).integers(-128, 128, (1, 4, 51)).astype(np.int8))
    code, out, _ = run("verify", good, "--data", tmp_path / "real.npz")
    assert code == 0 and "real.npz" in out
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    code, _, err = run("verify", good, "--data", tmp_path / "bad.npz")
    assert code == 2 and "bad.npz" in err
    np.savez(tmp_path / "other.npz", y=np.zeros(3), z=np.zeros(3))
    code, _, err = run("verify", good, "--data", tmp_path / "other.npz")
    assert code == 2 and "x" in err


def test_verify_notices_planted_mismatches(run: Run, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong weight in the C, one wrong code in the reference: exit 1, and the first place is named."""

    build = verification.build_files

    def wrong(path: Path, options: Options) -> tuple[Compiled, dict[str, str]]:
        compiled, files = build(path, options)
        name = "src/good.c"
        assert files[name].count("rt_conv_s8(rows") >= 1
        planted = files[name].replace("good_rt_frames(&x0, j - 2", "good_rt_frames(&x0, j - 1", 1)
        return compiled, files | {name: planted}

    monkeypatch.setattr(verification, "build_files", wrong)
    code, out, _ = run("verify", good)
    assert code == 1 and "MISMATCH" in out and "first at" in out
    monkeypatch.setattr(verification, "build_files", build)
    original = whole_clip.run

    def shifted(*args: object, **kwargs: object) -> dict[str, np.ndarray]:
        values = original(*args, **kwargs)  # type: ignore[arg-type]
        for value in values.values():
            value[(-1,) * value.ndim] ^= 1
        return values

    monkeypatch.setattr(whole_clip, "run", shifted)
    code, out, _ = run("verify", good)
    assert code == 1 and "MISMATCH" in out


def test_verify_without_a_working_compiler(run: Run, good: Path, tmp_path: Path) -> None:
    code, _, err = run("verify", good, "--cc", "false")
    assert code == 2 and "false" in err
    code, _, err = run("verify", good, "--cc", tmp_path / "no-such-compiler")
    assert code == 2 and "no-such-compiler" in err


@pytest.mark.parametrize("hop", ["0", "-3", "two", "1.5"])
def test_bad_hops(run: Run, good: Path, hop: str) -> None:
    code, _, err = run("build", good, "-o", "out", "--hop", hop)
    assert code == 2 and "hop" in err and hop in err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--name", "9lives"], "identifier"),
        (["--name", "a b"], "identifier"),
        (["--name", "größe"], "identifier"),
        (["--name", "int"], "word of C"),
        (["--rate", "0"], "rate"),
        (["--rate", "-1"], "rate"),
        (["--rate", "nan"], "rate"),
        (["--stream", "7"], "stream"),
        (["--stream", "nobody"], "nobody"),
        (["--stream", "x:"], "stream"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_bad_options(run: Run, good: Path, tmp_path: Path, options: list[str], text: str) -> None:
    code, _, err = run("build", good, "-o", "out", *options)
    assert code == 2 and text in err
    assert not (tmp_path / "out").exists()


def test_options_file(run: Run, good: Path, tmp_path: Path) -> None:
    """codegen.toml has the same keys; the command line wins; unknown keys, wrong types and bad TOML are the user's."""
    config = tmp_path / "codegen.toml"
    config.write_text('hop = 4\nname = "fromfile"\n')
    assert run("build", good, "-o", "out")[0] == 0
    assert "FROMFILE_HOP_FRAMES 4 " in (tmp_path / "out/src/fromfile.h").read_text()
    assert run("build", good, "-o", "out", "--hop", "2")[0] == 0
    assert "FROMFILE_HOP_FRAMES 2 " in (tmp_path / "out/src/fromfile.h").read_text()
    for text, word in (
        ("hops = 4\n", "hops"),
        ("hop = \n", "TOML"),
        ('hop = "four"\n', "hop"),
        ("hop = true\n", "hop"),
        ("name = 5\n", "name"),
        ('rate = "fast"\n', "rate"),
        ("stream = 2.5\n", "stream"),
    ):
        config.write_text(text)
        code, _, err = run("build", good, "-o", "out")
        assert code == 2 and word in err, text
    config.write_bytes(b"\xff\xfe\x00")
    assert run("build", good, "-o", "out")[0] == 2


def test_stream_option(run: Run, tmp_path: Path) -> None:
    """A fixed image by rows, or by columns where the user says so, by number or by input and number."""
    path = tmp_path / "image.onnx"
    path.write_bytes(image_clip().SerializeToString())
    for options, frames in (([], 9), (["--stream", "3"], 7), (["--stream", "-1"], 7), (["--stream", "x:2"], 9)):
        code, out, err = run("analyze", path, "--json", *options)
        assert code == 0, err
        assert json.loads(out)["kind"] == f"clip of {frames} frames"
        assert run("verify", path, *options)[0] == 0


def test_analyze_prints_a_table_and_milliseconds(run: Run, good: Path) -> None:
    code, out, err = run("analyze", good, "--rate", "100")
    assert (code, err) == (0, "")
    assert "[2, -4, 3]" in out or "[2, " in out
    assert "ms" in out and "state" in out and "MACs" in out


def test_usage_errors_and_help(run: Run) -> None:
    assert run()[0] == 2
    assert run("frobnicate")[0] == 2
    assert run("build")[0] == 2
    code, out, _ = run("--help")
    assert code == 0 and all(word in out for word in ("build", "analyze", "verify"))
    code, out, _ = run("--version")
    assert code == 0 and "onnx2stream" in out


def test_as_a_program(good: Path, tmp_path: Path) -> None:
    """`python -m codegen` with NO_COLOR, with a closed pipe, and in a terminal-less shell: plain text, right codes."""
    environment = os.environ | {"NO_COLOR": "1"}
    command = [sys.executable, "-m", "codegen", "analyze", str(good)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert "\x1b[" not in done.stdout + done.stderr and done.stderr == ""
    forced = environment | {"FORCE_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=forced, cwd=tmp_path)
    assert not re.search(r"\x1b\[[0-9;]*[349][0-7]m", done.stdout), "NO_COLOR means no colours"
    shell = f'"{sys.executable}" -m codegen analyze "{good}" | head -1 > /dev/null; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        [require_tool("bash"), "-c", shell], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    bad = subprocess.run(
        [sys.executable, "-m", "codegen", "build", "missing.onnx", "-o", "x"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert bad.returncode == 2


def test_internal_errors_say_whose_fault_it_is(run: Run, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from codegen import pipeline

    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(pipeline, "compile_chosen", broken)
    code, _, err = run("build", good, "-o", "out")
    assert code == 4 and "fault of the tool" in err and "planted" in err


def test_model_with_a_symbolic_batch_says_so(run: Run, tmp_path: Path) -> None:
    net = Net("int8", seed=1)
    net.output(net.conv(net.input(["batch", 3, "T"]), 4, [3]))
    path = tmp_path / "batch.onnx"
    path.write_bytes(net.model().SerializeToString())
    code, out, _ = run("analyze", path)
    assert code == 0 and "pinned to 1" in out


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["analyze", "MODEL"], 0),
        (["analyze", "MODEL", "--json"], 0),
        (["build", "MODEL", "-o", "out"], 0),
        (["verify", "MODEL"], 0),
        (["ops"], 0),
        (["ops", "--json"], 0),
        (["--help"], 0),
        (["--version"], 0),
        (["quantize", "MODEL", "--data", "missing.npz", "-o", "q.onnx"], 2),
        (["build", "missing.onnx", "-o", "out"], 2),
    ],
)
def test_a_reader_that_goes_away(arguments: list[str], code: int, closed: str, good: Path, tmp_path: Path) -> None:
    """The pipe is closed before the command starts: it says nothing of that, and ends with its own exit code."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "codegen", *(str(good) if a == "MODEL" else a for a in arguments)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {closed: writer}
    done = subprocess.run(command, cwd=tmp_path, check=False, text=True, **streams)
    os.close(writer)
    assert done.returncode == code
    assert not any(word in (done.stdout or "") + (done.stderr or "") for word in ("BrokenPipe", "Traceback", "ignored"))
