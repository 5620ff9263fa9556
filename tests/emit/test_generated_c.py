"""What firmware relies on: strict compilers, C++ headers, symbols, linking, snapshots, clocks, bytes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import (
    PREFIX,
    Generated,
    Script,
    Workshop,
    assert_same,
    code_frames,
    legal_length,
    reference_frames,
    require_tool,
    run_tool,
)
from models import DIVERSE, Net, causal_chain, residual, two_outputs

from codegen.emit.wrap import WIDTH, wrapped
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

STRICT = "-std=c99 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror".split()
ALLOWED_UNDEFINED = {"memcpy", "memset", "memmove", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}


@pytest.fixture(scope="module")
def generated(shop: Workshop) -> dict[str, Generated]:
    """Every diverse model, some with a hop of its own."""
    return {name: shop.build(make(), hop=1 + i % 3) for i, (name, make) in enumerate(DIVERSE.items())}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", DIVERSE)
def test_strict_warnings(shop: Workshop, generated: dict[str, Generated], name: str, compiler: str) -> None:
    g = generated[name]
    shop.objects(g.sources, compiler, STRICT)
    shop.objects([g.folder / "test/selftest.c", g.folder / "test/main.c"], compiler, [*STRICT, f"-I{g.folder / 'src'}"])


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize(
    "name", ["causal_chain", "float_border", "two_outputs", "two_inputs", "image_clip", "softmax_head"]
)
def test_headers_as_cpp(generated: dict[str, Generated], name: str, compiler: str) -> None:
    """Every header alone, twice, and all together."""
    g = generated[name]
    # An _impl.h is code that two C files share, included with macros set; it is no interface.
    headers = sorted(h for h in (g.folder / "src").glob("*.h") if not h.name.endswith("_impl.h"))
    main = g.folder / "all.cpp"
    main.write_text(
        "".join(f'#include "{h.name}"\n' for h in [*headers, *headers[::-1]]) + "int main() { return 0; }\n"
    )
    flags = ["-fsyntax-only", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{g.folder / 'src'}"]
    run_tool([require_tool(compiler), *flags, main])
    for header in headers:
        alone = g.folder / "alone.cpp"
        alone.write_text(f'#include "{header.name}"\n#include "{header.name}"\n')
        run_tool([require_tool(compiler), *flags, alone])


@pytest.mark.parametrize("name", DIVERSE)
def test_symbols(shop: Workshop, generated: dict[str, Generated], name: str) -> None:
    """External names carry the model's prefix; nothing but three memory functions comes from outside."""
    g = generated[name]
    objects = shop.objects(g.sources, "gcc", ("-std=c99", "-O1", "-fno-stack-protector"))
    lines = run_tool([require_tool("nm"), "-g", *objects]).stdout.splitlines()
    found = [m.groups() for line in lines if (m := re.match(r"^[0-9a-f ]{16} ([A-Za-z]) (\S+)$", line))]
    defined = {symbol for kind, symbol in found if kind != "U"}
    wanted = {symbol for kind, symbol in found if kind == "U"}
    assert f"{PREFIX}_push" in defined
    assert {s for s in defined if not s.startswith(f"{PREFIX}_")} == set()
    assert wanted - defined - ALLOWED_UNDEFINED == set()
    assert {s for kind, s in found if kind in "BbDdC"} == set(), "no writable data: state belongs to the caller"


def test_two_models_in_one_program(shop: Workshop, tmp_path: Path) -> None:
    """Both self-tests run in one program, on one scratch-sharing host, and both are right."""
    parts = [shop.build(causal_chain(), name="first"), shop.build(residual(), name="second", hop=2)]
    main = tmp_path / "main.c"
    main.write_text(
        "int first_selftest(void);\nint second_selftest(void);\n"
        "int main(void) { return first_selftest() + second_selftest(); }\n"
    )
    sources = [s for g in parts for s in [*g.sources, g.folder / "test/selftest.c"]]
    program = tmp_path / "both"
    includes = [f"-I{g.folder / 'src'}" for g in parts]
    objects = shop.objects(sources, "gcc", ("-std=c99", "-O1", *includes))
    run_tool([require_tool("gcc"), main, *objects, "-o", program])
    run_tool([program])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", DIVERSE)
def test_selftest_program(shop: Workshop, generated: dict[str, Generated], name: str, compiler: str) -> None:
    g = generated[name]
    flags = ("-std=c99", "-O1", f"-I{g.folder / 'src'}")
    tests = [g.folder / "test/selftest.c", g.folder / "test/main.c"]
    program = g.folder / f"selftest_{compiler}"
    run_tool([require_tool(compiler), *shop.objects([*g.sources, *tests], compiler, flags), "-o", program])
    assert f"{PREFIX}: 0 wrong" in run_tool([program]).stdout


def test_selftest_notices_a_wrong_weight(shop: Workshop) -> None:
    g = shop.build(causal_chain())
    weights = g.folder / f"src/{PREFIX}_weights.c"
    text = weights.read_text()
    at = re.search(r"_w\[\d+\] = \{\s*(-?\d+)", text)
    assert at
    weights.write_text(text[: at.start(1)] + str(-int(at[1]) or 100) + text[at.end(1) :])
    program = g.folder / "wrong"
    sources = [*g.sources, g.folder / "test/selftest.c", g.folder / "test/main.c"]
    run_tool([require_tool("gcc"), "-std=c99", f"-I{g.folder / 'src'}", *sources, "-o", program])
    assert subprocess.run([program], check=False, capture_output=True).returncode != 0


def test_cmake_build_and_ctest(shop: Workshop, tmp_path: Path) -> None:
    """The folder by itself, and as a subdirectory of a firmware project that links it."""
    cmake = require_tool("cmake")
    require_tool("ctest")
    g = shop.build(causal_chain())
    run_tool([cmake, "-S", g.folder, "-B", tmp_path / "build"])
    run_tool([cmake, "--build", tmp_path / "build"])
    assert "100% tests passed" in run_tool(["ctest", "--test-dir", tmp_path / "build"]).stdout
    app = tmp_path / "app"
    app.mkdir()
    (app / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.15)\nproject(app C)\n"
        f"add_subdirectory({g.folder} model)\nadd_executable(app app.c)\n"
        f"target_link_libraries(app {PREFIX}::{PREFIX})\n"
    )
    (app / "app.c").write_text(
        f'#include "{PREFIX}.h"\nstatic {PREFIX}_state_t st;\nint main(void) {{ {PREFIX}_init(&st); return 0; }}\n'
    )
    run_tool([cmake, "-S", app, "-B", tmp_path / "app_build"])
    run_tool([cmake, "--build", tmp_path / "app_build"])


def test_state_and_scratch_have_the_promised_sizes_on_every_model(generated: dict[str, Generated]) -> None:
    for g in generated.values():
        header = g.files[f"src/{PREFIX}.h"]
        report = json.loads(g.files["report.json"])
        for key in ("state_bytes", "scratch_bytes"):
            assert f"#define M_{key.upper()} {report['totals'][key]}\n" in header
        body = re.search(r"typedef struct \{(.*?)\} m_state_t;", header, re.S)
        assert body and "*" not in re.sub(r"/\*.*?\*/", "", body[1], flags=re.S), "no pointer in the state"


def stream(shop: Workshop, g: Generated, total: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    frames = code_frames(g, random_feed(g.graph, total, seed))
    return frames, reference_frames(g, frames)


class Raw:
    """The C functions of a single-input, single-output model on plain buffers, with guard bytes around everything."""

    GUARD = 64

    def __init__(self, shop: Workshop, g: Generated) -> None:
        host = shop.host(g)
        self.ffi, self.lib, self.host = host._ffi, host._lib, host
        memory = g.manifest["memory"]
        self.sizes = (memory["state_bytes"], memory["scratch_bytes"])
        self.frame = g.manifest["outputs"][0]["frame_elements"]
        self.bound = g.manifest["outputs"][0]["max_out"]
        self.scratch = self.guarded(self.sizes[1])

    def guarded(self, size: int) -> np.ndarray:
        return np.full(size + 2 * self.GUARD, 0x77, np.uint8)

    def untouched(self, buffer: np.ndarray) -> bool:
        return bool((buffer[: self.GUARD] == 0x77).all() and (buffer[-self.GUARD :] == 0x77).all())

    def at(self, buffer: np.ndarray) -> object:
        return self.ffi.cast("void *", buffer.ctypes.data + self.GUARD)

    def new(self) -> np.ndarray:
        state = self.guarded(self.sizes[0])
        self.lib.m_init(self.at(state))
        return state

    def _call(self, state: np.ndarray, frames: np.ndarray | None, n: int) -> np.ndarray:
        most = max((max(n, 0) * self.bound["P"] + self.bound["c"]) // self.bound["M"], self.bound["finish"])
        out = self.guarded(most * self.frame)
        if frames is None:
            count = self.lib.m_finish(self.at(state), self.at(self.scratch), self.at(out))
        else:
            source = self.ffi.cast("void *", np.ascontiguousarray(frames).ctypes.data)
            count = self.lib.m_push(self.at(state), self.at(self.scratch), source, n, self.at(out))
        assert count >= 0
        body = out[self.GUARD : len(out) - self.GUARD]
        assert self.untouched(out) and self.untouched(state) and self.untouched(self.scratch), (
            "wrote outside its buffers"
        )
        assert (body[count * self.frame :] == 0x77).all(), "wrote more frames than it returned"
        return body[: count * self.frame].reshape(count, self.frame).view(np.int8)

    def push(self, state: np.ndarray, frames: np.ndarray, n: int | None = None) -> np.ndarray:
        return self._call(state, frames, len(frames) if n is None else n)

    def finish(self, state: np.ndarray) -> np.ndarray:
        return self._call(state, None, 0)


@pytest.fixture(scope="module")
def raw(shop: Workshop) -> tuple[Raw, Generated]:
    g = shop.build(residual(), hop=2)
    return Raw(shop, g), g


def test_snapshot_by_memcpy(shop: Workshop, raw: tuple[Raw, Generated]) -> None:
    """A copy of the state in the middle goes on as the original does, wherever it lies in memory."""
    r, g = raw
    (x,), (want,) = stream(shop, g, 50, 1)
    for cut in (0, 1, 7, 26, 49):
        state = r.new()
        head = r.push(state, x[:cut])
        copy = state.copy()
        for s in (state, copy):
            r.scratch[r.GUARD : -r.GUARD] = 0x3C
            tail = (
                [r.push(s, x[cut:40]), r.push(s, x[40:] if cut <= 40 else x[cut:])]
                if cut <= 40
                else [r.push(s, x[cut:])]
            )
            assert_same(np.concatenate([head, *tail, r.finish(s)]), want, f"snapshot after {cut} frames")


def test_two_instances_share_one_scratch(shop: Workshop, raw: tuple[Raw, Generated]) -> None:
    r, g = raw
    clips = [stream(shop, g, n, n) for n in (40, 33)]
    states, got = [r.new(), r.new()], [[], []]  # type: ignore[var-annotated]
    for at in range(0, 40, 3):
        for i in (0, 1):
            got[i].append(r.push(states[i], clips[i][0][0][at : at + 3]))
    for i in (0, 1):
        got[i].append(r.finish(states[i]))
        assert_same(np.concatenate(got[i]), clips[i][1][0], f"instance {i}")


def test_nothing_to_push_and_odd_orders(shop: Workshop, raw: tuple[Raw, Generated]) -> None:
    """n <= 0 changes nothing; finish twice gives an empty stream; push after finish and reset start afresh."""
    r, g = raw
    (x,), (want,) = stream(shop, g, 30, 3)
    state = r.new()
    for n in (0, -1, -(2**31)):
        before = state.copy()
        assert len(r.push(state, x, n)) == 0
        assert (state == before).all()
    assert len(r.finish(state)) == 0, "an empty stream has no output"
    assert len(r.finish(state)) == 0
    for _ in range(2):
        parts = [r.push(state, x[:11]), r.push(state, x[:5], 0), r.push(state, x[11:]), r.finish(state)]
        assert_same(np.concatenate(parts), want, "push after finish")
        assert len(r.finish(state)) == 0
    r.push(state, x[:17])
    r.lib.m_init(r.at(state))
    assert_same(np.concatenate([r.push(state, x), r.finish(state)]), want, "reset in the middle")


def test_clip_models_end_by_themselves(shop: Workshop, generated: dict[str, Generated]) -> None:
    """A fixed T: outputs of a clip come without finish, the next push is the next clip, also within one push."""
    g = generated["image_clip"]
    r = Raw(shop, g)
    clips = [stream(shop, g, 9, n) for n in (1, 2, 3)]
    x, want = np.concatenate([c[0][0] for c in clips]), np.concatenate([c[1][0] for c in clips])
    for sizes in ([27], [1] * 27, [10, 17], [5, 20, 2]):
        state, at, got = r.new(), 0, []
        for n in sizes:
            got.append(r.push(state, x[at : at + n]))
            at += n
        assert_same(np.concatenate(got), want, f"three clips in pushes {sizes}")
        assert len(r.finish(state)) == 0
    state = r.new()
    r.push(state, x[:4])
    assert r.lib.m_finish(r.at(state), r.at(r.scratch), r.at(r.guarded(4096))) == -1, "a clip that stopped early"
    assert_same(r.push(state, x[:9]), clips[0][1][0], "and then a whole one")


@pytest.mark.parametrize("hop", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["residual", "two_outputs", "wide_stream"])
def test_hops_give_equal_codes(shop: Workshop, name: str, hop: int) -> None:
    g = shop.build(DIVERSE[name](), hop=hop)
    assert f"#define M_HOP_FRAMES {hop} " in g.files[f"src/{PREFIX}.h"]
    total = legal_length(g.graph, 45)
    frames, want = stream(shop, g, total, 4)
    script = Script(g)
    sizes = [1, 2, 3, 4, 5, 8, 9, total - 32]
    at = 0
    for n in sizes:
        script.push([f[at : at + n] for f in frames], n)
        at += n
    script.finish()
    answers = script.run(shop.driver(g, "gcc"))
    for i in range(len(want)):
        assert_same(np.concatenate([outs[i] for _, outs in answers]), want[i], f"hop {hop}, output {i}")


def test_a_hundred_thousand_frames(shop: Workshop) -> None:
    """The clock is reduced again and again; pieces and one call agree with the reference, frame for frame."""
    net = Net("int8", seed=5)
    y = net.conv(net.input([1, 1, "T"]), 2, [3], strides=[3], pads=[1, 1])
    y = net.add(y, net.conv(y, 2, [3], pads=[2, 0], dilations=[1]))
    net.output(net.conv(y, 1, [2], strides=[2]))
    g = shop.build(net.model())
    total = legal_length(g.graph, 100_003)
    (x,), (want,) = stream(shop, g, total, 6)
    r = Raw(shop, g)
    state = r.new()
    assert_same(np.concatenate([r.push(state, x), r.finish(state)]), want, "one call")
    rng = np.random.default_rng(7)
    at, got, clocks = 0, [], []
    while at < total:
        n = int(rng.integers(1, 4000))
        got.append(r.push(state, x[at : at + n]))
        clocks.append(int(state[r.GUARD : r.GUARD + 4].view(np.int32)[0]))
        at += n
    got.append(r.finish(state))
    assert_same(np.concatenate(got), want, "pieces")
    assert max(clocks) < 100, f"the clock stays small: {max(clocks)}"


def test_clock_presets(shop: Workshop) -> None:
    """From every clock of two periods after the warm-up, set ahead by one to three periods: the codes are the same."""
    g = shop.build(two_outputs(), hop=1)
    total = legal_length(g.graph, 90)
    frames, want = stream(shop, g, total, 8)
    text = g.files[f"src/{PREFIX}.c"]
    warm_up, period = (int(re.search(rf"{key} = (\d+)", text)[1]) for key in ("WARM_UP", "PERIOD"))  # type: ignore[index]
    host = shop.host(g)
    for start in range(warm_up + 2 * period + 1):
        host.poison(0xFF)
        head = host._push([frames[0][:start]], start)
        clock = int(host._state[0])
        assert clock < warm_up + period
        if clock >= warm_up:  # whole periods more or less must not matter; the next tick takes them off
            host._state[0] = clock + (1 + start % 3) * period
        tail = host._push([frames[0][start:]], total - start)
        end = host._finish()
        for i in (0, 1):
            assert_same(np.concatenate([head[i], tail[i], end[i]]), want[i], f"preset after {start} frames")


def test_same_input_same_bytes(shop: Workshop, tmp_path: Path) -> None:
    """Twice in this process, and in two others with different hash seeds and another folder."""
    made = []
    for name in ("residual", "two_inputs", "image_clip"):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(DIVERSE[name]().SerializeToString())
        made.append((path, shop.build(path).files))
        assert made[-1][1] == shop.build(path).files
        text = "".join(made[-1][1].values())
        assert str(tmp_path) not in text and os.uname().nodename not in text.split()
    build = "[codegen.build(path, codegen.Options(name='m')) for path in sys.argv[1:]]"
    for seed in ("1", "77"):
        command = [
            sys.executable,
            "-c",
            f"import sys, json, codegen; print(json.dumps({build}))",
            *(p for p, _ in made),
        ]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert json.loads(done.stdout) == [files for _, files in made]


def test_no_float_and_no_forbidden_headers(generated: dict[str, Generated]) -> None:
    for name, g in generated.items():
        for path, text in g.files.items():
            if not path.startswith("src/") or path.endswith("_float.h"):
                continue
            bare = re.sub(r"/\*.*?\*/|//[^\n]*|^#define \w+_SCALE .*$", "", text, flags=re.S | re.M)
            assert not re.search(r"\b(float|double|malloc|free|printf|alloca)\b", bare), f"{name}: {path}"
            assert set(re.findall(r"#include <([^>]+)>", text)) <= {"stdint.h", "string.h", "stddef.h"}, path


def test_float_helper_header(shop: Workshop, tmp_path: Path) -> None:
    """quantize and dequantize of the helper header agree with the host's, ties and saturation included."""
    g = shop.build(DIVERSE["float_border"]())
    q = g.graph.inputs[0].qparams
    assert q is not None
    values = np.concatenate([np.arange(-300, 301) * 0.5 * q.scale, [1e9, -1e9]]).astype(np.float32)

    port = g.graph.inputs[0]
    padded = np.resize(values, (1, g.manifest["inputs"][0]["frame_elements"], -(-len(values) // 4)))
    want = (whole_clip.quantize_input(padded, port).astype(np.int16) + 128).T.reshape(-1)
    main = tmp_path / "main.c"
    listed = ", ".join(f"{float(v):.9e}f" for v in padded.reshape(-1))
    main.write_text(
        f'#include <stdio.h>\n#include "{PREFIX}_float.h"\nint main(void) {{ static const float v[] = {{{listed}}};\n'
        "for (unsigned i = 0; i < sizeof v / sizeof *v; ++i)\n"
        f'printf("%d\\n", (int){PREFIX}_quantize_x(v[i])); return 0; }}\n'
    )
    program = tmp_path / "main"
    run_tool([require_tool("gcc"), "-std=c99", f"-I{g.folder / 'src'}", main, "-o", program, "-lm"])
    got = [int(v) for v in run_tool([program]).stdout.split()]
    assert got == want.tolist()


def test_equal_tables_are_stored_once(shop: Workshop) -> None:
    """Two layers with one function, and constants that happen to be equal: one table, other names for it."""
    net = Net(seed=4)
    x = net.input([1, 4, "T"])
    a, b = (net.real_op("Sigmoid", [x], scale=(1 / 256, -128)) for _ in range(2))
    net.output(net.conv(net.add(net.conv(a, 4, [3], pads=[2, 0]), net.conv(b, 4, [3], pads=[2, 0])), 2, [1]))
    g = shop.build(net.model())
    header, source = g.files["src/m_weights.h"], g.files["src/m_weights.c"]
    names = re.findall(r"^#define (m_\w+) (m_\w+)$", header, re.MULTILINE)
    assert any(alias.endswith("_lut") for alias, _ in names) and names
    bodies = re.findall(r"= \{\n(.*?)\n\};", source, re.DOTALL)
    kinds = re.findall(r"const (\w+) m_", source)
    assert len(set(zip(kinds, bodies, strict=True))) == len(bodies), "every table once"
    for alias, known in names:
        assert f" {known}[" in source and f" {alias}[" not in source
    feed = random_feed(g.graph, 20)
    want, got = whole_clip.run(g.graph, feed), shop.host(g).run(feed, [3])
    for name, values in want.items():
        assert_same(got[name], values, name)


@pytest.mark.parametrize("name", DIVERSE)
def test_long_names_keep_lines_short(generated: dict[str, Generated], name: str) -> None:
    """A name of 30 letters changes where lines end and nothing else."""
    for path, text in generated[name].files.items():
        if path.endswith((".c", ".h")):
            long = re.sub(r"\b(m|M)_", rf"\1{'x' * 29}_", text)
            made = wrapped(long)
            assert _tokens(made) == _tokens(long), path
            assert max(map(len, made.split("\n"))) <= WIDTH, path


def _tokens(text: str) -> list[str]:
    """Tokens of C in their order, and words of comments apart (a comment may go before the code that it explains)."""
    text = text.replace("\\\n", " ")
    comments = re.findall(r"/\*.*?\*/", text, re.DOTALL)
    words = sorted(" ".join(comments).replace("*", " ").split())
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).split() + words


def test_weight_tables_say_what_they_are(shop: Workshop) -> None:
    """ONNX name, shape and scale of every weight table stand over it."""
    g = shop.build(residual())
    weights = g.files[f"src/{PREFIX}_weights.c"]
    shapes = {i.name: list(i.dims) for i in onnx.load(g.path).graph.initializer if len(i.dims) > 1}
    assert shapes
    for name, shape in shapes.items():
        assert re.search(rf"/\* {re.escape(name)} {re.escape(str(shape))}, scale [-0-9.e]+", weights), name
