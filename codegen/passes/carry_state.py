"""Explicit state tensors (`--state h=hn`) move inside: each step reads what the step before wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from codegen.codes import shift_of
from codegen.errors import input_error
from codegen.ir.graph import Carried, Graph, Node, Port
from codegen.ir.view import Piece
from codegen.numerics import reference as numeric
from codegen.ops.move import Copy

STAGE = "state"
STATE_WORDS = frozenset(("next", "new", "old", "out", "in", "prev", "previous", "last", "output", "input", "updated"))


def carry_state(graph: Graph, states: Sequence[str], shown: Sequence[str] = ()) -> Graph:
    """Remove the named inputs and outputs from the border and carry them from step to step, rescaled by a table.

    A step is one push of the whole input: such a graph is an endless stream of steps. The initial value is real 0.
    Outputs that are `shown` stay at the border too, and all of them where no other output would remain.
    """
    if not states:
        return _nothing_shown(graph, shown)
    carried = []
    inputs, fed = list(graph.inputs), []
    for text in states:
        name_in, _, name_out = text.partition("=")
        source = _port(inputs, name_in, text, "input")
        target = _port(graph.outputs, name_out, text, "output")
        _check_fit(graph, source, target, text)
        inputs.remove(source)
        fed.append(target.name)
        carried.append(_carried(source, target))
    outputs = _still_shown(graph, fed, shown)
    if not inputs:
        raise input_error(STAGE, ", ".join(states), "no input remains", "at least one that is no state")
    if any(port.view.time_axis is not None for port in inputs):
        found = "explicit state in a model with a stream axis of its own"
        raise input_error(STAGE, ", ".join(states), found, "one step per inference", "Export the model for one step")
    graph, held = _held_apart(graph, outputs, carried)
    carried = [replace(c, source=held.get(c.source, c.source)) for c in carried]
    outputs = [replace(p, view=replace(p.view, tensor=held.get(p.tensor, p.tensor))) for p in outputs]
    return replace(graph, inputs=tuple(inputs), outputs=tuple(outputs), carried=tuple(carried), clip_length=None)


def _still_shown(graph: Graph, fed: Sequence[str], shown: Sequence[str]) -> list[Port]:
    """The outputs that the caller still sees."""
    for name in shown:
        if name not in fed:
            found, allowed = f"'{name}' is not fed back by --state", f"outputs that are: {', '.join(fed)}"
            raise input_error(STAGE, f"--state-output {name}", found, allowed, "Leave it out: other outputs stay")
    return [port for port in graph.outputs if port.name not in fed or port.name in shown] or list(graph.outputs)


def _nothing_shown(graph: Graph, shown: Sequence[str]) -> Graph:
    if shown:
        found = "no output is fed back"
        raise input_error(STAGE, f"--state-output {shown[0]}", found, "it goes with --state", "Add --state IN=OUT")
    return graph


def _held_apart(graph: Graph, outputs: Sequence[Port], carried: Sequence[Carried]) -> tuple[Graph, dict[str, str]]:
    """Copies of states that are an output or another state's next value as they are (a delay line, a swap).

    States are overwritten one after the other at the end of a step: none may be the source of a later one.
    """
    states = {c.tensor for c in carried}
    nodes, tensors, held = list(graph.nodes), dict(graph.tensors), dict[str, str]()
    for x in (*(c.source for c in carried), *(port.tensor for port in outputs)):
        if x in states and x not in held:
            held[x] = f"{x}_next"
            while held[x] in tensors:
                held[x] += "_"
            old, name = tensors[x], held[x]
            tensors[name] = replace(old, name=name)
            copy = Copy((Piece(old.frame_elements, 1),))
            nodes.append(Node(name, copy, (x,), name, old.onnx_name or x, "Identity"))
    return graph.with_nodes(nodes, tensors), held


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
    sizes = {graph.tensors[port.tensor].frame_elements for port in (source, target)}
    if len(sizes) != 1:
        raise input_error(STAGE, f"--state {text}", "input and output have different sizes")


def _carried(source: Port, target: Port) -> Carried:
    """The table takes codes of the output to codes of the input."""
    a, b = target.qparams, source.qparams
    if a is None or b is None or a.same_codes(b):
        table = None
    else:
        table = numeric.unary_table(lambda x: x, (a.scale, a.zero_point), (b.scale, b.zero_point))
    zero = -shift_of(source.border.dtype) if b is None else b.zero_point
    return Carried(source.name, source.tensor, target.tensor, zero, table)


def hints(graph: Graph) -> list[str]:
    """`INPUT=OUTPUT` pairs that look like state: equal shapes, related names, and another input remains."""
    found: dict[str, str] = {}
    for source in graph.inputs:
        for target in graph.outputs:
            fits = source.view.shape == target.view.shape and source.view.time_axis is None
            if fits and target.name not in found.values() and _related(source.name, target.name):
                found.setdefault(source.name, target.name)
    if len(found) == len(graph.inputs):
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
