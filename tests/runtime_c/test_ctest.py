"""CMakeLists.txt: the kernels' unit tests under CTest, and runtime_c inside another project."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from checks import require_tool, run_tool
from paths import ROOT

from codegen.kernels.window import MOST_TAPS

WARNINGS = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
SANITIZERS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
CONSUMER = """cmake_minimum_required(VERSION 3.15)
project(consumer C)
add_subdirectory("${RUNTIME}" runtime)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE onnx2stream::runtime)
enable_testing()
add_test(NAME consumer COMMAND consumer)
"""
MAIN = """#include "rt_lut_s8.h"
int main(void)
{
    static int8_t table[256];
    int8_t code = -128;
    table[0] = 42;
    rt_lut_s8(&code, 1, table, &code);
    return code != 42;
}
"""


def test_most_taps_is_one_number() -> None:
    """The importer lays depthwise weights out for kernels that hold so many taps on the stack."""
    text = (ROOT / "runtime_c" / "rt_conv_s8.h").read_text(encoding="utf-8")
    assert re.findall(r"RT_MOST_TAPS = (\d+)", text) == [str(MOST_TAPS)]


def need(*tools: str) -> None:
    """Skip without these tools; fail where CI promises that all are there."""
    for tool in tools:
        require_tool(tool)


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("CFLAGS", "LDFLAGS", "CC")}
    return run_tool(command, cwd=cwd, env=environment).stdout


def configure_and_test(source: Path, build: Path, compiler: str, flags: str, *definitions: str) -> str:
    build.mkdir()
    options = [f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_C_FLAGS={flags}", *definitions]
    run("cmake", "-S", source, "-B", build, *options, cwd=build)
    run("cmake", "--build", build, cwd=build)
    return run("ctest", "--output-on-failure", cwd=build)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_kernels_under_sanitizers(tmp_path: Path, compiler: str) -> None:
    need("cmake", "ctest", compiler)
    output = configure_and_test(ROOT, tmp_path / "build", compiler, f"{WARNINGS} {SANITIZERS}")
    written = len(list((ROOT / "tests/runtime_c").glob("test_*.c")))
    assert re.search(rf"100% tests passed, 0 tests failed out of {written}\b", output), output


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_inside_another_project(tmp_path: Path, compiler: str) -> None:
    """add_subdirectory gives the library alone: no tests of ours, no compiler flags."""
    need("cmake", "ctest", compiler)
    source = tmp_path / "consumer"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CONSUMER)
    (source / "main.c").write_text(MAIN)
    build = tmp_path / "build"
    output = configure_and_test(source, build, compiler, "", f"-DRUNTIME={ROOT}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    assert "0 tests failed out of 1" in output
    assert " -O" not in (build / "compile_commands.json").read_text()
