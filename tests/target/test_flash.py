"""What report.json says of flash is what the linked Cortex-M4 program holds, section by section."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import models
import onnx
import pytest
from checks import ARM, Workshop, require_compiler, require_tool, run_tool
from paths import ROOT

from benchmarks import emulate
from benchmarks.target import build
from benchmarks.targets import TARGETS
from codegen.kernels.structs import declarations
from codegen.resources import runtime_folder

WITHIN = 0.02
"""The linker aligns tables and structs; the report counts their bytes."""

SOURCES: dict[str, Path | Callable[[], onnx.ModelProto]] = {
    "imu": ROOT / "examples" / "imu" / "imu_tcn_int8.onnx",
    "residual": models.residual,
    "image_clip": models.image_clip,
    "softmax_head": models.softmax_head,
    "two_inputs": models.two_inputs,
}


@pytest.mark.parametrize("optimize", ["-O2", "-Os"])
@pytest.mark.parametrize("name", SOURCES)
def test_constants_of_the_linked_program(shop: Workshop, tmp_path: Path, name: str, optimize: str) -> None:
    for tool in TARGETS["m4"].tools:
        require_tool(tool)
    source = SOURCES[name]
    folder = shop.build(source if isinstance(source, Path) else source()).folder
    totals = json.loads((folder / "report.json").read_text())["totals"]
    program, _ = build(folder, TARGETS["m4"], tmp_path, (optimize,))
    sections = emulate.section_bytes(program)
    tables, structs = sections[".weights"], sections.get(".tables", 0)

    print(f"{name} {optimize}: tables {totals['weight_bytes']} said, {tables} linked; "
          f"all constants {totals['constant_bytes']} said, {tables + structs} linked")  # fmt: skip
    assert totals["weight_bytes"] == pytest.approx(tables, rel=WITHIN)
    assert totals["constant_bytes"] == pytest.approx(tables + structs, rel=WITHIN)


def test_struct_sizes_are_the_compilers(tmp_path: Path) -> None:
    """sizeof of every struct that a kernel takes, asked of the Cortex-M4's compiler."""
    gcc = require_compiler(*ARM)
    sizes = {name: found.size for name, found in declarations().items() if name.startswith("rt_")}
    assert len(sizes) > 15
    includes = "".join(f'#include "{path.name}"\n' for path in sorted(runtime_folder().glob("rt*_s8.h")))
    (tmp_path / "sizes.c").write_text(
        f'#include "rt_requantize.h"\n#include "rt_stream.h"\n{includes}'
        + "".join(f"typedef char check_{name}[sizeof({name}) == {size} ? 1 : -1];\n" for name, size in sizes.items()
                  if f"}} {name};" in _declarations())
    )  # fmt: skip
    command = [*gcc, "-mthumb", "-mcpu=cortex-m4", f"-I{runtime_folder()}"]
    run_tool([*command, "-fsyntax-only", tmp_path / "sizes.c"])


def _declarations() -> str:
    """The public headers: others are for one kernel's own use."""
    names = [
        *sorted(runtime_folder().glob("rt*_s8.h")),
        *(runtime_folder() / n for n in ("rt_requantize.h", "rt_stream.h")),
    ]
    return "\n".join(path.read_text() for path in names)
