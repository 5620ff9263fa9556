"""Names of models: C, C++ and CMake take what comes out, whatever the file is called; models share folders."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from checks import Run, Workshop, require_tool, run_tool
from models import causal_chain
from paths import ROOT

from codegen import cli
from codegen.emit import model_name
from codegen.emit.names import KEYWORDS
from codegen.options import Options
from codegen.output_folder import write_files
from codegen.pipeline import build

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
KINDS = {
    "target": ["test", "all", "help", "install", "clean", "Package"],
    "header": ["string", "stdint", "stdio", "ctype", "features", "time", "memory", "unistd", "Math"],
    "word": ["int", "class", "main", "errno"],
    "runtime": ["rt", "rt_stream", "rt_conv_s8", "RT"],
    "own file": ["kws_float", "kws_weights", "kws_rt", "kws_rt_stream"],
    "no identifier": ["my model", "2024-kws (v1.2)", "größe", "-", "_x", "a.b.c", "é" * 80, "x" * 300],
    "plain": ["kws", "model_test", "stringent", "net", "model", "device"],
}
STEMS = [(kind, stem) for kind, stems in KINDS.items() for stem in stems]


@pytest.fixture(scope="module")
def model(shop: Workshop) -> Path:
    return shop.save(causal_chain())


@pytest.mark.parametrize(("kind", "stem"), STEMS)
def test_every_name_is_free(kind: str, stem: str) -> None:
    """What is derived is taken by nobody, and is what `--name` takes too."""
    name, note = model_name.default_name(Path(f"{stem}.onnx"))
    assert model_name.reason(name) == "" and name not in KEYWORDS
    model_name.check(name)
    assert bool(note) == (kind in ("target", "header", "word", "runtime", "own file")), note
    assert not note or (name in note and "--name" in note)


SAMPLES = [stems[0] for stems in KINDS.values()] + ["string", "features", "rt_stream"]


@pytest.mark.parametrize("stem", SAMPLES)
def test_c_cpp_and_cmake(model: Path, tmp_path: Path, run: Run, stem: str) -> None:
    named = tmp_path / f"{stem}.onnx"
    named.write_bytes(model.read_bytes())
    assert run("build", named, "-o", "o")[0] == 0
    name = model_name.default_name(named)[0]
    sources = [*sorted(Path("o/src").glob("*.c")), "o/test/selftest.c", "o/test/main.c"]
    include = ["-Io/src", "-Io/test"]
    run_tool([require_tool("gcc"), *STRICT, *include, *sources, "-o", "t"])
    run_tool(["./t"])
    Path("u.cpp").write_text(f'#include <string>\n#include <cstdio>\n#include <ctime>\n#include "{name}.h"\n')
    run_tool([require_tool("g++"), "-Wall", "-Werror", *include, "-c", "u.cpp", "-o", "u.o"])
    run_tool([require_tool("cmake"), "-S", "o", "-B", "b"])
    run_tool([require_tool("cmake"), "--build", "b"])


@pytest.mark.parametrize("name", ["test", "string", "int", "rt", "kws_float", "_x", "a b", "größe", "x" * 64, ""])
def test_a_bad_name_is_refused_with_a_good_one(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert cli.main(["build", str(model), "-o", str(tmp_path / "o"), f"--name={name}"]) == 2
    text = capsys.readouterr().err
    proposed = text.rstrip(".\n").rsplit("Pass --name ", 1)[1]
    assert cli.main(["build", str(model), "-o", str(tmp_path / "o"), "--name", proposed]) == 0


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("names", [("one", "two"), ("kws", "kws2")])
def test_two_models_in_one_folder(model: Path, tmp_path: Path, names: tuple[str, str], shared: bool) -> None:
    """No file of one replaces another of the other with a different text; all of it links, and both pass."""
    flat = tmp_path / "flat"
    flat.mkdir()
    hops = (1, 3)
    for name, hop in zip(names, hops, strict=True):
        made = build(model, Options(name=name, hop=hop, shared_runtime=shared))
        for path, text in made.items():
            target = flat / Path(path).name
            if path.startswith("src/"):
                assert not target.exists() or target.read_text() == text, path
                target.write_text(text)
        write_files(tmp_path / name, {p: t for p, t in made.items() if p.startswith("test/selftest")})
        (tmp_path / name / "src").symlink_to(flat)
    main = tmp_path / "main.c"
    declared = "".join(f"int {name}_selftest(void);\n" for name in names)
    main.write_text(declared + f"int main(void) {{ return {' | '.join(f'{name}_selftest()' for name in names)}; }}\n")
    tests = [tmp_path / name / "test" / "selftest.c" for name in names]
    objects = []
    for name, test in zip(names, tests, strict=True):
        objects.append(tmp_path / f"{name}.o")
        run_tool([require_tool("gcc"), *STRICT, f"-I{flat}", f"-I{test.parent}", "-c", test, "-o", objects[-1]])
    run_tool([require_tool("gcc"), *STRICT, f"-I{flat}", main, *objects, *flat.glob("*.c"), "-o", tmp_path / "both"])
    run_tool([tmp_path / "both"])
    kernels = [path.name for path in flat.glob("*conv_s8.c")]
    assert len(kernels) == (1 if shared else 2), "shared: one copy for both"


def test_a_shared_runtime_is_the_repositorys_own(model: Path) -> None:
    made = build(model, Options(name="m", shared_runtime=True))
    root = ROOT / "runtime_c"
    shared = {path: text for path, text in made.items() if path.startswith("src/rt")}
    assert shared and all((root / Path(path).name).read_text() == text for path, text in shared.items())


def test_names_without_the_model(model: Path) -> None:
    """No symbol and no file of one model begins like another's: two prefixes that begin alike do not meet."""
    made = [build(model, Options(name=name)) for name in ("kws", "kws_x")]
    files = [{path for path in files if path.startswith("src/")} for files in made]
    assert all(not a & b for a, b in itertools.combinations(files, 2))
