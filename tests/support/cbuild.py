"""Compiles runtime_c sources into a shared object and opens it with cffi (ABI mode)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cffi
from checks import run_tool
from paths import ROOT

RUNTIME = ROOT / "runtime_c"
HEADERS = ("rt_lut_s8.h", "rt_requantize.h", "rt_add_s8.h", "rt_mul_s8.h", "rt_softmax_s8.h")
SOURCES = ("rt_lut_s8.c", "rt_requantize.c", "rt_add_s8.c", "rt_mul_s8.c", "rt_softmax_s8.c")
WARNINGS = ("all", "extra", "pedantic", "conversion", "sign-conversion", "shadow", "error")
STRICT = ["-std=c99", "-O2", *(f"-W{name}" for name in WARNINGS)]


def runtime_sources() -> list[Path]:
    return [RUNTIME / name for name in SOURCES]


def compile_c(
    sources: list[Path], folder: Path, *, compiler: str = "gcc", flags: tuple[str, ...] = (), name: str = "kernels"
) -> Path:
    """Path of the shared object built from `sources`; a warning or error of the compiler raises."""
    target = folder / f"{name}.so"
    command = [compiler, *STRICT, *flags, "-fPIC", "-shared", f"-I{RUNTIME}", *map(str, sources), "-o", str(target)]
    run_tool(command)
    return target


def compile_and_run(sources: list[Path], folder: Path, *, compiler: str, flags: tuple[str, ...] = ()) -> str:
    """Standard output of the program built from `sources`; exit status 0 is required."""
    program = folder / f"program_{compiler}"
    command = [compiler, *STRICT, *flags, f"-I{RUNTIME}", *map(str, sources), "-o", str(program)]
    run_tool(command)
    return run_tool([program]).stdout


def header_declarations(header: str) -> str:
    """Types and prototypes of a runtime header as cffi reads them: no preprocessor lines, asserts, inline bodies."""
    text = re.sub(r"/\*.*?\*/", "", (RUNTIME / header).read_text(), flags=re.DOTALL)
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"static inline [^{;]*\{.*?^\}", "", text, flags=re.DOTALL | re.MULTILINE)
    text = text.replace('extern "C" {', "")
    lines = [line for line in text.splitlines() if not line.startswith(("RT_STATIC_ASSERT", "}\n"))]
    kept = "\n".join(lines)
    return re.sub(r"^\}$", "", kept, flags=re.MULTILINE).replace("\nenum {", "\nenum rt_forms {")


def open_library(path: Path, declarations: str) -> tuple[cffi.FFI, Any]:
    """cffi handle and library."""
    ffi = cffi.FFI()
    ffi.cdef(declarations)
    return ffi, ffi.dlopen(str(path))
