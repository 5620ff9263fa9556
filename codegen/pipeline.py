"""The table of contents: a model file becomes C, one stage a line. Stages are values in, values out."""

from __future__ import annotations

from pathlib import Path

from codegen import report as reporting
from codegen.emit import files
from codegen.emit.context import Compiled
from codegen.emit.names import identifier
from codegen.emit.operators import emission
from codegen.errors import CodegenError, Problem
from codegen.frontend import qdq
from codegen.frontend.read import read, require
from codegen.ir.graph import Graph
from codegen.ops.base import KernelOp
from codegen.options import Options
from codegen.passes import PASSES
from codegen.plan import streaming
from codegen.plan.layout import layout
from codegen.version import VERSION


def build(path: str | Path, options: Options | None = None) -> dict[str, str]:
    """The files of the generated folder by relative path. Same input, same text. Raises CodegenError."""
    return render(compile_model(Path(path), options or Options()))


def render(compiled: Compiled) -> dict[str, str]:
    """The text of every file of a compiled model."""
    return files.all_files(compiled)


def compile_model(path: Path, options: Options) -> Compiled:
    """All decisions about a model, before any text is written."""
    source = read(path, options.stream)
    graph = import_int8(require(source))
    extents, joins = reporting.analyse_graph(graph)
    errors = [Problem(note.node, note.text) for note in joins if note.severity == "error"]
    if errors:
        raise CodegenError("receptive field", errors)
    stream = streaming.plan(graph.time_graph(), options.hop)
    memory = layout(graph, stream)
    report = reporting.make_report(graph, extents, stream, memory, _weight_bytes(graph), options.rate, joins)
    name = options.name or identifier(path.stem).lower()
    return Compiled(graph, extents, stream, memory, report, name, path.name, source.model.digest, VERSION)


def import_int8(graph: Graph) -> Graph:
    """The int8 graph that reference and C both compute."""
    graph = qdq.to_int8(graph)
    for run in PASSES:
        graph = run(graph)
    return graph


def load_int8(path: str | Path, stream: str | None = None) -> Graph:
    """The int8 graph of a model file, as `codegen.reference.run` takes it."""
    return import_int8(require(read(Path(path), stream)))


def analyze(path: str | Path, options: Options | None = None) -> reporting.Report:
    """The report of any ONNX model: int8 where it can be built, else of its operators as they are in the file."""
    options = options or Options()
    source = read(Path(path), options.stream)
    problems = list(source.problems)
    graph = source.graph
    try:
        return compile_model(Path(path), options).report
    except CodegenError as error:
        problems += [p for p in error.problems if p not in problems]
    extents, joins = reporting.analyse_graph(graph)
    report = reporting.make_report(graph, extents, _plan_or_none(graph, options.hop), None, {}, options.rate, joins)
    notes = (*report.notes, *(f"`build` refuses it: {problem}" for problem in problems))
    return reporting.with_notes(report, notes)


def _plan_or_none(graph: Graph, hop: int) -> streaming.StreamPlan | None:
    try:
        return streaming.plan(graph.time_graph(), hop)
    except CodegenError:
        return None


def _weight_bytes(graph: Graph) -> dict[str, int]:
    result = {}
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        result[node.name] = sum(table.bytes for table in emission(node.op, "").tables.values())
    return result
