"""C identifiers from ONNX names: short, unique, never a keyword; and text that cannot close a comment."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from codegen.ir.graph import Graph, Node

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
ROWS = "row_at"
QUANTIZER_SUFFIX = re.compile(r"(_(QuantizeLinear|DequantizeLinear)(_Output)?|_quantized|_quant|_output_0|/output_0)$")
"""What quantizers and exporters append to the names of tensors and nodes."""


def identifier(text: str) -> str:
    """A C identifier that resembles the text: letters, digits and single underscores, lower case first letter kept."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", text.encode("ascii", "replace").decode()).strip("_")[-MAX_LENGTH:].strip("_")
    if not word or word[0].isdigit():
        word = f"t{word}" if word else "t"
    return f"{word}_" if word in KEYWORDS else word


Key = TypeVar("Key", bound=Hashable)


def unique(
    names: Iterable[Key], texts: Mapping[Key, str] | None = None, reserved: Iterable[str] = ()
) -> dict[Key, str]:
    """Distinct identifiers for distinct names, also when compared without case (macros are upper case).

    They resemble the `texts` by name, or the names themselves.
    """
    taken = set(reserved)
    result: dict[Key, str] = {}
    for name in names:
        base = identifier(texts[name] if texts else str(name))
        word, count = base, 1
        while word.lower() in taken or word in KEYWORDS:
            count += 1
            word = f"{base}_{count}"
        taken.add(word.lower())
        result[name] = word
    return result


def shortened(name: str) -> str:
    """The name without what quantizers and exporters appended to it; of joined names the first."""
    name = name.split(";", maxsplit=1)[0] or name
    while (short := QUANTIZER_SUFFIX.sub("", name)) and short != name:
        name = short
    return name


@dataclass(frozen=True)
class Names:
    """C identifiers of tensors, nodes and ports, of the state's members by (what they hold, tensor or node), and of the
    table of row addresses."""

    tensors: Mapping[str, str]
    members: Mapping[tuple[str, str], str]
    nodes: Mapping[str, str]
    inputs: list[str]
    outputs: list[str]
    rows: str


def make_names(graph: Graph, prefix: str) -> Names:
    short = {name: shortened(name) for name in graph.tensors}
    tensors = unique(graph.tensors, short)
    nodes = unique((node.name for node in graph.nodes), {n.name: _title(i, n) for i, n in enumerate(graph.nodes)})
    used = unique([p.name for p in graph.inputs] + [f"{p.name} " for p in graph.outputs])
    ins = [used[p.name] for p in graph.inputs]
    outs = [used[f"{p.name} "] for p in graph.outputs]
    members = _members(tensors, nodes)
    return Names(tensors, members, nodes, ins, outs, f"{prefix}_{ROWS}")


def _members(tensors: Mapping[str, str], nodes: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Members of the state struct: histories, their heads, states and sums."""
    texts = {("history", name): text for name, text in tensors.items()}
    texts |= {(kind, name): f"{text}_{kind}" for kind in ("head", "carried") for name, text in tensors.items()}
    texts |= {("acc", name): f"{text}_acc" for name, text in nodes.items()}
    return unique(texts, texts, ("clock", "rows"))


def _title(index: int, node: Node) -> str:
    """The node's name in the file, else its operator and number."""
    name = shortened(node.onnx_name).removeprefix("node_") if node.onnx_name else ""
    return name or f"{node.op_type or type(node.op).__name__}_{index}"


def comment(text: str) -> str:
    """Text for a C comment: printable ASCII, unable to open or close one, or to continue a line."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text).replace("\\", "/")
    plain = re.sub(r"\?(?=\?)", "? ", plain)  # "??/" is a backslash to old compilers
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("//", "/ /")[:200]
