"""Why every tensor keeps as many frames as it does: docs/streaming.md with the numbers of the worst clock."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.ir.graph import Graph, Node
from codegen.ir.time import Last, Reduce, Upsample
from codegen.plan.streaming import StreamPlan


@dataclass(frozen=True)
class History:
    """Frames of one tensor: `keep` in state between ticks, at most `new` in a tick; `ring` would hold both in one.

    `why` has one sentence per reader; the largest of their numbers is `keep`.
    """

    tensor: str
    frame_bytes: int
    keep: int
    new: int
    ring: int
    why: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.keep * self.frame_bytes


def histories(graph: Graph, plan: StreamPlan) -> tuple[History, ...]:
    """The tensors that keep frames, in order of production."""
    clocks = range(plan.warm_up, plan.warm_up + plan.period)
    table = [plan.available(clock) for clock in clocks]
    found = []
    for name, tensor in graph.tensors.items():
        if plan.keep[name]:
            why = tuple(_why(name, node, clocks, table) for node in graph.readers(name))
            shown = tensor.onnx_name or name
            found.append(History(shown, tensor.frame_bytes, plan.keep[name], plan.new[name], plan.ring[name], why))
    return tuple(found)


def _why(x: str, reader: Node, clocks: range, table: list[dict[str, int]]) -> str:
    """How many finished frames of `x` a reader still needs, at the clock where it needs most."""
    rule = reader.op.rule()
    if isinstance(rule, Reduce):
        return f"{reader.where} adds each frame as it comes: 0"
    if isinstance(rule, Last):
        return f"{reader.where} takes the last {rule.frames} at the end: {rule.count}"
    needs = [made[x] - rule.lowest()(made[reader.output]) for made in table]
    at = needs.index(max(needs))
    made, due = table[at][x], table[at][reader.output]
    low = rule.lowest()(due)
    text = f"{reader.where}: after {clocks[at]} input frames {made} exist, and its next one, {due}, "
    if needs[at] > 0:
        return f"{text}reads from frame {low} on: {made} - {low} = {needs[at]}"
    again = ", but the end repeats the last one: 1" if isinstance(rule, Upsample) and rule.offset > 0 else ": 0"
    return f"{text}reads new frames only{again}"
