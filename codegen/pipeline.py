"""The table of contents: a model file becomes C, one stage a line. Stages are values in, values out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from codegen import budgets
from codegen.emit import files
from codegen.emit.model import Compiled
from codegen.emit.model_name import default_name
from codegen.emit.names import make_names
from codegen.emit.tables import all_tables
from codegen.errors import CodegenError, Problem, unsupported
from codegen.frontend.cut import Cuts
from codegen.frontend.read import ReadModel, read, require
from codegen.int8.builder import to_int8
from codegen.ir.graph import Graph
from codegen.ir.time import Unstreamable
from codegen.kernels import KERNELS, emissions
from codegen.options import Options
from codegen.passes import PASSES
from codegen.passes.carry_state import carry_state, hints
from codegen.passes.hybrid import estimate, hybrids, kept_bytes
from codegen.passes.make_endless import make_endless
from codegen.plan import outputs as plan_outputs
from codegen.plan import streaming
from codegen.plan.hops import hop_rows
from codegen.plan.kernels import TARGETS, Choices, choose
from codegen.plan.layout import Layout, layout_below
from codegen.plan.order import orders
from codegen.plan.rules import ended_tensors, lengths_with_faults
from codegen.plan.tiling import TilePlan, plan_layers
from codegen.report.make import analyse_graph, make_report, with_constants, with_notes
from codegen.report.rows import PlanRow, Report, TileRow
from codegen.version import VERSION

WHOLE_CLIP = "one push is the whole clip"

# Frames that a schedule may take to repeat, and times its nodes: planning walks through them.
MAX_SPAN = 1 << 17
MAX_SPAN_NODES = 1 << 22

MAX_CUTS = 48
"""Cuts of a clip that are planned, those that promise most first: very deep networks have hundreds."""


def build(path: str | Path, options: Options | None = None) -> dict[str, str]:
    """The files of the generated folder by relative path. Same input, same text. Raises CodegenError."""
    return build_files(Path(path), options or Options())[1]


def build_files(path: Path, options: Options) -> tuple[Compiled, dict[str, str]]:
    """A compiled model and its files, within the budgets of the options."""
    compiled = compile_model(path, options)
    made = render(compiled)
    budgets.check(compiled, options, made, lambda other: _memory_or_none(path, other))
    return compiled, made


def _memory_or_none(path: Path, options: Options) -> Layout | None:
    """The memory plan alone, or None where the model cannot be built with these options."""
    try:
        return choose_plan(path, import_model(path, options)[1], options).memory
    except CodegenError:
        return None


def render(compiled: Compiled) -> dict[str, str]:
    """The text of every file of a compiled model."""
    return files.all_files(compiled)


def compile_model(path: Path, options: Options) -> Compiled:
    """All decisions about a model, before any text is written."""
    source, graph = import_model(path, options)
    graph = replace(graph, notes=(*graph.notes, *_state_hints(graph, options)))
    _check_joins(graph)
    _check_period(graph)
    _check_lengths(graph)
    return compile_chosen(path, source.model.digest, choose_plan(path, graph, options), options)


def compile_chosen(path: Path, digest: str, chosen: Chosen, options: Options) -> Compiled:
    """What can be said and emitted of a model once its plan is chosen."""
    graph, stream, memory = chosen.graph, chosen.stream, chosen.memory
    extents, joins = analyse_graph(graph)
    graph = replace(graph, notes=tuple(_with_cost(note, memory) for note in graph.notes))
    target = TARGETS[options.target]
    made = emissions(graph, memory, chosen.kernels, chosen.tiles, target)
    weights = {name: sum(table.bytes for table in node.tables.values()) for name, node in made.items()}
    report = make_report(graph, extents, stream, memory, weights, options.rate, joins, chosen.kernels, target)
    report = replace(report, hops=tuple(hop_rows(graph, weights, stream, memory, chosen.kernels)), plan=chosen.row)
    named = {node.name: node.onnx_name for node in graph.nodes}
    report = replace(report, tiles=tuple(TileRow(named[name], plan) for name, plan in chosen.tiles.items()))
    name, note = (options.name, "") if options.name else default_name(path)
    report = with_notes(report, (*report.notes, *([note] if note else ())))
    names = make_names(graph, name)
    tables = all_tables(graph, memory, made, names)
    report = with_constants(report, tables.bytes, sum(node.struct_bytes for node in made.values()))
    return Compiled(
        graph,
        extents,
        stream,
        memory,
        chosen.tiles,
        made,
        names,
        tables,
        report,
        name,
        path.name,
        digest,
        VERSION,
        target.name,
        options.shared_runtime,
        options.trace,
    )


@dataclass(frozen=True)
class Chosen:
    """A graph with its schedule, memory and tiles (of all layers that could be cut), and how it was chosen."""

    graph: Graph
    stream: streaming.StreamPlan
    memory: Layout
    kernels: Choices
    row: PlanRow
    tiles: dict[str, TilePlan] = field(default_factory=dict)


def choose_plan(path: Path, graph: Graph, options: Options) -> Chosen:
    """The plan that the options name; with `auto` the one of a clip that needs the least RAM, streamed if equal.

    All of them compute every frame once, so none has fewer MACs than another. `graph` is the imported model; its nodes
    run in the order of the file, or in another one that needs less.
    """
    whole = all(port.view.time_axis is None for port in graph.inputs)
    row = PlanRow("whole" if whole else "stream")
    streamed = None
    for ordered in orders(graph):
        streamed = _with_memory(ordered, options, row, streamed and streamed.memory.ram_bytes) or streamed
    assert streamed is not None
    best = streamed
    tried: list[tuple[str, int | None]] = [("", streamed.memory.ram_bytes)]
    found = list(_hybrids(path, graph, options)) if options.plan in ("auto", "hybrid") and not whole else []
    if options.plan == "hybrid" and not found:
        raise _no_cut(graph, whole)
    found = sorted(found, key=lambda pair: estimate(pair[1], streamed.stream.keep))[:MAX_CUTS]
    limit = None if options.plan == "hybrid" else streamed.memory.ram_bytes
    failed: CodegenError | None = None
    for at, cut in found:
        size = None
        for ordered in orders(cut) if limit is None or kept_bytes(cut) < limit else ():
            try:
                other = _with_memory(ordered, options, PlanRow("hybrid", at), limit)
            except CodegenError as error:  # a layer of the tail has no tile that fits
                failed = error
                break
            if other is not None:
                size = limit = other.memory.ram_bytes
                note = _cut_note(at, streamed.memory.ram_bytes, limit)
                best = replace(other, graph=replace(ordered, notes=(*ordered.notes, note)))
        tried.append((at, size))
    if options.plan == "hybrid" and best is streamed and failed is not None:
        raise failed
    return replace(best, row=replace(best.row, tried=tuple(tried)))


def _with_memory(graph: Graph, options: Options, row: PlanRow, limit: int | None = None) -> Chosen | None:
    """Schedule, tiles and memory of a graph; None where it does not need less than `limit` bytes."""
    hop = 1 if graph.carried else min(options.hop, graph.clip_length or options.hop)
    stream = streaming.plan(graph.time_graph(), hop)
    tiles: dict[str, TilePlan] = {}
    copied = 0
    if options.fast_memory is not None or options.cores > 1:
        tiles = plan_layers(graph, options.fast_memory, options.cores)
        if options.fast_memory is not None:
            copied = max((plan.working_set_bytes for plan in tiles.values() if plan.is_cut), default=0)
    cut = [name for name, plan in tiles.items() if plan.is_cut]
    kernels = choose(graph, TARGETS[options.target], cut, KERNELS)
    memory = layout_below(graph, stream, kernels, limit)
    if memory is None:
        return None
    memory = replace(memory, fast_bytes=copied, cores=options.cores)
    if limit is not None and memory.ram_bytes >= limit:
        return None
    return Chosen(graph, stream, memory, kernels, row, tiles)


def _hybrids(path: Path, graph: Graph, options: Options) -> Iterator[tuple[str, Graph]]:
    """Every cut of a clip between a streamed head and a tail that runs layer by layer, by its ONNX name."""
    if graph.clip_length is None or any(port.view.time_axis is not None for port in graph.outputs):
        return
    try:
        _, whole = import_model(path, replace(options, plan="whole", stream=None))
    except CodegenError:
        return
    for name, cut in hybrids(graph, whole):
        yield cut.tensors[name].onnx_name or name, cut


def _cut_note(at: str, streamed: int, needed: int) -> str:
    """What a hybrid costs and saves."""
    text = f"hybrid: all frames of {at} are kept, and what follows runs layer by layer once the last one is there; "
    return f"{text}{needed} B of state and scratch, {streamed} B if all streamed"


def _no_cut(graph: Graph, whole: bool) -> CodegenError:
    if whole:
        found, hint = "a model that has no stream axis", "Leave --plan out, or name the axis with --stream"
    elif graph.clip_length is None:
        found, hint = "an endless stream: it has no end at which layers could run", "Leave --plan out, or fix T"
    else:
        found = "no tensor of the clip is all that the rest of the network depends on, or an output is a stream"
        hint = "Use --plan stream or whole"
    return unsupported("plan", graph.name, f"--plan hybrid for {found}", "a clip with outputs at its end", hint)


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
    span = streaming.period(time)
    found = f"its schedule repeats only after {span} frames"
    if span <= MAX_SPAN:
        start = streaming.warm_up(time)
        span += start
        found = f"its schedule becomes regular after {start} frames"
    if span > MAX_SPAN or span * len(time.nodes) > MAX_SPAN_NODES:
        allowed, hint = f"at most {MAX_SPAN}", "Use smaller strides and windows, or a slower frame rate"
        raise unsupported("plan", graph.name, f"{found} ({len(time.nodes)} nodes)", allowed, hint)


def _check_lengths(graph: Graph) -> None:
    """Refuse a model that fails offline itself: joins of unequal lengths at its T, or at every T."""
    time = graph.time_graph()
    if graph.clip_length is not None:
        if plan_outputs.is_legal(time, graph.clip_length):
            return
        at, text = graph.clip_length, f"at T = {graph.clip_length}"
    elif plan_outputs.legal_lengths(time).never:
        at, text = streaming.warm_up(time) + 1, "at every length"
    else:
        return
    lengths, faults = lengths_with_faults(time, at)
    problems = []
    for node in graph.nodes:
        if node.name in faults:
            sizes = ", ".join(f"{x} ({lengths[x]} frames)" for x in dict.fromkeys(node.inputs))
            found = f"its operands have unequal lengths {text}: {sizes}"
            problems.append(Problem(node.where, found, "equal lengths", "Crop or pad one branch along the stream axis"))
    raise CodegenError("plan", problems or [Problem(graph.name, f"the model yields no output {text}")])


def import_model(path: Path, options: Options) -> tuple[ReadModel, Graph]:
    """The file, and the int8 graph that reference and C both compute."""
    whole = options.state or options.plan == "whole"
    source = read(path, "none" if whole else options.stream, cuts(options))
    may_be_whole = options.plan == "auto" and options.stream is None and not options.endless and _is_clip(source.graph)
    try:
        graph = import_int8(require(source), options)
    except CodegenError as error:
        first = error.problems[0]
        made = _whole(path, options, f"{first.where}: {first.found}") if may_be_whole else None
        if made is None:
            raise CodegenError(error.stage, [*error.problems, *_more(source, error)], error.exit_code) from error
        return made
    if _waits_for_whole_clip(graph):
        made = _whole(path, options, "a branch needs the whole clip before the rest can go on")
        if made is not None:
            return made
    return source, graph


def cuts(options: Options) -> Cuts:
    """The part of the model that the options ask for."""
    return Cuts(tuple(options.cut_input), tuple(options.cut_output))


def _state_hints(graph: Graph, options: Options) -> list[str]:
    """A note where a model has inputs and outputs that look like state, and the user has named none."""
    found = [] if options.state else hints(graph)
    if not found:
        return []
    flags = " ".join(f"--state {pair}" for pair in found)
    return [f"{', '.join(found)} look like state tensors: {flags} carries them from step to step"]


def _more(source: ReadModel, error: CodegenError) -> list[Problem]:
    """What later stages would refuse of an endless stream: all problems of a model in one go."""
    graph, known = source.graph, {problem.where for problem in error.problems}
    if graph.clip_length is not None:
        return []
    where = {node.name: node.where for node in graph.nodes}
    _, joins = analyse_graph(graph)
    faults = [Problem(where.get(note.node, note.node), note.text) for note in joins if note.severity == "error"]
    for node in graph.nodes:
        rule = node.op.rule()
        if isinstance(rule, Unstreamable):
            faults.append(Problem(node.where, f"{rule.reason}: every output frame reads the whole sequence"))
    return [fault for fault in faults if fault.where not in known]


def _is_clip(graph: Graph) -> bool:
    """Whether a stream axis of fixed length was found, so that the model could be built without one."""
    return graph.clip_length is not None and any(port.view.time_axis is not None for port in graph.inputs)


def _whole(path: Path, options: Options, reason: str) -> tuple[ReadModel, Graph] | None:
    """The model with one push for the whole input, and a note why; None where it cannot be built so either."""
    try:
        source = read(path, "none", cuts(options))
        graph = import_int8(require(source), options)
    except CodegenError:
        return None
    return source, replace(graph, notes=(*graph.notes, f"{WHOLE_CLIP}: {reason}"))


def _with_cost(note: str, memory: Layout) -> str:
    """What it costs that a clip cannot be streamed."""
    if not note.startswith(WHOLE_CLIP):
        return note
    return f"{note}; tensors are kept whole, {memory.scratch_bytes} B of scratch"


def _waits_for_whole_clip(graph: Graph) -> bool:
    """Whether a clip joins a stream with what exists only at its end (squeeze and excite, attention over time)."""
    time = graph.time_graph()
    ended = ended_tensors(time)
    mixed = any(0 < sum(x in ended for x in node.inputs) < len(node.inputs) for node in time.nodes)
    return graph.clip_length is not None and mixed


def import_int8(graph: Graph, options: Options) -> Graph:
    """Reals and codes -> int8 operators, as the options ask for."""
    graph = to_int8(graph)
    for run in PASSES:
        graph = run(graph)
    if options.endless:
        graph, problems = make_endless(graph)
        if problems:
            raise CodegenError("endless", problems)
    return carry_state(graph, options.state, options.state_output)


def load_int8(path: str | Path, options: Options | None = None) -> Graph:
    """The int8 graph of a model file, as `codegen.reference.run` takes it."""
    return import_model(Path(path), options or Options())[1]


def analyze(path: str | Path, options: Options | None = None) -> Report:
    """The report of any ONNX model: int8 where it can be built, else of its operators as they are in the file."""
    options = options or Options()
    try:
        return compile_model(Path(path), options).report
    except CodegenError as error:
        refused = error.problems
    source = read(Path(path), options.stream, cuts(options))
    graph = source.graph
    problems = [*source.problems, *(p for p in refused if p not in source.problems)]
    extents, joins = analyse_graph(graph)
    report = make_report(graph, extents, _plan_or_none(graph, options.hop), None, {}, options.rate, joins)
    notes = (*report.notes, *_state_hints(graph, options), *(f"`build` refuses it: {problem}" for problem in problems))
    return with_notes(report, notes)


def _plan_or_none(graph: Graph, hop: int) -> streaming.StreamPlan | None:
    try:
        return streaming.plan(graph.time_graph(), hop)
    except CodegenError:
        return None
