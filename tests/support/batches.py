"""Many generated models in one program: one compiler call a model, the runtime compiled once.

Each model has its own prefix, as two models in one firmware have. Only the runtime's prefix is taken off again, so that
all models of a batch share one copy of it (names and contents are those of runtime_c/).
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from checks import DRIVER, SANITIZE, Generated, Workshop, _glue, require_tool, run_tool

from codegen.resources import runtime_folder

FAST = ("-std=c99", "-O0", "-w")
LANES = ("-DRT_TARGET_LANES",)
"""The plain C twins of the DSP extension: a host runs the paths that a Cortex-M4 takes."""


class Batch:
    """A program with the stdin driver of every added model; `program(name)` is the command that runs one."""

    def __init__(self, shop: Workshop, compiler: str = "gcc", flags: tuple[str, ...] = SANITIZE) -> None:
        self.shop, self.compiler, self.flags = shop, require_tool(compiler), flags
        self.folder = shop.root / f"batch_{uuid.uuid4().hex}"
        self.folder.mkdir(parents=True)
        self.objects: dict[str, Path] = {}

    def add(self, g: Generated) -> None:
        """Compile one model with its weights and a driver of its own."""
        name = g.manifest["name"]
        assert name not in self.objects, f"two models are called {name}"
        folder = self.folder / name
        folder.mkdir()
        for path in g.folder.glob(f"src/{name}*.[ch]"):
            if not path.name.startswith(f"{name}_rt"):
                text = re.sub(rf"\b{name}_rt(?=[_.])", "rt", path.read_text(encoding="utf-8"))
                (folder / path.name).write_text(re.sub(rf"\b{name.upper()}_RT_", "RT_", text), encoding="utf-8")
        (folder / "glue.h").write_text(_glue(g.manifest))
        unit = folder / "unit.c"
        parts = [f"{name}.c", f"{name}_weights.c", str(DRIVER)]
        unit.write_text(f"#define main {name}_main\n" + "".join(f'#include "{part}"\n' for part in parts))
        target = folder / "unit.o"
        run_tool([self.compiler, *self.flags, f"-I{folder}", f"-I{runtime_folder()}", "-c", unit, "-o", target])
        self.objects[name] = target

    def link(self) -> Path:
        """The program; its first argument chooses the model."""
        declared = "".join(f"int {name}_main(void);\n" for name in self.objects)
        chosen = "".join(f'    if (!strcmp(v[1], "{name}")) return {name}_main();\n' for name in self.objects)
        main = self.folder / "main.c"
        body = f"    if (c < 2) return 9;\n{chosen}    return 9;\n"
        main.write_text(f"#include <string.h>\n{declared}int main(int c, char **v)\n{{\n{body}}}\n")
        runtime = self.shop.objects(sorted(runtime_folder().glob("*.c")), self.compiler, self.flags)
        target = self.folder / "batch"
        run_tool([self.compiler, *self.flags, main, *self.objects.values(), *runtime, "-o", target])
        return target
