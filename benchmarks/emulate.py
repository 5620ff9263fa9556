"""Compile for a target, link for a board, run under QEMU, read the numbers that come back."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from benchmarks.targets import BOARD, BenchmarkError, Machine, MissingToolError, Target
from codegen.toolchain import why_not

WARNINGS = ("-std=c99", "-Wall", "-Wextra")
SPLIT = ("-ffunction-sections", "-fdata-sections", "-ffreestanding")
CALIBRATION = (1, 1000, 1000000, 6000000)


@dataclass(frozen=True)
class Program:
    """A linked program and the board it was linked for."""

    elf: Path
    target: Target
    machine: Machine


def require_tools(target: Target) -> None:
    """Raises MissingToolError naming what the target lacks."""
    missing = [f"{tool} is not installed" for tool in target.tools if shutil.which(tool) is None]
    problem = "; ".join(missing) or why_not(_gcc(target))
    if problem:
        raise MissingToolError(f"{target.name}: {problem}")


def command(arguments: Sequence[str | Path], folder: Path | None = None, timeout: float = 120) -> str:
    """Standard output of a program; raises BenchmarkError with what it said."""
    done = subprocess.run(
        [str(a) for a in arguments], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{arguments[0]} failed:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def _gcc(target: Target) -> tuple[str, ...]:
    return (f"{target.prefix}gcc", "--specs=picolibc.specs", *target.flags)


def compile_objects(
    target: Target, sources: Sequence[Path], folder: Path, include: Sequence[Path], flags: Sequence[str]
) -> list[Path]:
    """Object files of `sources` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{path.resolve()}" for path in include]
    paths = [source.resolve() for source in sources]
    arguments = [*_gcc(target), *WARNINGS, *SPLIT, *flags, *includes, "-c", *map(str, paths)]
    command(arguments, folder)
    return [folder / f"{path.stem}.o" for path in paths]


def link(target: Target, objects: Sequence[Path], elf: Path) -> Program:
    """The program for the first board of the target it fits on."""
    complaint = ""
    for machine in target.machines:
        regions = {"__flash": machine.flash, "__ram": machine.ram}
        places = [
            f"-Wl,--defsym={name}={origin},--defsym={name}_size={size}" for name, (origin, size) in regions.items()
        ]
        try:
            script = [f"-T{BOARD / 'board.ld'}", "-Wl,--gc-sections,--no-warn-rwx-segments"]
            command([*_gcc(target), "-nostartfiles", *map(str, objects), *places, *script, "-o", str(elf)])
            return Program(elf, target, machine)
        except BenchmarkError as error:
            complaint = str(error)
            if "overflowed" not in complaint and "RAM:" not in complaint:
                raise
    raise BenchmarkError(f"does not fit on any {target.title} board here:\n{complaint}")


def board_objects(target: Target, folder: Path) -> list[Path]:
    """Start-up and clock, compiled the same whatever the model's options."""
    return compile_objects(target, [BOARD / "board.c", BOARD / target.start], folder, [BOARD], ["-O2"])


def run(program: Program, timeout: float = 600) -> dict[str, int]:
    """The numbers a program prints, by label. Raises BenchmarkError unless it ends with status 0."""
    target = program.target
    arguments = [
        target.emulator, *program.machine.qemu, "-nographic", "-monitor", "none", "-serial", "none",
        "-icount", target.icount, "-semihosting-config", "enable=on,target=native", "-kernel", str(program.elf),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{program.elf.name} ran longer than {timeout:.0f} s under {target.emulator}") from error
    text = done.stdout + done.stderr  # QEMU 7 writes semihosting text to its standard error
    values = {label: int(number, 16) for label, number in re.findall(r"^(\w+) ([0-9a-f]+)$", text, re.MULTILINE)}
    if done.returncode != 0:
        raise BenchmarkError(f"{program.elf.name} ended with status {done.returncode}:\n{text.strip()[-2000:]}")
    return values


@dataclass(frozen=True)
class Clock:
    """Ticks to instructions."""

    ticks_per_instruction: Fraction
    empty_ticks: int

    def instructions(self, ticks: int, reads: int = 1) -> float:
        """Instructions between the clock reads of `reads` measurements that took `ticks` together."""
        return float((ticks - reads * self.empty_ticks) / self.ticks_per_instruction)


def calibrate(values: dict[str, int]) -> Clock:
    """The clock, from loops of 3n + 1 instructions called with 2; raises if a length is off by 4 in a million."""
    times = [values[f"calibrate_{n}"] for n in CALIBRATION]
    long, longest = CALIBRATION[-2:]
    clock = Clock(Fraction(times[-1] - times[-2], 3 * (longest - long)), values["calibrate_0"])
    for n, ticks in zip(CALIBRATION, times, strict=True):
        found, expected = clock.instructions(ticks), 3 * n + 3
        if abs(found - expected) > 2 + expected * 4e-6:
            raise BenchmarkError(f"the instruction clock is off: a loop of {expected} instructions counts {found:.1f}")
    return clock


def section_bytes(program: Program) -> dict[str, int]:
    """Bytes of every section of a program."""
    text = command([f"{program.target.prefix}size", "-A", program.elf])
    return {name: int(size) for name, size in re.findall(r"^(\.\w+)\s+(\d+)\s", text, re.MULTILINE)}


def needs(target: Target, objects: Sequence[Path]) -> set[str]:
    """Names that object files take from elsewhere: from each other, libc and libgcc."""
    text = command([f"{target.prefix}nm", "--undefined-only", *map(str, objects)])
    return set(re.findall(r"^\s+[Uw] (\S+)$", text, re.MULTILINE))
