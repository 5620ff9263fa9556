"""`--endless`: a network trained on windows of fixed length slides over a stream.

Without padding along the stream every frame is what the window's own model says, exactly: the reference and
onnxruntime are run on every window anew. With padding it is another function: `build` says so, `verify` measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import (
    PREFIX,
    Array,
    Feed,
    Generated,
    Script,
    Workshop,
    assert_same,
    code_frames,
    reference_frames,
    require_tool,
    run_tool,
    runtime_run,
)
from models import Act, Net, causal_chain, dense_only, residual
from paths import MLPERF_TINY

from codegen import CodegenError, analyze
from codegen.cli import main
from codegen.ir.lengths import lengths_with_faults
from codegen.ops.reduce import ReduceS8, SlidingReduceS8
from codegen.options import Options
from codegen.pipeline import compile_model, load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed, verify

T = 16


def trunk(net: Net, pad: int = 0, stride: int = 1, border: str = "codes") -> Act:
    x = net.input([1, 3, T], border=border)
    y = net.conv(x, 6, [3], pads=[pad, pad], strides=[stride], then=[("Relu", ())])
    return net.conv(y, 5, [3], pads=[pad, pad])


def flat(net: Net, y: Act) -> Act:
    return net.code_op("Reshape", y, [np.asarray([1, -1], np.int64)])


def dense_head(dtype: str = "int8", *, pad: int = 0, stride: int = 1, border: str = "codes") -> onnx.ModelProto:
    net = Net(dtype, seed=1)
    net.output(net.gemm(flat(net, trunk(net, pad, stride, border)), 4), border)
    return net.model()


def pooled_head(kind: str, dtype: str = "int8", *, pad: int = 0, stride: int = 1) -> onnx.ModelProto:
    """A global reduction over time, then a Gemm."""
    net = Net(dtype, seed=2)
    y = trunk(net, pad, stride)
    if kind.startswith("Reduce"):
        y = net.real_op(kind, [y], axes=[2], keepdims=0) if kind != "ReduceSum" else summed(net, y)
    elif kind == "AveragePool":
        y = net.real_op(kind, [y], kernel_shape=[y.real.shape[2]])
    else:
        y = net.real_op(kind, [y], same=kind == "GlobalMaxPool")
    net.output(net.gemm(flat(net, y), 4))
    return net.model()


def summed(net: Net, y: Act) -> Act:
    return net.real_op("ReduceSum", [y], consts=[np.asarray([2], np.int64)], keepdims=0)


def image_window(dtype: str = "int8") -> onnx.ModelProto:
    """Frames [W, C]: mean over time and frequency; padded inside the frame only."""
    net = Net(dtype, seed=3)
    x = net.input([1, 2, 12, 7])
    y = net.conv(x, 4, [3, 3], pads=[0, 1, 0, 1], strides=[1, 2])
    y = net.conv(y, 6, [4, 1])
    y = net.real_op("GlobalAveragePool", [y])
    net.output(net.gemm(flat(net, y), 3))
    return net.model()


def last_frame() -> onnx.ModelProto:
    """The window's last frame, then a Gemm (the head of a temporal convolution network)."""
    net = Net(seed=4)
    y = net.code_op("Gather", trunk(net), [np.asarray(-1, np.int64)], axis=2)
    net.output(net.gemm(y, 4))
    return net.model()


EXACT: dict[str, Callable[[], onnx.ModelProto]] = {
    "dense": dense_head,
    "dense_uint8": lambda: dense_head("uint8"),
    "dense_float": lambda: dense_head("int8", border="float"),
    "dense_stride2": lambda: dense_head(stride=2),
    "average": lambda: pooled_head("GlobalAveragePool"),
    "average_uint8": lambda: pooled_head("GlobalAveragePool", "uint8"),
    "average_stride3": lambda: pooled_head("GlobalAveragePool", stride=3),
    "max": lambda: pooled_head("GlobalMaxPool"),
    "max_uint8": lambda: pooled_head("GlobalMaxPool", "uint8"),
    "mean": lambda: pooled_head("ReduceMean"),
    "min": lambda: pooled_head("ReduceMin"),
    "sum": lambda: pooled_head("ReduceSum"),
    "average_pool": lambda: pooled_head("AveragePool"),
    "image": image_window,
    "image_uint8": lambda: image_window("uint8"),
    "last": last_frame,
}
TIES = ("average_pool", "sum", "min")


def each_window(g: Generated, feed: Feed, stride: int) -> list[Feed]:
    """The stretches of the stream that the sliding frames stand for."""
    axis, length = (g.graph.inputs[0].view.time_axis, load_int8(g.path).clip_length)
    assert axis is not None and length is not None
    total = feed["x"].shape[axis]
    starts = range(0, total - length + 1, stride)
    return [{"x": np.take(feed["x"], range(k, k + length), axis)} for k in starts]


def stride_of(g: Generated) -> int:
    extent = analyze(g.path, Options(endless=True)).outputs[0].extent
    assert extent.S is not None and extent.S.denominator == 1
    return int(extent.S)


@pytest.mark.parametrize("name", EXACT)
def test_equals_every_window(shop: Workshop, name: str) -> None:
    g = shop.build(EXACT[name](), endless=True)
    assert g.graph.clip_length is None and any("exactly" in note for note in g.graph.notes)
    feed = random_feed(g.graph, 47, 7)
    (port,) = g.graph.outputs
    want = whole_clip.run(g.graph, feed)[port.name]
    assert np.unique(want).size > 8, "a dead output shows nothing"
    host = shop.host(g)
    for chunks in (None, [1], [2], [5, 1, 3], [16]):
        host.poison(0xA5)
        assert_same(host.run(feed, chunks)[port.name], want, f"C against reference, pushes {chunks}")
    windows = each_window(g, feed, stride_of(g))
    frames = want.reshape(want.shape[0], -1)
    first = lengths_with_faults(g.graph.time_graph(), T if name[:5] != "image" else 12)[0][port.tensor] - 1
    frames = frames[first : first + len(windows)]  # before `first` no window was full; a window's end may be unread
    assert len(windows) == len(frames) > 8
    clip = load_int8(g.path)
    again = [whole_clip.run(clip, window)[port.name].reshape(-1) for window in windows]
    assert_same(frames, np.stack(again), "sliding against windows by the reference")
    if name not in TIES:
        theirs = [runtime_run(g.path, window)[port.name].reshape(-1) for window in windows]
        assert_same(frames, np.stack(theirs), "sliding against windows by onnxruntime")


@pytest.mark.parametrize("name", ["average_stride3", "mean", "sum", "max", "image"])
def test_running_sums_survive_resets(shop: Workshop, name: str) -> None:
    """Poisoned memory, several streams one after the other, short ones first, under the sanitizers."""
    g = shop.build(EXACT[name](), endless=True, hop=3)
    script, wanted = Script(g), []
    rng = np.random.default_rng(5)
    for total in (40, 3, 17, 61):
        frames = code_frames(g, random_feed(g.graph, total, total))
        wanted.append(reference_frames(g, frames)[0])
        if total != 17:
            script.poison(int(rng.integers(0, 256)))
        for at in range(0, total, 7):
            script.push([f[at : at + 7] for f in frames], min(7, total - at))
        script.finish()
    answers = iter(script.run(shop.driver(g, "gcc")))
    for total, want in zip((40, 3, 17, 61), wanted, strict=True):
        got = np.concatenate([next(answers)[1][0] for _ in range(-(-total // 7) + 1)])
        assert_same(got, want, f"stream of {total} frames")


def test_sums_run_and_maxima_do_not(shop: Workshop) -> None:
    """Sums are state (4 bytes a channel) that every frame updates twice; no frame is summed again."""
    average = shop.build(pooled_head("GlobalAveragePool"), endless=True)
    maximum = shop.build(pooled_head("GlobalMaxPool"), endless=True)
    assert "rt_unsum_s8" in average.files["src/m.c"] and "rt_unsum_s8" not in maximum.files["src/m.c"]
    more = average.manifest["memory"]["state_bytes"] - maximum.manifest["memory"]["state_bytes"]
    assert more == 4 * 5


PADDED: dict[str, Callable[[], onnx.ModelProto]] = {
    "dense": lambda: dense_head(pad=1),
    "average": lambda: pooled_head("GlobalAveragePool", pad=1),
    "average_uint8": lambda: pooled_head("GlobalAveragePool", "uint8", pad=1),
    "max": lambda: pooled_head("GlobalMaxPool", pad=1),
}


def test_verify_aligns_a_last_frame(shop: Workshop) -> None:
    """The last frame of a window's trunk is not the sliding stream's first."""
    result = verify(shop.save(last_frame()), Options(endless=True))
    assert [": 0 of " in note for note in result.notes if "windows re-run" in note] == [True], result.notes


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_said_and_measured(shop: Workshop, name: str) -> None:
    path = shop.save(PADDED[name]())
    (note,) = [note for note in analyze(path, Options(endless=True)).notes if note.startswith("endless")]
    assert "not the same function" in note and "verify" in note
    result = verify(path, Options(endless=True))
    assert result.passed
    (measured,) = [note for note in result.notes if "windows re-run" in note]
    assert " 0 of " not in measured, "padding changes some codes"


def test_verify_says_when_it_is_exact(shop: Workshop) -> None:
    result = verify(shop.save(pooled_head("GlobalAveragePool", stride=2)), Options(endless=True))
    (measured,) = [note for note in result.notes if "windows re-run" in note]
    assert result.passed and ": 0 of " in measured and "at most 0 codes" in measured


def gated() -> onnx.ModelProto:
    """Squeeze and excite: the whole window gates each of its frames."""
    net = Net(seed=6)
    y = trunk(net)
    gate = net.real_op("Sigmoid", [net.real_op("GlobalAveragePool", [y])])
    net.output(net.real_op("Mul", [y, gate]))
    return net.model()


def test_what_cannot_slide(shop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No stream axis, or a window that its own frames wait for: refused with the reason."""
    for make, text in ((dense_only, "no stream axis"), (gated, "one frame for the whole stream")):
        path = shop.save(make())
        assert main(["build", str(path), "--endless", "-o", str(tmp_path / "out")]) == 3
        error = capsys.readouterr().err
        assert text in error and not (tmp_path / "out").exists(), error
        with pytest.raises(CodegenError):
            compile_model(path, Options(endless=True))


@pytest.mark.parametrize("make", [causal_chain, residual])
def test_a_stream_stays_a_stream(shop: Workshop, make: Callable[[], onnx.ModelProto]) -> None:
    """A model that is endless already is built as without the option."""
    path = shop.save(make())
    with_option, without = (shop.build(path, endless=flag) for flag in (True, False))
    assert with_option.files["src/m.c"] == without.files["src/m.c"]
    assert verify(path, Options(endless=True)).passed


def test_sliding_reference_is_the_reduction_of_each_window() -> None:
    """The definition, against a loop over windows of another implementation."""
    from codegen.ir.graph import QParams

    x = np.random.default_rng(0).integers(-128, 128, (20, 2, 3, 4)).astype(np.int8)
    reduce = ReduceS8("Sum", (2, 3, 4), True, 5, QParams(0.5, 3), QParams(4.0, -7))
    got = SlidingReduceS8(reduce).reference([x])
    real = (x.astype(np.float64) - 3) * 0.5
    sums = np.stack([real[j : j + 5].sum(axis=(0, 2)) for j in range(16)])
    assert np.array_equal(got, np.clip(np.rint(sums / 4.0) - 7, -128, 127))


@pytest.mark.skipif(not MLPERF_TINY.is_dir(), reason="../shared/models is not there")
def test_wakeword_window_slides_like_the_stream(shop: Workshop) -> None:
    """The file with T = 30 built --endless gives the 282 frames of the file with a free T, on recorded data."""
    window = shop.build(MLPERF_TINY / "sww_streaming_i8io.onnx", endless=True)
    stream = shop.build(MLPERF_TINY / "sww_streaming_dyn_i8io.onnx")
    x: Array = np.load(MLPERF_TINY / "sww_streaming_dyn_real.npz")["input"]
    results = []
    for g in (window, stream):
        (port,), (out,) = g.graph.inputs, g.graph.outputs
        codes = x
        if x.dtype != np.int8:
            assert port.qparams is not None
            codes = np.clip(np.rint(x / np.float32(port.qparams.scale)) + port.qparams.zero_point, -128, 127)
        y = shop.host(g).run({port.name: codes.astype(np.int8)}, [1])[out.name]
        results.append(np.moveaxis(y, y.shape.index(282), 0).reshape(282, 3))
    assert_same(results[0], results[1], "T = 30 against free T")


@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (3, 0), (0, 3), (5, 2)])
@pytest.mark.parametrize("hop", [1, 3])
def test_a_running_sum_runs_behind_any_padding(shop: Workshop, pads: tuple[int, int], hop: int) -> None:
    """Row additions are counted: once the window is full, two for each frame, whatever its length."""
    frames = 40
    net = Net(seed=1)
    y = net.conv(net.input([1, 3, frames]), 5, [1 + sum(pads)], pads=list(pads))
    net.output(net.real_op("GlobalAveragePool", [y]))
    g = shop.build(net.model(), endless=True, hop=hop)
    source = g.folder / "src" / f"{PREFIX}_rt_reduce_s8.c"
    pattern = rf"(void {PREFIX}_rt_(?:un)?sum_s8\([^)]*\)\n{{\n)"
    text, count = re.subn(pattern, r"\1    ++rows_added;\n", source.read_text())
    assert count == 2
    source.write_text(f"extern long rows_added;\n{text}")
    main = g.folder / "main.c"
    main.write_text(COUNTING % {"name": PREFIX, "NAME": PREFIX.upper(), "frames": frames, "hop": hop})
    program = g.folder / "count"
    sources = sorted((g.folder / "src").glob("*.c"))
    run_tool([require_tool("gcc"), "-std=c99", f"-I{g.folder / 'src'}", main, *sources, "-o", program])
    assert int(run_tool([program]).stdout) == 2 * hop * frames


COUNTING = """#include <stdio.h>
#include "%(name)s.h"
long rows_added;
int main(void)
{
    static %(name)s_state_t st;
    static %(name)s_scratch_t sc;
    static signed char x[%(hop)d * 64], y[%(NAME)s_MAX_OUT(%(hop)d) * 64];
    long before = 0;
    %(name)s_init(&st);
    for (int i = 0; i < 4 * %(frames)d; ++i) {
        if (i == 3 * %(frames)d)
            before = rows_added;
        %(name)s_push(&st, &sc, (void *)x, %(hop)d, (void *)y);
    }
    printf("%%ld\\n", rows_added - before);
    return 0;
}
"""
