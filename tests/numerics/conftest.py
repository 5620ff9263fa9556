"""The compiled runtime, once per compiler and arithmetic twin."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import cbuild
from kernels import Kernels

HEADERS = ("rt_lut_s8.h", "rt_requantize.h", "rt_add_s8.h", "rt_mul_s8.h", "rt_softmax_s8.h")
SOURCES = ("rt_lut_s8.c", "rt_requantize.c", "rt_add_s8.c", "rt_mul_s8.c", "rt_softmax_s8.c")
BUILDS = {
    "gcc": ("gcc", ()),
    "clang-ubsan": ("clang", (*cbuild.SANITIZE, "-fsanitize-trap=undefined")),
    "gcc-halves-ubsan": ("gcc", ("-DRT_TARGET_HALVES", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")),
}


def runtime_sources() -> list[Path]:
    return [cbuild.RUNTIME / name for name in SOURCES]


@pytest.fixture(scope="session", params=list(BUILDS))
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The runtime as built by one compiler; the sanitized builds trap on undefined behaviour."""
    compiler, flags = BUILDS[request.param]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    here = Path(__file__).parent
    library = cbuild.compile_c(
        [*runtime_sources(), here / "harness.c"], folder, compiler=compiler, flags=(*flags, f"-I{here}")
    )
    prototypes = (here / "harness.h").read_text().split('#include "rt_requantize.h"')[1].split("#endif")[0]
    declarations = "".join(map(cbuild.header_declarations, HEADERS)) + prototypes
    return Kernels(*cbuild.open_library(library, declarations))
