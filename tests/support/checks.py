"""Building, compiling and comparing generated C: what the tests of whole models share.

Objects are cached by the text that they are compiled from (all test models have the prefix `m`, so that the runtime
files are compiled once per compiler and flags), shared between the workers of a parallel run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from codegen.emit.model import Compiled
from codegen.errors import CodegenError
from codegen.host import HostModel
from codegen.ir.graph import Graph
from codegen.options import Options
from codegen.output_folder import write_files
from codegen.pipeline import compile_model, render
from codegen.plan.outputs import is_legal
from codegen.reference import whole_clip
from codegen.toolchain import why_not
from codegen.verify.verification import random_feed

Array = npt.NDArray[Any]
Feed = dict[str, Array]
Run = Callable[..., tuple[int, str, str]]
PREFIX = "m"
PLAIN = ("-std=c99", "-O1", "-fwrapv", "-fPIC", "-w")
SANITIZE = ("-std=c99", "-O1", "-g", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FORCED_PLAN = os.environ.get("CODEGEN_TEST_PLAN")
DRIVER = Path(__file__).parent / "driver.c"
ARM = ("arm-none-eabi-gcc", "--specs=picolibc.specs")
"""The cross compiler with the C library that the emulated boards run on."""


def require_tool(name: str) -> str:
    """The tool's path; without it the test is skipped, or fails where CODEGEN_REQUIRE_TOOLS=1 says that it is."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed")
    assert found is not None
    return found


def require_compiler(name: str, *flags: str) -> list[str]:
    """The command of a compiler that has a C library with these flags; else as `require_tool`."""
    problem = why_not((name, *flags))
    if problem:
        missing(problem)
    return [require_tool(name), *flags]


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it where CODEGEN_REQUIRE_TOOLS=1; either says what is missing."""
    if os.environ.get("CODEGEN_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{what}, and CODEGEN_REQUIRE_TOOLS=1")
    pytest.skip(what)


def run_tool(command: Sequence[str | Path], **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **kwargs)
    text = (done.stdout + done.stderr)[:4000]
    assert done.returncode == 0, f"{' '.join(map(str, command))} -> {done.returncode}\n{text}"
    return done


@dataclass(frozen=True)
class Generated:
    """A generated folder and the int8 graph that it computes."""

    path: Path
    folder: Path
    files: dict[str, str]
    graph: Graph
    manifest: dict[str, Any]

    @property
    def sources(self) -> list[Path]:
        return [self.folder / name for name in self.manifest["sources"]]


def write_generated(folder: Path, path: Path, compiled: Compiled) -> Generated:
    """The files of a compiled model, in `folder`."""
    files = render(compiled)
    write_files(folder, files)
    return Generated(path, folder, files, compiled.graph, json.loads(files["manifest.json"]))


def compile_forced(path: Path, options: Options) -> Compiled:
    """The model in the plan that CODEGEN_TEST_PLAN names, where a test leaves it open and the model has such a plan."""
    if FORCED_PLAN and options.plan == "auto" and not options.endless:
        try:
            return compile_model(path, replace(options, plan=FORCED_PLAN))
        except CodegenError:
            pass
    return compile_model(path, options)


class Workshop:
    """Makes generated folders, libraries and programs below one temporary folder."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root, cache
        self.cache.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def save(self, model: onnx.ModelProto, name: str = "model") -> Path:
        self.count += 1
        path = self.root / f"{self.count}" / f"{name}.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(model.SerializeToString())
        return path

    def build(self, model: onnx.ModelProto | Path, *, hop: int = 1, name: str = PREFIX, **options: Any) -> Generated:
        path = model if isinstance(model, Path) else self.save(model)
        self.count += 1
        folder = self.root / f"{self.count}_out"
        return write_generated(folder, path, compile_forced(path, Options(name=name, hop=hop, **options)))

    def objects(self, sources: Sequence[Path], compiler: str, flags: Sequence[str]) -> list[Path]:
        return [self._object(source, compiler, flags) for source in sources]

    def _object(self, source: Path, compiler: str, flags: Sequence[str]) -> Path:
        key = hashlib.sha256(repr((compiler, tuple(flags))).encode())
        for text in _with_includes(source, source.parent):
            key.update(text.encode())
        target = self.cache / f"{key.hexdigest()[:32]}.o"
        if not target.exists():
            part = self.cache / f"{uuid.uuid4().hex}.o"
            includes = [f for f in flags if f.startswith("-I")]
            run_tool([require_tool(compiler), *flags, *includes, "-c", source, "-o", part])
            part.replace(target)
        return target

    def library(self, g: Generated, compiler: str = "gcc", flags: Sequence[str] = PLAIN) -> Path:
        target = self.root / f"{uuid.uuid4().hex}.so"
        objects = self.objects(g.sources, compiler, flags)
        run_tool([require_tool(compiler), "-shared", *(f for f in flags if "sanitize" in f), *objects, "-o", target])
        return target

    def host(self, g: Generated, compiler: str = "gcc", flags: Sequence[str] = PLAIN) -> HostModel:
        return HostModel(g.manifest, self.library(g, compiler, flags))

    def driver(self, g: Generated, compiler: str, flags: Sequence[str] = SANITIZE) -> Path:
        """The program of driver.c around a model: it reads commands, with exactly sized buffers on the heap."""
        glue = g.folder / "glue.h"
        glue.write_text(_glue(g.manifest))
        target = g.folder / f"driver_{compiler}"
        command = [require_tool(compiler), *flags, f"-I{g.folder}", f"-I{g.folder / 'src'}", DRIVER]
        run_tool([*command, *self.objects(g.sources, compiler, flags), "-o", target])
        return target


def _with_includes(source: Path, folder: Path, seen: set[str] | None = None) -> list[str]:
    seen = set() if seen is None else seen
    text = source.read_text(encoding="utf-8")
    result = [text]
    for name in re.findall(r'#include "([^"]+)"', text):
        if name not in seen and (folder / name).is_file():
            seen.add(name)
            result += _with_includes(folder / name, folder, seen)
    return result


def _glue(manifest: Mapping[str, Any]) -> str:
    """The model's calls behind one shape of arguments: arrays of pointers in, pointers and counts out."""
    name = manifest["name"]
    upper = name.upper()
    ins, outs = manifest["inputs"], manifest["outputs"]
    lines = [f'#include "{name}.h"', f"typedef {name}_state_t state_type;", f"typedef {name}_scratch_t scratch_type;"]
    lines += [f"enum {{ INPUTS = {len(ins)}, OUTPUTS = {len(outs)} }};"]
    frames = [", ".join(f"{upper}_{p['id'].upper()}_FRAME" for p in ports) for ports in (ins, outs)]
    lines += [f"static const int in_frame[] = {{{frames[0]}}};", f"static const int out_frame[] = {{{frames[1]}}};"]
    bounds = "".join(f"if (i == {i}) return {upper}_{p['id'].upper()}_MAX_OUT(n); " for i, p in enumerate(outs))
    lines += [f"static int max_out(int i, int n) {{ {bounds}return -1; }}"]
    lines += [f"static void init(state_type *st) {{ {name}_init(st); }}"]
    head = "static int {}(state_type *st, scratch_type *sc, {}void **out, int *counts) {{"
    if manifest["single"]:
        push, finish = f"{name}_push(st, sc, in[0], n, out[0])", f"{name}_finish(st, sc, out[0])"
        tail = " counts[0] = got < 0 ? 0 : got; return got < 0 ? got : 0; }}"
        body = "int got = {};" + tail
        lines += [head.format("push", "void **in, int n, ") + body.format(push)]
        lines += [head.format("finish", "") + body.format(finish)]
        return "\n".join(lines) + "\n"
    take = "".join(f"i.{p['id']} = in[{k}]; " for k, p in enumerate(ins))
    give = "".join(f"o.{p['id']} = out[{k}]; " for k, p in enumerate(outs))
    back = "".join(f"counts[{k}] = o.{p['id']}_frames; " for k, p in enumerate(outs))
    call = f"int s = {name}_push(st, sc, &i, n, &o);"
    lines += [
        head.format("push", "void **in, int n, ")
        + f" {name}_input_t i; {name}_output_t o; {take}{give}{call} {back}return s; }}",
        head.format("finish", "") + f" {name}_output_t o; {give}int s = {name}_finish(st, sc, &o); {back}return s; }}",
    ]
    return "\n".join(lines) + "\n"


class Script:
    """Commands for driver.c, and the reading of its answers."""

    def __init__(self, g: Generated) -> None:
        self.g = g
        self.data = bytearray()
        self.calls = 0

    def poison(self, value: int) -> None:
        """Fill state and scratch with a byte, then init."""
        self.data += struct.pack("<ii", 1, value)

    def push(self, frames: Sequence[Array], n: int) -> None:
        self.data += struct.pack("<ii", 2, n)
        for part in frames:
            assert part.shape[0] == max(n, 0)
            self.data += np.ascontiguousarray(part).tobytes()
        self.calls += 1

    def finish(self) -> None:
        self.data += struct.pack("<ii", 3, 0)
        self.calls += 1

    def run(self, program: Path, *arguments: str) -> list[tuple[int, list[Array]]]:
        """(status, frames of every output) per push and finish."""
        environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
        done = subprocess.run(
            [program, *arguments], input=bytes(self.data), capture_output=True, check=False, env=environment
        )
        assert done.returncode == 0, f"{program} -> {done.returncode}\n{done.stderr.decode(errors='replace')[:4000]}"
        at, results = 0, []
        for _ in range(self.calls):
            (status,) = struct.unpack_from("<i", done.stdout, at)
            at += 4
            outs = []
            for port in self.g.manifest["outputs"]:
                (count,) = struct.unpack_from("<i", done.stdout, at)
                at += 4
                size = count * port["frame_elements"]
                outs.append(
                    np.frombuffer(done.stdout, port["code_dtype"], size, at).reshape(count, port["frame_elements"])
                )
                at += size
            results.append((status, outs))
        assert at == len(done.stdout)
        return results


def code_frames(g: Generated, feed: Mapping[str, Array]) -> list[Array]:
    """The feed as the frames of codes that the C functions take."""
    result = []
    for port, spec in zip(g.graph.inputs, g.manifest["inputs"], strict=True):
        result.append(_border(whole_clip.quantize_input(np.asarray(feed[port.name]), port), spec))
    return result


def inner(g: Generated, frames: Sequence[Array]) -> dict[str, Array]:
    """Border codes -> int8 codes of the input tensors."""
    result = {}
    for port, part in zip(g.graph.inputs, frames, strict=True):
        unsigned = part.dtype == np.uint8
        result[port.tensor] = (part.astype(np.int16) - 128).astype(np.int8) if unsigned else part
    return result


def outer(g: Generated, codes: Mapping[str, Array]) -> list[Array]:
    """The reference's outputs as frames in the type of the C border."""
    return [
        _border(codes[port.tensor].reshape(-1, spec["frame_elements"]), spec)
        for port, spec in zip(g.graph.outputs, g.manifest["outputs"], strict=True)
    ]


def _border(codes: Array, spec: Mapping[str, Any]) -> Array:
    """int8 codes in the type that the manifest names."""
    return (codes.astype(np.int16) + 128).astype(np.uint8) if spec["code_dtype"] == "uint8" else codes


def reference_frames(g: Generated, frames: Sequence[Array]) -> list[Array]:
    """The reference's output frames, as codes in the type of the C border."""
    return outer(g, whole_clip.run_codes(g.graph, inner(g, frames)))


def legal_length(graph: Graph, wanted: int) -> int:
    """The first length from `wanted` on that the offline model accepts (the fixed one of a clip)."""
    if graph.clip_length is not None:
        return graph.clip_length
    time = graph.time_graph()
    return next(n for n in range(wanted, wanted + 200) if is_legal(time, n))


def split(total: int, rng: np.random.Generator) -> list[int]:
    """Random push sizes that add up to `total`, zeros included."""
    sizes = []
    while total > 0:
        n = min(int(rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 40])), total)
        sizes.append(n)
        total -= n
    return sizes


def _saturates() -> bool:
    """Whether onnxruntime's U8S8 products saturate on this machine (x86 without VNNI)."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx" in flags and "vnni" not in flags


def runtime_run(path: Path, feed: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
    """onnxruntime's outputs, with its integer kernels for int8 and without the saturating U8S8 instructions."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if _saturates():
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = list(outputs) if outputs else [o.name for o in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(feed))), strict=True))


def assert_same(got: Array, want: Array, what: str, within: int = 0, step: float = 1.0) -> None:
    """Equal in type, shape and every value (or within some codes of `step`); the message names the first difference."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, expected {want.dtype}"
    delta = np.abs(got.astype(np.float64) - want.astype(np.float64)) / step
    bad = np.argwhere(delta > within + 1e-3 if within else got != want)
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        pytest.fail(f"{what}: {len(bad)} of {got.size} differ, first at {at}: {got[at]}, expected {want[at]}")


def total_stride(graph: Graph) -> int:
    """Input frames per frame of the slowest output, at least 1."""
    from codegen.plan.receptive_field import analyse_graph

    extents, _ = analyse_graph(graph)
    return max([1, *(int(-(-e.S // 1)) for e in (extents[p.tensor] for p in graph.outputs) if not e.ended)])


def check_op(
    shop: Workshop,
    model: onnx.ModelProto | Path,
    feed: Feed | None = None,
    *,
    hop: int = 1,
    length: int = 37,
    seed: int = 5,
    runtime: str = "equal",
    stream: str | None = None,
) -> Generated:
    """numpy reference == streamed generated C for five push patterns, and reference against onnxruntime.

    runtime: "equal", "ties" (within one code: onnxruntime computes this operator in float or rounds after adding the
    zero point, so that it decides ties otherwise), or "none" (it does not run the model).
    """
    g = shop.build(model, hop=hop, stream=stream)
    print(f"seed {seed}, hop {hop}, prefix {PREFIX}")
    feed = feed or random_feed(g.graph, legal_length(g.graph, length), seed)
    want = whole_clip.run(g.graph, feed)
    for port in g.graph.outputs:
        used = np.unique(want[port.name]).size
        assert used > min(3, want[port.name].size - 1), f"dead output {port.name}: the test shows nothing"
    host = shop.host(g)
    rng = np.random.default_rng(seed)
    patterns: list[list[int] | None] = [None, [1], [2], [5 * total_stride(g.graph)], list(rng.integers(1, 9, 16))]
    for chunks in patterns:
        host.poison(0xA5)
        got = host.run(feed, chunks)
        for port in g.graph.outputs:
            assert_same(got[port.name], want[port.name], f"C against reference, {port.name}, pushes {chunks}")
    if runtime == "none":
        return g
    theirs = runtime_run(g.path, feed)
    for port in g.graph.outputs:
        step = port.qparams.scale if port.qparams and want[port.name].dtype == np.float32 else 1.0
        within = 1 if runtime == "ties" else 0
        assert_same(want[port.name], theirs[port.name], f"reference against onnxruntime, {port.name}", within, step)
    return g
