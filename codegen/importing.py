"""A file -> the int8 graphs that it can be built as: streamed, or whole with one push for everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from codegen.errors import CodegenError, Problem
from codegen.frontend.cut import Cuts
from codegen.frontend.load import Model, load
from codegen.frontend.read import ReadModel, read_model, require
from codegen.int8.builder import FORM_HINT, to_int8
from codegen.int8.expressions import has_integer_form, kind_name
from codegen.ir.graph import Graph
from codegen.ir.lengths import ended_tensors
from codegen.ir.real import Dequantize, Quantize
from codegen.ir.time import Unstreamable
from codegen.notes import Kind, Note
from codegen.options import Options
from codegen.passes import PASSES
from codegen.passes.carry_state import carry_state, hints
from codegen.passes.check_graph import check_graph
from codegen.passes.make_endless import make_endless
from codegen.plan.receptive_field import analyse_graph


@dataclass(frozen=True)
class Source:
    """A file that was read once, and what the user wants of it."""

    model: Model
    options: Options

    @cached_property
    def read(self) -> ReadModel:
        """The graph of reals and codes, and what stands in the way."""
        whole = self.options.state or self.options.plan == "whole"
        return read_model(self.model, "none" if whole else self.options.stream)

    @cached_property
    def as_written(self) -> ReadModel:
        """The same along the stream axis, also where the options ask for another plan."""
        return read_model(self.model, self.options.stream)

    @cached_property
    def graph(self) -> Graph:
        """The int8 graph that reference and C both compute. Raises CodegenError."""
        graph = self._taken[1]
        return replace(graph, notes=(*graph.notes, *state_hints(graph, self.options)))

    @property
    def reals(self) -> Graph:
        """The graph of reals and codes that `graph` was made of. Raises CodegenError."""
        return self._taken[0]

    @property
    def whole(self) -> Graph | None:
        """The same model with one push for the whole input, None where it cannot be built so."""
        return None if isinstance(self._whole, CodegenError) else self._whole[1]

    @cached_property
    def _whole(self) -> tuple[Graph, Graph] | CodegenError:
        """Reals and int8 of the whole model, or why there is none."""
        try:
            reals = require(read_model(self.model, "none"))
            return reals, import_int8(reals, replace(self.options, plan="whole", stream=None))
        except CodegenError as error:
            return error

    def with_options(self, options: Options) -> Source:
        """The same file for another wish."""
        return Source(self.model, options)

    @cached_property
    def _taken(self) -> tuple[Graph, Graph]:
        """Streamed if that is possible, else whole: reals and int8."""
        try:
            reals = require(self.read)
            graph = import_int8(reals, self.options)
        except CodegenError as error:
            first = error.problems[0]
            if not self._may_be_whole():
                raise CodegenError(error.stage, [*error.problems, *self._more(error)], error.exit_code) from error
            taken = self._fallen_back(f"{first.where}: {first.found}")
            if taken is None:
                raise self._what_counts(error) from error
            return taken
        if _waits_for_whole_clip(graph):
            return self._fallen_back("a branch needs the whole clip before the rest can go on") or (reals, graph)
        return reals, graph

    def _may_be_whole(self) -> bool:
        """Whether a stream axis of fixed length was found, so that the model could be built without one."""
        graph = self.read.graph
        clip = graph.clip_length is not None and any(port.view.time_axis is not None for port in graph.inputs)
        return self.options.plan == "auto" and not self.options.endless and clip

    def _what_counts(self, streamed: CodegenError) -> CodegenError:
        """Of a clip that can neither stream nor run whole: what blocks both, else what blocks the plan that could."""
        whole = self._whole
        assert isinstance(whole, CodegenError)
        both = [p for p in whole.problems if p.where in {problem.where for problem in streamed.problems}]
        if both:
            return CodegenError(whole.stage, both, whole.exit_code)
        first = streamed.problems[0]
        more = Problem(first.where, f"it cannot stream either: {first.found}", first.allowed, first.hint)
        return CodegenError(whole.stage, [*whole.problems, more], whole.exit_code)

    def _fallen_back(self, reason: str) -> tuple[Graph, Graph] | None:
        """The whole model with a note why; None where it cannot be built so either."""
        if isinstance(self._whole, CodegenError):
            return None
        reals, graph = self._whole
        return reals, replace(graph, notes=(*graph.notes, Note(f"{Kind.WHOLE_CLIP.value}: {reason}", Kind.WHOLE_CLIP)))

    def _more(self, error: CodegenError) -> list[Problem]:
        """What later stages would refuse of an endless stream: all problems of a model in one go."""
        graph, known = self.read.graph, {problem.where for problem in error.problems}
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


def read(path: Path, options: Options) -> Source:
    """The file as a source of graphs; the only place that reads it."""
    return Source(load(path, cuts(options)), options)


def cuts(options: Options) -> Cuts:
    """The part of the model that the options ask for."""
    return Cuts(tuple(options.cut_input), tuple(options.cut_output))


def import_int8(graph: Graph, options: Options) -> Graph:
    """Reals and codes -> int8 operators, as the options ask for."""
    graph = check_graph(to_int8(graph), "to_int8")
    for run in PASSES:
        graph = check_graph(run(graph), run.__name__)
    if options.endless:
        graph, problems = make_endless(graph)
        if problems:
            raise CodegenError("endless", problems)
        check_graph(graph, "make_endless")
    return check_graph(carry_state(graph, options.state, options.state_output), "carry_state")


def refused_after_quantization(graph: Graph) -> list[Problem]:
    """What stays in the way of a float model once it is quantized: operators without an integer form."""
    if any(isinstance(node.op, Quantize | Dequantize) for node in graph.nodes):
        return []
    return [
        Problem(node.where, f"{kind_name(node)} has no integer form, also after quantization", "", FORM_HINT)
        for node in graph.nodes
        if not has_integer_form(node.op)
    ]


def state_hints(graph: Graph, options: Options) -> list[str]:
    """A note where a model has inputs and outputs that look like state, and the user has named none."""
    found = [] if options.state else hints(graph)
    if not found:
        return []
    flags = " ".join(f"--state {pair}" for pair in found)
    return [f"{', '.join(found)} look like state tensors: {flags} carries them from step to step"]


def _waits_for_whole_clip(graph: Graph) -> bool:
    """Whether a clip joins a stream with what exists only at its end (squeeze and excite, attention over time)."""
    time = graph.time_graph()
    ended = ended_tensors(time)
    mixed = any(0 < sum(x in ended for x in node.inputs) < len(node.inputs) for node in time.nodes)
    return graph.clip_length is not None and mixed
