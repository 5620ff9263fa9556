"""Clips: what needs every frame is summed up row by row and comes at the end, then the clip is armed again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from checks import (
    Array,
    Generated,
    Script,
    Workshop,
    assert_same,
    check_op,
    code_frames,
    reference_frames,
    runtime_run,
    split,
)
from models import Act, Net
from paths import MLPERF_TINY

from codegen import CodegenError, analyze
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed


def trunk(net: Net, border: str = "codes") -> Act:
    """[1, 6, 9] from 11 frames: one convolution, padded on the left only."""
    return net.conv(net.input([1, 3, 11], border=border), 6, [4], pads=[1, 0], then=[("Relu", ())])


def rows(net: Net) -> Act:
    """[1, 5, 8, 4] from an image of 9 rows."""
    return net.conv(net.input([1, 2, 9, 7]), 5, [3, 3], pads=[1, 1, 0, 0], strides=[1, 2], then=[("Relu", ())])


def flat(net: Net, y: Act) -> Act:
    return net.code_op("Flatten", y, axis=1)


def reduced(op: str, axes: tuple[int, ...] | None, image: bool, dtype: str = "int8") -> onnx.ModelProto:
    """One reduction, then a Gemm. axes None: a Global* pool."""
    net = Net(dtype, seed=7)
    y = rows(net) if image else trunk(net)
    if axes is None:
        y = net.real_op(op, [y], same=op == "GlobalMaxPool")
    elif op == "ReduceSum":
        y = net.real_op(op, [y], consts=[np.asarray(axes, np.int64)], keepdims=1)
    elif op == "AveragePool":
        y = net.real_op(op, [y], kernel_shape=list(y.real.shape[2:]))
    else:
        y = net.real_op(op, [y], same=op in ("ReduceMax", "ReduceMin"), axes=list(axes), keepdims=1)
    net.output(net.gemm(flat(net, y), 12))
    return net.model()


def dense(order: str, image: bool = False, dtype: str = "int8", border: str = "codes") -> onnx.ModelProto:
    """Flatten or Reshape and a Gemm over the whole clip; `order` "tc" puts time outside."""
    net = Net(dtype, seed=8)
    y = rows(net) if image else trunk(net, border)
    if order == "tc":
        y = net.code_op("Transpose", y, perm=[0, 2, 3, 1] if image else [0, 2, 1])
    y = net.code_op("Reshape", y, [np.asarray([1, -1], np.int64)]) if image else flat(net, y)
    net.output(net.gemm(net.gemm(y, 5), 12), border)
    return net.model()


def excited(dtype: str = "int8", *, image: bool = False) -> onnx.ModelProto:
    """Squeeze and excite: mean -> Gemm -> Relu -> Gemm -> Sigmoid -> a factor for every channel of every frame."""
    net = Net(dtype, seed=9)
    y = rows(net) if image else trunk(net)
    channels = y.real.shape[1]
    gate = net.real_op("Relu", [net.gemm(flat(net, net.real_op("GlobalAveragePool", [y])), 3)])
    gate = net.real_op("Sigmoid", [net.gemm(gate, channels)])
    gate = net.code_op("Reshape", gate, [np.asarray([1, channels, 1, 1][: y.real.ndim], np.int64)])
    net.output(net.conv(net.real_op("Mul", [y, gate]), 4, [1] * (y.real.ndim - 2)))
    return net.model()


def two_rates(dtype: str = "int8") -> onnx.ModelProto:
    """An output for every frame, and one of the whole clip."""
    net = Net(dtype, seed=10)
    y = trunk(net)
    net.output(net.conv(y, 2, [3], pads=[1, 1]), name="each")
    net.output(net.gemm(flat(net, net.real_op("GlobalAveragePool", [y])), 12), name="once")
    return net.model()


def two_reductions() -> onnx.ModelProto:
    """Mean and maximum of one trunk beside each other, then a Gemm: operators among what exists once."""
    net = Net(seed=11)
    y = trunk(net)
    both = [
        flat(net, net.real_op(op, [y], same=op == "GlobalMaxPool")) for op in ("GlobalAveragePool", "GlobalMaxPool")
    ]
    net.output(net.gemm(net.real_op("Concat", both, axis=1), 12))
    return net.model()


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "average": (lambda: reduced("GlobalAveragePool", None, False), "equal"),
    "average_uint8": (lambda: reduced("GlobalAveragePool", None, False, "uint8"), "equal"),
    "average_image": (lambda: reduced("GlobalAveragePool", None, True), "equal"),
    "max": (lambda: reduced("GlobalMaxPool", None, False), "equal"),
    "max_image_uint8": (lambda: reduced("GlobalMaxPool", None, True, "uint8"), "equal"),
    "mean_time": (lambda: reduced("ReduceMean", (2,), True), "ties"),
    "mean_frequency": (lambda: reduced("ReduceMean", (3,), True), "ties"),
    "mean_both": (lambda: reduced("ReduceMean", (2, 3), True), "ties"),
    "mean_channels": (lambda: reduced("ReduceMean", (1, 2), True), "ties"),
    "mean_all": (lambda: reduced("ReduceMean", (1, 2, 3), True, "uint8"), "ties"),
    "sum_time": (lambda: reduced("ReduceSum", (2,), False), "ties"),
    "sum_both": (lambda: reduced("ReduceSum", (2, 3), True, "uint8"), "ties"),
    "max_time": (lambda: reduced("ReduceMax", (2,), True), "ties"),
    "min_both": (lambda: reduced("ReduceMin", (2, 3), True), "ties"),
    "average_pool": (lambda: reduced("AveragePool", (2,), False), "ties"),
    "average_pool_image": (lambda: reduced("AveragePool", (2, 3), True), "ties"),
    "dense_ct": (lambda: dense("ct"), "equal"),
    "dense_tc": (lambda: dense("tc"), "equal"),
    "dense_uint8": (lambda: dense("ct", dtype="uint8"), "equal"),
    "dense_float": (lambda: dense("tc", border="float"), "equal"),
    "dense_image_ct": (lambda: dense("ct", True), "equal"),
    "dense_image_tc": (lambda: dense("tc", True, "uint8"), "equal"),
    "two_rates": (two_rates, "equal"),
    "two_rates_uint8": (lambda: two_rates("uint8"), "equal"),
    "two_reductions": (two_reductions, "equal"),
}


@pytest.mark.parametrize("name", CASES)
def test_clip(shop: Workshop, name: str) -> None:
    """Row by row in any pushes == the reference == onnxruntime; the state holds sums, never the whole clip."""
    make, runtime = CASES[name]
    g = check_op(shop, make(), runtime=runtime)
    assert g.graph.clip_length in (9, 11)
    assert analyze(g.path).kind.startswith("clip of ")


@pytest.mark.parametrize("make", [excited, lambda: excited("uint8"), lambda: excited(image=True)])
def test_squeeze_and_excite(shop: Workshop, make: Callable[[], onnx.ModelProto]) -> None:
    """The whole clip has to be seen before its first frame goes on: one push is one clip; `analyze` says its cost."""
    model = make()
    g = check_op(shop, model, runtime="ties")
    report = analyze(g.path)
    (note,) = [note for note in report.notes if note.startswith("one push is the whole clip")]
    assert report.kind.startswith("whole")
    assert f"{report.scratch_bytes} B of scratch" in note and "one frame for the whole stream" in note, note
    largest = max(t.frame_bytes for t in g.graph.tensors.values())
    assert report.scratch_bytes >= largest
    with pytest.raises(CodegenError):
        shop.build(g.path, plan="stream")


def session(g: Generated, clips: int, cuts: list[list[int]], poison: bool) -> tuple[Script, list[list[Array]]]:
    """`clips` clips one after the other; row pushes of given sizes that need not end where a clip ends."""
    length = g.graph.clip_length or 1
    parts = [code_frames(g, random_feed(g.graph, length, 100 + k)) for k in range(clips)]
    script = Script(g)
    if poison:
        script.poison(0xA5)
    stream = [np.concatenate(frames) for frames in zip(*parts, strict=True)]
    at = 0
    for sizes in cuts:
        for n in sizes:
            script.push([f[at : at + n] for f in stream], n)
            at += n
    assert at == clips * length
    return script, [reference_frames(g, part) for part in parts]


@pytest.mark.parametrize("name", ["average", "max_image_uint8", "dense_tc", "dense_image_tc", "two_rates", "sum_both"])
def test_clips_one_after_the_other(shop: Workshop, name: str) -> None:
    """A clip ends by itself and the next one starts: no reset between them, pushes across the border, sanitizers on."""
    g = shop.build(CASES[name][0]())
    length, rng = g.graph.clip_length or 1, np.random.default_rng(3)
    program = shop.driver(g, "gcc")
    for cuts in ([[1] * 4 * length], [[4 * length]], [split(4 * length, rng)], [[3 * length - 2, length + 2]]):
        script, want = session(g, 4, cuts, True)
        answers = script.run(program)
        assert all(status == 0 for status, _ in answers)
        for i, port in enumerate(g.graph.outputs):
            got = np.concatenate([outs[i] for _, outs in answers])
            assert_same(got, np.concatenate([w[i] for w in want]), f"{name}, {port.name}, pushes {cuts}")


@pytest.mark.parametrize("name", ["average", "dense_ct", "two_rates"])
def test_finish_inside_a_clip(shop: Workshop, name: str) -> None:
    """An error, and the clip that follows is whole again; between clips finish is a no-op."""
    g = shop.build(CASES[name][0]())
    length = g.graph.clip_length or 1
    feed = random_feed(g.graph, length, 2)
    frames = code_frames(g, feed)
    script = Script(g)
    script.poison(0x5A)
    for n in (length - 1, 1):
        script.push([f[:n] for f in frames], n)
        script.finish()
        script.push(frames, length)
    script.finish()
    answers = script.run(shop.driver(g, "gcc"))
    assert [status for status, _ in answers] == [0, -1, 0, 0, -1, 0, 0]
    want = reference_frames(g, frames)
    for whole in (answers[2], answers[5]):
        for got, expected in zip(whole[1], want, strict=True):
            assert_same(got, expected, f"{name} after a broken clip")
    assert all(len(out) == 0 for out in answers[6][1])
    host = shop.host(g)
    host.push({"x": feed["x"][:, :, :4]})
    with pytest.raises(CodegenError, match="length"):
        host.finish()
    assert_same(
        host.push(feed)[g.graph.outputs[0].name], whole_clip.run(g.graph, feed)[g.graph.outputs[0].name], "next"
    )


def test_a_frame_at_a_time_and_one_at_the_end(shop: Workshop) -> None:
    """Counts of an output at the frame rate and of one per clip."""
    g = shop.build(two_rates())
    host = shop.host(g)
    feed = random_feed(g.graph, 11, 1)
    counts = [tuple(len_of(host.push({"x": feed["x"][:, :, t : t + 1]}))) for t in range(11)]
    assert [c[1] for c in counts] == [0] * 10 + [1]
    assert sum(c[0] for c in counts) == 9 and counts[4][0] == 1 and counts[0][0] == 0


def len_of(outputs: dict[str, Array]) -> list[int]:
    return [outputs["each"].shape[2], outputs["once"].shape[0]]


def test_state_holds_sums_only(shop: Workshop) -> None:
    """Global average over a long clip: the bytes do not grow with its length."""

    def build(length: int) -> int:
        net = Net(seed=12)
        y = net.conv(net.input([1, 3, length]), 6, [4])
        net.output(net.gemm(flat(net, net.real_op("GlobalAveragePool", [y])), 4))
        memory = shop.build(net.model()).manifest["memory"]
        return int(memory["state_bytes"] + memory["scratch_bytes"])

    assert build(20) == build(200) < 100


BENCHMARKS = {
    "kws_dscnn": (49, 3_600),
    "ic_resnet8": (32, 10_272),
    "vww_mobilenet": (96, 13_728),
}


@pytest.mark.skipif(not MLPERF_TINY.is_dir(), reason="../shared/models is not there")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_mlperf_tiny_by_rows(shop: Workshop, name: str) -> None:
    """Recorded clips, row by row in several pushes: equal to the reference and to onnxruntime (softmax within 1)."""
    path = MLPERF_TINY / f"{name}_i8io.onnx"
    length, most = BENCHMARKS[name]
    g = shop.build(path)
    assert g.graph.clip_length == length
    assert g.manifest["memory"]["state_bytes"] + g.manifest["memory"]["scratch_bytes"] <= most
    (port,), (out,) = g.graph.inputs, g.graph.outputs
    archive = np.load(MLPERF_TINY / f"{name}_real.npz")
    host = shop.host(g)
    axis = port.view.time_axis
    assert axis is not None
    for k, clip in enumerate(archive["input"]):
        x = border(clip[None], port.dtype)
        want = whole_clip.run(g.graph, {port.name: x})[out.name]
        for size in (1, 5, length):
            got = [host.push({port.name: part})[out.name] for part in np.split(x, range(size, length, size), axis)]
            got_all = np.concatenate(got)
            assert_same(got_all, want, f"{name} clip {k}, pushes of {size}")
        assert_same(want, runtime_run(path, {port.name: x})[out.name], f"{name} clip {k}, onnxruntime", 1)
        assert_same(border(want, "int8"), archive["output_ort"][k : k + 1], f"{name} clip {k}, recorded", 1)
        assert np.argmax(want) == np.argmax(archive["output_ort"][k])


def border(codes: Array, dtype: str) -> Array:
    """Codes of the other signedness."""
    if codes.dtype == np.dtype(dtype):
        return codes
    shift = 128 if dtype == "uint8" else -128
    return (codes.astype(np.int16) + shift).astype(dtype)


@pytest.mark.skipif(not MLPERF_TINY.is_dir(), reason="../shared/models is not there")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_mlperf_tiny_before_the_softmax(shop: Workshop, name: str) -> None:
    """The logits, where nothing is approximate: equal to onnxruntime code for code."""
    path = MLPERF_TINY / f"{name}_i8io.onnx"
    model = onnx.load(path)
    softmax = next(n for n in model.graph.node if n.op_type == "Softmax")
    made = {n.output[0]: n for n in model.graph.node}
    codes = made[softmax.input[0]].input[0]
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(codes, onnx.TensorProto.INT8, None))
    g = shop.build(model)
    (port,) = g.graph.inputs
    for clip in np.load(MLPERF_TINY / f"{name}_real.npz")["input"]:
        feed = {port.name: border(clip[None], port.dtype)}
        want = whole_clip.run(g.graph, feed)[codes]
        assert_same(shop.host(g).run(feed, [1])[codes], want, f"{name} by rows")
        assert_same(want, runtime_run(g.path, feed)[codes], f"{name}, onnxruntime")
