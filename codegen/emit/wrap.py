"""Lines of generated C at most 120 columns wide, however long the names are that the model brings."""

from __future__ import annotations

import re

WIDTH = 120
INDENT = 4


def wrapped(text: str) -> str:
    """The text with long lines broken between tokens or words; the bodies of macros get continued lines."""
    lines: list[str] = []
    directive = comment = False
    for line in text.split("\n"):
        directive = directive or line.lstrip().startswith("#")
        if len(line) <= WIDTH:
            lines.append(line)
        elif directive:
            lines += _macro(line)
        elif comment or line.lstrip().startswith("/*"):
            lines += _comment(line, " * " if comment or "*/" not in line else "   ")
        else:
            lines += _code(line)
        directive = directive and line.endswith("\\")
        comment = line.rfind("/*") > line.rfind("*/") or (comment and "*/" not in line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _comment(line: str, head: str) -> list[str]:
    """A line of a comment as several; `head` begins those after the first."""
    lines = []
    indent = _indent(line)
    while len(line) > WIDTH and (at := line.rfind(" ", len(indent) + len(head), WIDTH + 1)) > len(indent) + len(head):
        lines.append(line[:at])
        line = f"{indent if head.strip() == '' else ''}{head}{line[at + 1 :]}"
    return [*lines, line]


def _code(line: str) -> list[str]:
    """A line of code as several; a comment behind it goes before it."""
    behind = re.fullmatch(r"(.*?[;,{])\s*(/\*.*\*/)", line)
    if behind:
        return [*_comment(f"{_indent(line)}{behind[2]}", "   "), *_code(behind[1])]
    return _broken(line, WIDTH)


def _macro(line: str) -> list[str]:
    """A line of a macro as several, each but the last with the sign of continuation; a comment goes before it."""
    behind = re.fullmatch(r"(\s*#define .*?)\s*(/\*.*\*/)", line)
    if behind:
        return [*_comment(behind[2], "   "), *_macro(behind[1])]
    *first, last = _broken(line, WIDTH - 2)
    return [*(f"{part} \\" for part in first), last]


def _broken(line: str, width: int) -> list[str]:
    """A line broken at spaces outside of strings and behind its first word, after a comma where there is one."""
    indent = _indent(line)
    lines = []
    while len(line) > width:
        spaces = [m.start() for m in re.finditer(" ", line) if line[: m.start()].count('"') % 2 == 0]
        spaces = [at for at in spaces if at > len(indent) + INDENT]
        fitting = [at for at in spaces if at <= width]
        if not spaces:
            break
        at = next((at for at in reversed(fitting) if line[at - 1] == ","), [*spaces[:1], *fitting][-1])
        lines.append(line[:at])
        line = f"{indent}{' ' * INDENT}{line[at + 1 :]}"
    return [*lines, line]


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip(" ")))
