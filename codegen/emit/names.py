"""C identifiers from ONNX names: sanitised, unique, never a keyword; and text that cannot close a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable

KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool _Complex
    _Imaginary alignas alignof and and_eq asm bitand bitor bool catch class compl concept const_cast constexpr decltype
    delete dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public reinterpret_cast requires static_assert static_cast template this thread_local throw true
    try typeid typename using virtual wchar_t xor xor_eq main memcpy memset NULL clock
    int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t size_t errno assert signal linux unix""".split()
)
MAX_LENGTH = 40


def identifier(text: str) -> str:
    """A C identifier that resembles the text: letters, digits and single underscores, lower case first letter kept."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", text.encode("ascii", "replace").decode()).strip("_")[-MAX_LENGTH:].strip("_")
    if not word or word[0].isdigit():
        word = f"t{word}" if word else "t"
    return f"{word}_" if word in KEYWORDS else word


def unique(names: Iterable[str]) -> dict[str, str]:
    """Distinct identifiers for distinct names, also when compared without case (macros are upper case)."""
    taken: set[str] = set()
    result: dict[str, str] = {}
    for name in names:
        base = identifier(name)
        word, count = base, 1
        while word.lower() in taken or word in KEYWORDS:
            count += 1
            word = f"{base}_{count}"
        taken.add(word.lower())
        result[name] = word
    return result


def comment(text: str) -> str:
    """Text for a C comment: printable ASCII, unable to open or close one, or to continue a line."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text).replace("\\", "/")
    plain = re.sub(r"\?(?=\?)", "? ", plain)  # "??/" is a backslash to old compilers
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("//", "/ /")[:200]
