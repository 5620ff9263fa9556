"""Counts and lengths of every rule, and of whole graphs: what is there at a clock, and in a clip of T frames."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.errors import CodegenError, unsupported
from codegen.ir.time import (
    Join,
    Last,
    Reduce,
    Rule,
    TimeGraph,
    TimeNode,
    Unstreamable,
)


class PlanError(CodegenError, ValueError):
    """A graph that has no streaming schedule; `problems` names the nodes."""


def plan_error(where: str, found: str, allowed: str = "", hint: str = "") -> PlanError:
    """A PlanError with one problem (exit code 3)."""
    return PlanError("plan", unsupported("plan", where, found, allowed, hint).problems)


def is_ending(rule: Rule) -> bool:
    """True for rules that yield a single frame at the end of the stream."""
    return isinstance(rule, Reduce | Last)


def joins_shortest(rule: Rule) -> bool:
    """True for a join whose operands may differ in length."""
    return isinstance(rule, Join) and rule.shortest


def count(rule: Rule, available: Sequence[int]) -> int:
    """Signed number of output frames that `available` frames of each operand allow (docs/streaming.md)."""
    return rule.count()(min(available))


def raw_length(rule: Rule, lengths: Sequence[int]) -> int:
    """Output length in frames before clipping at 0, for operands of positive length; a join takes its first operand,
    or the shortest one."""
    x = min(lengths) if joins_shortest(rule) else lengths[0]
    return min(formula(x) for formula in rule.length())


def ended_tensors(graph: TimeGraph) -> dict[str, str]:
    """Tensors that exist only at the end of the stream -> the node that ended them (Reduce, Last or Unstreamable)."""
    ended: dict[str, str] = {}
    for node in graph.nodes:
        source = next((ended[x] for x in node.inputs if x in ended), None)
        if source is not None:
            ended[node.output] = source
        elif is_ending(node.rule) or isinstance(node.rule, Unstreamable):
            ended[node.output] = node.name
    return ended


def readers(graph: TimeGraph) -> dict[str, list[TimeNode]]:
    """Tensor -> the nodes that read it, in execution order; every tensor of the graph has an entry."""
    found: dict[str, list[TimeNode]] = {name: [] for name in tensors(graph)}
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            found[x].append(node)
    return found


def tensors(graph: TimeGraph) -> list[str]:
    """All tensors that carry the stream axis: inputs first, then in order of production."""
    return [*graph.inputs, *(node.output for node in graph.nodes)]


def counts(graph: TimeGraph, clock: int) -> dict[str, int]:
    """Signed counts A(N) of every tensor after N = `clock` input frames; ended tensors have 0 until finish."""
    ended = ended_tensors(graph)
    available = dict.fromkeys(graph.inputs, clock)
    for node in graph.nodes:
        out = node.output
        available[out] = 0 if out in ended else count(node.rule, [available[x] for x in node.inputs])
    return available


def lengths_with_faults(graph: TimeGraph, total: int) -> tuple[dict[str, int], list[str]]:
    """Offline lengths of every tensor for `total` input frames, and the joins whose operands differ in length.

    A tensor of length <= 0 makes everything after it empty (length 0).
    """
    length = dict.fromkeys(graph.inputs, total)
    faults: list[str] = []
    for node in graph.nodes:
        sources = [length[x] for x in node.inputs]
        if not joins_shortest(node.rule) and any(x != sources[0] for x in sources):
            faults.append(node.name)
        length[node.output] = max(0, raw_length(node.rule, sources)) if min(sources) > 0 else 0
    return length, faults


def lengths(graph: TimeGraph, total: int) -> dict[str, int] | None:
    """Offline lengths L(T) in frames, None where the offline model fails (a join of unequal lengths)."""
    length, faults = lengths_with_faults(graph, total)
    return None if faults else length
