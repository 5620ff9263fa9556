"""Constant structs of the runtime: checked against the declarations in runtime_c/, sized, and as C initialisers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from codegen.kernels.literals import integer
from codegen.resources import runtime_folder

WIDTH = 120
SCALARS = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4}
STRUCT = re.compile(r"typedef struct(?: \w+)? \{(.*?)\} (rt_\w+);", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
MEMBER = re.compile(r"\s*(?:const )?(\w+) (.+)", re.DOTALL)
DECLARATOR = re.compile(r"\*?\s*(?:const )?(\w+)((?:\[\w+\])*)")
COUNT = re.compile(r"\[(\d+)\]")
ONE = "RT_ONE"
"""The axis of one position and one tap (rt_axis.h)."""


@dataclass(frozen=True)
class Ref:
    """A constant table of the node, by its key."""

    key: str


@dataclass(frozen=True)
class Struct:
    """An initialiser of a runtime struct: its members in the order of the declaration; those left out are 0 or NULL.

    A member is a number, a C expression, a table, or a struct or array again. Raises AssertionError for a member that
    the declaration does not have, or has earlier.
    """

    ctype: str
    members: Mapping[str, Value]

    def __post_init__(self) -> None:
        declared = list(declarations()[self.ctype].members)
        places = [declared.index(name) if name in declared else -1 for name in self.members]
        if -1 in places or places != sorted(places):
            raise AssertionError(f"{self.ctype} has {', '.join(declared)}, not {', '.join(self.members)} in this order")


@dataclass(frozen=True)
class Array:
    """An initialiser of an array of structs."""

    ctype: str
    items: tuple[Struct, ...]


Value = int | str | Ref | Struct | Array | tuple[int, ...]


@dataclass(frozen=True)
class Declaration:
    """A struct of the runtime as a 32-bit target lays it out: its members, size and alignment in bytes."""

    members: tuple[str, ...]
    size: int
    align: int


@lru_cache(maxsize=1)
def declarations() -> dict[str, Declaration]:
    """Every struct of the runtime's headers."""
    texts = [COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sorted(runtime_folder().glob("*.h"))]
    waiting = {name: list(_members(body)) for text in texts for body, name in STRUCT.findall(text)}
    found = {name: Declaration((), size, size) for name, size in SCALARS.items()}
    while ready := [name for name, members in waiting.items() if all(kind in found for kind, _, _ in members)]:
        for name in ready:
            found[name] = _laid_out(waiting.pop(name), found)
    return found  # structs of local arrays sized by a macro (rt_conv_impl.h) stay out: no constant is of their type


def _members(body: str) -> Iterator[tuple[str, str, int | None]]:
    """(type, name, elements) of every member; a pointer counts as uint32_t; None elements: sized by a macro."""
    for member in body.split(";"):
        match = MEMBER.match(member)
        for declarator in match[2].split(",") if match else ():
            assert match is not None
            named = DECLARATOR.match(declarator.strip())
            assert named is not None
            elements: int | None = 1
            for count in re.findall(r"\[(\w+)\]", named[2]):
                elements = elements * int(count) if elements is not None and count.isdigit() else None
            kind = "uint32_t" if "*" in match[2] else match[1]
            yield kind if elements is not None else "unsized", named[1], elements


def _laid_out(members: list[tuple[str, str, int | None]], known: dict[str, Declaration]) -> Declaration:
    """Size and alignment by the rules of the ABI: each member at the next multiple of its own alignment."""
    at, widest = 0, 1
    for kind, _, elements in members:
        one = known[kind]
        at = -(-at // one.align) * one.align + one.size * (elements or 0)
        widest = max(widest, one.align)
    return Declaration(tuple(name for _, name, _ in members), -(-at // widest) * widest, widest)


def constant_bytes(value: Struct | Array) -> int:
    """Bytes of read-only memory on a 32-bit target."""
    return declarations()[value.ctype].size * (len(value.items) if isinstance(value, Array) else 1)


def declaration(name: str, value: Struct | Array, tables: Mapping[str, str]) -> str:
    """`static const` definition inside a function; `tables` are the C names of the node's tables by key."""
    count = f"[{len(value.items)}]" if isinstance(value, Array) else ""
    return "\n".join(_lines(f"    static const {value.ctype} {name}{count} = ", value, tables, 4, ";"))


def _lines(head: str, value: Value, tables: Mapping[str, str], indent: int, end: str) -> list[str]:
    """`head` and the value on one line, or members filled into lines between braces."""
    flat = f"{head}{_text(value, tables)}{end}"
    if len(flat) <= WIDTH or not isinstance(value, Struct | Array):
        return [flat]
    pad = " " * (indent + 4)
    lines, line = [head + "{"], ""
    parts = _parts(value)
    for i, (label, part) in enumerate(parts):
        comma = "," if i + 1 < len(parts) else ""
        text = f"{label}{_text(part, tables)}{comma}"
        if line and len(line) + 1 + len(text) <= WIDTH:
            line += f" {text}"
            continue
        if line:
            lines.append(line)
        line = f"{pad}{text}"
        if len(line) > WIDTH:
            lines += _lines(f"{pad}{label}", part, tables, indent + 4, comma)
            line = ""
    return [*lines, *([line] if line else []), " " * indent + "}" + end]


def _parts(value: Struct | Array) -> list[tuple[str, Value]]:
    if isinstance(value, Array):
        return [("", item) for item in value.items]
    return [(f".{name} = ", member) for name, member in value.members.items()]


def _text(value: Value, tables: Mapping[str, str]) -> str:
    if isinstance(value, Struct | Array):
        return "{" + ", ".join(label + _text(part, tables) for label, part in _parts(value)) + "}"
    if isinstance(value, tuple):
        return "{" + ", ".join(map(integer, value)) + "}"
    if isinstance(value, Ref):
        return tables[value.key]
    return value if isinstance(value, str) else integer(value)
