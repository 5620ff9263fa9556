"""Explicit state tensors (`--state h=hn`) move inside: each step reads what the step before wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from codegen.errors import input_error
from codegen.ir.graph import Carried, Graph, Node, Port
from codegen.ir.view import Piece
from codegen.numerics import reference as numeric
from codegen.ops.shape import Copy

STAGE = "state"
STATE_WORDS = frozenset(("next", "new", "old", "out", "in", "prev", "previous", "last", "output", "input", "updated"))


def carry_state(graph: Graph, states: Sequence[str]) -> Graph:
    """Remove the named inputs and outputs from the border and carry them from step to step, rescaled by a table.

    A step is one push of the whole input: such a graph is an endless stream of steps. The initial value is real 0.
    """
    if not states:
        return graph
    carried = []
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    for text in states:
        name_in, _, name_out = text.partition("=")
        source = _port(inputs, name_in, text, "input")
        target = _port(outputs, name_out, text, "output")
        _check_fit(graph, source, target, text)
        inputs.remove(source)
        outputs.remove(target)
        carried.append(_carried(source, target))
    if not inputs or not outputs:
        raise input_error(STAGE, ", ".join(states), "no input or no output remains", "at least one of each")
    if any(port.view.time_axis is not None for port in inputs):
        found = "explicit state in a model with a stream axis of its own"
        raise input_error(STAGE, ", ".join(states), found, "one step per inference", "Export the model for one step")
    graph, held = _held_apart(graph, carried)
    return replace(graph, inputs=tuple(inputs), outputs=tuple(outputs), carried=tuple(held), clip_length=None)


def _held_apart(graph: Graph, carried: Sequence[Carried]) -> tuple[Graph, list[Carried]]:
    """A state whose next value is another state as it is (a delay line, a swap) gets a copy of it.

    States are overwritten one after the other at the end of a step: none may be the source of a later one.
    """
    states = {c.tensor for c in carried}
    nodes, tensors, result = list(graph.nodes), dict(graph.tensors), []
    for c in carried:
        if c.source in states:
            old, name = tensors[c.source], f"{c.tensor}_next"
            while name in tensors:
                name += "_"
            tensors[name] = replace(old, name=name)
            copy = Copy((Piece(old.frame_elements, 1),))
            nodes.append(Node(name, copy, (c.source,), name, c.name, "Identity"))
            result.append(replace(c, source=name))
        else:
            result.append(c)
    return graph.with_nodes(nodes, tensors), result


def _port(ports: Sequence[Port], name: str, text: str, kind: str) -> Port:
    found = next((port for port in ports if port.name == name), None)
    if found is None:
        names = ", ".join(port.name for port in ports)
        raise input_error(STAGE, f"--state {text}", f"no {kind} '{name}'", f"{kind}s are {names}", "Write INPUT=OUTPUT")
    return found


def _check_fit(graph: Graph, source: Port, target: Port, text: str) -> None:
    if source.view.shape != target.view.shape:
        found = f"shapes {list(source.view.shape)} and {list(target.view.shape)} differ"
        raise input_error(STAGE, f"--state {text}", found, "equal shapes")
    same_layout = [a for a in source.view.axes if a] == [a for a in target.view.axes if a]
    if not same_layout or target.decoding is not None:
        found = "input and output lie differently in memory, or the output is not quantized"
        raise input_error(STAGE, f"--state {text}", found, "quantized state of one layout")
    sizes = {graph.tensors[port.tensor].frame_bytes for port in (source, target)}
    if len(sizes) != 1:
        raise input_error(STAGE, f"--state {text}", "input and output have different sizes")


def _carried(source: Port, target: Port) -> Carried:
    """The table takes codes of the output to codes of the input."""
    a, b = target.qparams, source.qparams
    if a is None or b is None or a.same_codes(b):
        table = None
    else:
        table = numeric.unary_table(lambda x: x, (a.scale, a.zero_point), (b.scale, b.zero_point))
    zero = (-128 if source.unsigned else 0) if b is None else b.zero_point
    return Carried(source.name, source.tensor, target.tensor, zero, table)


def hints(graph: Graph) -> list[str]:
    """`INPUT=OUTPUT` pairs that look like state: equal shapes, related names, and other inputs and outputs remain."""
    found: dict[str, str] = {}
    for source in graph.inputs:
        for target in graph.outputs:
            fits = source.view.shape == target.view.shape and source.view.time_axis is None
            if fits and target.name not in found.values() and _related(source.name, target.name):
                found.setdefault(source.name, target.name)
    if len(found) in (len(graph.inputs), len(graph.outputs)):
        return []
    return [f"{source}={target}" for source, target in found.items()]


def _related(source: str, target: str) -> bool:
    """Whether two names differ only by words like `in` and `out`, or by a letter at the end (h0 -> hn)."""
    a, b = _stem(source), _stem(target)
    return source != target and a == b and a != ""


def _stem(name: str) -> str:
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    kept = [w for w in words if w and w not in STATE_WORDS]
    if len(kept) > 1 and kept[-1] in ("n", "0"):
        kept.pop()
    return "_".join(re.sub(r"(?<=.)[nx0]$", "", w) for w in kept)
