"""What no plan can mend: joins that never agree, lengths at which the model fails offline, schedules of minutes."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.errors import CodegenError, Problem, unsupported
from codegen.ir.graph import Graph, Node
from codegen.ir.lengths import lengths_with_faults
from codegen.ir.periods import period, warm_up
from codegen.ir.time import TimeGraph
from codegen.plan import outputs as plan_outputs
from codegen.plan.receptive_field import analyse_graph

# Frames that a schedule may take to repeat, and times its nodes: planning walks through them.
MAX_SPAN = 1 << 17
MAX_SPAN_NODES = 1 << 22


def check(graph: Graph) -> None:
    """Raise CodegenError (3) for a graph that cannot be planned."""
    _check_joins(graph)
    _check_period(graph)
    _check_lengths(graph)


def _check_joins(graph: Graph) -> None:
    """Refuse joins of branches with unequal strides, all at once."""
    _, joins = analyse_graph(graph)
    where = {node.name: node.where for node in graph.nodes}
    hint = "Stride or resample (Resize, ConvTranspose) one path so that both have one rate"
    errors = [
        Problem(where.get(note.node, note.node), note.text, "", hint) for note in joins if note.severity == "error"
    ]
    if errors:
        raise CodegenError("receptive field", errors)


def _check_period(graph: Graph) -> None:
    """Refuse schedules that take minutes to plan, before they are walked through."""
    time = graph.time_graph()
    span = period(time)
    found = f"its schedule repeats only after {span} frames"
    if span <= MAX_SPAN:
        start = warm_up(time)
        span += start
        found = f"its schedule becomes regular after {start} frames"
    if span > MAX_SPAN or span * len(time.nodes) > MAX_SPAN_NODES:
        allowed, hint = f"at most {MAX_SPAN}", "Use smaller strides and windows, or a slower frame rate"
        raise unsupported("plan", graph.name, f"{found} ({len(time.nodes)} nodes)", allowed, hint)


def _never_yields(time: TimeGraph) -> bool:
    """Whether no legal length gives a frame: the offline model is broken, but for sequences too short for any."""
    legal = plan_outputs.legal_lengths(time)
    lengths = [lengths_with_faults(time, total)[0] for total in legal.exceptions]
    return not legal.residues and not any(length[name] > 0 for length in lengths for name in time.outputs)


def _sizes(graph: Graph, node: Node, lengths: Mapping[str, int]) -> str:
    """The operands with their frames in a clip; of a stream, whose length here is one of a trial, how they differ."""
    names = list(dict.fromkeys(node.inputs))
    if graph.clip_length is not None:
        return ", ".join(f"{x} ({lengths[x]} frames)" for x in names)
    least = min(lengths[x] for x in names)
    return ", ".join(f"{x} has {lengths[x] - least} more" for x in names if lengths[x] > least)


def _check_lengths(graph: Graph) -> None:
    """Refuse a model that fails offline itself: joins of unequal lengths at its T, or at every T."""
    time = graph.time_graph()
    if graph.clip_length is not None:
        if plan_outputs.is_legal(time, graph.clip_length):
            return
        at, text = graph.clip_length, f"at T = {graph.clip_length}"
    elif _never_yields(time):
        at, text = warm_up(time) + 1, "at every length"
    else:
        return
    lengths, faults = lengths_with_faults(time, at)
    problems = []
    for node in graph.nodes:
        if node.name in faults:
            found = f"its operands have unequal lengths {text}: {_sizes(graph, node, lengths)}"
            problems.append(Problem(node.where, found, "equal lengths", "Crop or pad one branch along the stream axis"))
    raise CodegenError("plan", problems or [Problem(graph.name, f"the model yields no output {text}")])
