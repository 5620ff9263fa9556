"""Emulated processors: how to compile for them, and which QEMU boards have the memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BOARD = Path(__file__).resolve().parent / "board"


class BenchmarkError(Exception):
    """A model that doesn't build, fit, run or come out right; the text is for the user."""


class MissingToolError(BenchmarkError):
    """A program that isn't installed."""


@dataclass(frozen=True)
class Machine:
    """A QEMU board. Addresses and sizes as the linker takes them."""

    qemu: tuple[str, ...]
    flash: tuple[str, str]
    ram: tuple[str, str]


@dataclass(frozen=True)
class Target:
    """A processor. machines: smallest first; a model goes to the first it fits on."""

    name: str
    title: str
    prefix: str
    flags: tuple[str, ...]
    machines: tuple[Machine, ...]
    start: str
    emulator: str
    icount: str

    @property
    def tools(self) -> tuple[str, ...]:
        """Programs that must be on the path."""
        return (f"{self.prefix}gcc", f"{self.prefix}size", f"{self.prefix}nm", self.emulator)


def _arm(name: str, title: str, flags: str, *machines: Machine) -> Target:
    """64 ns an instruction (shift=6): SysTick, 16 to 32 MHz, advances by more than one tick each."""
    return Target(
        name,
        title,
        "arm-none-eabi-",
        ("-mthumb", *flags.split()),
        machines,
        "start_arm.c",
        "qemu-system-arm",
        "shift=6",
    )


_MPS2_M3 = Machine(("-M", "mps2-an385"), ("0x0", "4M"), ("0x20000000", "4M"))
TARGETS = {
    target.name: target
    for target in (
        # The micro:bit's Cortex-M0 executes what a Cortex-M0+ does. Models too large for it run the same ARMv6-M code
        # on the Cortex-M3 board: the instructions are a subset, their number is the same.
        _arm(
            "m0",
            "Cortex-M0+",
            "-mcpu=cortex-m0plus -mfloat-abi=soft",
            Machine(("-M", "microbit"), ("0x0", "256k"), ("0x20000000", "16k")),
            _MPS2_M3,
        ),
        _arm("m3", "Cortex-M3", "-mcpu=cortex-m3 -mfloat-abi=soft", _MPS2_M3),
        _arm(
            "m4",
            "Cortex-M4",
            "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
            Machine(("-M", "mps2-an386"), ("0x0", "4M"), ("0x20000000", "4M")),
        ),
        _arm(
            "m7",
            "Cortex-M7",
            "-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-d16",
            Machine(("-M", "mps2-an500"), ("0x0", "4M"), ("0x20000000", "4M")),
        ),
        _arm(
            "m33",
            "Cortex-M33",
            "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
            Machine(("-M", "mps2-an505"), ("0x10000000", "4M"), ("0x38000000", "4M")),
        ),
        _arm(
            "m55",
            "Cortex-M55",
            "-mcpu=cortex-m55 -mfloat-abi=hard",
            Machine(("-M", "mps3-an547"), ("0x0", "512k"), ("0x20000000", "512k")),
        ),
        Target(
            "rv32",
            "RV32IMAC",
            "riscv64-unknown-elf-",
            ("-march=rv32imac", "-mabi=ilp32", "-msmall-data-limit=8"),
            (Machine(("-M", "virt", "-cpu", "rv32", "-bios", "none"), ("0x80000000", "4M"), ("0x80400000", "4M")),),
            "start_riscv.c",
            "qemu-system-riscv32",
            "shift=0",
        ),
    )
}
