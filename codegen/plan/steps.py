"""Counts and lengths as a short shared list of integer formulas of one clock, ready to be printed as C.

Two facts keep the list short: floor((floor((x + a)/d) + b)/e) = floor((x + a + b*d)/(d*e)), so chains of windows are
one division; and min over operands that differ only by a constant is the smallest of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Literal

from codegen.ir.lengths import joins_shortest
from codegen.ir.time import Affine, TimeNode

Kind = Literal["clock", "affine", "min"]


@dataclass(frozen=True)
class Step:
    """clock: the argument; affine: floor((mul*s + add)/div) of the one source step s; min: the smallest source step.

    `sources` are indices of earlier steps. Division rounds towards minus infinity. A constant is affine with mul 0.
    """

    kind: Kind
    sources: tuple[int, ...] = ()
    mul: int = 1
    add: int = 0
    div: int = 1

    def evaluate(self, earlier: list[int], argument: int) -> int:
        """The step's value from the values of the earlier steps."""
        if self.kind == "clock":
            return argument
        if self.kind == "min":
            return min(earlier[s] for s in self.sources)
        return (self.mul * earlier[self.sources[0]] + self.add) // self.div

    def text(self, prefix: str, argument: str) -> str:
        """The formula for people: source step 0 is `argument`, step n is `<prefix>n`."""
        return self._formula([argument if s == 0 else f"{prefix}{s}" for s in self.sources], argument, _PEOPLE)

    def in_c(self) -> str:
        """The formula in C: the argument is n, step i is a<i>."""
        return self._formula([f"a{s}" for s in self.sources], "n", _C)

    def _formula(self, names: list[str], argument: str, form: _Form) -> str:
        if self.kind == "clock":
            return argument
        if self.kind == "min":
            return reduce(form.minimum, names)
        if self.mul == 0:
            return str(self.add)
        inner = names[0] if self.mul == 1 else form.product(self.mul, names[0])
        if self.add:
            inner += f" {'+' if self.add > 0 else '-'} {abs(self.add)}"
        return inner if self.div == 1 else form.floor_div(inner, self.div)


@dataclass(frozen=True)
class _Form:
    """How a formula is written."""

    product: Callable[[int, str], str]
    minimum: Callable[[str, str], str]
    floor_div: Callable[[str, int], str]


def _c_floor_div(text: str, div: int) -> str:
    """A shift rounds towards minus infinity too (rt.h asserts it), and needs no divider."""
    if div & (div - 1):
        return f"rt_floor_div({text}, {div})"
    return f"{f'({text})' if ' ' in text else text} >> {div.bit_length() - 1}"


_PEOPLE = _Form("{}*{}".format, "min({}, {})".format, "floor_div({}, {})".format)
_C = _Form("{} * {}".format, "rt_min({}, {})".format, _c_floor_div)


class StepTable:
    """Steps under construction; equal formulas get one index. `of` maps a tensor to the step that gives its value."""

    def __init__(self) -> None:
        self.steps: list[Step] = [Step("clock")]
        self.of: dict[str, int] = {}

    def _index(self, step: Step) -> int:
        if step not in self.steps:
            self.steps.append(step)
        return self.steps.index(step)

    def constant(self, value: int) -> int:
        """Index of a step that is always `value`."""
        return self._index(Step("affine", (0,), 0, value, 1))

    def affine(self, source: int, formula: Affine) -> int:
        """Index of the formula of a step, composed with the source step where that is exact."""
        inner, mul, add, div = self.steps[source], formula.mul, formula.add, formula.div
        if mul == 0:
            return self.constant(add // div)
        if inner.kind == "affine" and inner.mul != 0 and (inner.div == 1 or mul == 1):
            if inner.div == 1:
                mul, add = mul * inner.mul, mul * inner.add + add
            else:
                mul, add, div = inner.mul, inner.add + add * inner.div, div * inner.div
            source = inner.sources[0]
        common = gcd(mul, div)
        mul, add, div = mul // common, add // common, div // common
        if (mul, add, div) == (1, 0, 1):
            return source
        return self._index(Step("affine", (source,), mul, add, div))

    def minimum(self, sources: list[int]) -> int:
        """Index of the smallest of some steps; operands that can never be smallest are left out."""
        smallest: dict[tuple[int, int, int], int] = {}
        for source in sources:
            step = self.steps[source]
            form = (step.sources[0], step.mul, step.div) if step.kind == "affine" else (source, 1, 1)
            known = smallest.setdefault(form, source)
            if self._shift(source) < self._shift(known):
                smallest[form] = source
        kept = tuple(sorted(set(smallest.values())))
        return kept[0] if len(kept) == 1 else self._index(Step("min", kept))

    def _shift(self, source: int) -> int:
        step = self.steps[source]
        return step.add if step.kind == "affine" else 0


def add_count(table: StepTable, node: TimeNode) -> None:
    """Bind the count A of the node's output (`lengths.count`)."""
    source = table.minimum([table.of[x] for x in node.inputs])
    table.of[node.output] = table.affine(source, node.rule.count())


def add_length(table: StepTable, node: TimeNode) -> None:
    """Bind the length L of the node's output, unclipped (`lengths.raw_length`)."""
    sources = node.inputs if joins_shortest(node.rule) else node.inputs[:1]
    source = table.minimum([table.of[x] for x in sources])
    table.of[node.output] = table.minimum([table.affine(source, formula) for formula in node.rule.length()])
