"""Everything in README.md that can be run is run, in order, in a copy of this checkout.

Blocks of `sh` and `python` run as they stand; a block whose first line is a comment with a file name becomes that
file. `make` alone is not run for real (that would start the tests inside the tests): its targets are checked with
`make -n`, and what they do is tested in test_demo.py and by running the tests at all.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import fields
from pathlib import Path
from typing import Any

from checks import require_tool
from paths import ROOT

from codegen import Options, analyze, cli

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|/\*) ([\w.]+\.\w+)(?: \*/)?$")
COPIED = ("codegen", "templates", "runtime_c", "examples", "Makefile", "pyproject.toml", "README.md", "LICENSE")
MODEL = ROOT / "examples" / "imu" / "imu_tcn_int8.onnx"


def as_script(language: str, text: str) -> str:
    """One block as lines of bash."""
    named = FILE.match(text.splitlines()[0])
    if named:
        return f"cat > {named[1]} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n"
    if language == "python":
        return f"python <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n"
    assert language == "sh", f"a block of {language} without a file name: how should it be checked?"
    return re.sub(r"^make ", "make -n ", text, flags=re.MULTILINE)


def test_every_block_runs(tmp_path: Path) -> None:
    require_tool("cmake")
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".cache", "build"))
        else:
            shutil.copy(source, target)
    blocks = BLOCK.findall(TEXT)
    assert {language for language, _ in blocks} == {"sh", "c", "python", "toml"}
    for name in ("report-json", "tiles"):
        blocks += BLOCK.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    blocks.append(("sh", "cc -std=c99 -fsyntax-only -x c kws_port.h\n"))
    script = "set -euxo pipefail\n" + "\n".join(as_script(language, text) for language, text in blocks)
    script += "\ncd / && head -1 \"$(command -v codegen)\" && python -c 'import codegen; print(codegen.__file__)'\n"
    # The dependencies and the build backend come from this environment: no network is needed.
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONHOME", "MAKEFLAGS")}
    environment |= {"PYTHONPATH": sysconfig.get_paths()["purelib"], "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    result = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    assert re.search(r"^OK: \d+ values, 0 mismatches$", result.stdout, re.MULTILINE)
    assert "100% tests passed" in result.stdout
    assert all(str(tmp_path / ".venv-user") in line for line in result.stdout.splitlines()[-2:]), result.stdout[-500:]
    report = json.loads((tmp_path / "imu-hop4" / "report.json").read_text())
    assert report["hop"] == 4


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(keys(v) for v in value.values()))
    return set().union(*(keys(v) for v in value)) if isinstance(value, list) else set()


def test_report_keys_are_documented() -> None:
    section = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8").split("## report.json")[1]
    documented = set(re.findall(r"`(\w+)`", section.split("```sh")[0]))
    found = keys(analyze(MODEL, Options(rate=10.0, fast_memory=400)).to_json())
    assert found <= documented, f"not in docs/report-json.md: {sorted(found - documented)}"
    assert documented <= found | {"ended", "build", "analyze", "MAX_OUT"}, f"gone: {sorted(documented - found)}"


def test_options_and_flags_are_documented() -> None:
    section = TEXT.split("## Options")[1].split("\n## ")[0]
    for field in fields(Options):
        flag = field.name.replace("_", "-")
        assert re.search(rf"^\| `--{flag}[\w-]*`, `{field.name}` \|", section, re.MULTILINE), field.name
    parser = cli._parser()
    commands = next(a for a in parser._actions if a.choices and "build" in a.choices).choices
    assert isinstance(commands, dict)
    for name, command in commands.items():
        assert f"`{name}" in TEXT or f"codegen {name}" in TEXT, name
        for action in command._actions:
            for flag in action.option_strings:
                if flag not in ("-h", "--help", "--output"):
                    assert flag in TEXT, f"{name} {flag}"


def test_links_and_folders_exist() -> None:
    for page in (README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
    for command in re.findall(r"^make (\w+)", TEXT, re.MULTILINE):
        assert re.search(rf"^{shlex.quote(command)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
