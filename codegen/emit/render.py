"""Contexts -> text. The only module that imports jinja2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from codegen.resources import runtime_folder, templates_folder

INCLUDE = re.compile(r'^\s*#include\s+"(rt[a-z0-9_]*\.h)"', re.MULTILINE)

RUNTIME_FILE = re.compile(r"^(src/)rt(?=[_.])")


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(templates_folder())),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html.j2"], default=False, default_for_string=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, context: dict[str, Any]) -> str:
    return _environment().get_template(template).render(context)


def runtime_files(kernels: set[str]) -> dict[str, str]:
    """The runtime sources of these kernels with everything they include, by file name."""
    folder = runtime_folder()
    files: dict[str, str] = {}
    waiting = [name for kernel in sorted(kernels) for name in (f"{kernel}.h", f"{kernel}.c")]
    while waiting:
        name = waiting.pop()
        path: Path = folder / name
        if name in files or not path.is_file():
            continue
        files[name] = path.read_text(encoding="utf-8")
        for included in INCLUDE.findall(files[name]):
            waiting += [included, f"{included[:-2]}.c"]
    return dict(sorted(files.items()))


def own_files(files: Mapping[str, str], name: str) -> dict[str, str]:
    """Files with the model's prefix before every name of the runtime: of files, functions, types and macros.

    So two models lie in one folder and link into one program. What users define has no RT_: RT_TRACE is <NAME>_TRACE.
    """
    return {RUNTIME_FILE.sub(rf"\1{name}_rt", path): _with_prefix(text, name) for path, text in files.items()}


def _with_prefix(text: str, name: str) -> str:
    text = re.sub(r"\bRT_(TRACE|TILES_H|COPY_IN|COPY_OUT)\b", rf"{name.upper()}_\1", text)
    text = re.sub(r"\brt(?=_[a-z0-9]|\.h\b)", f"{name}_rt", text)
    return re.sub(r"\bRT_(?=[A-Z0-9])", f"{name.upper()}_RT_", text)
