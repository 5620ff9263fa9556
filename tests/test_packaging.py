"""What is published works: wheel, sdist and editable install carry templates/ and runtime_c/, and build a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from checks import run_tool
from paths import ROOT

MODEL = ROOT / "examples" / "imu" / "imu_tcn_int8.onnx"
DEPENDENCIES = sysconfig.get_paths()["purelib"]
SHIPPED = [*(ROOT / "templates").rglob("*.j2"), *(ROOT / "runtime_c").glob("*.[ch]")]
PROBE = """
import json, sys, codegen
from codegen import host, resources
from codegen.verify import verify
from codegen.options import Options
from pathlib import Path
result = verify(Path(sys.argv[1]), Options())
print(json.dumps({
    "package": str(Path(codegen.__file__).parent),
    "templates": str(resources.templates_folder()),
    "runtime": str(resources.runtime_folder()),
    "path": sys.path,
    "passed": result.passed,
    "values": result.values,
}))
"""


def run(
    *command: str | Path, cwd: Path, path: list[str | Path] | None = None, offline: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, path))
    if offline:
        environment["PIP_NO_INDEX"] = "1"
    return run_tool(command, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it, as an index would serve them."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,) = folder.glob("onnx2stream-*.tar.gz")
    (wheel,) = folder.glob("onnx2stream-*-py3-none-any.whl")
    return sdist, wheel


def test_wheel_holds_what_it_needs(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = set(wheel.namelist())
        points = wheel.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    assert {f"codegen/_data/{path.relative_to(ROOT).as_posix()}" for path in SHIPPED} <= names
    assert "codegen/py.typed" in names
    assert "codegen = codegen.cli:main" in points
    assert {name.split("/")[0].split("-")[0] for name in names} == {"codegen", "onnx2stream"}


def test_sdist_holds_the_project(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    assert {path.relative_to(ROOT).as_posix() for path in SHIPPED} <= names
    expected = {"Makefile", "CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "tests/test_packaging.py"}
    assert expected <= names
    assert MODEL.relative_to(ROOT).as_posix() in names
    unwanted = [n for n in names if n.endswith((".ts", ".pyc")) or n.startswith((".venv", ".git/", "build/"))]
    assert not unwanted


def test_installed_wheel_builds_a_model_in_an_empty_folder(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, distributions[1], cwd=empty)
    # -S: no .pth file of this environment is read, so an editable checkout stays out of sys.path.
    python = [sys.executable, "-S"]
    path: list[str | Path] = [site, DEPENDENCIES]
    run(*python, "-m", "codegen", "build", MODEL, "-o", "out", cwd=empty, path=path)
    sources = sorted((empty / "out" / "src").glob("*.c"))
    assert sources
    run(os.environ.get("CC", "cc"), "-std=c99", "-Wall", "-Werror", "-c", *sources, cwd=empty)
    found = json.loads(run(*python, "-c", PROBE, MODEL, cwd=empty, path=path).stdout)
    assert found["passed"] is True
    assert found["values"] > 1000
    for key in ("package", "templates", "runtime"):
        assert Path(found[key]).is_relative_to(site), found[key]
    assert str(ROOT) not in found["path"]


def test_editable_install_reads_the_checkout(tmp_path: Path) -> None:
    """In an environment of its own: `pip install -e` of this checkout."""
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    # The environment's own pip is not needed: pip and hatchling come from this one.
    command = [python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--force-reinstall", "-e", ROOT]
    run(*command, cwd=tmp_path, path=[DEPENDENCIES])
    found = json.loads(run(python, "-c", PROBE, MODEL, cwd=tmp_path, path=[DEPENDENCIES]).stdout)
    assert found["passed"] is True
    assert Path(found["package"]) == ROOT / "codegen"
    assert Path(found["templates"]) == ROOT / "templates"
    assert Path(found["runtime"]) == ROOT / "runtime_c"
    shown = run(environment / "bin" / "codegen", "--version", cwd=tmp_path, path=[DEPENDENCIES]).stdout
    assert shown.startswith("onnx2stream ")
