"""Channels that are constant, or that nobody reads, go: with their weights, and with everything that only they fed.

A channel is constant where interval analysis (`code_intervals`) leaves it one code. At the zero point of its reader it
adds nothing to any window, padding included; at another code it moves into the reader's bias where no padding is read.
Everything is decided on masks of frame elements: the smallest set that the graph outputs need, closed under what each
operator must keep together (`KernelOp.coupling`); then every operator is rewritten without the rest
(`KernelOp.without`).
The codes of graph inputs and outputs, and of every channel that stays, are unchanged, for every input. Every node stays
(with one channel at least), so schedule, lookahead and legal lengths do too. `graph.taps` loses the views of tensors
that lost channels: a tap always shows the whole ONNX tensor or is not there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen.ir.graph import Graph, Node, Tensor
from codegen.ir.op import Op
from codegen.notes import Kind, Note
from codegen.ops.base import KernelOp
from codegen.ops.channels import Coupling, Interval, Mask, fixed
from codegen.passes.code_intervals import analyse


def remove_constant_channels(graph: Graph) -> Graph:
    """The graph without channels that cannot matter; `notes` say what went and why."""
    if not all(isinstance(node.op, KernelOp) for node in graph.nodes):
        return graph
    before = work(graph)
    notes: list[Note] = []
    while True:
        smaller, more = _once(graph)
        if smaller is None:
            break
        graph, notes = smaller, notes + more
    if not notes:
        return graph
    after = work(graph)
    if after == before:  # only moved or elementwise values went
        return replace(graph, notes=(*graph.notes, *notes))
    macs = f"{before[0]} MACs to {after[0]} (whole clip)"
    if graph.clip_length is None:  # the length is one of a trial
        macs = f"{100 - 100 * after[0] // max(1, before[0])} % fewer MACs"
    total = f"constant channels: {macs}, {before[1]} weights to {after[1]}; the codes of all outputs are unchanged"
    return replace(graph, notes=(*graph.notes, *notes, Note(total, Kind.REMOVED)))


def work(graph: Graph) -> tuple[int, int]:
    """(MACs of one clip of the traced length, weights)."""
    macs = 0
    for node in graph.nodes:
        kept = isinstance(node.op, KernelOp) and node.op.accumulator()
        macs += node.op.macs() * graph.tensors[node.inputs[0] if kept else node.output].length
    return macs, sum(int(np.size(getattr(node.op, "weights", ()))) for node in graph.nodes)


def _once(graph: Graph) -> tuple[Graph | None, list[Note]]:
    """One round: the smaller graph and what went, or None if everything must stay."""
    intervals = analyse(graph)
    stuck: set[str] = set()
    while True:
        keep = kept_elements(graph, intervals, stuck)
        if all(mask.all() for mask in keep.values()):
            return None, []
        nodes: list[Node] = []
        for node in graph.nodes:
            op = _rewritten(node, keep, intervals)
            if op is None:
                stuck.add(node.name)
            else:
                nodes.append(replace(node, op=op))
        if len(nodes) == len(graph.nodes):
            break
    tensors = {
        name: t if keep[name].all() else replace(t, frame_shape=shrunk(t.frame_shape, keep[name]))
        for name, t in graph.tensors.items()
    }
    taps = {name: view for name, view in graph.taps.items() if keep[view.tensor].all()}
    notes = [_note(graph.tensors[n], tensors[n], keep[n], intervals[n]) for n in tensors if not keep[n].all()]
    return replace(graph, nodes=tuple(nodes), tensors=tensors, taps=taps), notes


def _rewritten(node: Node, keep: dict[str, Mask], intervals: dict[str, Interval]) -> Op | None:
    assert isinstance(node.op, KernelOp)
    y, xs = keep[node.output], [keep[x] for x in node.inputs]
    if y.all() and all(x.all() for x in xs):
        return node.op
    return node.op.without(y, xs, [intervals[x] for x in node.inputs])


def shrunk(shape: tuple[int, ...], keep: Mask) -> tuple[int, ...]:
    """The frame shape of what is kept: the same axes where whole slices went, else one axis."""
    grid = keep.reshape(shape or (1,))
    axes = [grid.any(axis=tuple(j for j in range(grid.ndim) if j != i)) for i in range(grid.ndim)]
    whole = np.ones((), np.bool_)
    for axis in axes:
        whole = whole[..., None] & axis
    if np.array_equal(whole, grid):
        return tuple(int(axis.sum()) for axis in axes)
    return (int(keep.sum()),)


def kept_elements(graph: Graph, intervals: dict[str, Interval], stuck: set[str]) -> dict[str, Mask]:
    """Per tensor the elements that stay: the least fixpoint of what outputs and operators demand.

    `stuck` are nodes that cannot be rewritten. Every tensor keeps an element, so that it stays a stream.
    """
    whole = {port.tensor for port in (*graph.inputs, *graph.outputs)} | carried_tensors(graph)
    keep = {name: np.full(t.frame_elements, name in whole, np.bool_) for name, t in graph.tensors.items()}
    couplings: list[tuple[Node, Coupling]] = []
    for node in reversed(graph.nodes):
        assert isinstance(node.op, KernelOp)
        xs = [intervals[x] for x in node.inputs]
        size = graph.tensors[node.output].frame_elements
        couplings.append((node, fixed(size, xs) if node.name in stuck else node.op.coupling(size, xs)))
    for node, c in couplings:
        if c.fixed:
            for name in (node.output, *node.inputs):
                keep[name][:] = True
    while True:
        changed = False
        for node, c in couplings:
            changed |= _spread(node, c, keep)
        if not changed:
            empty = [mask for mask in keep.values() if not mask.any()]
            if not empty:
                return keep
            for mask in empty:
                mask[0] = True


def carried_tensors(graph: Graph) -> set[str]:
    """Both ends of explicit state: what one step writes the next one reads."""
    return {name for c in graph.carried for name in (c.source, c.tensor)}


def _spread(node: Node, c: Coupling, keep: dict[str, Mask]) -> bool:
    """Apply one operator's demands; True if anything more must stay."""
    sizes = [int(labels.max(initial=0)) + 1 for labels in (c.y, *c.xs)]
    marks = [
        _marked(labels, keep[name], size)
        for labels, name, size in zip((c.y, *c.xs), (node.output, *node.inputs), sizes, strict=True)
    ]
    if c.needs is not None:
        marks[1] = marks[1] | c.needs(marks[0])
    else:
        every = np.zeros(max(sizes), np.bool_)
        for mark in marks:
            every[: mark.size] |= mark
        marks = [every] * len(marks)
    changed = False
    for labels, name, mark in zip((c.y, *c.xs), (node.output, *node.inputs), marks, strict=True):
        wanted = mark[labels] | keep[name]
        if not np.array_equal(wanted, keep[name]):
            keep[name] = wanted
            changed = True
    return changed


def _marked(labels: np.ndarray, mask: Mask, size: int) -> Mask:
    mark = np.zeros(size, np.bool_)
    mark[labels[mask]] = True
    return mark


def _note(before: Tensor, after: Tensor, keep: Mask, interval: Interval) -> Note:
    """`removed 123 of 256 channels of X: 100 constant at the zero point, ...`, channels being the innermost axis."""
    channels = before.frame_shape[-1] if before.frame_shape else 1
    rows = ~keep.reshape(-1, channels)
    gone, unit = (rows[0], "channels") if bool((rows == rows[0]).all()) else (~keep, "elements")
    hull = interval.by_channel(gone.size)
    zero = before.qparams.zero_point if before.qparams else None
    silent = gone & hull.constant & (hull.low == zero)
    folded = gone & hull.constant & ~silent
    unread = gone & ~hull.constant
    reasons = [
        f"{int(which.sum())} {text}"
        for which, text in (
            (silent, "constant at the zero point"),
            (folded, "constant at another code (now part of biases)"),
            (unread, "that no output depends on"),
        )
        if which.any()
    ]
    text = f"removed {int(gone.sum())} of {gone.size} {unit} of {before.onnx_name or before.name}: {', '.join(reasons)}"
    return Note(text, Kind.REMOVED)
