"""The name of a model in C: prefix of its functions, name of its files and of its CMake target.

A name that the language, a system's headers, CMake or the generated files themselves use becomes a similar one.
"""

from __future__ import annotations

from pathlib import Path

from codegen.emit.names import KEYWORDS, MAX_LENGTH, identifier
from codegen.errors import input_error

LONGEST = 63
"""Significant characters of an internal identifier in C99 (5.2.4.1)."""

HEADERS = frozenset(
    """aio aliases alloca ar arduino argp argz assert byteswap cmsis_gcc cmsis_os complex cpio crypt ctype cxxabi
    devctl dirent dlfcn elf endian envlock envz err errno error execinfo fastmath fcntl features fenv float
    fmtmsg fnmatch fstab fts ftw gconv getopt glob grp gshadow iconv ieeefp ifaddrs inttypes iso646 langinfo
    lastlog libgen libintl limits link locale malloc math mcheck memory mntent monetary mqueue netdb newlib
    nl_types nss obstack paths picolibc poll printf process pthread pty pwd re_comp reent regdef regex regexp
    resolv sched search semaphore semihost setjmp sgtty shadow signal spawn stab stdalign stdarg stdatomic
    stdbool stdckdint stddef stdint stdio stdio_ext stdlib stdnoreturn string strings syscall sysexits syslog
    tar termio termios tgmath thread_db threads time ttyent uchar ucontext ulimit unctrl unistd utime utmp utmpx
    values varargs wait wchar wctype wiring wordexp""".split()
)
"""Headers of C, POSIX and the common C libraries and board packages: <name>.h on the include path would shadow them."""

TARGETS = frozenset(
    """all all_build clean default depend docs edit_cache experimental help install list_install_components nightly
    package package_source preinstall rebuild_cache run_tests test uninstall zero_check""".split()
)
"""Targets that CMake makes or reserves (policy CMP0037), and those that makefiles usually have."""

OWN_FILES = ("_float", "_weights", "_rt", "_selftest")
"""What follows a model's name in its own files: `kws` and `kws_float` would share one."""


def reason(name: str) -> str:
    """Why a model cannot have this name, or ''. Compared without case, as some file systems do."""
    low = name.lower()
    if name in KEYWORDS or low in KEYWORDS:
        return "a word of C or C++"
    if low in HEADERS:
        return f"a system's header is called {low}.h"
    if low in TARGETS:
        return "a target of CMake or make"
    if low == "rt" or low.startswith("rt_"):
        return "the kernels' own prefix"
    if low.endswith(OWN_FILES) or "_rt_" in low:
        return "a file of another model would be called so"
    return ""


def default_name(path: Path) -> tuple[str, str]:
    """The name that follows from a file's, and a note where it is not simply that."""
    plain = identifier(path.stem).lower()
    name = plain.rstrip("_") or plain
    why = reason(name)
    if not why:
        return name, ""
    return similar(name), f"C names begin with {similar(name)}: {name} is {why}; --name takes another"


def similar(name: str) -> str:
    """A free name that resembles one that is not."""
    joined = name.replace("_rt", "rt")
    tried = (name, f"model_{name}", f"{name}_model", joined, f"model{joined}", f"model{joined}_model")
    return next(text for text in tried if not reason(text))


def check(name: object) -> None:
    """Refuse a `--name` that C, C++ or CMake cannot have, with one that they can. Raises CodegenError (2)."""
    if not isinstance(name, str) or not name.isascii() or not name.isidentifier() or name.startswith("_"):
        found, allowed = f"{name}", "a C identifier of ASCII letters, digits and underscores, a letter first"
        usable = similar(identifier(str(name))[:MAX_LENGTH].lower())
        raise input_error("options", "name", found, allowed, f"Pass --name {usable}")
    if len(name) > LONGEST:
        raise input_error("options", "name", name, f"at most {LONGEST} characters", f"Pass --name {name[:LONGEST]}")
    why = reason(name)
    if why:
        raise input_error("options", "name", f"{name} is {why}", "", f"Pass --name {similar(name)}")
