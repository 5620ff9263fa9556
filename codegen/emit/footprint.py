"""Constant bytes of a generated folder: the tables of <name>_weights.c, and the structs that <name>.c gives to kernels.

Struct sizes are those of a 32-bit target (pointers of 4 bytes, natural alignment), computed from the declarations in
runtime_c/. Code is not counted: its size is the compiler's.
"""

from __future__ import annotations

import re
from functools import lru_cache

from codegen.emit import render
from codegen.emit.context import Compiled, model_context
from codegen.resources import runtime_folder

SCALARS = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int": 4}
STRUCT = re.compile(r"typedef struct(?: \w+)? \{(.*?)\} (rt_\w+);", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
MEMBER = re.compile(r"\s*(?:const )?(\w+) (.+)", re.DOTALL)
COUNT = re.compile(r"\[(\d+)\]")
CONSTANT = re.compile(r"^\s*static const (rt_\w+) \w+(?:\[(\d+)\])? = ", re.MULTILINE)


def constant_bytes(c: Compiled) -> tuple[int, int]:
    """(bytes of the tables, bytes of the structs) that a model's C has in read-only memory on a 32-bit target."""
    context, tables = model_context(c)
    return sum(table.bytes for table in tables.values()), struct_bytes(render.render("model.c.j2", context))


def struct_bytes(source: str) -> int:
    """Bytes of the constant runtime structs that a C source defines, before symbols get the model's prefix."""
    sizes = struct_sizes()
    return sum(sizes[name][0] * int(count or 1) for name, count in CONSTANT.findall(source))


@lru_cache(maxsize=1)
def struct_sizes() -> dict[str, tuple[int, int]]:
    """(size, alignment) of every struct of the runtime on a 32-bit target."""
    texts = [COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sorted(runtime_folder().glob("*.h"))]
    waiting = {name: body for text in texts for body, name in STRUCT.findall(text)}
    sizes = {name: (size, size) for name, size in SCALARS.items()}
    while waiting:
        ready = [name for name, body in waiting.items() if all(kind in sizes for kind, _ in _members(body))]
        if not ready:
            raise AssertionError(f"structs of unknown members: {', '.join(sorted(waiting))}")
        for name in ready:
            sizes[name] = _layout(waiting.pop(name), sizes)
    return sizes


def _members(body: str) -> list[tuple[str, list[str]]]:
    """(type, declarators) of every member; the type of a pointer is uint32_t, which has its size."""
    found = []
    for member in body.split(";"):
        match = MEMBER.match(member)
        if match:
            declarators = match[2].split(",")
            kind = "uint32_t" if "*" in match[2] else match[1]
            found.append((kind, declarators))
    return found


def _layout(body: str, sizes: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Size and alignment by the rules of the ABI: each member at the next multiple of its own alignment."""
    at, widest = 0, 1
    for kind, declarators in _members(body):
        size, align = sizes[kind]
        for declarator in declarators:
            elements = 1
            for count in COUNT.findall(declarator):
                elements *= int(count)
            at = -(-at // align) * align + size * elements
        widest = max(widest, align)
    return -(-at // widest) * widest, widest
