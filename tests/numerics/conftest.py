"""The compiled runtime, once per compiler and arithmetic twin."""

from __future__ import annotations

from pathlib import Path

import cbuild
import pytest
from checks import require_tool
from kernels import Kernels

BUILDS = {
    "gcc": ("gcc", ()),
    "clang-ubsan": ("clang", ("-fsanitize=undefined", "-fsanitize-trap=undefined")),
    "gcc-halves-ubsan": ("gcc", ("-DRT_TARGET_HALVES", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")),
}


@pytest.fixture(scope="session", params=list(BUILDS))
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The runtime as built by one compiler; the sanitized builds trap on undefined behaviour."""
    compiler, flags = BUILDS[request.param]
    require_tool(compiler)
    folder = tmp_path_factory.mktemp(request.param)
    here = Path(__file__).parent
    library = cbuild.compile_c(
        [*cbuild.runtime_sources(), here / "harness.c"], folder, compiler=compiler, flags=(*flags, f"-I{here}")
    )
    prototypes = (here / "harness.h").read_text().split('#include "rt_requantize.h"')[1].split("#endif")[0]
    declarations = "".join(map(cbuild.header_declarations, cbuild.HEADERS)) + prototypes
    return Kernels(*cbuild.open_library(library, declarations))
