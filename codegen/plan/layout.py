"""Where every frame lives. Three forms, and the smallest is taken:

apart   K history rows of a tensor in state plus its new rows of the tick in scratch (docs/streaming.md): the
        state then holds no row that the next tick does not need, and new rows of different layers share memory. The
        histories and sums of a clip have lifetimes too, and share one block of the state.
joint   The same for a clip, but new rows lie in that block as well, and the scratch is empty.
rows    Every row of a clip has an address of its own in that block, out of a table, for just as long as it is needed.

A graph input is read in place from the caller's buffer and a graph output written straight to it, where type and layout
allow. An output may take over memory of an operand while the kernel still reads it (`plan.kernels.Kernel.lead`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from codegen.ir.graph import Graph, Node
from codegen.ops.base import KernelOp
from codegen.ops.move import CollectS8
from codegen.plan import lifetimes
from codegen.plan.kernels import Choices
from codegen.plan.lifetimes import Lives, Order, execution_order
from codegen.plan.memory import ROWS, WORK, Buffer, Key, Leads, Placement, lower_bound, place
from codegen.plan.streaming import StreamPlan

FORMS = ("apart", "joint", "rows")
ALIGNMENT = 4
NOWHERE = 0xFFFF
TABLE_WORTH = 4
"""Bytes of row addresses in flash that one byte of RAM is worth."""


@dataclass(frozen=True)
class Storage:
    """Of one tensor: history rows `keep` in state, at most `new` rows a tick, and where the new rows are.

    `fresh` is 'arena' (byte `offset` of the scratch), 'input' or 'output' (the caller's buffer of port `port`), 'rows'
    (where the table says), 'carried' (in state: what the last step left), or 'collected' and 'clip' (byte `offset` of
    the state's block: the frames of a clip that are kept side by side, as its producer and as its readers see them).
    `table` is the place of frame 0 in the table of row addresses, None where the history is a ring.
    """

    tensor: str
    frame_bytes: int
    keep: int
    new: int
    lane: int
    fresh: str
    offset: int = 0
    port: int = 0
    table: int | None = None

    @property
    def history_bytes(self) -> int:
        return self.keep * self.frame_bytes

    @property
    def head_bytes(self) -> int:
        """Of the place in the ring after its newest row: a number below `keep`."""
        if self.table is not None or not self.keep:
            return 0
        return 1 if self.keep <= 256 else 2


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

    `form` is one of those above. `order` is the execution order: ('node', i) in every tick, ('end', i) once when the
    sequence is over. `last_read` is the step (index into `order`, plus 1) after which a tensor's new rows of the tick
    are not needed. `working` is the arena offset of each node's working memory. `overlay` is the block of a clip's
    state that buffers share by their ticks; unless the form is 'apart' it is the arena too. `row_table` are byte
    offsets in it. `end` is the first tick behind all that the caller's frames can belong to. Nodes in `backwards` go
    through their frame from its end. Each of the `cores` has `fast_bytes` for tiles.
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
    end: int = 1
    form: str = "apart"
    row_table: tuple[int, ...] = ()
    backwards: tuple[str, ...] = ()
    fast_bytes: int = 0
    cores: int = 1

    @property
    def arena_bytes(self) -> int:
        return self.arena.total

    @property
    def arena_bound(self) -> int:
        return self.arena.lower_bound

    @property
    def used_bytes(self) -> int:
        """int32 clock, one head per history, accumulators, histories."""
        kept = [s for s in self.storage.values() if s.keep]
        heads = sum(s.head_bytes for s in kept)
        if self.overlay is not None:
            return 4 + _words(heads) + _words(self.overlay.total)
        held = sum(a.bytes for a in self.accumulators)
        carried = sum(s.frame_bytes for s in self.storage.values() if s.fresh == "carried")
        return 4 + held + heads + sum(s.history_bytes for s in kept) + carried

    @property
    def state_bytes(self) -> int:
        """`used_bytes` rounded up to the struct's alignment of 4."""
        return _words(self.used_bytes)

    @property
    def scratch_bytes(self) -> int:
        """Arena, memory of the tiles, and with several cores a pointer to the call in progress (8 B everywhere).

        The struct holds at least one word, so that it is valid C."""
        return 4 * self.arena_words + self.run_bytes + self.tile_bytes

    @property
    def tile_bytes(self) -> int:
        return self.cores * _words(self.fast_bytes)

    @property
    def arena_words(self) -> int:
        return max(4, _words(self.arena_bytes)) // 4

    @property
    def run_bytes(self) -> int:
        return 8 if self.cores > 1 else 0

    @property
    def ram_bytes(self) -> int:
        return self.state_bytes + self.scratch_bytes

    @property
    def lower_bound(self) -> int:
        """Bytes of state and scratch that no placement of this order and these lifetimes can be smaller than."""
        placed = self.arena.total + (self.overlay.total if self.overlay else 0)
        least = self.arena.lower_bound + (self.overlay.lower_bound if self.overlay else 0)
        return self.ram_bytes - placed + least


@dataclass(frozen=True)
class _Problem:
    """What all forms have in common."""

    graph: Graph
    plan: StreamPlan
    order: Order
    lives: Lives
    fresh: dict[str, str]
    accumulators: list[Accumulator]

    @cached_property
    def kept(self) -> list[Buffer]:
        return lifetimes.kept(self.graph, self.plan, self.lives, self.fresh)

    @cached_property
    def new_rows(self) -> list[Buffer]:
        return lifetimes.new_rows(self.graph, self.plan, self.lives, self.fresh)

    @cached_property
    def at_work(self) -> list[Buffer]:
        return lifetimes.at_work(self.graph, self.plan, self.lives, self.fresh)

    @cached_property
    def leads(self) -> Leads:
        return lifetimes.leads(self.graph, self.plan, self.lives, self.fresh)

    def layout(
        self,
        form: str,
        arena: Placement,
        overlay: Placement | None,
        tables: dict[str, int] | None = None,
        row_table: tuple[int, ...] = (),
    ) -> Layout:
        """The layout of a placement; `tables` are the tensors whose rows are in `row_table`."""
        graph, plan, tables = self.graph, self.plan, tables or {}
        ended = set(plan.ended)
        lanes = _lanes(graph, plan, ended)
        offsets = (overlay.offsets if overlay else {}) | arena.offsets
        storage = {}
        for name, tensor in graph.tensors.items():
            fresh = self.fresh[name]
            rows = Key(ROWS, _collector(graph, name) if fresh == "collected" else name)
            ports = graph.inputs if fresh == "input" else graph.outputs
            port = next((i for i, p in enumerate(ports) if p.tensor == name), 0) if fresh in ("input", "output") else 0
            storage[name] = Storage(
                name,
                tensor.frame_bytes,
                plan.keep[name],
                plan.new[name],
                lanes.index(_lane(name, plan)),
                "rows" if name in tables and fresh == "arena" else fresh,
                offsets.get(rows, 0),
                port,
                tables.get(name),
            )
        return Layout(
            storage,
            tuple(lanes),
            sum(1 for lane in lanes if any(_lane(n, plan) == lane for n in graph.tensors if n not in ended)),
            tuple(self.accumulators),
            tuple(self.order),
            overlay,
            {node.name: offsets.get(Key(WORK, node.name), 0) for node in graph.nodes},
            arena,
            self.lives.last_step,
            self.lives.end,
            form,
            row_table,
            tuple(node.name for node in graph.nodes if any(_goes_back(node, p) for p in (overlay, arena) if p)),
        )


def layout(graph: Graph, plan: StreamPlan, choices: Choices) -> Layout:
    """Storage of every tensor for the plan's hop, in the form with the least state and scratch, the first of equals.

    `choices`: the kernel of each node.
    """
    found = layout_below(graph, plan, choices, None)
    assert found is not None
    return found


def layout_below(graph: Graph, plan: StreamPlan, choices: Choices, limit: int | None) -> Layout | None:
    """The same, or None where no form needs less than `limit` bytes: most are not placed then, their bounds say it."""
    problem = _problem(graph, plan, choices)
    best: Layout | None = None
    for form in FORMS:
        found = _in_form(form, problem, best.ram_bytes if best else limit)
        if found is not None and (best is None or found.ram_bytes < best.ram_bytes):
            best = found
    return None if best is None or (limit is not None and best.ram_bytes >= limit) else best


def form_of(form: str, graph: Graph, plan: StreamPlan, choices: Choices) -> Layout | None:
    """The layout in one form; None where the graph has none."""
    return _in_form(form, _problem(graph, plan, choices), None)


def _problem(graph: Graph, plan: StreamPlan, choices: Choices) -> _Problem:
    order = execution_order(graph, set(plan.ended))
    lives = Lives(graph, plan, order, choices)
    return _Problem(graph, plan, order, lives, _fresh_places(graph, plan), _accumulators(graph, order))


def _in_form(form: str, problem: _Problem, limit: int | None) -> Layout | None:
    """None where there is none, or none below `limit` bytes."""
    if form == "apart":
        return _apart(problem, limit)
    if problem.graph.clip_length is None or problem.graph.carried:
        return None
    return _joint(problem, limit) if form == "joint" else _rows(problem, limit)


def _goes_back(node: Node, placed: Placement) -> bool:
    """Whether a node's output shares memory with an operand that it does not begin far enough before."""
    leads, y = placed.leads or {}, Key(ROWS, node.output)
    for x in (Key(ROWS, name) for name in node.inputs):
        if (x, y) in leads and x in placed.offsets and y in placed.offsets:
            sizes = {b.name: b.bytes for b in placed.buffers}
            at_x, at_y = placed.offsets[x], placed.offsets[y]
            share = at_x < at_y + sizes[y] and at_y < at_x + sizes[x]
            if share and at_x - at_y < leads.get((y, x), sizes[y]):
                return True
    return False


def _place(buffers: list[Buffer], leads: Leads) -> Placement:
    return place(buffers, ALIGNMENT, leads)


def _apart(p: _Problem, limit: int | None) -> Layout | None:
    new = [*p.new_rows, *p.at_work]
    if limit is not None and lower_bound(new, p.leads) + lower_bound(p.kept) >= limit:
        return None
    arena = _place(new, p.leads)
    if p.graph.clip_length is None or p.graph.carried:
        return p.layout("apart", arena, None)
    overlay = _place(p.kept, {})
    gain = _words(overlay.total) + 2 < sum(b.bytes for b in p.kept)
    return p.layout("apart", arena, overlay if gain or "collected" in p.fresh.values() else None)


def _joint(p: _Problem, limit: int | None) -> Layout | None:
    buffers = [*p.kept, *p.new_rows, *p.at_work]
    if limit is not None and lower_bound(buffers, p.leads) >= limit:
        return None
    return p.layout("joint", Placement({}, 0, 0), _place(buffers, p.leads))


def _rows(p: _Problem, limit: int | None) -> Layout | None:
    rows = lifetimes.rows(p.graph, p.plan, p.lives, p.fresh, p.leads)
    if rows is None:
        return None
    buffers = [*rows.buffers, *lifetimes.waiting(p.graph, p.lives), *p.at_work]
    leads = rows.leads
    if not rows.groups or (limit is not None and lower_bound(buffers, leads) >= limit):
        return None
    placed = _place(buffers, leads)
    entries = sum(1 + sum(group.count for group in groups) for groups in rows.groups.values())
    dear = limit is not None and placed.total + 2 * entries // TABLE_WORTH >= limit
    if placed.total >= NOWHERE or dear:
        return None
    tables: dict[str, int] = {}
    row_table: list[int] = []
    for name, groups in rows.groups.items():
        tables[name] = len(row_table)
        size = p.graph.tensors[name].frame_bytes
        for group in groups:
            at = placed.offsets.get(group.name)
            row_table += [NOWHERE if at is None else at + i * size for i in range(group.count)]
        row_table.append(0)  # of the frame after the last one, which a tick without a new frame names
    return p.layout("rows", Placement({}, 0, 0), placed, tables, tuple(row_table))


def _words(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _fresh_places(graph: Graph, plan: StreamPlan) -> dict[str, str]:
    """`Storage.fresh` of every tensor."""
    found = dict.fromkeys(graph.tensors, "arena")
    for port in graph.inputs:
        if _direct_input(graph, port.tensor):
            found[port.tensor] = "input"
    for port in graph.outputs:
        if _direct_output(graph, port.tensor, plan):
            found[port.tensor] = "output"
    for node in graph.nodes:
        if isinstance(node.op, CollectS8):
            found[node.inputs[0]], found[node.output] = "collected", "clip"
    return found | {c.tensor: "carried" for c in graph.carried}


def _collector(graph: Graph, name: str) -> str:
    """The tensor that is all frames of `name` as one."""
    return next(node.output for node in graph.readers(name) if isinstance(node.op, CollectS8))


def _accumulators(graph: Graph, order: Order) -> list[Accumulator]:
    found = []
    for kind, i in order:
        op = graph.nodes[i].op
        assert isinstance(op, KernelOp)
        kept = op.accumulator() if kind == "end" else op.running()
        if kept:
            found.append(Accumulator(graph.nodes[i].name, *kept))
    return sorted(found, key=lambda a: a.ctype != "int32_t")


def _lane(name: str, plan: StreamPlan) -> Lane:
    return Lane(plan.count_of[name], plan.length_of[name], plan.shortest[name])


def _lanes(graph: Graph, plan: StreamPlan, ended: set[str]) -> list[Lane]:
    """Distinct lanes, those of tensors that exist only at the end last."""
    names = [n for n in graph.tensors if n not in ended] + [n for n in graph.tensors if n in ended]
    return list(dict.fromkeys(_lane(name, plan) for name in names))


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
