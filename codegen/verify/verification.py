from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from codegen import host, importing
from codegen.codes import INT8, UINT8, shift_of
from codegen.errors import input_error
from codegen.frontend.load import save_cut
from codegen.int8.builder import to_int8
from codegen.ir.graph import Graph, Port
from codegen.ir.periods import warm_up
from codegen.options import Options
from codegen.output_folder import write_files
from codegen.pipeline import build_files, load_int8
from codegen.plan.outputs import is_legal, next_legal
from codegen.reference import whole_clip
from codegen.verify import evidence, observe, rerun

Array = npt.NDArray[Any]
SEED = 1
CHUNKINGS: tuple[tuple[int, ...] | None, ...] = (None, (1,), (2,), (3, 1, 2), (7,), (50,))
FREE_LENGTH = 96


@dataclass(frozen=True)
class Comparison:
    """Two results of one tensor: how many values, how many differ, by how much at most (in code steps, or `unit`)."""

    what: str
    tensor: str
    values: int
    different: int
    largest: float
    first: str = ""
    unit: str = "code steps"

    @property
    def equal(self) -> bool:
        return self.different == 0


@dataclass
class Verification:
    """All comparisons of one model: C with the reference (`c`, and `stages` where traced), which must be equal, and the
    reference with onnxruntime (`runtime`: outputs, `operators`: one by one), which is evidence."""

    c: list[Comparison] = field(default_factory=list)
    stages: list[observe.StageComparison] = field(default_factory=list)
    first: str = ""
    runtime: list[Comparison] = field(default_factory=list)
    operators: dict[str, evidence.OperatorEvidence] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.mismatches == 0

    @property
    def undeclared(self) -> list[evidence.OperatorEvidence]:
        """Operators in which onnxruntime differs from the reference by more than is declared."""
        return [row for row in self.operators.values() if not row.declared]

    @property
    def values(self) -> int:
        return sum(item.values for item in self.c) + sum(item.values for item in self.stages)

    @property
    def mismatches(self) -> int:
        return sum(item.different for item in self.c) + sum(item.different for item in self.stages)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "values": self.values,
            "mismatches": self.mismatches,
            "first_difference": self.first,
            "c_against_reference": [vars(item) for item in self.c],
            "stages": [vars(item) | {"first": str(item.first or "")} for item in self.stages],
            "reference_against_onnxruntime": [vars(item) for item in self.runtime],
            "operators": [row.to_json() for row in self.operators.values()],
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """What the command line prints; the last line says whether C equals the reference."""
        lines = [f"{item.tensor}: {item.what}: {item.values} values, {_verdict(item)}" for item in self.c]
        if self.stages:
            values = sum(item.values for item in self.stages)
            bad = [item for item in self.stages if item.different]
            verdict = f"{len(bad)} differ" if bad else "equal"
            lines.append(f"traced: {len(self.stages)} stages of the nodes, {values} values, {verdict}")
        lines += [f"{item.tensor}: {item.what}: {item.values} values, {_verdict(item)}" for item in self.runtime]
        lines += _table([row for row in self.operators.values() if row.values])
        lines += [f"note: {note}" for note in self.notes]
        if self.first:
            lines.append(f"first difference: {self.first}")
        if self.passed and self.undeclared:
            which = ", ".join(row.op for row in self.undeclared)
            lines.append(
                f"DIFFERENT: C equals the reference, but onnxruntime does not beyond what is declared: {which}"
            )
        else:
            lines.append(f"{'OK' if self.passed else 'MISMATCH'}: {self.values} values, {self.mismatches} mismatches")
        return ["".join(c if c.isprintable() else "?" for c in line) for line in lines]


def _verdict(item: Comparison) -> str:
    if item.equal and item.largest:
        return f"within {item.largest:.2g} {item.unit}"
    return "equal" if item.equal else f"{item.different} differ, at most {item.largest:g} {item.unit}; {item.first}"


def _table(rows: Sequence[evidence.OperatorEvidence]) -> list[str]:
    """The reference against onnxruntime, each operator on the same input codes."""
    if not rows:
        return []
    lines = [f"{'operator':<20} {'nodes':>5} {'values':>9} {'equal':>9} {'largest':>7}  onnxruntime ran; deviation"]
    for row in rows:
        kernels = ", ".join(sorted(k for k in row.kernels if k)) or "?"
        tail = f"{kernels}{'; ' if row.deviation else ''}{row.deviation}"
        equal = row.values - row.different
        lines.append(f"{row.op:<20} {row.nodes:>5} {row.values:>9} {equal:>9} {row.largest:>7g}  {tail}")
    return lines


def verify(
    path: Path, options: Options, data: Path | None = None, compiler: str | None = None, flags: Sequence[str] = ()
) -> Verification:
    """Build, compile and stream the model on seeded random input (and on `data`, an .npz), in several push patterns."""
    if options.cut_input or options.cut_output:
        with tempfile.TemporaryDirectory() as temporary:
            part = Path(temporary) / path.name
            save_cut(path, importing.cuts(options), part)
            return verify(part, replace(options, cut_input=(), cut_output=()), data, compiler, flags)
    compiled, files = build_files(path, options)
    graph = compiled.graph
    result = Verification()
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        write_files(out, files)
        model = host.load(out, compiler, flags)
        feeds = {"random input": random_feed(graph)}
        if data is not None:
            feeds[data.name] = load_data(graph, data)
            _check_length(graph, data, feeds[data.name])
        for title, feed in feeds.items():
            want = whole_clip.run(graph, feed)
            wrong = _compare_c(result, graph, model, title, feed, want)
            if (options.trace or wrong) and not result.first:
                traced = host.load(out, compiler, flags, trace=True)
                _compare_stages(result, graph, traced, feed, want, wrong or [None, (3, 1, 2)])
            if options.endless:
                _compare_windows(result, path, options, graph, title, feed)
            else:
                _compare_runtime(result, path, graph, title, feed, want, options.state)
                if not options.state:
                    _compare_operators(result, path, options, feed)
    return result


def _compare_stages(
    result: Verification,
    graph: Graph,
    model: host.HostModel,
    feed: Mapping[str, Array],
    want: Mapping[str, Array],
    patterns: Sequence[tuple[int, ...] | None],
) -> None:
    """Every stage of every node in the first of these push patterns that shows a difference (else in all)."""
    for chunks in patterns:
        outputs = model.run(dict(feed), chunks)
        found = observe.compare_stages(graph, feed, model.trace())
        result.stages += found
        result.first = observe.first_difference(found)
        if result.first:
            return
    if not result.passed:
        same = all(np.array_equal(outputs[port.name], want[port.name]) for port in graph.outputs)
        reason = "the traced C gives the right outputs" if same else "it is where outputs are handed out"
        result.first = f"none: every stage of every node is equal; {reason}"


def _compare_windows(
    result: Verification, path: Path, options: Options, graph: Graph, title: str, feed: Mapping[str, Array]
) -> None:
    """How far the sliding stream is from running the model on every window anew (a measurement, not a test)."""
    clip = load_int8(path, replace(options, endless=False))
    sliding, again = rerun.windows(clip, graph, feed)
    delta = np.abs(sliding.astype(np.int64) - again.astype(np.int64))
    text = f"{len(sliding)} windows re-run: {int((delta > 0).sum())} of {delta.size} codes differ"
    result.notes.append(f"{title}: {text}, at most {int(delta.max(initial=0))} codes")


def random_feed(graph: Graph, length: int | None = None, seed: int = SEED) -> dict[str, Array]:
    """Uniform random codes for every input, as values of its own type and layout."""
    rng = np.random.default_rng(seed)
    total = graph.clip_length or length or _legal_length(graph)
    feed: dict[str, Array] = {}
    for port in graph.inputs:
        elements = graph.tensors[port.tensor].frame_elements
        frames = INT8.random(rng, (total, elements))
        feed[port.name] = whole_clip.dequantize_output(frames, port)
    return feed


def _legal_length(graph: Graph) -> int:
    """A legal length that fills the pipeline."""
    time = graph.time_graph()
    return next_legal(time, max(FREE_LENGTH, warm_up(time) + 16))


def load_data(graph: Graph, data: Path) -> dict[str, Array]:
    """Inputs from an .npz: by input name, or `input`, or the only array there is."""
    try:
        archive = np.load(data)
        arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise input_error(
            "verify", str(data), "not a readable .npz file", hint="Save inputs with numpy.savez"
        ) from error
    feed: dict[str, Array] = {}
    for port in graph.inputs:
        candidates = [port.name, "input", *(arrays if len(arrays) == 1 else ())]
        found = next((arrays[name] for name in candidates if name in arrays), None)
        if found is None:
            raise input_error("verify", str(data), f"no array {port.name}", f"it has {', '.join(arrays)}")
        feed[port.name] = _first_clip(found, port, steps=bool(graph.carried))
        try:
            whole_clip.to_frames(feed[port.name], port.view)
        except ValueError as error:
            where, shape = f"{data}, {port.name}", list(found.shape)
            allowed = f"the model's is {list(port.shape)}"
            raise input_error(
                "verify", where, f"shape {shape}: {error}", allowed, "Save the input as the model takes it"
            ) from error
    return feed


def _check_length(graph: Graph, data: Path, feed: Mapping[str, Array]) -> None:
    """Refuse data of a length that has no result."""
    lengths = {port.name: len(whole_clip.to_frames(feed[port.name], port.view)) for port in graph.inputs}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {n} frames" for name, n in lengths.items())
        raise input_error("verify", str(data), found, "inputs of equal length", "Cut or pad them")
    total, time = next(iter(lengths.values())), graph.time_graph()
    if graph.carried or graph.clip_length is not None or is_legal(time, total):
        return
    below = next((n for n in range(total, 0, -1) if is_legal(time, n)), 0)
    near = " and ".join(str(n) for n in (below, next_legal(time, total)) if n and is_legal(time, n))
    found = f"{total} frames: branches differ in length where they join, or it is too short"
    raise input_error("verify", str(data), found, f"the nearest lengths are {near}", "Cut or pad the data")


def _first_clip(x: Array, port: Port, steps: bool = False) -> Array:
    """One clip of an array that may hold a batch of them (or `steps`: all), in the type of the port."""
    batched = x.ndim == len(port.shape) and port.view.time_axis != 0 and port.view.shape[0] == 1 and not steps
    if batched and x.shape[0] != 1:
        x = x[:1]
    if x.dtype in (INT8.dtype, UINT8.dtype) and port.dtype == "float32" and port.qparams:
        zero = port.qparams.zero_point + shift_of(x.dtype)
        return ((x.astype(np.int32) - zero) * np.float32(port.qparams.scale)).astype(np.float32)
    return x


def _compare_c(
    result: Verification,
    graph: Graph,
    model: host.HostModel,
    title: str,
    feed: Mapping[str, Array],
    want: Mapping[str, Array],
) -> list[tuple[int, ...] | None]:
    """C against the reference's outputs `want` in several push patterns; returns those that differ."""
    wrong = []
    for chunks in CHUNKINGS:
        pattern = "one push" if chunks is None else "pushes of " + ", ".join(map(str, chunks))
        got = model.run(dict(feed), chunks)
        for port in graph.outputs:
            result.c.append(compare(f"{title}, {pattern}", port, got[port.name], want[port.name]))
            if not result.c[-1].equal and chunks not in wrong:
                wrong.append(chunks)
    return wrong


def _zeros(value: Any) -> Array:
    """Zeros in the type and shape of a session's input."""
    shape = [n if isinstance(n, int) else 1 for n in value.shape]
    return np.zeros(shape, np.float32 if "float" in value.type else np.int8 if "uint8" not in value.type else np.uint8)


def compare(what: str, port: Port, got: Array, want: Array) -> Comparison:
    """Values of one output side by side; a wrong shape counts every value as different."""
    if got.shape != want.shape:
        size = int(max(got.size, want.size, 1))
        return Comparison(what, port.name, size, size, float("inf"), f"shape {got.shape}, expected {want.shape}")
    step = port.qparams.scale if port.qparams and want.dtype == np.float32 else 1.0
    delta = np.abs(got.astype(np.float64) - want.astype(np.float64)) / step
    bad = np.argwhere(got != want)
    first = ""
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        first = f"first at {at}: {got[at]}, expected {want[at]}"
    return Comparison(what, port.name, int(want.size), len(bad), float(delta.max(initial=0.0)), first)


def _compare_output(what: str, port: Port, ours: Array, theirs: Array) -> Comparison:
    """The reference and onnxruntime: equal codes, or floats within half a code step (they decode with other sums)."""
    if ours.shape != theirs.shape:
        return compare(what, port, ours, theirs)
    steps, unit = evidence.output_difference(port, ours, theirs), "code steps"
    allowed = 0.5
    if evidence.is_sums(port):
        assert port.decoding is not None
        largest = float(np.abs(theirs).max(initial=0.0))
        allowed, unit = max(0.5 * float(port.decoding.values.min()), evidence.SUM_ERROR * largest), "(real values)"
    bad = np.argwhere(~(steps <= allowed))
    at = tuple(int(i) for i in bad[0]) if len(bad) else ()
    first = f"first at {at}: {ours[at]}, onnxruntime {theirs[at]}" if len(bad) else ""
    return Comparison(what, port.name, int(ours.size), len(bad), float(steps.max(initial=0.0)), first, unit)


def _compare_runtime(
    result: Verification,
    path: Path,
    graph: Graph,
    title: str,
    feed: Mapping[str, Array],
    reference: Mapping[str, Array],
    states: Sequence[str] = (),
) -> None:
    try:
        import onnxruntime
    except ImportError:
        result.note("onnxruntime is not installed: the reference was not compared with it")
        return
    options = evidence.session_options(onnxruntime)
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        if states:
            zeros = {i.name: _zeros(i) for i in session.get_inputs() if i.name not in feed}

            def run(x: Mapping[str, Array]) -> Mapping[str, Array]:
                return dict(zip(names, session.run(None, dict(x)), strict=True))

            want = rerun.steps(run, feed, states, zeros, graph)
        else:
            want = dict(zip(names, session.run(None, dict(feed)), strict=True))
    except Exception as error:
        result.notes.append(f"onnxruntime does not run this model on {title}: {str(error).splitlines()[0][:200]}")
        return
    for port in graph.outputs:
        theirs = np.asarray(want[port.name])
        result.runtime.append(_compare_output(f"{title}, onnxruntime", port, reference[port.name], theirs))


def _compare_operators(result: Verification, path: Path, options: Options, feed: Mapping[str, Array]) -> None:
    """Operator by operator, on the graph before passes: it has every tensor of the file."""
    try:
        import onnxruntime
    except ImportError:
        return
    graph = to_int8(importing.read(path, options).reals)
    try:
        runtime = evidence.TappedRuntime(onnxruntime, path, graph)
        notes = evidence.compare_operators(graph, runtime, feed, result.operators)
    except Exception as error:  # onnxruntime raises many types; without this evidence the outputs are still compared
        result.note(f"onnxruntime does not show its internal tensors: {str(error).splitlines()[0][:200]}")
        return
    for note in notes:
        result.note(note)
