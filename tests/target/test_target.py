"""Golden vectors, sizes, stack and integers only, on emulated Cortex-M4, Cortex-M0+ and RV32."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import models
import onnx
import pytest
from checks import ARM, Workshop, require_compiler, require_tool, run_tool
from paths import MODELS, ROOT
from random_graphs import random_graph

from benchmarks import emulate, requantize
from benchmarks.target import Result, build, schedule, summarize
from benchmarks.targets import BOARD, TARGETS, BenchmarkError, Target

IMU = ROOT / "examples" / "imu" / "imu_tcn_int8.onnx"
SWW = MODELS / "mlperf_tiny" / "sww_streaming_dyn_i8io.onnx"

STACK_LIMIT_BYTES = 1024
TILE_BYTES = 128
"""What init, push and finish may write below their caller, on any target; more where a tile has its part of a layer."""

# The M4 without its FPU: a float operation needs a library function, which nm shows.
M4_SOFT = replace(TARGETS["m4"], flags=("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=soft"))
ON = {"m4": M4_SOFT, "m0": TARGETS["m0"], "rv32": TARGETS["rv32"]}

FLOAT = r"__aeabi_[fd]\w+|__aeabi_u?[il]2[fd]|__\w+[sd]f[23]?|__(?:fix|float)\w+"
DIVISION = r"__aeabi_u?(?:i|l)div\w*|__u?(?:div|mod|divmod)[sd]i[34]"
PRODUCT = r"__aeabi_lmul|__muldi3"
FORBIDDEN = {"m4": f"{FLOAT}|{DIVISION}", "m0": f"{FLOAT}|{DIVISION}|{PRODUCT}", "rv32": f"{FLOAT}|{DIVISION}"}

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": models.residual,
    "two_inputs": models.two_inputs,
    "wide_stream": models.wide_stream,
    "image_clip": models.image_clip,
    "softmax_head": models.softmax_head,
    "shrinking_clip": models.shrinking_clip,
    "tiled": models.wide_stream,
}
OPTIONS = {"tiled": {"fast_memory": 160, "cores": 3}}
FILES = {"imu": IMU, "sww": SWW}


@dataclass(frozen=True)
class Run:
    """A folder, what its program printed on one target, the row made of it, and the names its model's objects need."""

    folder: Path
    values: dict[str, int]
    result: Result
    needs: set[str]


class Bench:
    """Builds each model once and runs it once per target."""

    def __init__(self, shop: Workshop, root: Path) -> None:
        self.shop, self.root = shop, root
        self.folders: dict[str, Path] = {}
        self.runs: dict[tuple[str, str], Run] = {}

    def folder(self, model: str) -> Path:
        if model in FILES and not FILES[model].exists():
            pytest.skip(f"{FILES[model].name} is not there")
        if model not in self.folders:
            if model.startswith("random"):
                source: Path | onnx.ModelProto = random_graph(int(model.removeprefix("random")))
            else:
                source = FILES[model] if model in FILES else MODELS[model]()
            self.folders[model] = self.shop.build(source, **OPTIONS.get(model, {})).folder
        return self.folders[model]

    def run(self, model: str, name: str) -> Run:
        need(ON[name])
        if (model, name) not in self.runs:
            folder = self.folder(model)
            program, plan = build(folder, ON[name], self.root / f"{model}_{name}")
            values = emulate.run(program, timeout=60)
            result = summarize(folder, program, plan, values, "-O2")
            objects = sorted((self.root / f"{model}_{name}" / "model").glob("*.o"))
            self.runs[model, name] = Run(folder, values, result, emulate.needs(ON[name], objects))
        return self.runs[model, name]


def need(target: Target) -> None:
    for tool in target.tools:
        require_tool(tool)


@pytest.fixture(scope="module")
def bench(shop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(shop, tmp_path_factory.mktemp("target"))


def forbidden(symbols: set[str], name: str) -> list[str]:
    return sorted(s for s in symbols if re.fullmatch(FORBIDDEN[name], s))


def host_sizes(folder: Path, name: str, work: Path) -> tuple[int, int]:
    """sizeof state and scratch of the host's compiler, read from the object's symbols."""
    source = work / "sizes.c"
    source.write_text(f'#include "{name}.h"\n{name}_state_t host_state;\n{name}_scratch_t host_scratch;\n')
    run_tool([require_tool("gcc"), "-c", "-fno-common", f"-I{folder / 'src'}", source, "-o", work / "sizes.o"])
    text = run_tool([require_tool("nm"), "-S", work / "sizes.o"]).stdout
    found = {line.split()[-1]: int(line.split()[1], 16) for line in text.splitlines()}
    return found["host_state"], found["host_scratch"]


@pytest.mark.parametrize("name", ON)
@pytest.mark.parametrize("model", [*MODELS, *FILES])
def test_model_on_target(bench: Bench, model: str, name: str, tmp_path: Path) -> None:
    run = bench.run(model, name)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    sizes = (manifest["memory"]["state_bytes"], manifest["memory"]["scratch_bytes"])

    assert run.values["selftest"] == 0
    assert (run.values["state"], run.values["scratch"]) == sizes
    assert (run.values["state_macro"], run.values["scratch_macro"]) == sizes
    assert host_sizes(run.folder, manifest["name"], tmp_path) == sizes
    assert 0 < run.values["stack"] < STACK_LIMIT_BYTES + (TILE_BYTES if "fast_memory" in OPTIONS.get(model, {}) else 0)
    assert run.result.static_ram_bytes == 0
    assert run.result.text_bytes > 500
    assert run.result.weight_bytes > 0
    assert run.result.instructions > 100


@pytest.mark.parametrize("name", ["m4", "m0", "rv32"])
@pytest.mark.parametrize("model", [*MODELS, *FILES])
def test_integers_only(bench: Bench, model: str, name: str) -> None:
    """No soft float, no division routine, on M0+ no 64-bit product: in any object of the generated folder."""
    assert forbidden(bench.run(model, name).needs, name) == []


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_on_the_dsp_extension(bench: Bench, seed: int) -> None:
    """Kernels that a host has only in their C twins: golden vectors of random networks on the Cortex-M4."""
    assert bench.run(f"random{seed}", "m4").values["selftest"] == 0


def test_wrong_code_is_noticed(bench: Bench, tmp_path: Path) -> None:
    need(M4_SOFT)
    folder = tmp_path / "planted"
    shutil.copytree(bench.folder("residual"), folder)
    selftest = folder / "test" / "selftest.c"
    text = selftest.read_text()
    first = re.search(r"want_\w+\[\d+\] = \{\s*(-?\d+)", text)
    assert first is not None
    changed = text[: first.start(1)] + str(int(first[1]) ^ 1) + text[first.end(1) :]
    selftest.write_text(changed)
    program, _ = build(folder, M4_SOFT, tmp_path / "work")
    with pytest.raises(BenchmarkError, match="status 1"):
        emulate.run(program, timeout=60)


@pytest.mark.parametrize("name", ON)
def test_float_and_division_are_noticed(name: str, tmp_path: Path) -> None:
    need(ON[name])
    source = tmp_path / "planted.c"
    source.write_text(
        '#include "board.h"\n'
        "volatile int a, b; volatile float f; volatile int64_t w;\n"
        "int board_main(void) { f = f * (float)a; w = w / (a + 1); w = w * w; return a / (b + 1); }\n"
    )
    objects = emulate.compile_objects(ON[name], [source], tmp_path / "objects", [BOARD], ["-O2"])
    found = forbidden(emulate.needs(ON[name], objects), name)
    expected = {
        "m4": ("__aeabi_fmul", "__aeabi_i2f", "__aeabi_ldivmod"),
        "m0": ("__aeabi_fmul", "__aeabi_i2f", "__aeabi_ldivmod", "__aeabi_idiv", "__aeabi_lmul"),
        "rv32": ("__mulsf3", "__floatsisf", "__divdi3"),
    }
    for symbol in expected[name]:
        assert symbol in found


def test_schedule() -> None:
    """Past the longest lookback, then whole periods of hops and strides; a clip is pushed whole."""
    nodes = [{"window": {"S": 1, "rf": 3}}, {"window": {"S": 3, "rf": 34}}, {"window": {"S": "1/2", "rf": 34}}]
    stream = schedule({"clip_length": None, "hop": 2}, {"nodes": nodes})
    assert (stream.push, stream.warm_up, stream.measured, stream.clip) == (2, 21, 18, False)
    clip = schedule({"clip_length": 49, "hop": 1}, {"nodes": nodes})
    assert (clip.push, clip.warm_up, clip.measured, clip.clip) == (49, 0, 1, True)


def test_requantization_cost(tmp_path: Path) -> None:
    """On the Cortex-M4: A at most 5 instructions, B 7, F 10; the usual double rounding is 15 or more."""
    need(TARGETS["m4"])
    cost = requantize.measure(TARGETS["m4"], (), tmp_path).instructions
    assert cost["run_a"] <= 5.05
    assert max(cost["run_b"], cost["run_b_odd"]) <= 7.05
    assert cost["run_f"] <= 10
    assert min(cost["run_twice"], cost["run_twice_fast"]) >= 15


@pytest.mark.parametrize(
    ("name", "defines"), [("m4", ("-DRT_TARGET_PORTABLE",)), ("m4", ("-DRT_TARGET_HALVES",)), ("m0", ()), ("rv32", ())]
)
def test_plain_c_forms_equal_the_reference(name: str, defines: tuple[str, ...], tmp_path: Path) -> None:
    need(TARGETS[name])
    requantize.measure(TARGETS[name], defines, tmp_path)


STRICT = "-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -ffreestanding".split()


@pytest.mark.parametrize("flags", ["-O0", "-Os", "-O2", "-O3 -fno-omit-frame-pointer", "-O2 -fPIC"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_hand_written_loops_compile(compiler: str, flags: str, tmp_path: Path) -> None:
    """The inner loop in assembler takes all but one of the registers: it must leave enough at every level."""
    need(M4_SOFT)
    command = require_compiler(*ARM)
    if compiler == "clang":
        sysroot = run_tool([*ARM, "-print-sysroot"]).stdout.strip()
        include = Path(sysroot) / "include"
        command = [require_tool("clang"), "--target=arm-none-eabi"]
        command += ["-isystem", str(include if include.is_dir() else "/usr/lib/picolibc/arm-none-eabi/include")]
    source = ROOT / "runtime_c" / "rt_conv_s8.c"
    target = ["-mthumb", "-mcpu=cortex-m4", *flags.split(), *STRICT, "-c", source, "-o", tmp_path / "conv.o"]
    run_tool([*command, *target])
