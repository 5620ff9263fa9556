"""Many generated models in one shared object: one compiler call, the runtime compiled once."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path

from checks import Workshop, require_tool, run_tool

from codegen.host import HostModel
from codegen.ir.graph import Graph
from codegen.options import Options
from codegen.pipeline import compile_model, render
from codegen.resources import runtime_folder

FAST = ("-std=c99", "-O0", "-fwrapv", "-fPIC", "-w")


class Library:
    """Models with names of their own that share the runtime."""

    def __init__(self, shop: Workshop, compiler: str = "gcc", flags: Sequence[str] = FAST) -> None:
        self.shop, self.compiler, self.flags = shop, require_tool(compiler), tuple(flags)
        self.folder = shop.root / f"library_{uuid.uuid4().hex}"
        self.folder.mkdir(parents=True)
        self.manifests: dict[str, dict[str, object]] = {}

    def add(self, path: Path, name: str, plan: str = "auto") -> Graph:
        """Generate one model; returns its int8 graph. Raises CodegenError where it is refused."""
        compiled = compile_model(path, Options(name=name, plan=plan, shared_runtime=True))
        files = render(compiled)
        for file, text in files.items():
            if re.match(rf"src/{name}(_weights)?\.[ch]$", file):
                (self.folder / Path(file).name).write_text(text, encoding="utf-8")
        self.manifests[name] = json.loads(files["manifest.json"])
        return compiled.graph

    def link(self) -> dict[str, HostModel]:
        """Compile everything; one host model per name."""
        target = self.folder / f"{uuid.uuid4().hex}.so"
        parts = [f'#include "{file.name}"\n' for file in sorted(self.folder.glob("*_weights.c"))]
        units = [self.folder / f"{name}.c" for name in self.manifests]
        weights = self.folder / "all_weights.c"
        weights.write_text("".join(parts))
        runtime = self.shop.objects(sorted(runtime_folder().glob("*.c")), self.compiler, self.flags)
        includes = [f"-I{self.folder}", f"-I{runtime_folder()}"]
        sources = [weights, *units]
        run_tool([self.compiler, "-shared", *self.flags, *includes, *sources, *runtime, "-o", target])
        return {name: HostModel(manifest, target) for name, manifest in self.manifests.items()}
