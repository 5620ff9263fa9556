"""One exception type for everything a user can cause or can act on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EXIT_MISMATCH = 1
EXIT_INPUT = 2
EXIT_UNSUPPORTED = 3
EXIT_INTERNAL = 4
IMPORT = "import"  # the stage that turns ONNX operators into a graph


@dataclass(frozen=True)
class Problem:
    """One fault: where it is, what was found, what is allowed, what to do."""

    where: str
    found: str
    allowed: str = ""
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.found}"
        if self.allowed:
            text += f"; {self.allowed}"
        return f"{text}. {self.hint}".rstrip() if self.hint else f"{text}."


class CodegenError(Exception):
    """Raised by a stage with all problems it found; `exit_code` is the process status (README.md)."""

    def __init__(self, stage: str, problems: Problem | Sequence[Problem], exit_code: int = EXIT_UNSUPPORTED) -> None:
        self.stage = stage
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        self.exit_code = exit_code
        super().__init__("\n".join(f"{stage}: {problem}" for problem in self.problems))


def input_error(stage: str, where: str, found: str, allowed: str = "", hint: str = "") -> CodegenError:
    """A fault of the user's input or options (exit code 2)."""
    return CodegenError(stage, Problem(where, found, allowed, hint), EXIT_INPUT)


def unsupported(stage: str, where: str, found: str, allowed: str = "", hint: str = "") -> CodegenError:
    """A model that cannot be built (exit code 3)."""
    return CodegenError(stage, Problem(where, found, allowed, hint), EXIT_UNSUPPORTED)


def printable(text: str) -> str:
    """The text with control characters escaped: names come from the file and end up in messages."""
    return text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
