"""Einsum and its equation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.errors import IMPORT, CodegenError, printable, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import LowerFunction, Lowering
from codegen.frontend.onnx.labelled import product
from codegen.ir.graph import Const
from codegen.ir.view import View

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True)
class Equation:
    """Labels of every operand and of the result, and the size of each label. Ellipsis axes are '.0', '.1', ..."""

    text: str
    operands: tuple[tuple[str, ...], ...]
    out: tuple[str, ...]
    sizes: dict[str, int]


def parse(text: str, shapes: Sequence[tuple[int, ...]], where: str) -> Equation:
    """The equation for operands of these shapes. Raises CodegenError that names equation, operand, label and sizes."""
    shown = f"equation '{printable(text)}'"
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise unsupported(IMPORT, where, f"{shown} has {len(terms)} operands, the node {len(shapes)}")
    lead = max(
        (len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True) if "..." in t), default=0
    )
    operands = tuple(
        _term(term, len(shape), lead, f"{shown}, operand {i} of shape {list(shape)}", where)
        for i, (term, shape) in enumerate(zip(terms, shapes, strict=True))
    )
    sizes: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(operands, shapes, strict=True)):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            if size not in (known, 1) and known != 1:
                name = "..." if label.startswith(".") else label
                found = f"{shown}: label {name} has size {size} in operand {i} of shape {list(shape)}, {known} before"
                raise unsupported(IMPORT, where, found, "equal sizes, or 1")
            sizes[label] = max(known, size)
    out = _output(right, operands, lead, shown, where) if arrow else _implicit(left, lead)
    return Equation(text, operands, out, sizes)


def _term(term: str, rank: int, lead: int, shown: str, where: str) -> tuple[str, ...]:
    """Labels of one operand; `lead` axes is what the widest ellipsis of the equation stands for."""
    head, dots, tail = term.partition("...")
    letters = head + tail
    unknown = next((c for c in letters if c not in LETTERS), None)
    if unknown is not None:
        raise unsupported(IMPORT, where, f"{shown}: unknown label '{printable(unknown)}'", "letters, and ... once")
    rest = rank - len(letters)
    if rest < 0 or (rest > 0 and not dots):
        raise unsupported(IMPORT, where, f"{shown}: {len(letters)} labels for rank {rank}", "one label per axis")
    return (*head, *(f".{lead - rest + i}" for i in range(rest)), *tail)


def _output(term: str, operands: Sequence[tuple[str, ...]], lead: int, shown: str, where: str) -> tuple[str, ...]:
    head, dots, tail = term.partition("...")
    letters = head + tail
    known = {label for labels in operands for label in labels}
    for label in letters:
        if label not in known:
            raise unsupported(IMPORT, where, f"{shown}: output label '{printable(label)}' is in no operand")
        if letters.count(label) > 1:
            raise unsupported(IMPORT, where, f"{shown}: output label '{label}' stands there twice")
    if lead and not dots:
        raise unsupported(IMPORT, where, f"{shown}: the output has no ellipsis", "an ellipsis there too")
    return (*head, *(f".{i}" for i in range(lead if dots else 0)), *tail)


def _implicit(left: str, lead: int) -> tuple[str, ...]:
    """Without ->: the ellipsis first, then labels that stand exactly once, sorted."""
    letters = left.replace("...", "").replace(",", "")
    return (*(f".{i}" for i in range(lead)), *sorted(c for c in set(letters) if letters.count(c) == 1))


def lower_einsum(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    values = [arg for arg in args if arg is not None]
    shapes = [tuple(v.array.shape) if isinstance(v, Const) else v.shape for v in values]
    equation = node.attrs.get("equation")
    if not isinstance(equation, str | bytes):
        raise unsupported(IMPORT, node.title, "no equation")
    text = equation.decode("utf-8", "replace") if isinstance(equation, bytes) else equation
    e = parse(text, shapes, node.title)
    try:
        return [product(node, list(zip(values, e.operands, strict=True)), e.out, ctx)]
    except CodegenError as error:
        problems = [replace(p, found=f"equation '{printable(text)}': {p.found}") for p in error.problems]
        raise CodegenError(error.stage, problems, error.exit_code) from error


LOWER: dict[tuple[str, str], LowerFunction] = {("", "Einsum"): lower_einsum}
RULES = {
    "Einsum": "any equation, also repeated labels, `...` and three or more operands (int16 between the steps);"
    " the stream axis stays an axis of the result",
}
