"""The table of contents: a model file becomes C, one stage a line. Stages are values in, values out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from codegen import budgets, importing
from codegen.emit import files
from codegen.emit.model import Compiled
from codegen.emit.model_name import default_name
from codegen.emit.names import make_names
from codegen.emit.tables import all_tables
from codegen.errors import CodegenError
from codegen.importing import Source
from codegen.ir.graph import Graph
from codegen.kernels import KERNELS, emissions
from codegen.notes import Kind, Note, kind_of
from codegen.options import Options
from codegen.plan import choose, streaming
from codegen.plan.choose import Chosen
from codegen.plan.hops import hop_rows
from codegen.plan.kernels import TARGETS
from codegen.plan.layout import Layout
from codegen.plan.receptive_field import analyse_graph
from codegen.report.make import make_report, with_constants, with_notes
from codegen.report.rows import Report, TileRow
from codegen.version import VERSION


def build(path: str | Path, options: Options | None = None) -> dict[str, str]:
    """The files of the generated folder by relative path. Same input, same text. Raises CodegenError."""
    return build_files(Path(path), options or Options())[1]


def build_files(path: Path, options: Options) -> tuple[Compiled, dict[str, str]]:
    """A compiled model and its files, within the budgets of the options."""
    source = importing.read(path, options)
    chosen = planned(source)
    compiled = compile_chosen(path, source.model.digest, chosen, options)
    made = render(compiled)
    budgets.check(compiled, options, made, lambda other: _memory_or_none(source.with_options(other)))
    return compiled, made


def planned(source: Source) -> Chosen:
    """Schedule, kernels and memory of a model that was read."""
    return choose.plan(source.graph, lambda: source.whole, source.options, KERNELS)


def _memory_or_none(source: Source) -> Layout | None:
    """The memory plan alone, or None where the model cannot be built with these options."""
    try:
        return planned(source).memory
    except CodegenError:
        return None


def render(compiled: Compiled) -> dict[str, str]:
    """The text of every file of a compiled model."""
    return files.all_files(compiled)


def compile_model(path: Path, options: Options) -> Compiled:
    """All decisions about a model, before any text is written."""
    source = importing.read(path, options)
    return compile_chosen(path, source.model.digest, planned(source), options)


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


def _with_cost(note: str, memory: Layout) -> str:
    """What it costs that a clip cannot be streamed."""
    if kind_of(note) is not Kind.WHOLE_CLIP:
        return note
    return Note(f"{note}; tensors are kept whole, {memory.scratch_bytes} B of scratch", Kind.WHOLE_CLIP)


def load_int8(path: str | Path, options: Options | None = None) -> Graph:
    """The int8 graph of a model file, as `codegen.reference.run` takes it."""
    return importing.read(Path(path), options or Options()).graph


def analyze(path: str | Path, options: Options | None = None) -> Report:
    """The report of any ONNX model: int8 where it can be built, else of its operators as they are in the file."""
    options = options or Options()
    source = importing.read(Path(path), options)
    try:
        return compile_chosen(Path(path), source.model.digest, planned(source), options).report
    except CodegenError as error:
        refused = error.problems
    graph = source.as_written.graph
    told = {problem.where for problem in refused}
    problems = [*refused, *(p for p in source.as_written.problems if p.where not in told)]
    extents, joins = analyse_graph(graph)
    report = make_report(graph, extents, _plan_or_none(graph, options.hop), None, {}, options.rate, joins)
    hints = importing.state_hints(graph, options)
    problems += importing.refused_after_quantization(graph)
    notes = (*report.notes, *hints, *(Note(f"`build` refuses it: {problem}", Kind.REFUSED) for problem in problems))
    return with_notes(report, notes)


def _plan_or_none(graph: Graph, hop: int) -> streaming.StreamPlan | None:
    try:
        return streaming.plan(graph.time_graph(), hop)
    except CodegenError:
        return None
