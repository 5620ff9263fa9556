"""When rows, histories, sums and working memory are live, and which outputs may take over memory of an operand.

Step 0 of a tick brings the inputs, order[i] runs in step i + 1. Ticks of a clip are counted by input frames. Each node
that runs when the sequence is over has a tick of its own behind all others. An endless stream has one tick and the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from codegen.ir.graph import Graph, Node
from codegen.ir.periods import n_end, smallest
from codegen.ir.time import Join, Last, Reduce, Rule, Upsample, Window
from codegen.ops.base import KernelOp
from codegen.ops.move import CollectS8
from codegen.plan.kernels import Choices
from codegen.plan.memory import EVER, HISTORY, ROW, ROWS, SUMS, WORK, Buffer, Key
from codegen.plan.streaming import StreamPlan

Order = list[tuple[str, int]]
MAX_ROWS = 1024


def execution_order(graph: Graph, ended: set[str]) -> Order:
    """Live nodes in every tick (reductions accumulate there), then what happens once at the end."""
    ticking = [i for i, node in enumerate(graph.nodes) if node.works_on not in ended and not _collects(node)]
    ending = [i for i, node in enumerate(graph.nodes) if node.output in ended and not _collects(node)]
    return [("node", i) for i in ticking] + [("end", i) for i in ending]


def _collects(node: Node) -> bool:
    return isinstance(node.op, CollectS8)


def _steps(graph: Graph, order: Order, ended: set[str]) -> tuple[dict[str, int], dict[str, int]]:
    """First and last step of every tensor's new rows; step 0 brings the inputs, order[i] runs in step i + 1.

    What runs at the end reads the streams' histories, not the new rows of some tick.
    """
    first = dict.fromkeys(graph.sources(), 0)
    first |= {node.output: 0 for node in graph.nodes if _collects(node)}
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


class Lives:
    """Ticks and steps of a graph under a plan.

    Something that happens with frame n of the clock may share a tick with what happens `hop` - 1 frames earlier or
    later, as the caller pushes: tick n stands for the clock reaching n, and lives end `hop` - 1 ticks later.
    `choices` are the kernels: what their loops promise decides which output may take over memory of an operand.
    """

    def __init__(self, graph: Graph, plan: StreamPlan, order: Order, choices: Choices) -> None:
        self.graph, self.plan, self.order, self.choices = graph, plan, order, choices
        self.length: dict[str, int] = {}
        self.end = 1
        if graph.clip_length is not None:
            self.length = plan.finished(graph.clip_length)
            self.end = n_end(graph.time_graph(), graph.clip_length) - plan.start + plan.hop
        self.first_step, self.last_step = _steps(graph, order, set(plan.ended))
        ends = [i for kind, i in order if kind == "end"]
        self.end_tick = {graph.nodes[i].output: self.end + n for n, i in enumerate(ends)}
        self._clocks: dict[tuple[int, int], int] = {}
        self._table: list[dict[str, int]] = []

    def ticks(self, name: str) -> tuple[int, int]:
        """First and last tick in which rows of a tensor that is no ended one may be made."""
        if not self.length or self.length[name] < 1:
            return 0, 0
        return self.tick(name, 1), self.tick(name, self.length[name]) + self.plan.hop - 1

    def tick(self, name: str, frames: int) -> int:
        """The clock, from the start on, with which a tensor has so many frames."""
        key = (self.plan.count_of[name], frames)
        if key not in self._clocks:
            has: Callable[[int], bool] = lambda clock: self.plan.available(clock)[name] >= frames  # noqa: E731
            self._clocks[key] = smallest(has, self.plan.start) - self.plan.start
        return self._clocks[key]

    def all_ticks(self, name: str) -> list[int]:
        """The tick of every frame; for clips of few frames."""
        if not self._table:
            start = self.plan.start
            self._table = [self.plan.available(clock) for clock in range(start, start + self.end + 1)]
        made = [counts[name] for counts in self._table]
        return [bisect_left(made, j + 1) for j in range(self.length[name])]

    def last_end_tick(self, name: str) -> int:
        """The last tick of the end in which a tensor is written or read; -1 where there is none."""
        nodes = [*self.graph.readers(name), *filter(None, [self.graph.producer(name)])]
        return max((self.end_tick.get(node.output, -1) for node in nodes), default=-1)


def kept(graph: Graph, plan: StreamPlan, lives: Lives, fresh: dict[str, str]) -> list[Buffer]:
    """What a clip keeps from tick to tick in form ii: histories, collected frames and sums.

    A history is live from the first frame on that is kept, to the last that is, and to the last that a reader computes
    from it.
    """
    buffers = []
    for name, tensor in graph.tensors.items():
        if plan.keep[name]:
            first, last = lives.ticks(name)
            for node in graph.readers(name):
                if isinstance(node.op.rule(), Last):
                    last = max(last, lives.end_tick[node.output])
                elif node.output not in plan.ended:
                    last = max(last, lives.ticks(node.output)[1])
            buffers.append(Buffer(Key(HISTORY, name), plan.keep[name] * tensor.frame_bytes, *EVER, first, last))
    return buffers + waiting(graph, lives)


def waiting(graph: Graph, lives: Lives) -> list[Buffer]:
    """Sums from the first frame of their input to the end, and frames that are collected."""
    buffers = []
    for kind, i in lives.order:
        node = graph.nodes[i]
        assert isinstance(node.op, KernelOp)
        sums = node.op.accumulator()
        if kind == "end" and sums is not None:
            size = sums[1] * (4 if sums[0] == "int32_t" else 1)
            first = lives.ticks(node.inputs[0])[0]
            buffers.append(Buffer(Key(SUMS, node.name), size, *EVER, first, lives.end_tick[node.output]))
    for node in graph.nodes:
        if _collects(node):
            x = node.inputs[0]
            frames = lives.length[x]
            first, last = lives.ticks(x)
            step = graph.tensors[x].frame_bytes
            end = max(last, lives.last_end_tick(node.output))
            ticks = lives.all_ticks(x) if frames <= MAX_ROWS else []
            grows = tuple((tick, (j + 1) * step) for j, tick in enumerate(ticks))
            buffers.append(Buffer(Key(ROWS, node.output), frames * step, *EVER, first, end, grows=grows))
    return buffers


def new_rows(graph: Graph, plan: StreamPlan, lives: Lives, fresh: dict[str, str]) -> list[Buffer]:
    """New rows of every tick that lie in the arena."""
    buffers = []
    for name, tensor in graph.tensors.items():
        if fresh[name] == "arena" and name not in plan.ended:
            steps = lives.first_step[name], lives.last_step[name]
            buffers.append(Buffer(Key(ROWS, name), plan.new[name] * tensor.frame_bytes, *steps, *lives.ticks(name)))
    return buffers


def at_work(graph: Graph, plan: StreamPlan, lives: Lives, fresh: dict[str, str]) -> list[Buffer]:
    """Working memory of nodes, and what exists at the end only."""
    buffers = []
    for name, tensor in graph.tensors.items():
        if fresh[name] == "arena" and name in plan.ended:
            ticks = lives.end_tick[name], lives.last_end_tick(name)
            buffers.append(Buffer(Key(ROWS, name), tensor.frame_bytes, *EVER, *ticks))
    for step, (kind, i) in enumerate(lives.order, 1):
        node = graph.nodes[i]
        assert isinstance(node.op, KernelOp)
        size = lives.choices[node.name].scratch_bytes
        if size and (kind == "node" or node.op.accumulator() is None):
            at = lives.end_tick[node.output] if kind == "end" else 0
            when = (*EVER, at, at) if kind == "end" else (step, step, *lives.ticks(node.output))
            buffers.append(Buffer(Key(WORK, node.name), size, *when))
    return buffers


def leads(graph: Graph, plan: StreamPlan, lives: Lives, fresh: dict[str, str]) -> dict[tuple[Key, Key], int]:
    """Outputs that may take over memory of an operand: how many bytes the one must begin before the other.

    The operand is read for the last time by the output's producer, and frame by frame in step with it. A kernel that
    may go through a single frame backwards offers both directions.
    """
    found = {}
    for step, (kind, i) in enumerate(lives.order, 1):
        node = graph.nodes[i]
        y = graph.tensors[node.output]
        assert isinstance(node.op, KernelOp)
        for name, lead in _operand_leads(lives, node, fresh):
            in_step = kind == "end" or (keeps_step(node.op.rule()) and plan.keep[name] == 0)
            if in_step and lives.last_step[name] == step:
                found[Key(ROWS, y.name), Key(ROWS, name)] = _later(lead, plan.new[name], graph, y.name, name)
                back = lives.choices[node.name].lead_back(node.inputs.index(name))
                if back is not None and plan.new[name] == 1:
                    found[Key(ROWS, name), Key(ROWS, y.name)] = back
    return found


def _operand_leads(lives: Lives, node: Node, fresh: dict[str, str]) -> list[tuple[str, int]]:
    """(operand, lead of one frame) where both are bytes in memory of ours."""
    y = lives.graph.tensors[node.output]
    assert isinstance(node.op, KernelOp)
    found: list[tuple[str, int]] = []
    for operand, name in enumerate(node.inputs):
        lead = lives.choices[node.name].lead(operand) if node.inputs.count(name) == 1 else None
        if lead is not None and y.type.bytes == 1 and fresh[y.name] == "arena" and fresh[name] in ("arena", "clip"):
            found.append((name, lead))
    return found


def _later(lead: int, frames: int, graph: Graph, y: str, x: str) -> int:
    """The lead of `frames` frames that are computed one after another."""
    return lead + (frames - 1) * max(0, graph.tensors[y].frame_bytes - graph.tensors[x].frame_bytes)


def keeps_step(rule: Rule) -> bool:
    """Whether output frame j reads frame j and no other."""
    return isinstance(rule, Join) or rule == Window()


@dataclass(frozen=True)
class Group:
    """Frames of a tensor that one tick makes; they lie side by side."""

    tensor: str
    first: int
    count: int
    tick: int

    @property
    def name(self) -> Key:
        return Key(ROW, self.tensor, self.first)


@dataclass(frozen=True)
class Rows:
    """Every row of a clip at an address of its own: groups of each tensor, buffers, and what may share memory."""

    groups: dict[str, list[Group]]
    buffers: list[Buffer]
    leads: dict[tuple[Key, Key], int]


def rows(
    graph: Graph, plan: StreamPlan, lives: Lives, fresh: dict[str, str], by_tensor: Mapping[tuple[Key, Key], int]
) -> Rows | None:
    """The rows of a clip with hop 1, where they are few enough for a table; `by_tensor` are its `leads`.

    A row is live from the step that makes it (a graph input that is read in place: from the last step of its tick that
    reads it) to the step of the last output frame that reads it.
    """
    live = [x for x in graph.tensors if x not in plan.ended and fresh[x] != "output"]
    stored = [x for x in live if fresh[x] == "arena" or (fresh[x] == "input" and plan.keep[x])]
    if plan.hop != 1 or sum(lives.length[x] for x in stored) > MAX_ROWS:
        return None
    tick_of = {x: lives.all_ticks(x) for x in graph.tensors if x not in plan.ended}
    death = _deaths(graph, plan, lives, tick_of)
    groups = {x: _groups(x, tick_of[x]) for x in stored}
    buffers = []
    for x, made in groups.items():
        size = graph.tensors[x].frame_bytes
        for g in made:
            born = (g.tick, lives.first_step[x] if fresh[x] == "arena" else lives.last_step[x])
            last = max(death[x][g.first : g.first + g.count])
            if fresh[x] == "input" and last[0] == g.tick:
                continue
            last = max(last, born)
            buffers.append(Buffer(g.name, g.count * size, born[1], last[1], born[0], last[0], linear=True))
    by_row = _row_leads(graph, lives, fresh, groups, {b.name: b for b in buffers})
    whole = {pair: lead for pair, lead in by_tensor.items() if not _streams(pair, groups)}
    return Rows(groups, buffers, by_row | whole)


def _streams(pair: tuple[Key, Key], groups: dict[str, list[Group]]) -> bool:
    """Whether a pair of `leads` is about tensors whose rows have addresses of their own."""
    return any(key.of in groups for key in pair)


def _row_leads(
    graph: Graph, lives: Lives, fresh: dict[str, str], groups: dict[str, list[Group]], buffers: dict[Key, Buffer]
) -> dict[tuple[Key, Key], int]:
    """As `leads`, row by row: an operand's row that a step reads for the last time may go to what the step makes."""
    found = {}
    for step, (kind, i) in enumerate(lives.order, 1):
        node = graph.nodes[i]
        for x, lead in _operand_leads(lives, node, fresh) if kind == "node" else ():
            dying: dict[int, list[Group]] = {}
            for old in groups[x]:
                if buffers[old.name].last_step == step:
                    dying.setdefault(buffers[old.name].last_tick, []).append(old)
            for new in groups[node.output]:
                for old in dying.get(new.tick, ()):
                    in_step = keeps_step(node.op.rule()) and (old.tick, old.count) == (new.tick, new.count)
                    if new.count == 1 or in_step:
                        found[new.name, old.name] = _later(lead, new.count, graph, node.output, x)
    return found


def _groups(name: str, ticks: list[int]) -> list[Group]:
    groups: list[Group] = []
    for j, tick in enumerate(ticks):
        if groups and groups[-1].tick == tick:
            groups[-1] = replace(groups[-1], count=groups[-1].count + 1)
        else:
            groups.append(Group(name, j, 1, tick))
    return groups


def _deaths(
    graph: Graph, plan: StreamPlan, lives: Lives, tick_of: dict[str, list[int]]
) -> dict[str, list[tuple[int, int]]]:
    """(tick, step) after which each row is not read any more."""
    death = {x: [(tick, lives.first_step[x]) for tick in ticks] for x, ticks in tick_of.items()}
    step_of = {graph.nodes[i].name: step for step, (kind, i) in enumerate(lives.order, 1) if kind == "node"}
    for node in graph.nodes:
        rule, step = node.op.rule(), step_of.get(node.name, 0)
        for x in node.inputs:
            if x not in death or _collects(node):
                continue
            last = len(death[x]) - 1
            if isinstance(rule, Last):
                used = [(i, (lives.end_tick[node.output], EVER[1])) for i in range(last + 1 - rule.frames, last + 1)]
            elif isinstance(rule, Reduce):
                used = [(i, (tick, step)) for i, tick in enumerate(tick_of[x])]
            else:
                used = []
                for j, tick in enumerate(tick_of[node.output]):
                    indices = rule.reads(j)
                    if isinstance(rule, Upsample):
                        indices = [min(i, last) for i in indices]
                    used += [(i, (tick, step)) for i in indices]
            for i, when in used:
                if 0 <= i <= last:
                    death[x][i] = max(death[x][i], when)
    return death
