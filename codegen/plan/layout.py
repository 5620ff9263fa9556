"""Where every frame lives: persistent history per tensor, and the scratch arena shared by lifetime within a tick.

A tensor is held as K history rows in state plus its new rows of the tick in scratch (RINGS.md section 2, form ii): the
state then holds no row that the next tick does not need, and new rows of different layers share memory. A graph input
is read in place from the caller's buffer and a graph output written straight to it, where type and layout allow.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.ir.graph import Graph
from codegen.plan.memory import Buffer, place
from codegen.plan.streaming import StreamPlan

ALIGNMENT = 4


@dataclass(frozen=True)
class Storage:
    """Of one tensor: history rows `keep` in state, at most `new` rows a tick, and where the new rows are.

    `fresh` is 'arena' (byte `offset` of the scratch), 'input' or 'output' (the caller's buffer of port `port`).
    """

    tensor: str
    frame_bytes: int
    keep: int
    new: int
    lane: int
    fresh: str
    offset: int = 0
    port: int = 0

    @property
    def history_bytes(self) -> int:
        return self.keep * self.frame_bytes


@dataclass(frozen=True)
class Lane:
    """Tensors that have the same number of frames at any time share one pair of counters."""

    count: int
    length: int
    shortest: int


@dataclass(frozen=True)
class Layout:
    """The memory plan of a streamed graph. Bytes of state are those of the generated struct."""

    storage: dict[str, Storage]
    lanes: tuple[Lane, ...]
    arena_bytes: int
    arena_bound: int
    last_read: dict[str, int]

    @property
    def state_bytes(self) -> int:
        """int32 clock, one uint16 head per history, the histories, rounded up to the struct's alignment of 4."""
        kept = [s for s in self.storage.values() if s.keep]
        return -(-(4 + 2 * len(kept) + sum(s.history_bytes for s in kept)) // 4) * 4

    @property
    def scratch_bytes(self) -> int:
        """The struct holds at least one word, so that it is valid C."""
        return max(4, -(-self.arena_bytes // 4) * 4)


def layout(graph: Graph, plan: StreamPlan) -> Layout:
    """Storage of every tensor for the plan's hop."""
    lanes: list[Lane] = []

    def lane(name: str) -> int:
        key = Lane(plan.count_of[name], plan.length_of[name], plan.shortest[name])
        if key not in lanes:
            lanes.append(key)
        return lanes.index(key)

    first, last = _lifetimes(graph)
    direct_in = {p.tensor: i for i, p in enumerate(graph.inputs) if _direct_input(graph, p.tensor)}
    direct_out = {p.tensor: i for i, p in enumerate(graph.outputs) if _direct_output(graph, p.tensor, plan)}
    buffers = []
    for name, tensor in graph.tensors.items():
        if name not in direct_in and name not in direct_out:
            buffers.append(Buffer(name, plan.new[name] * tensor.frame_bytes, first[name], last[name]))
    placed = place(buffers, ALIGNMENT)
    storage = {}
    for name, tensor in graph.tensors.items():
        fresh = "input" if name in direct_in else "output" if name in direct_out else "arena"
        port = direct_in.get(name, direct_out.get(name, 0))
        offset = placed.offsets.get(name, 0)
        storage[name] = Storage(
            name, tensor.frame_bytes, plan.keep[name], plan.new[name], lane(name), fresh, offset, port
        )
    return Layout(storage, tuple(lanes), placed.total, placed.lower_bound, last)


def _lifetimes(graph: Graph) -> tuple[dict[str, int], dict[str, int]]:
    """First and last step of every tensor's new rows; step 0 brings the inputs, node i runs in step i + 1."""
    first = {port.tensor: 0 for port in graph.inputs}
    last = dict(first)
    for step, node in enumerate(graph.nodes, 1):
        first.setdefault(node.output, step)
        last[node.output] = max(last.get(node.output, 0), step)
        for name in node.inputs:
            last[name] = max(last[name], step)
    return first, last


def _direct_input(graph: Graph, tensor: str) -> bool:
    """Read in place: int8 at the border, and not handed out again."""
    port = next(p for p in graph.inputs if p.tensor == tensor)
    return not (port.qparams and port.qparams.unsigned) and tensor not in {p.tensor for p in graph.outputs}


def _direct_output(graph: Graph, tensor: str, plan: StreamPlan) -> bool:
    """Written straight to the caller: int8 at the border, one port, no later reader."""
    ports = [p for p in graph.outputs if p.tensor == tensor]
    if len(ports) != 1 or tensor in {p.tensor for p in graph.inputs}:
        return False
    unsigned = bool(ports[0].qparams and ports[0].qparams.unsigned)
    return not unsigned and not graph.readers(tensor) and plan.keep[tensor] == 0
