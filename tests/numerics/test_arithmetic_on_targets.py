"""The runtime on other processors: equal results on emulated Cortex-M4 and M0, no helper functions, C++ headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cbuild
import pytest
from cbuild import HEADERS, runtime_sources
from checks import ARM, require_compiler, require_tool, run_tool

PROGRAM = Path(__file__).parent / "target_check.c"
BOARDS = {
    "cortex-m4": ("mps2-an386", "4M", "4M"),
    "cortex-m0": ("microbit", "256k", "16k"),
}
ALLOWED = {"memcpy", "memset"}


def needs(*programs: str) -> None:
    for program in programs:
        require_tool(program)


def run(command: list[str]) -> str:
    done = run_tool(command, timeout=120, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def host_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    folder = tmp_path_factory.mktemp("host")
    return cbuild.compile_and_run([PROGRAM, *runtime_sources()], folder, compiler="gcc", flags=sanitize)


@pytest.mark.parametrize("flags", [(), ("-DRT_TARGET_HALVES",)])
def test_clang_with_sanitizers_agrees(flags: tuple[str, ...], host_output: str, tmp_path: Path) -> None:
    needs("clang")
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", *flags)
    output = cbuild.compile_and_run([PROGRAM, *runtime_sources()], tmp_path, compiler="clang", flags=sanitize)
    assert output == host_output


@pytest.mark.parametrize("cpu", list(BOARDS))
def test_emulated_board_agrees(cpu: str, host_output: str, tmp_path: Path) -> None:
    needs("qemu-system-arm")
    machine, flash, ram = BOARDS[cpu]
    memory = {"flash": "0", "flash_size": flash, "ram": "0x20000000", "ram_size": ram, "stack_size": "2k"}
    command = [*require_compiler(*ARM), "-O2", "-std=c99", f"-mcpu={cpu}", "-mthumb"]
    command += ["--oslib=semihost", "--crt0=hosted", "-Tpicolibc.ld", f"-I{cbuild.RUNTIME}"]
    command += [f"-Wl,--defsym=__{name}={value}" for name, value in memory.items()]
    program = tmp_path / "check.elf"
    run([*command, str(PROGRAM), *map(str, runtime_sources()), "-o", str(program)])
    emulator = ["qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-serial", "none"]
    output = run([*emulator, "-semihosting-config", "enable=on,target=native", "-kernel", str(program)])
    assert output.replace("\r", "") == host_output


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m33"])
def test_no_helper_functions(cpu: str, tmp_path: Path) -> None:
    """No soft float, division, 64-bit multiply or 64-bit shift routine is asked for."""
    needs("arm-none-eabi-nm")
    gcc = require_compiler(*ARM)
    harness = Path(__file__).parent / "harness.c"
    for source in [*runtime_sources(), harness]:
        target = tmp_path / f"{source.stem}.o"
        include = [f"-I{cbuild.RUNTIME}", f"-I{harness.parent}"]
        run([*gcc, "-O2", f"-mcpu={cpu}", "-mthumb", *include, "-c", str(source), "-o", str(target)])
        wanted = {line.split()[-1] for line in run(["arm-none-eabi-nm", "-u", str(target)]).splitlines()}
        assert all(name in ALLOWED or name.startswith("rt_") for name in wanted), wanted


def test_headers_are_cpp(tmp_path: Path) -> None:
    needs("g++")
    source = tmp_path / "all.cpp"
    source.write_text("".join(f'#include "{name}"\n' for name in HEADERS))
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", f"-I{cbuild.RUNTIME}"]
    run(["g++", *flags, "-fsyntax-only", str(source)])
