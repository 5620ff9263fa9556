"""C compilers as they are found: one without a C library cannot compile what is generated, so it does not count."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache

PROBE = "#include <string.h>\n"


def why_not(command: Sequence[str]) -> str:
    """'' if the compiler with these flags compiles `#include <string.h>`, else what is missing."""
    return _why_not(tuple(command))


def forget() -> None:
    """Probe again: PATH has changed."""
    _why_not.cache_clear()


@lru_cache(maxsize=64)
def _why_not(command: tuple[str, ...]) -> str:
    shown = " ".join(command)
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed"
    try:
        probe = [*command, "-x", "c", "-fsyntax-only", "-"]
        done = subprocess.run(probe, input=PROBE, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{shown} cannot be run ({error})"
    if done.returncode == 0:
        return ""
    return f"{shown} has no C library (it does not compile {PROBE.strip()})"
