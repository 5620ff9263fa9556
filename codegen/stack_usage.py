"""The stack that generated C needs, measured: gcc's frame sizes and call graph, longest chain from a public function.

Sound for what it covers: the generated code has no recursion, no VLA and no call through a pointer, and each is
checked here in the compiler's own graph. Functions of the C library (memcpy, memset) are not in it. Sizes are those of
the compiler that measured: arm-none-eabi-gcc for Cortex-M4 where it is installed with a C library, else the host's gcc.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codegen.toolchain import why_not

CORTEX_M4 = ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb")
COMPILERS = (
    (CORTEX_M4, "arm-none-eabi-gcc for Cortex-M4, -O2"),
    ((*CORTEX_M4, "--specs=picolibc.specs"), "arm-none-eabi-gcc for Cortex-M4, -O2"),
    (("gcc",), "the host's gcc, -O2"),
)
NODE = re.compile(r'node: \{ title: "([^"]+)" label: "([^"]+)"')
EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
BYTES = re.compile(r"(\d+) bytes \((\w+(?:,\w+)*)\)")


@dataclass(frozen=True)
class StackUsage:
    """Bytes of the deepest chain of calls, (function, bytes) from its entry on, or why there is no number."""

    bytes: int
    chain: tuple[tuple[str, int], ...]
    compiler: str
    problem: str = ""


def deepest(files: Mapping[str, str], name: str) -> StackUsage:
    """Compile the generated sources and measure. `name` is the prefix of the public functions."""
    found = next(((command, text) for command, text in COMPILERS if not why_not(command)), None)
    if found is None:
        return StackUsage(0, (), "", "; ".join(dict.fromkeys(why_not(command) for command, _ in COMPILERS)))
    compiler, text = found
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for path, content in files.items():
            if path.startswith("src/"):
                (folder / Path(path).name).write_text(content, encoding="utf-8")
        sources = sorted(p.name for p in folder.glob("*.c"))
        command = [*compiler, "-std=c99", "-O2", "-fcallgraph-info=su", "-c", *sources]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return StackUsage(0, (), text, f"{text} does not compile the C: {done.stderr[:500]}")
        graphs = [p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.ci"))]
    return longest(graphs, name, text)


def longest(graphs: list[str], name: str, compiler: str) -> StackUsage:
    """The deepest chain in gcc's call graphs (VCG text, one per source) from any function `<name>_...`."""
    sizes: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for graph in graphs:
        for title, label in NODE.findall(graph):
            measured = BYTES.search(label)
            if measured is None:
                continue
            if measured[2] != "static":
                return StackUsage(0, (), compiler, f"{title} has a frame of run-time size ({measured[2]})")
            sizes[title] = int(measured[1])
        for source, target in EDGE.findall(graph):
            calls.setdefault(source, set()).add(target)
    if any("__indirect_call" in targets for targets in calls.values()):
        return StackUsage(0, (), compiler, "a call through a pointer")
    depth: dict[str, tuple[int, tuple[str, ...]]] = {}
    best: tuple[int, tuple[str, ...]] = (0, ())
    for title in sorted(sizes):
        if title.split(":")[-1].startswith(f"{name}_"):
            made = _depth(title, sizes, calls, depth, ())
            if made is None:
                return StackUsage(0, (), compiler, f"{title} calls itself")
            best = max(best, made, key=lambda d: d[0])
    chain = tuple((title.split(":")[-1], sizes[title]) for title in best[1])
    return StackUsage(best[0], chain, compiler)


def _depth(
    title: str,
    sizes: Mapping[str, int],
    calls: Mapping[str, set[str]],
    known: dict[str, tuple[int, tuple[str, ...]]],
    path: tuple[str, ...],
) -> tuple[int, tuple[str, ...]] | None:
    """(bytes, functions) of the deepest chain from `title`; None for a cycle. The depth of calls is that of the C."""
    if title in path:
        return None
    if title not in known:
        best: tuple[int, tuple[str, ...]] = (0, ())
        for target in sorted(calls.get(title, ())):
            if target in sizes:
                made = _depth(target, sizes, calls, known, (*path, title))
                if made is None:
                    return None
                best = max(best, made, key=lambda d: d[0])
        known[title] = (sizes[title] + best[0], (title, *best[1]))
    return known[title]
