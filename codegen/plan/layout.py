"""Where every frame lives: persistent history per tensor, and the scratch arena shared by lifetime within a tick.

A tensor is held as K history rows in state plus its new rows of the tick in scratch (RINGS.md section 2, form ii): the
state then holds no row that the next tick does not need, and new rows of different layers share memory. A graph input
is read in place from the caller's buffer and a graph output written straight to it, where type and layout allow.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.ir.graph import Graph
from codegen.ops.base import KernelOp
from codegen.plan.memory import Buffer, Placement, place
from codegen.plan.streaming import StreamPlan, n_end

ALIGNMENT = 4


@dataclass(frozen=True)
class Storage:
    """Of one tensor: history rows `keep` in state, at most `new` rows a tick, and where the new rows are.

    `fresh` is 'arena' (byte `offset` of the scratch), 'input' or 'output' (the caller's buffer of port `port`), or
    'carried' (in state: what the last step left).
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
class Accumulator:
    """What a reduction over the stream axis keeps in state: `count` elements of `ctype`."""

    node: str
    ctype: str
    count: int

    @property
    def bytes(self) -> int:
        return self.count * (4 if self.ctype == "int32_t" else 1)


@dataclass(frozen=True)
class Layout:
    """The memory plan of a streamed graph. Bytes of state are those of the generated struct.

    `order` is the execution order: ('node', i) in every tick, ('end', i) once when the sequence is over. `last_read` is
    the step (index into `order`, plus 1) after which a tensor's new rows of the tick are not needed. `working` is the
    arena offset of each node's working memory.
    """

    storage: dict[str, Storage]
    lanes: tuple[Lane, ...]
    live_lanes: int
    accumulators: tuple[Accumulator, ...]
    order: tuple[tuple[str, int], ...]
    overlay: Placement | None
    working: dict[str, int]
    arena: Placement
    last_read: dict[str, int]

    @property
    def arena_bytes(self) -> int:
        return self.arena.total

    @property
    def arena_bound(self) -> int:
        return self.arena.lower_bound

    @property
    def used_bytes(self) -> int:
        """int32 clock, one uint16 head per history, accumulators, histories."""
        kept = [s for s in self.storage.values() if s.keep]
        if self.overlay is not None:
            return 4 + 2 * len(kept) + -(-self.overlay.total // 4) * 4 + (2 * len(kept)) % 4
        held = sum(a.bytes for a in self.accumulators)
        carried = sum(s.frame_bytes for s in self.storage.values() if s.fresh == "carried")
        return 4 + held + 2 * len(kept) + sum(s.history_bytes for s in kept) + carried

    @property
    def state_bytes(self) -> int:
        """`used_bytes` rounded up to the struct's alignment of 4."""
        return -(-self.used_bytes // 4) * 4

    @property
    def scratch_bytes(self) -> int:
        """The struct holds at least one word, so that it is valid C."""
        return max(4, -(-self.arena_bytes // 4) * 4)


def layout(graph: Graph, plan: StreamPlan) -> Layout:
    """Storage of every tensor for the plan's hop."""
    ended = set(plan.ended)
    lanes = _lanes(graph, plan, ended)
    order = execution_order(graph, ended)
    first, last = _lifetimes(graph, order, ended)
    direct_in = {p.tensor: i for i, p in enumerate(graph.inputs) if _direct_input(graph, p.tensor)}
    direct_out = {p.tensor: i for i, p in enumerate(graph.outputs) if _direct_output(graph, p.tensor, plan)}
    carried = {c.tensor for c in graph.carried}
    buffers = []
    for name, tensor in graph.tensors.items():
        if name not in direct_in and name not in direct_out and name not in carried:
            buffers.append(Buffer(f"rows {name}", plan.new[name] * tensor.frame_bytes, first[name], last[name]))
    accumulators = []
    for step, (kind, i) in enumerate(order, 1):
        op = graph.nodes[i].op
        assert isinstance(op, KernelOp)
        if op.scratch_bytes() and (kind == "node" or op.accumulator() is None):
            buffers.append(Buffer(f"work {graph.nodes[i].name}", op.scratch_bytes(), step, step))
        kept = op.accumulator() if kind == "end" else op.running()
        if kept:
            accumulators.append(Accumulator(graph.nodes[i].name, *kept))
    accumulators.sort(key=lambda a: a.ctype != "int32_t")
    placed = place(buffers, ALIGNMENT)
    storage = {}
    for name, tensor in graph.tensors.items():
        fresh = "input" if name in direct_in else "output" if name in direct_out else "arena"
        fresh = "carried" if name in carried else fresh
        port = direct_in.get(name, direct_out.get(name, 0))
        offset = placed.offsets.get(f"rows {name}", 0)
        lane = lanes.index(_lane(name, plan))
        storage[name] = Storage(name, tensor.frame_bytes, plan.keep[name], plan.new[name], lane, fresh, offset, port)
    working = {node.name: placed.offsets.get(f"work {node.name}", 0) for node in graph.nodes}
    overlay = None
    if graph.clip_length is not None and not graph.carried:
        overlay = _overlay(graph, plan, storage, accumulators)
    live = sum(1 for lane in lanes if any(_lane(n, plan) == lane for n in graph.tensors if n not in ended))
    return Layout(
        storage,
        tuple(lanes),
        live,
        tuple(accumulators),
        tuple(order),
        overlay,
        working,
        placed,
        last,
    )


def _overlay(
    graph: Graph, plan: StreamPlan, storage: dict[str, Storage], accumulators: list[Accumulator]
) -> Placement | None:
    """Histories and accumulators of a clip, placed by the ticks in which they are live; None where nothing is gained.

    A history is live from the tick that commits its first frame to the last tick in which a reader computes a frame; an
    accumulator from the first frame of its input to the end.
    """
    time = graph.time_graph()
    total = graph.clip_length or 1
    length = plan.finished(total)
    clocks = list(range(plan.start, n_end(time, total) + plan.hop, plan.hop))
    made = [{x: min(max(n, 0), length[x]) for x, n in plan.available(clock).items()} for clock in clocks]
    end = len(clocks)

    def first_tick(x: str) -> int:
        return next((t for t in range(1, end) if made[t][x] > 0), end)

    def last_tick(x: str) -> int:
        if x in plan.ended:
            return end
        return next((t for t in range(end - 1, 0, -1) if made[t][x] > made[t - 1][x]), 0)

    buffers = []
    for s in storage.values():
        if s.keep:
            last = max((last_tick(node.output) for node in graph.readers(s.tensor)), default=0)
            first = first_tick(s.tensor)
            buffers.append(Buffer(f"rows {s.tensor}", s.history_bytes, first, max(first, last)))
    for a in accumulators:
        node = next(node for node in graph.nodes if node.name == a.node)
        buffers.append(Buffer(f"acc {a.node}", a.bytes, first_tick(node.inputs[0]), end))
    placed = place(buffers, ALIGNMENT)
    return placed if -(-placed.total // 4) * 4 + 2 < sum(b.bytes for b in buffers) else None


def _lane(name: str, plan: StreamPlan) -> Lane:
    return Lane(plan.count_of[name], plan.length_of[name], plan.shortest[name])


def _lanes(graph: Graph, plan: StreamPlan, ended: set[str]) -> list[Lane]:
    """Distinct lanes, those of tensors that exist only at the end last."""
    names = [n for n in graph.tensors if n not in ended] + [n for n in graph.tensors if n in ended]
    return list(dict.fromkeys(_lane(name, plan) for name in names))


def execution_order(graph: Graph, ended: set[str]) -> list[tuple[str, int]]:
    """Live nodes in every tick (reductions accumulate there), then what happens once at the end."""
    order: list[tuple[str, int]] = []
    for i, node in enumerate(graph.nodes):
        op = node.op
        if node.output not in ended or (isinstance(op, KernelOp) and op.accumulator()):
            order.append(("node", i))
    order += [("end", i) for i, node in enumerate(graph.nodes) if node.output in ended]
    return order


def _lifetimes(graph: Graph, order: list[tuple[str, int]], ended: set[str]) -> tuple[dict[str, int], dict[str, int]]:
    """First and last step of every tensor's new rows; step 0 brings the inputs, order[i] runs in step i + 1.

    What runs at the end reads the streams' histories, not the new rows of some tick.
    """
    first = dict.fromkeys(graph.sources(), 0)
    last = dict(first)
    accumulating = {i for kind, i in order if kind == "node"} & {i for kind, i in order if kind == "end"}
    for step, (kind, i) in enumerate(order, 1):
        node = graph.nodes[i]
        if kind == "end" or i not in accumulating:
            first.setdefault(node.output, step)
            last[node.output] = max(last.get(node.output, 0), step)
        if kind == "node" or i not in accumulating:
            for name in node.inputs:
                if kind == "node" or name in ended:
                    last[name] = max(last[name], step)
    for c in graph.carried:
        last[c.source] = len(order) + 1
    return first, last


def _direct_input(graph: Graph, tensor: str) -> bool:
    """Read in place: int8 at the border, and not handed out again."""
    port = next(p for p in graph.inputs if p.tensor == tensor)
    return not port.unsigned and tensor not in {p.tensor for p in graph.outputs}


def _direct_output(graph: Graph, tensor: str, plan: StreamPlan) -> bool:
    """Written straight to the caller: int8 at the border, one port, no later reader."""
    ports = [p for p in graph.outputs if p.tensor == tensor]
    if len(ports) != 1 or tensor in {p.tensor for p in graph.inputs}:
        return False
    state = tensor in {c.source for c in graph.carried}
    return not ports[0].unsigned and not state and not graph.readers(tensor) and plan.keep[tensor] == 0
