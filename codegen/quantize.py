"""`codegen quantize`: a float model and calibration data -> a QDQ int8 model, by onnxruntime's static quantizer.

A thin layer: the choices that suit this tool (QDQ, int8 activations and weights, one weight scale per channel, MinMax),
checks of the data, and a report of what every layer lost. Needs the extra `quant` (onnxruntime).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import onnx

from codegen import importing
from codegen.errors import EXIT_UNSUPPORTED, CodegenError, input_error, printable
from codegen.frontend.load import Model, Value, load, module_path
from codegen.options import Options

STAGE = "quantize"
QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
Array = npt.NDArray[Any]
Feed = dict[str, Array]
Tell = Callable[[str], None]
COMPARED_CLIPS = 8
POOR_DB = 15.0
LOSS_DB = 3.0
WARNED = 3


@dataclass(frozen=True)
class LayerError:
    """One tensor of both models. sqnr_db: its signal to quantization noise; loss_db: how much less than its inputs'."""

    layer: str
    op: str
    path: str
    tensor: str
    sqnr_db: float
    loss_db: float


@dataclass(frozen=True)
class Quantized:
    """The result: where it is, what it was made from, what each layer lost, why `build` refuses it (if it does)."""

    output: str
    clips: int
    layers: tuple[LayerError, ...]
    notes: tuple[str, ...]
    refused: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[LayerError, ...]:
        """The layers that lose most, where the result is poor."""
        poor = [layer for layer in self.layers if layer.sqnr_db < POOR_DB and layer.loss_db >= LOSS_DB]
        return tuple(sorted(poor, key=lambda layer: -layer.loss_db)[:WARNED])

    def to_json(self) -> dict[str, Any]:
        return {
            "output": self.output,
            "clips": self.clips,
            "layers": [vars(layer) for layer in self.layers],
            "warnings": [layer.layer for layer in self.warnings],
            "notes": list(self.notes),
            "refused": list(self.refused),
        }


def quantize(path: Path, data: Path, output: Path, *, force: bool = False, tell: Tell = lambda text: None) -> Quantized:
    """Quantize a float model with the clips of an .npz; `output` is written at the end. Raises CodegenError."""
    quantization()
    check_output(path, output, force)
    model = load(path)
    if any(node.op_type in ("QuantizeLinear", "QLinearConv", "QLinearMatMul") for node in model.nodes):
        raise input_error(STAGE, str(path), "the model is quantized already", "a float model", "Use `codegen build`")
    feeds = read_clips(model, data)
    with tempfile.TemporaryDirectory(dir=output.absolute().parent) as temporary:
        prepared, made = Path(temporary) / "float.onnx", Path(temporary) / "int8.onnx"
        tell("preparing the float model")
        notes = prepare(path, prepared)
        static(prepared, made, feeds, tell=tell)
        if not finite_scales(made):
            raise not_finite(prepared, feeds) or input_error(STAGE, str(path), "a scale is not finite")
        restore_metadata(path, made)
        layers = layer_errors(prepared, made, feeds[:COMPARED_CLIPS], tell)
        os.replace(made, output)
    return Quantized(str(output), len(feeds), tuple(layers), tuple(notes), refusals(output))


def refusals(path: Path) -> tuple[str, ...]:
    """What `build` would refuse of the quantized model; options that are still to be given are no refusal."""
    try:
        _ = importing.read(path, Options()).graph
    except CodegenError as error:
        return tuple(map(str, error.problems)) if error.exit_code == EXIT_UNSUPPORTED else ()
    return ()


def quantization() -> Any:
    """The module onnxruntime.quantization, or CodegenError (2) that says how to get it."""
    try:
        import onnxruntime.quantization as module
    except ImportError as error:
        hint = "Install the extra: pip install 'onnx2stream[quant]'"
        raise input_error(STAGE, "onnxruntime", "not installed", "`quantize` needs it", hint) from error
    return module


def check_output(path: Path, output: Path, force: bool) -> None:
    """Refuse to write over the model itself, over anything without --force, or where nothing can be written."""
    if output.is_dir():
        raise input_error(STAGE, str(output), "this is a folder", "a new .onnx file", "Name the file with -o")
    if output.exists() and path.exists() and os.path.samefile(path, output):
        raise input_error(STAGE, str(output), "this is the float model itself", hint="Name another file with -o")
    if output.exists() and not force:
        raise input_error(STAGE, str(output), "it exists already", hint="Name another file, or pass --force")
    parent = output.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise input_error(STAGE, str(output), "its folder cannot be written", hint="Make the folder first")


def read_clips(model: Model, data: Path) -> list[Feed]:
    """The clips of an .npz: one array per input, by name; a leading axis may count the clips."""
    try:
        with np.load(data) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, EOFError, BadZipFile) as error:
        hint = "Save arrays named like the model's inputs with numpy.savez"
        raise input_error(STAGE, str(data), "not a readable .npz file", hint=hint) from error
    clips = {}
    for value in model.inputs:
        found = arrays.get(value.name, next(iter(arrays.values())) if len(arrays) == len(model.inputs) == 1 else None)
        if found is None:
            held = ", ".join(map(printable, arrays)) or "nothing"
            raise input_error(STAGE, str(data), f"no array {printable(value.name)}", f"it holds {held}")
        clips[value.name] = _split(value, found, data)
    counts = {name: len(parts) for name, parts in clips.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise input_error(STAGE, str(data), f"clips per input {counts}", "at least one, and as many for every input")
    return [dict(zip(clips, parts, strict=True)) for parts in zip(*clips.values(), strict=True)]


def _split(value: Value, array: Array, data: Path) -> list[Array]:
    """One array as clips of the input's rank, type and fixed dimensions."""
    where = f"array {printable(value.name)} of {data.name}"
    if value.shape is None:
        raise input_error(STAGE, f"input {printable(value.name)}", "it has no shape", "a rank is needed")
    if not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
        raise input_error(STAGE, where, "it holds values that are not finite numbers")
    rank, shape = len(value.shape), value.shape
    if array.ndim == rank + 1:
        parts = list(array)
    elif array.ndim == rank and rank and shape[0] in (1, *[s for s in shape[:1] if isinstance(s, str)]):
        parts = [array[i : i + 1] for i in range(len(array))]
    else:
        parts = [array]
    for part in parts:
        fits = part.ndim == rank and all(isinstance(n, str) or n == m for n, m in zip(shape, part.shape, strict=True))
        if not fits or part.size == 0:
            raise input_error(STAGE, where, f"shape {list(array.shape)}", f"clips of {list(shape)}, or a stack of them")
    return [np.ascontiguousarray(part, np.dtype(value.dtype)) for part in parts]


def prepare(path: Path, target: Path) -> list[str]:
    """onnxruntime's pre-processing (shape inference, BatchNormalization folded); the notes say what was left out."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    attempts: Sequence[tuple[str, dict[str, bool]]] = (
        ("", {}),
        ("symbolic shape inference failed: it was skipped", {"skip_symbolic_shape": True}),
        ("pre-processing failed: it was skipped", {"skip_symbolic_shape": True, "skip_optimization": True}),
    )
    if importlib.util.find_spec("sympy") is None:  # what symbolic shape inference needs; it matters rarely
        attempts = (("", {"skip_symbolic_shape": True}), attempts[-1])
    failure: Exception | None = None
    for note, options in attempts:
        try:
            with quiet():
                quant_pre_process(str(path), str(target), **options)
            return [note] if note else []
        except Exception as error:
            failure = error
    found = f"onnxruntime cannot prepare it ({_first_line(failure)})"
    raise input_error(STAGE, str(path), found, hint="Check the model with onnx.checker") from failure


def static(
    prepared: Path,
    target: Path,
    feeds: Sequence[Feed],
    *,
    operators: bool = False,
    unsigned: bool = False,
    per_channel: bool = True,
    tell: Tell = lambda text: None,
) -> None:
    """quantize_static with this tool's defaults; `operators` writes QLinear operators, `unsigned` uint8 activations."""
    q = quantization()

    class Reader(q.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.left = enumerate(feeds)

        def get_next(self) -> Mapping[str, Array] | None:
            i, feed = next(self.left, (0, None))
            tell(f"calibrating: clip {i + 1} of {len(feeds)}" if feed is not None else "quantizing")
            return feed

    try:
        with quiet():
            q.quantize_static(
                str(prepared),
                str(target),
                Reader(),
                quant_format=q.QuantFormat.QOperator if operators else q.QuantFormat.QDQ,
                activation_type=q.QuantType.QUInt8 if unsigned else q.QuantType.QInt8,
                weight_type=q.QuantType.QInt8,
                per_channel=per_channel,
                reduce_range=False,
                calibrate_method=q.CalibrationMethod.MinMax,
            )
    except CodegenError:
        raise
    except Exception as error:
        offending = not_finite(prepared, feeds)
        if offending is not None:
            raise offending from error
        found = f"onnxruntime cannot quantize it ({_first_line(error)})"
        raise input_error(STAGE, prepared.name, found, hint="Check the calibration data and the model") from error


def finite_scales(made: Path) -> bool:
    """Whether every scale of a quantized model is a number above 0."""
    scales = {node.input[1] for node in onnx.load(made).graph.node if node.op_type in QUANTIZERS}
    arrays = (onnx.numpy_helper.to_array(x) for x in onnx.load(made).graph.initializer if x.name in scales)
    return all(np.isfinite(array).all() and (array > 0).all() for array in arrays)


def not_finite(prepared: Path, feeds: Sequence[Feed]) -> CodegenError | None:
    """Where a float model leaves the numbers on these clips first (log of 0, 1 / 0, an overflow); None: nowhere."""
    model = onnx.load(prepared)
    known = {x.name for x in onnx.load(prepared).graph.value_info if x.type.tensor_type.elem_type == 1}
    names = [name for node in model.graph.node for name in node.output if name in known]
    try:
        session = _session(model, names)
    except Exception:  # a model that onnxruntime does not run at all: the caller has its words for that
        return None
    for feed in feeds:
        values = session(feed)
        for node in model.graph.node:
            for name in node.output:
                if name in values and not np.isfinite(values[name]).all():
                    bad = values[name][~np.isfinite(values[name])]
                    found = f"its result is {bad[0]} in {bad.size} of {values[name].size} values of a calibration clip"
                    hint = "Keep its operand where it is defined (a Clip or a small constant before it)"
                    return input_error(STAGE, f"{node.name or name} ({node.op_type})", found, "finite numbers", hint)
    return None


def restore_metadata(source: Path, made: Path) -> None:
    """Give nodes of the quantized model the metadata (module paths) that onnxruntime's optimizer dropped."""
    before = onnx.load(source, load_external_data=False).graph.node
    known = {key: node for node in before for key in (*node.output, node.name) if key and node.metadata_props}
    model = onnx.load(made)
    for node in model.graph.node:
        keys = [node.name, *(name.removesuffix("_QuantizeLinear_Input") for name in node.output)]
        origin = next((known[key] for key in keys if key in known), None)
        if origin is not None and not node.metadata_props and node.op_type not in QUANTIZERS:
            node.metadata_props.extend(origin.metadata_props)
    onnx.save(model, made)


def layer_errors(prepared: Path, made: Path, feeds: Sequence[Feed], tell: Tell = lambda text: None) -> list[LayerError]:
    """Signal to noise of every tensor that both models have, in the float model's order."""
    floats, int8 = onnx.load(prepared), onnx.load(made)
    known = {name for node in int8.graph.node for name in node.output}
    # A quantized tensor is read behind its DequantizeLinear; unquantized ones keep their name.
    pairs = {}
    inputs = [value.name for value in floats.graph.input]
    for name in (*inputs, *(name for node in floats.graph.node for name in node.output if name)):
        dequantized = f"{name}_DequantizeLinear_Output"
        if dequantized in known or name in known:
            pairs[name] = dequantized if dequantized in known else name
    totals = {name: [0.0, 0.0] for name in pairs}
    made_here = [name for name in pairs if name not in inputs]
    ours, theirs = _session(floats, made_here), _session(int8, list(dict.fromkeys(pairs.values())))
    for i, feed in enumerate(feeds):
        tell(f"comparing: clip {i + 1} of {len(feeds)}")
        want, got = feed | ours(feed), theirs(feed)
        for name, other in pairs.items():
            if want[name].dtype == np.float32 and want[name].shape == got[other].shape:
                finite = np.isfinite(want[name])
                x, y = (values[finite].astype(np.float64) for values in (want[name], got[other]))
                totals[name][0] += float(np.sum(x * x))
                totals[name][1] += float(np.sum((x - y) ** 2))
    sqnr = {name: decibels(signal, noise) for name, (signal, noise) in totals.items() if signal > 0.0}
    return _rows(floats, sqnr, {node.name: module_path(node) for node in int8.graph.node})


def _rows(model: onnx.ModelProto, sqnr: Mapping[str, float], paths: Mapping[str, str]) -> list[LayerError]:
    rows = []
    for node in model.graph.node:
        for name in node.output:
            if name in sqnr:
                before = min((sqnr[x] for x in node.input if x in sqnr), default=sqnr[name])
                title, loss = node.name or name, max(0.0, before - sqnr[name])
                rows.append(LayerError(title, node.op_type, paths.get(node.name, ""), name, sqnr[name], loss))
    return rows


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise), at most 200."""
    return 200.0 if noise <= signal * 1e-20 else 10.0 * math.log10(signal / noise)


def _session(model: onnx.ModelProto, outputs: Sequence[str]) -> Callable[[Feed], dict[str, Array]]:
    """The model as a function that returns these tensors too."""
    import onnxruntime

    have = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name not in have)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feed: dict(zip(outputs, session.run(list(outputs), feed), strict=True))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No log lines of the quantizer: what matters is in our own report."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(open(os.devnull, "w", encoding="utf-8")):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception | None) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
