"""Which input frames an output frame depends on: [S, a, b] forwards, frames needed backwards, exact index sets.

Frame j of a tensor reads network input frames ceil(j*S + a) .. floor(j*S + b) (docs/streaming.md). The table
contains the true dependency, and equals it over one phase period unless a stride follows an upsampling. Two things at
the ends are outside the table: padding, and the last frame that an Upsample with an offset repeats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from codegen.ir.graph import Graph
from codegen.ir.lengths import ended_tensors, joins_shortest, lengths_with_faults, plan_error
from codegen.ir.time import (
    Last,
    Recurrent,
    Reduce,
    Rule,
    TimeGraph,
    TimeNode,
    Transposed,
    Unstreamable,
    Upsample,
    Window,
)


@dataclass(frozen=True)
class Extent:
    """[S, a, b] of a tensor in network input frames; a None = -inf, b None = +inf.

    `wait` is b with the end corrections e of docs/streaming.md: frame j is handed out once input frame j*S + wait is
    there. `ended` is the reason why the tensor has no [S, a, b]: every frame of it reads the whole sequence.
    """

    S: Fraction
    a: Fraction | None
    b: Fraction | None
    wait: Fraction | None = None
    ended: str = ""

    @property
    def rf(self) -> int | None:
        """Receptive field in input frames, None = unbounded."""
        return None if self.a is None or self.b is None else math.floor(self.b - self.a) + 1

    @property
    def lookahead(self) -> Fraction | None:
        """Input frames after j*S that frame j reads, None = all to the end."""
        return None if self.b is None else max(self.b, Fraction(0))

    @property
    def centre(self) -> Fraction | None:
        """(a + b)/2, None where one of them is infinite."""
        return None if self.a is None or self.b is None else (self.a + self.b) / 2

    def __str__(self) -> str:
        if self.ended:
            return f"[whole sequence: {self.ended}]"
        a = "-inf" if self.a is None else str(self.a)
        return f"[{self.S}, {a}, {'inf' if self.b is None else self.b}]"


@dataclass(frozen=True)
class Reverse:
    """What one output frame j needs of a tensor: frames j*S + first .. j*S + last. None = unbounded on that side."""

    S: Fraction
    first: Fraction | None
    last: Fraction | None

    @property
    def frames(self) -> int | None:
        """r: how many frames of the tensor one output frame needs, None = unbounded."""
        return None if self.first is None or self.last is None else math.floor(self.last - self.first) + 1

    @property
    def padding(self) -> Fraction | None:
        """P: effective left padding in frames of the tensor."""
        return None if self.first is None else -self.first


@dataclass(frozen=True)
class JoinNote:
    """A remark on operands x and y of a join; the caller raises on `error`."""

    node: str
    severity: Literal["error", "warning", "note"]
    x: str
    y: str
    text: str


def analyse(graph: TimeGraph) -> dict[str, Extent]:
    """[S, a, b] of every tensor. Never raises: unequal strides at a join are reported by `joins`."""
    zero = Fraction(0)
    extents = {name: Extent(Fraction(1), zero, zero, zero) for name in graph.inputs}
    ended = ended_tensors(graph)
    reason = {node.name: _ended_reason(node) for node in graph.nodes}
    for node in graph.nodes:
        if node.output in ended:
            extents[node.output] = Extent(zero, None, None, None, reason[ended[node.output]])
        else:
            extents[node.output] = _forward(node.rule, [extents[x] for x in node.inputs])
    return extents


def _ended_reason(node: TimeNode) -> str:
    rule = node.rule
    if isinstance(rule, Unstreamable):
        return f"{node.name}: {rule.reason}"
    if isinstance(rule, Last):
        return f"{node.name} takes a frame counted from the end"
    return f"{node.name} reduces over the stream axis"


def _add(x: Fraction | None, y: Fraction) -> Fraction | None:
    return None if x is None else x + y


def _forward(rule: Rule, sources: list[Extent]) -> Extent:
    """One row of the table of docs/streaming.md."""
    x = sources[0]
    e = rule.held_back
    if isinstance(rule, Window):
        ahead = (rule.extent - 1 - rule.left) * x.S
        return Extent(x.S * rule.stride, _add(x.a, -rule.left * x.S), _add(x.b, ahead), _add(x.wait, ahead + e * x.S))
    if isinstance(rule, Upsample):
        step = x.S / rule.factor
        ahead = rule.offset * step
        behind = (rule.factor - 1 - rule.offset) * step
        return Extent(step, _add(x.a, -behind), _add(x.b, ahead), _add(x.wait, ahead))
    if isinstance(rule, Transposed):
        step = x.S / rule.stride
        behind = (rule.extent - 1 - rule.left) * step
        return Extent(step, _add(x.a, -behind), _add(x.b, rule.left * step), _add(x.wait, (rule.left + e) * step))
    read = sources[:1] if joins_shortest(rule) else sources
    starts = [source.a for source in read if source.a is not None]
    unbounded = isinstance(rule, Recurrent) or len(starts) < len(read)
    ends = [source.b for source in read if source.b is not None]
    waits = [source.wait for source in sources if source.wait is not None]
    return Extent(x.S, None if unbounded else min(starts), max(ends), max(waits))


def reverse(graph: TimeGraph, output: str) -> dict[str, Reverse]:
    """Frames of each tensor that one frame of `output` needs, union over all paths; only tensors it depends on.

    At a network input it agrees with `analyse`: (S, first, last) == [S, a, b] (one operand path or equal strides).
    """
    need = {output: Reverse(Fraction(1), Fraction(0), Fraction(0))}
    for node in reversed(graph.nodes):
        if node.output not in need:
            continue
        wanted = _backward(node.rule, need[node.output])
        for x in node.inputs[:1] if joins_shortest(node.rule) else node.inputs:
            need[x] = _union(need[x], wanted) if x in need else wanted
    return need


def _union(x: Reverse, y: Reverse) -> Reverse:
    first = None if x.first is None or y.first is None else min(x.first, y.first)
    last = None if x.last is None or y.last is None else max(x.last, y.last)
    return Reverse(x.S, first, last)


def _backward(rule: Rule, need: Reverse) -> Reverse:
    """Need of the operands from the need of the output: the table read from right to left."""
    if isinstance(rule, Reduce | Last | Unstreamable):
        return Reverse(Fraction(0), None, None)
    if isinstance(rule, Recurrent):
        return Reverse(need.S, None, need.last)
    if isinstance(rule, Window):
        up, behind, ahead, down = rule.stride, -rule.left, rule.extent - 1 - rule.left, 1
    elif isinstance(rule, Upsample):
        up, behind, ahead, down = 1, rule.offset - rule.factor + 1, rule.offset, rule.factor
    elif isinstance(rule, Transposed):
        up, behind, ahead, down = 1, rule.left - rule.extent + 1, rule.left, rule.stride
    else:
        return need
    first = None if need.first is None else (need.first * up + behind) / down
    last = None if need.last is None else (need.last * up + ahead) / down
    return Reverse(need.S * up / down, first, last)


def joins(graph: TimeGraph, extents: dict[str, Extent]) -> list[JoinNote]:
    """Remarks on joins: unequal S is an error, a different centre a note, a different b as well a warning."""
    notes = []
    for node in graph.nodes:
        for y in () if joins_shortest(node.rule) else node.inputs[1:]:
            note = _join_note(node.name, node.inputs[0], y, extents)
            if note is not None:
                notes.append(note)
    return notes


def _join_note(node: str, x: str, y: str, extents: dict[str, Extent]) -> JoinNote | None:
    ex, ey = extents[x], extents[y]
    if bool(ex.ended) != bool(ey.ended):
        whole, live = (x, y) if ex.ended else (y, x)
        text = f"joins {live} with {whole}, which reads the whole sequence ({extents[whole].ended})"
        return JoinNote(node, "error", x, y, text)
    if ex.ended:
        return None
    if ex.S != ey.S:
        return JoinNote(
            node, "error", x, y, f"joins {x} (stride {ex.S}) with {y} (stride {ey.S}); strides must be equal"
        )
    if ex.b == ey.b and (ex.centre is None or ey.centre is None):
        return None
    if ex.centre == ey.centre and ex.centre is not None:
        return None
    if ex.b != ey.b:
        text = f"operands have different lookahead: {x} b = {ex.b}, {y} b = {ey.b}; {x} {ex}, {y} {ey}"
        return JoinNote(node, "warning", x, y, text)
    return JoinNote(node, "note", x, y, f"operands have different centres: {x} {ex}, {y} {ey}")


def dependency(graph: TimeGraph, length: int, output: str) -> list[set[int]]:
    """For each frame of `output`: the input frames that it depends on, for a whole clip of `length` frames.

    Exact: every rule is followed index by index; padding depends on nothing. Raises PlanError if the clip is not legal.
    """
    frames, faults = lengths_with_faults(graph, length)
    if faults:
        raise plan_error(faults[0], f"operands have unequal lengths for a clip of {length} frames")
    sets: dict[str, list[int]] = {name: [1 << i for i in range(length)] for name in graph.inputs}
    for node in graph.nodes:
        sets[node.output] = _spread(node.rule, [sets[x] for x in node.inputs], frames[node.output])
    return [{i for i in range(length) if bits >> i & 1} for bits in sets[output]]


def _spread(rule: Rule, sources: list[list[int]], frames: int) -> list[int]:
    """Dependency bit sets of an output of `frames` frames from those of its operands."""
    out: list[int] = []
    size = len(sources[0])
    whole = 0
    if isinstance(rule, Reduce | Unstreamable):
        for source in sources:
            for bits in source:
                whole |= bits
        return [whole] * frames
    if isinstance(rule, Last):
        return [sources[0][size - rule.frames]] * frames
    for j in range(frames):
        indices = [min(i, size - 1) for i in rule.reads(j)] if isinstance(rule, Upsample) else rule.reads(j)
        bits = whole if isinstance(rule, Recurrent) else 0
        for source in sources[:1] if joins_shortest(rule) else sources:
            for i in indices:
                if 0 <= i < size:
                    bits |= source[i]
        whole = bits
        out.append(bits)
    return out


def analyse_graph(graph: Graph) -> tuple[dict[str, Extent], list[JoinNote]]:
    """[S, a, b] of every tensor, and what is worth saying about joins."""
    time = graph.time_graph()
    extents = analyse(time)
    return extents, joins(time, extents)
