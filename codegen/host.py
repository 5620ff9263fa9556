"""The generated C on the host: compiled into a shared object, called through cffi (ABI mode), numpy in and out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, UINT8, from_stored, shift_of, to_stored
from codegen.errors import input_error
from codegen.ir.graph import Decoding, Port, QParams
from codegen.ir.view import Piece, View
from codegen.ops.base import STAGES
from codegen.output_folder import finish
from codegen.reference.whole_clip import dequantize_output, from_frames, quantize_input, to_frames

STAGE = "host"
CFLAGS = ("-std=c99", "-O2", "-fPIC", "-shared")
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PortInfo:
    """A graph input or output as the model has it; `scale` and `zero_point` are those of its codes."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    scale: float | list[float] | None
    zero_point: int | None
    stream_axis: int | None


def load(out_dir: str | Path, compiler: str | None = None, flags: Sequence[str] = (), trace: bool = False) -> HostModel:
    """Compile the C in a generated folder and load it.

    compiler: default $CC, else cc, gcc or clang. trace: with <NAME>_TRACE, for `HostModel.trace`. Raises CodegenError
    if the folder is not a generated one or the C does not compile.
    """
    folder = Path(out_dir)
    finish(folder)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "Name the folder that `codegen build` wrote"
        raise input_error(STAGE, str(folder), "no manifest.json of a generated model", hint=hint) from error
    with tempfile.TemporaryDirectory() as temporary:
        library = Path(temporary) / "model.so"
        own = manifest["name"].upper() if manifest["runtime"] != "rt" else "RT"
        flags = [*flags, f"-D{own}_TRACE"] if trace else flags
        compile_sources([folder / s for s in manifest["sources"]], library, compiler, flags)
        return HostModel(manifest, library, trace)


def compile_sources(
    sources: Sequence[Path], target: Path, compiler: str | None = None, flags: Sequence[str] = ()
) -> None:
    """One shared object from C sources. Raises CodegenError with the compiler's first lines."""
    found = compiler or os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if found is None:
        raise input_error(STAGE, "C compiler", "none found", "cc, gcc or clang", "Install one or set CC")
    command = [*found.split(), *CFLAGS, *flags, "-o", str(target), *map(str, sources)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise input_error(
            STAGE, found, f"the compiler cannot be run ({error.strerror})", hint="Install it or set CC"
        ) from error
    if result.returncode != 0:
        lines = "\n".join(result.stderr.splitlines()[:20])
        raise input_error(STAGE, found, f"the generated C does not compile:\n{lines}")


class HostModel:
    """A compiled model: a stream of one instance. Arrays are in the ONNX model's own layout and type."""

    def __init__(self, manifest: dict[str, Any], library: Path, trace: bool = False) -> None:
        self.manifest = manifest
        trace = trace or bool(manifest.get("trace"))
        self.name: str = manifest["name"]
        self.clip_length: int | None = manifest["clip_length"]
        self._ports_in = [_port(p) for p in manifest["inputs"]]
        self._ports_out = [_port(p) for p in manifest["outputs"]]
        self.inputs = [_info(p) for p in manifest["inputs"]]
        self.outputs = [_info(p) for p in manifest["outputs"]]
        self._ffi = cffi.FFI()
        self._ffi.cdef(_declarations(manifest))
        self._lib = self._ffi.dlopen(str(library))
        self._recorder = Recorder(self._ffi, self._lib, manifest["runtime"]) if trace else None
        self._pushed = 0
        totals = manifest["memory"]
        self._state = np.zeros(totals["state_bytes"] // 4, np.int32)
        self._scratch = np.zeros(totals["scratch_bytes"] // 4, np.int32)
        self.reset()

    def reset(self) -> None:
        """Start of a stream."""
        self._function("init")(self._pointer(self._state))
        self._pushed = 0
        if self._recorder:
            self._recorder.forget()

    def trace(self) -> dict[str, dict[str, Array]]:
        """{node: {stage: int32 [frames, elements]}} of all that ran since the last reset, `finish` included.

        Stages: accumulator, requantized, activated, pooled (as far as a node has them). Needs `load(..., trace=True)`.
        """
        if self._recorder is None:
            raise input_error(STAGE, "trace", "the C was compiled without it", hint="load(..., trace=True)")
        return self._recorder.stages(self.manifest["nodes"])

    def poison(self, value: int) -> None:
        """Fill state and scratch with a byte, then reset: tests that nothing but init matters."""
        self._state.view(np.uint8)[:] = value
        self._scratch.view(np.uint8)[:] = value
        self.reset()

    def push(self, x: Mapping[str, Array]) -> dict[str, Array]:
        """Any number of frames of every input; returns the output frames that became ready (maybe none)."""
        frames = [self._encode(np.asarray(x[p.name]), p) for p in self._ports_in]
        counts = {len(f) for f in frames}
        if len(counts) != 1:
            raise input_error(STAGE, "push", f"inputs of {sorted(counts)} frames", "the same number for every input")
        return self._decode(self._push(frames, counts.pop()))

    def finish(self) -> dict[str, Array]:
        """End of the stream: the remaining frames; the model is reset. Raises CodegenError for an illegal length."""
        return self._decode(self._finish())

    def run(self, x: Mapping[str, Array], chunks: Sequence[int] | None = None) -> dict[str, Array]:
        """Reset, push everything in pieces of `chunks` frames (repeated as needed; default: all at once), finish."""
        self.reset()
        frames = [self._encode(np.asarray(x[p.name]), p) for p in self._ports_in]
        total = max((len(f) for f in frames), default=0)
        if total and chunks and not any(int(c) > 0 for c in chunks):
            raise input_error(STAGE, "chunks", f"{list(chunks)}", "at least one size above 0")
        parts: list[list[Array]] = [
            [np.zeros((0, self._frame(i)), self._code_dtype(i)) for i in range(len(self._ports_out))]
        ]
        done, turn = 0, 0
        while done < total:
            size = total - done if not chunks else max(0, int(chunks[turn % len(chunks)]))
            turn += 1
            size = min(size, total - done)
            parts.append(self._push([f[done : done + size] for f in frames], size))
            done += size
        if self.clip_length is None or total % self.clip_length:
            parts.append(self._finish())
        return self._decode([np.concatenate(part) for part in zip(*parts, strict=True)])

    def _push(self, frames: list[Array], count: int) -> list[Array]:
        out = [self._room(i, count) for i in range(len(self._ports_out))]
        status, counts = self._call("push", frames, count, out)
        assert status >= 0
        self._pushed += count
        return [o[:n] for o, n in zip(out, counts, strict=True)]

    def _finish(self) -> list[Array]:
        out = [self._room(i, self._pushed) for i in range(len(self._ports_out))]
        status, counts = self._call("finish", [], None, out)
        self._pushed = 0
        if status < 0:
            found = "no result for this length: branches differ in length where they join, or it is too short"
            raise input_error(STAGE, "finish", found, "see legal_lengths in report.json", "Pad or cut the input")
        return [o[:n] for o, n in zip(out, counts, strict=True)]

    def _call(self, which: str, frames: list[Array], count: int | None, out: list[Array]) -> tuple[int, list[int]]:
        """A call, recorded where the C traces: again from the same state while the record has not enough room."""
        if self._recorder is None:
            return self._call_once(which, frames, count, out)
        before = self._state.copy()
        while True:
            with self._recorder:
                result = self._call_once(which, frames, count, out)
            if self._recorder.complete():
                return result
            self._state[:] = before

    def _call_once(self, which: str, frames: list[Array], count: int | None, out: list[Array]) -> tuple[int, list[int]]:
        state, scratch = self._pointer(self._state), self._pointer(self._scratch)
        function = self._function(which)
        if self.manifest["single"]:
            args = [self._pointer(frames[0]), count] if count is not None else []
            written = int(function(state, scratch, *args, self._pointer(out[0])))
            return min(written, 0), [max(written, 0)]
        target = self._ffi.new(f"{self.name}_output_t *")
        for spec, array in zip(self.manifest["outputs"], out, strict=True):
            setattr(target, spec["id"], self._pointer(array))
        args = []
        if count is not None:
            source = self._ffi.new(f"{self.name}_input_t *")
            for spec, array in zip(self.manifest["inputs"], frames, strict=True):
                setattr(source, spec["id"], self._pointer(array))
            args = [source, count]
        status = int(function(state, scratch, *args, target))
        return status, [int(getattr(target, f"{spec['id']}_frames")) for spec in self.manifest["outputs"]]

    def _function(self, which: str) -> Any:
        return getattr(self._lib, f"{self.name}_{which}")

    def _pointer(self, array: Array) -> Any:
        return self._ffi.cast("void *", array.ctypes.data)

    def _frame(self, i: int) -> int:
        return int(self.manifest["outputs"][i]["frame_elements"])

    def _code_dtype(self, i: int) -> type:
        code: type = np.dtype(self.manifest["outputs"][i]["code_dtype"]).type
        return code

    def _room(self, i: int, count: int) -> Array:
        bound = self.manifest["outputs"][i]["max_out"]
        push = (count * bound["P"] + bound["c"]) // bound["M"]
        return np.zeros((max(push, bound["finish"]) + 1, self._frame(i)), self._code_dtype(i))

    def _encode(self, x: Array, port: Port) -> Array:
        """Border values -> frames in the C type of the input."""
        if port.dtype in (INT8.name, UINT8.name):
            return np.ascontiguousarray(to_frames(x.astype(port.dtype), port.view))
        return from_stored(quantize_input(x, port), port.border)

    def _decode(self, frames: list[Array]) -> dict[str, Array]:
        return {port.name: _decoded(part, port) for port, part in zip(self._ports_out, frames, strict=True)}


def _decoded(frames: Array, port: Port) -> Array:
    """Frames in the C type of an output -> border values."""
    if frames.dtype == UINT8.dtype and port.dtype == UINT8.name:
        return from_frames(frames, port.view)
    return dequantize_output(to_stored(frames), port)


class Recorder:
    """The buffer behind runtime_c/rt_trace.h, and what was recorded in earlier calls."""

    def __init__(self, ffi: Any, lib: Any, runtime: str) -> None:
        ffi.cdef(f"""typedef struct {{ void *records; int32_t capacity; int32_t count; }} {runtime}_trace_t;
            void {runtime}_trace_to({runtime}_trace_t *trace);""")
        self._ffi = ffi
        self._direct = getattr(lib, f"{runtime}_trace_to")
        self._trace = ffi.new(f"{runtime}_trace_t *")
        self._buffer = np.zeros((1 << 16, 4), np.int32)
        self._parts: list[Array] = []

    def __enter__(self) -> None:
        self._trace.records = self._ffi.cast("void *", self._buffer.ctypes.data)
        self._trace.capacity, self._trace.count = len(self._buffer), 0
        self._direct(self._trace)

    def __exit__(self, *_: object) -> None:
        self._direct(self._ffi.NULL)

    def complete(self) -> bool:
        """Whether the last call fitted; if so it is kept, else there is room for it now."""
        count = int(self._trace.count)
        if count > len(self._buffer):
            self._buffer = np.zeros((count, 4), np.int32)
            return False
        self._parts.append(self._buffer[:count].copy())
        return True

    def forget(self) -> None:
        self._parts = []

    def stages(self, nodes: Sequence[str]) -> dict[str, dict[str, Array]]:
        records = np.concatenate([np.zeros((0, 4), np.int32), *self._parts])
        order = np.argsort(records[:, 0], kind="stable")
        records = records[order]
        ends = np.searchsorted(records[:, 0], np.arange(len(nodes) + 1))
        return {name: _stages(records[ends[i] : ends[i + 1]]) for i, name in enumerate(nodes)}


def _stages(records: Array) -> dict[str, Array]:
    """One node's records (node, stage, element, value): every tick counts its elements anew."""
    ticks = records[:, 1] == 0
    if not ticks.any():
        return {}
    size = int(records[ticks][0, 2])
    frames = records[ticks][:, 3]
    first = np.concatenate([[0], np.cumsum(frames)[:-1]])
    at = (first * size)[np.cumsum(ticks) - 1] + records[:, 2]
    result = {}
    for number, stage in enumerate(STAGES, 1):
        here = records[:, 1] == number
        if here.any():
            values = np.zeros(int(frames.sum()) * size, np.int32)
            values[at[here]] = records[here, 3]
            result[stage] = values.reshape(-1, size)
    return result


def _declarations(manifest: dict[str, Any]) -> str:
    name = manifest["name"]
    if manifest["single"]:
        return f"""void {name}_init(void *st);
            int {name}_push(void *st, void *sc, const void *frames, int n, void *out);
            int {name}_finish(void *st, void *sc, void *out);"""
    ins = "".join(f"const void *{p['id']}; " for p in manifest["inputs"])
    outs = "".join(f"void *{p['id']}; " for p in manifest["outputs"])
    counts = "".join(f"int {p['id']}_frames; " for p in manifest["outputs"])
    return f"""typedef struct {{ {ins} }} {name}_input_t;
        typedef struct {{ {outs} {counts} }} {name}_output_t;
        void {name}_init(void *st);
        int {name}_push(void *st, void *sc, const {name}_input_t *in, int n, {name}_output_t *out);
        int {name}_finish(void *st, void *sc, {name}_output_t *out);"""


def _info(spec: dict[str, Any]) -> PortInfo:
    return PortInfo(
        spec["name"], spec["dtype"], tuple(spec["shape"]), spec["scale"], spec["zero_point"], spec["stream_axis"]
    )


def _port(spec: dict[str, Any]) -> Port:
    axes = tuple(tuple(Piece(size, stride) for size, stride in axis) for axis in spec["axes"])
    q, shift = None, shift_of(spec["code_dtype"])
    if isinstance(spec["scale"], float):
        q = QParams(spec["scale"], spec["zero_point"] - shift, shift != 0)
    decoding = None
    if spec.get("decoding"):
        bits = np.asarray(spec["decoding"]["bits"], np.uint32)
        decoding = Decoding(spec["decoding"]["kind"], bits.view(np.float32))
    return Port(spec["name"], View("", axes), spec["dtype"], tuple(spec["shape"]), q, decoding)
