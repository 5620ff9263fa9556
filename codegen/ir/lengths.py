"""Counts and lengths of every rule, and of whole graphs: what is there at a clock, and in a clip of T frames."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.errors import CodegenError, unsupported
from codegen.ir.time import (
    Join,
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


class PlanError(CodegenError, ValueError):
    """A graph that has no streaming schedule; `problems` names the nodes."""


def plan_error(where: str, found: str, allowed: str = "", hint: str = "") -> PlanError:
    """A PlanError with one problem (exit code 3)."""
    return PlanError("plan", unsupported("plan", where, found, allowed, hint).problems)


def held_back(rule: Rule) -> int:
    """e: input frames (window) or output frames (transposed) that wait because the end of the clip may cut them."""
    if isinstance(rule, Window):
        return max(0, -rule.right)
    if isinstance(rule, Transposed):
        return max(0, rule.stride + rule.right - rule.extent - rule.output_padding)
    return 0


def is_ending(rule: Rule) -> bool:
    """True for rules that yield a single frame at the end of the stream."""
    return isinstance(rule, Reduce | Last)


def joins_shortest(rule: Rule) -> bool:
    """True for a join whose operands may differ in length."""
    return isinstance(rule, Join) and rule.shortest


def count(rule: Rule, available: Sequence[int]) -> int:
    """Signed number of output frames that `available` frames of each operand allow (RINGS.md section 1)."""
    if isinstance(rule, Window):
        return (available[0] + rule.left - rule.extent - held_back(rule)) // rule.stride + 1
    if isinstance(rule, Join | Recurrent):
        return min(available)
    if isinstance(rule, Upsample):
        return rule.factor * available[0] - rule.offset
    if isinstance(rule, Transposed):
        return rule.stride * available[0] - rule.left - held_back(rule)
    return 0  # Reduce, Last: nothing before finish


def raw_length(rule: Rule, lengths: Sequence[int]) -> int:
    """Output length in frames before clipping at 0, for operands of positive length; a join takes its first operand,
    or the shortest one.

    Ceil mode: windows may hang over the right end, but every window starts before the right padding (ONNX pools).
    """
    x = lengths[0]
    if isinstance(rule, Window):
        span = x + rule.left + rule.right - rule.extent
        if not rule.ceil_mode:
            return span // rule.stride + 1
        return min(-(-span // rule.stride), (x + rule.left - 1) // rule.stride) + 1
    if isinstance(rule, Upsample):
        return rule.factor * x
    if isinstance(rule, Transposed):
        return (x - 1) * rule.stride + rule.extent - rule.left - rule.right + rule.output_padding
    if joins_shortest(rule):
        return min(lengths)
    if isinstance(rule, Reduce):
        return 1
    if isinstance(rule, Last):
        return 1 if x >= rule.count else 0
    return x


def reads(rule: Rule, j: int) -> list[int]:
    """Input indices that output frame j reads (of every operand), neither clipped nor clamped.

    A Recurrent reads frame j and its own state; Reduce reads as an accumulator does, one new frame at a time.
    """
    if isinstance(rule, Window):
        return [j * rule.stride - rule.left + tap * rule.dilation for tap in range(rule.taps)]
    if isinstance(rule, Upsample):
        return [(j + rule.offset) // rule.factor]
    if isinstance(rule, Transposed):
        shifted = (j + rule.left - tap * rule.dilation for tap in range(rule.taps))
        return sorted(q // rule.stride for q in shifted if q % rule.stride == 0)
    return [j]


def lowest_read(rule: Rule, j: int) -> int:
    """lo: the lowest input frame that output frames >= j read (RINGS.md section 2)."""
    if isinstance(rule, Window):
        return j * rule.stride - rule.left
    if isinstance(rule, Upsample):
        return (j + rule.offset) // rule.factor
    if isinstance(rule, Transposed):
        return -(-(j + rule.left - rule.extent + 1) // rule.stride)
    return j


def waits_for(rule: Rule, j: int) -> int:
    """The input frame whose arrival completes output frame j: its newest read plus the end correction e."""
    if isinstance(rule, Window):
        return j * rule.stride - rule.left + rule.extent - 1 + held_back(rule)
    if isinstance(rule, Upsample):
        return (j + rule.offset) // rule.factor
    if isinstance(rule, Transposed):
        return (j + rule.left + held_back(rule)) // rule.stride
    return j


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
