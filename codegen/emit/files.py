"""All files of the generated folder, by relative path."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from codegen.codes import INT8, shift_of
from codegen.emit import render
from codegen.emit.context import model_context, units
from codegen.emit.model import Compiled
from codegen.emit.tables import table_context
from codegen.emit.wrap import wrapped
from codegen.ir.graph import Decoding, Port
from codegen.ir.view import View
from codegen.kernels.literals import rows
from codegen.output_folder import digest
from codegen.plan.outputs import next_legal
from codegen.reference.whole_clip import run_codes
from codegen.report import html

MANIFEST_SCHEMA = "onnx2stream manifest 1"
GOLDEN_SEED = 20240229
GOLDEN_BYTES = 1 << 14
TRACE_ON = "#define RT_TRACE 1"
TRACE_OFF = f"/* {TRACE_ON} */"


def all_files(c: Compiled) -> dict[str, str]:
    context = model_context(c)
    context["tables"] = [table_context(key, table) for key, table in c.tables.values.items()]
    files = {
        f"src/{c.name}.h": render.render("model.h.j2", context),
        f"src/{c.name}.c": render.render("model.c.j2", context),
        f"src/{c.name}_float.h": render.render("float.h.j2", context),
        f"src/{c.name}_weights.h": render.render("weights.h.j2", context),
        f"src/{c.name}_weights.c": render.render("weights.c.j2", context),
    }
    runtime = {f"src/{name}": text for name, text in render.runtime_files(units(c)).items()}
    if c.trace:
        runtime["src/rt_trace.h"] = runtime["src/rt_trace.h"].replace(TRACE_OFF, TRACE_ON)
    if c.shared_runtime:
        files = {path: wrapped(text) for path, text in files.items()} | runtime
    else:
        files = {path: wrapped(text) for path, text in render.own_files(files | runtime, c.name).items()}
    sources = sorted(path for path in files if path.endswith(".c"))
    golden = _golden(c)
    outer = context | {"sources": sources, "report": c.report, "golden": golden}
    files["test/selftest.h"] = render.render("test/selftest.h.j2", outer)
    files["test/selftest.c"] = render.render("test/selftest.c.j2", outer)
    files["test/main.c"] = render.render("test/main.c.j2", outer)
    files["CMakeLists.txt"] = render.render("CMakeLists.txt.j2", outer)
    files["README.md"] = render.render("README.md.j2", outer)
    files["report.html"] = html.page(c.report, c.source)
    files["report.json"] = json.dumps(c.report.to_json(), indent=1) + "\n"
    digests = {path: digest(text.encode()) for path, text in sorted(files.items())}
    files["manifest.json"] = json.dumps(_manifest(c, context, sources, digests), indent=1) + "\n"
    return dict(sorted(files.items()))


def _golden(c: Compiled) -> dict[str, Any]:
    """A seeded input clip and the reference's output, at most about GOLDEN_BYTES of input."""
    frame = max(c.graph.tensors[p.tensor].frame_bytes for p in c.graph.inputs)
    rng = np.random.default_rng(GOLDEN_SEED)
    total = c.graph.clip_length or _golden_length(c, max(4, GOLDEN_BYTES // frame))
    inputs = {p.tensor: INT8.random(rng, (total, c.graph.tensors[p.tensor].frame_elements)) for p in c.graph.inputs}
    codes = run_codes(c.graph, inputs)
    return {
        "frames": total,
        "inputs": [_golden_port(p, codes[p.tensor]) for p in c.graph.inputs],
        "outputs": [_golden_port(p, codes[p.tensor]) for p in c.graph.outputs],
    }


def _golden_length(c: Compiled, most: int) -> int:
    """A legal length that fills the pipeline where that is affordable."""
    return next_legal(c.graph.time_graph(), min(most, c.plan.warm_up + 4 * c.plan.period + 16))


def _golden_port(port: Port, codes: Any) -> dict[str, Any]:
    values = codes.reshape(-1).astype(np.int64) + shift_of(port.border.dtype)
    return {
        "count": int(values.size),
        "frames": int(codes.shape[0]),
        "rows": rows(values, port.border.ctype) if values.size else "    0",
        "size": max(1, int(values.size)),
    }


def _manifest(c: Compiled, context: dict[str, Any], sources: list[str], digests: dict[str, str]) -> dict[str, Any]:
    return {
        "schema": MANIFEST_SCHEMA,
        "tool": f"onnx2stream {c.version}",
        "name": c.name,
        "model": c.source,
        "sha256": c.digest,
        "hop": c.plan.hop,
        "clip_length": c.graph.clip_length,
        "single": context["single"],
        "memory": {"state_bytes": c.layout.state_bytes, "scratch_bytes": c.layout.scratch_bytes},
        "sources": sources,
        "trace": c.trace,
        "runtime": "rt" if c.shared_runtime else f"{c.name}_rt",
        "nodes": [node.name for node in c.graph.nodes],
        "files": digests,
        "inputs": [_manifest_port(p, v) for p, v in zip(c.graph.inputs, context["inputs"], strict=True)],
        "outputs": [_manifest_port(p, v) for p, v in zip(c.graph.outputs, context["outputs"], strict=True)],
    }


def _manifest_port(port: Port, values: dict[str, Any]) -> dict[str, Any]:
    q = port.qparams
    return {
        "name": port.name,
        "id": values["id"],
        "dtype": port.dtype,
        "code_dtype": values["ctype"].removesuffix("_t"),
        "shape": list(port.shape),
        "scale": _scale(port),
        "decoding": None if port.decoding is None else _decoding(port.decoding),
        "zero_point": None if q is None else values["zero_point"],
        "stream_axis": port.view.time_axis,
        "frame_elements": values["bytes"],
        "axes": view_to_json(port.view),
        **({"max_out": values["bound"]} if "bound" in values else {}),
    }


def _scale(port: Port) -> float | list[float] | None:
    """Real value of one code step; of accumulators one per channel; None where a table says it."""
    if port.decoding is not None and port.decoding.kind == "accumulator":
        return [float(v) for v in port.decoding.values]
    return None if port.qparams is None else port.qparams.scale


def _decoding(decoding: Decoding) -> dict[str, Any]:
    return {"kind": decoding.kind, "bits": decoding.values.astype(np.float32).view(np.uint32).tolist()}


def view_to_json(view: View) -> list[list[list[int | None]]]:
    """[size, stride] of every piece of every ONNX axis; stride null is the stream axis."""
    return [[[p.size, p.stride] for p in axis] for axis in view.axes]
