"""The direction of imports: frontend -> int8 -> ir <- passes <- plan <- kernels <- emit, and no circle anywhere."""

from __future__ import annotations

import ast
from pathlib import Path

from paths import ROOT

PACKAGE = ROOT / "codegen"

ALLOWED: dict[str, str] = {
    "ir": "",
    "numerics": "",
    "ops": "ir numerics",
    "int8": "ir numerics ops",
    "frontend": "ir ops",
    "passes": "ir numerics ops",
    "plan": "ir numerics ops passes",
    "kernels": "ir numerics ops plan",
    "reference": "ir numerics ops",
    "report": "ir numerics ops plan emit",
    "emit": "ir numerics ops plan kernels reference report",
    "verify": "ir numerics ops plan reference int8 frontend",
}
"""Packages that a package may import. `report` takes the one module of emit that renders templates; frontend's Copy and
PadFrames are operators on codes and on reals alike."""

LOOSE = "codes notes errors options resources version output_folder toolchain"
"""Modules beside the packages that every package may import; the others stand above the packages, but for `verify`."""

BACK, RENDERER = ("report", "emit"), "codegen.emit.render"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """For each module the modules of codegen that it imports when it is loaded."""
    known, found = modules(), {}
    for name, path in known.items():
        found[name] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "codegen":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found[name].add(full if full in known else node.module)
    return found


def package(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 2 or (PACKAGE / parts[-1]).is_dir() else ""


def test_imports_follow_the_direction() -> None:
    wrong = []
    for name, targets in imports().items():
        for target in targets if package(name) else ():
            other = package(target)
            if other in ("", package(name)):
                loose = target.split(".")[-1]
                if other == "" and loose not in LOOSE.split() and package(name) != "verify" and target != "codegen":
                    wrong.append(f"{name} imports {target}")
            elif other not in ALLOWED[package(name)].split() or (
                package(name) == "report" and other == "emit" and target != RENDERER
            ):
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_no_circle() -> None:
    graph, done = imports(), set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        for target in sorted(graph.get(name, ())):
            walk(target, (*path, name))
        done.add(name)

    for name in graph:
        walk(name, ())
    assert len(done) == len(graph) > 100


def test_every_package_has_a_row() -> None:
    assert {package(name) for name in modules()} - {""} == set(ALLOWED)


def test_ends_of_code_types_stand_in_one_place() -> None:
    """-128, 127 and 255 are facts of `codegen.codes`; `recheck` says them again because it trusts nothing of ours."""
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in (127, 128, 255):
                found.append(name)
    assert set(found) == {"codegen.codes", "codegen.numerics.recheck"}
