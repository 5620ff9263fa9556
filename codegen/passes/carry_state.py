"""Explicit state tensors (`--state h=hn`) move inside: each step reads what the step before wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.errors import Problem, input_error
from codegen.ir.graph import Carried, Graph, Port
from codegen.numerics import reference as numeric

STAGE = "state"


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
    return replace(graph, inputs=tuple(inputs), outputs=tuple(outputs), carried=tuple(carried), clip_length=None)


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
    return Carried(source.name, source.tensor, target.tensor, 0 if b is None else b.zero_point, table)


def hints(graph: Graph) -> list[str]:
    """`INPUT=OUTPUT` pairs that look like state: equal shapes, and names that share a stem."""
    found = []
    for source in graph.inputs:
        for target in graph.outputs:
            if source.view.shape == target.view.shape and source.view.time_axis is None and _related(source, target):
                found.append(f"{source.name}={target.name}")
    return found


def _related(source: Port, target: Port) -> bool:
    def stem(name: str) -> str:
        for word in ("next", "new", "out", "in", "prev", "state", "cache", "_", ".", "n"):
            name = name.lower().replace(word, "")
        return name

    return source.name != target.name and stem(source.name) == stem(target.name)
