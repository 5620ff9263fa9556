"""The known traps of streaming converters, each a small named model, under sanitizers, with every length that hurts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from batches import FAST, Batch
from checks import Generated, Script, Workshop, assert_same, inner, outer, runtime_run, split
from models import Act, Net
from onnx import TensorProto, helper, numpy_helper
from random_graphs import conv_transpose
from streams import Session, clip, run_reference

from codegen import analyze
from codegen.errors import CodegenError
from codegen.ir.lengths import counts, lengths
from codegen.ops.conv import ConvS8
from codegen.options import Options
from codegen.pipeline import load_int8
from codegen.plan.outputs import is_legal
from codegen.plan.streaming import plan
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

SANITIZE = ("-std=c99", "-O0", "-g", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FAST_SHARED = (*FAST, "-fPIC")


def two_level_unet(dtype: str = "int8", zero: int | None = None) -> onnx.ModelProto:
    """conv -> stride 2 -> stride 2 -> ConvTranspose -> concat skip -> ConvTranspose -> concat skip."""
    net = Net(dtype, seed=5, zero=zero)
    x = net.input([1, 3, "T"])
    a = net.conv(x, 4, [3], pads=[1, 1])
    b = net.conv(a, 4, [4], strides=[2], pads=[1, 1], then=[("Relu", ())])
    c = net.conv(b, 5, [4], strides=[2], pads=[1, 1])
    up = conv_transpose(net, c, 4, [4], strides=[2], pads=[1, 1])
    y = net.real_op("Concat", [up, b], axis=1)
    up = conv_transpose(net, net.conv(y, 4, [3], pads=[1, 1]), 3, [2], strides=[2])
    net.output(net.conv(net.real_op("Concat", [a, up], axis=1), 2, [3], pads=[2, 0]))
    return net.model()


def cropped_ends() -> onnx.ModelProto:
    """A crop and a transposed convolution whose last frames must wait for the end of the clip."""
    net = Net(seed=6)
    x = net.input([1, 3, "T"])
    y = net.real_op("Pad", [net.conv(x, 4, [3], pads=[1, 1])], consts=[np.asarray([0, 0, -1, 0, 0, -3])], same=True)
    net.output(y, name="cropped")
    net.output(conv_transpose(net, y, 3, [5], strides=[2], pads=[1, 4]), name="short_tail")
    net.output(conv_transpose(net, x, 2, [2], strides=[3]), name="gaps")
    net.output(conv_transpose(net, x, 2, [3], strides=[2], pads=[2, 0], output_padding=[1]), name="extra")
    return net.model()


def shared_ring() -> tuple[onnx.ModelProto, str]:
    """Readers k=3 and k=5 of one tensor, and that tensor's name."""
    net = Net(seed=7)
    y = net.conv(net.input([1, 2, "T"]), 3, [1])
    net.output(net.conv(y, 2, [3], pads=[2, 0]))
    net.output(net.conv(y, 2, [5], pads=[4, 0]))
    return net.model(), y.name


def noncausal_residual() -> onnx.ModelProto:
    net = Net(seed=8, dtype="uint8")
    x = net.input([1, 3, "T"])
    net.output(net.add(x, net.conv(x, 3, [5], pads=[0, 4])))
    return net.model()


def four_branches() -> onnx.ModelProto:
    """Four lookaheads (8, 1, 0 and none at all) side by side, then a convolution over them."""
    net = Net(seed=9, dtype="uint8", zero=77)
    x = net.input([1, 2, "T"])
    parts = [
        net.conv(x, 2, [3], dilations=[4], pads=[0, 8]),
        net.conv(x, 3, [3], pads=[1, 1]),
        net.conv(x, 1, [4], pads=[3, 0]),
        x,
    ]
    net.output(net.conv(net.real_op("Concat", parts, axis=1), 3, [2], pads=[1, 0]))
    return net.model()


def total_stride_four() -> onnx.ModelProto:
    net = Net(seed=10)
    y = net.conv(net.input([1, 2, "T"]), 4, [3], strides=[2], pads=[1, 1])
    y = net.real_op("MaxPool", [y], same=True, kernel_shape=[2], strides=[2])
    net.output(net.conv(y, 3, [3], pads=[1, 1]))
    return net.model()


def three_rates() -> onnx.ModelProto:
    """Two inputs on one clock; outputs at rate 1, 1/2 and 2 with their own delays."""
    net = Net(seed=11)
    a, b = net.input([1, 2, "T"], name="left"), net.input([1, 3, "T"], name="right")
    y = net.add(net.conv(a, 4, [3], pads=[2, 0]), net.conv(b, 4, [4], pads=[1, 2]))
    net.output(net.conv(y, 2, [3], pads=[0, 2]), name="same")
    net.output(net.conv(y, 2, [2], strides=[2]), name="slow")
    net.output(conv_transpose(net, y, 2, [4], strides=[2], pads=[1, 1]), name="fast")
    return net.model()


def delayed_and_advanced() -> onnx.ModelProto:
    """Pads that take everything at one end and add at the other (found by random graphs 1000017 and 1000053)."""
    net = Net(seed=13)
    x = net.input([1, 3, "T"])
    ahead = net.real_op("Pad", [x], consts=[np.asarray([0, 0, -2, 0, 0, 2])], same=True)
    behind = net.real_op("Pad", [x], consts=[np.asarray([0, 0, 3, 0, 0, -3])], same=True)
    net.output(net.add(ahead, behind))
    net.output(net.conv(behind, 2, [3], pads=[1, 1]))
    return net.model()


def raw_codes() -> onnx.ModelProto:
    """uint8 codes with no scale anywhere: pools and pads alone (found by random graph 150)."""
    net = Net("uint8", seed=14)
    y = net.code_op("MaxPool", net.input([1, 2, "T"]), kernel_shape=[3], strides=[2], pads=[2, 2])
    net.output(net.code_op("MaxPool", y, kernel_shape=[2], pads=[1, 1]))
    net.output(net.code_op("Pad", y, [np.asarray([0, 0, 1, 0, 0, 2])]))
    return net.model()


def tables_of_nothing() -> onnx.ModelProto:
    """One table per channel behind a window that a short clip does not fill (found by a random graph)."""
    net = Net(seed=15)
    y = net.conv(net.input([1, 2, "T"]), 3, [5])
    net.output(net.real_op("Mul", [y], consts=[np.asarray([[0.5], [1.0], [1.5]], np.float32)]))
    return net.model()


def echoed_input() -> onnx.ModelProto:
    """An int8 input that is handed out again (seed 3009928): finish has no input, and nothing to copy from it."""
    net = Net(seed=18)
    x = net.input([1, 2, "T"])
    net.output(x, name="echo")
    net.output(net.conv(x, 2, [3], pads=[1, 1]))
    return net.model()


def uint8_middle(net: Net) -> Act:
    x = net.input([1, 2, "T"])
    y = net.conv(x, 3, [5], pads=[2, 2], bias=None)
    return net.conv(y, 2, [3], pads=[1, 1], bias=None)


def run_all(shop: Workshop, model: onnx.ModelProto, hops: Sequence[int], totals: Sequence[int]) -> Session:
    """Every total twice (whole, and in random pushes) for every hop; the session of the last hop."""
    batch, sessions = Batch(shop, "gcc", SANITIZE), []
    for hop in hops:
        g = shop.build(model, hop=hop, name=f"h{hop}")
        batch.add(g)
        session = Session(g)
        for total in totals:
            pushes = split(total, np.random.default_rng(total + hop))
            session.clip(total, total, [[total], pushes, [1] * total], [0xA5, None, 0x3C])
        sessions.append(session)
    program = batch.link()
    for session in sessions:
        session.run(program, session.g.manifest["name"])
    return sessions[-1]


def test_two_levels_of_skips_around_transposed_convolutions(shop: Workshop) -> None:
    session = run_all(shop, two_level_unet(), (1, 4, 3), range(0, 41))
    time = session.g.graph.time_graph()
    assert [t for t in range(1, 41) if is_legal(time, t)] == list(range(4, 41, 4))
    assert session.refused == 3 * 30
    assert session.values > 0


def test_uint8_zero_point_128_at_both_ends(shop: Workshop) -> None:
    """Silence is code 128 and padding is silence: without bias every frame is the zero point, first and last too."""
    net = Net("uint8", seed=12, zero=128)
    net.output(uint8_middle(net))
    model = net.model()
    g = shop.build(model)
    silence = {"x": np.full((1, 2, 9), 128, np.uint8)}
    out = shop.host(g).run(silence, [2])
    assert np.array_equal(out[g.graph.outputs[0].name], np.full((1, 2, 9), 128, np.uint8))
    loud = random_feed(g.graph, 9, 3)
    for name, theirs in runtime_run(g.path, loud).items():
        assert_same(shop.host(g).run(loud, [1])[name], theirs, f"{name} against onnxruntime")
    run_all(shop, model, (1, 2), range(0, 13))
    run_all(shop, two_level_unet("uint8", 128), (1,), (4, 8, 20))


def test_ends_are_not_handed_out_early(shop: Workshop) -> None:
    session = run_all(shop, cropped_ends(), (1, 3), range(0, 22))
    time = session.g.graph.time_graph()
    for total in range(5, 60):
        length, available = lengths(time, total), counts(time, total)
        assert length is not None
        assert all(available[name] <= length[name] for name in time.outputs)


def test_one_ring_for_two_readers(shop: Workshop) -> None:
    model, name = shared_ring()
    g = shop.build(model)
    p = plan(g.graph.time_graph(), 1)
    assert (p.keep[name], p.new[name], p.ring[name]) == (4, 1, 5)
    assert g.manifest["memory"]["state_bytes"] == 4 + 2 + 4 * 3 + 2  # clock, head, four rows of three codes, padding
    run_all(shop, model, (1, 2), range(0, 14))


@pytest.mark.parametrize("make", [noncausal_residual, four_branches, three_rates])
def test_joins_of_unequal_lookahead(shop: Workshop, make: Callable[[], onnx.ModelProto]) -> None:
    run_all(shop, make(), (1, 2, 5), range(0, 24))


@pytest.mark.parametrize("make", [delayed_and_advanced, raw_codes, tables_of_nothing, echoed_input])
def test_found_by_random_graphs(shop: Workshop, make: Callable[[], onnx.ModelProto]) -> None:
    run_all(shop, make(), (1, 3), range(0, 12))


def test_hops_that_do_not_divide_the_stride(shop: Workshop) -> None:
    """Hop 1, 2, 3, 7 on total stride 4: the same codes, whatever the pushes."""
    run_all(shop, total_stride_four(), (1, 2, 3, 7), [*range(0, 18), 57])


def test_finish_twice_push_after_finish_and_reset_in_the_middle(shop: Workshop) -> None:
    for model in (three_rates(), two_level_unet()):
        g = shop.build(model)
        program = shop.driver(g, "gcc", SANITIZE)
        a, b = clip(g, 20, 1), clip(g, 24, 2)
        want = [outer(g, run_reference(g.graph, inner(g, frames)) or {}) for frames in (a, b)]
        script = Script(g)
        script.push([f[:7] for f in b], 7)  # abandoned: init in the middle
        script.poison(0xEE)
        script.push(a, 20)
        script.finish()
        script.finish()  # of an empty clip
        script.push([f[:0] for f in a], 0)
        script.finish()
        script.push([f[:0] for f in a], -1)
        script.push(b, 24)
        script.finish()
        answers = script.run(program)
        assert all(status == 0 for status, _ in answers)
        assert all(len(o) == 0 for k in (3, 4, 5, 6) for o in answers[k][1])
        for i in range(len(g.graph.outputs)):
            for k, frames in ((1, want[0][i]), (7, want[1][i])):
                got = np.concatenate([answers[k][1][i], answers[k + 1][1][i]])
                assert_same(got, frames, f"output {i} of clip {k}")


def test_interleaved_instances(shop: Workshop) -> None:
    """Two streams of one library, one scratch, pushes in turn; the length of one is illegal and ends in an error."""
    g = shop.build(two_level_unet(), hop=2)
    one, two = shop.host(g, "gcc", FAST_SHARED), shop.host(g, "gcc", FAST_SHARED)
    two._scratch = one._scratch
    feeds = [random_feed(g.graph, 40, 1), random_feed(g.graph, 38, 2)]
    (name,) = (p.name for p in g.graph.outputs)
    alone = shop.host(g, "gcc", FAST_SHARED).run(feeds[0])[name]
    parts = []
    for at in range(0, 40, 5):
        parts.append(one.push({"x": feeds[0]["x"][..., at : at + 5]})[name])
        two.push({"x": feeds[1]["x"][..., at : at + 3]})
    parts.append(one.finish()[name])
    two.push({"x": feeds[1]["x"][..., :2]})
    with pytest.raises(CodegenError, match="differ in length where they join"):
        two.finish()
    assert_same(np.concatenate(parts, axis=2), alone, "interleaved")


def test_more_than_65536_frames(shop: Workshop) -> None:
    """Heads and the clock go round many times: 70,000 frames of a two-level U-Net in one session, codes equal."""
    g = shop.build(two_level_unet(), hop=3)
    session, batch = Session(g), Batch(shop, "gcc", ("-std=c99", "-O1", "-w"))
    batch.add(g)
    session.clip(70_000, 4, [[1, 3, 65_530, 4, 4, 4_458]], [0xA5])
    session.run(batch.link(), "m")


def schedule_differences(g: Generated, frames: int) -> None:
    """The reduced clock grants, gains and ends exactly as the true one does around this many frames."""
    time = g.graph.time_graph()
    p = plan(time, 1)
    for true in range(frames - 2 * p.period - 2, frames + 2 * p.period + 2):
        small = p.reduced(true)
        assert small < p.warm_up + p.period
        before, after = p.available(small), p.available(true)
        for step in range(1, 2 * p.period + 1):
            for name in p.count_of:
                gained = p.available(true + step)[name] - after[name]
                assert p.available(small + step)[name] - before[name] == gained
        ours, theirs = p.finished(small), p.finished(true)
        assert all(ours[name] - before[name] == theirs[name] - after[name] for name in p.count_of)


@pytest.mark.parametrize("frames", [1 << 16, 1 << 31, 1 << 32, 1 << 48])
def test_counts_around_every_limit(shop: Workshop, frames: int) -> None:
    for model in (two_level_unet(), three_rates(), total_stride_four()):
        schedule_differences(shop.build(model), frames)


def test_clock_at_its_largest(shop: Workshop) -> None:
    """A stream whose clock stands at warm_up + period - 1 goes on as one that came there for the first time."""
    g = shop.build(total_stride_four())
    p = plan(g.graph.time_graph(), 1)
    feed = random_feed(g.graph, 400, 9)["x"]
    want = outer(g, run_reference(g.graph, inner(g, clip(g, 400, 9))) or {})[0]
    host = shop.host(g)
    (name,) = (port.name for port in g.graph.outputs)
    parts, largest = [], 0
    for at in range(400):
        parts.append(host.push({"x": feed[..., at : at + 1]})[name])
        clock = int(host._state[0])
        largest = max(largest, clock)
        assert p.start <= clock < p.warm_up + p.period
        assert clock == p.reduced(at + 1)
    parts.append(host.finish()[name])
    assert largest == p.warm_up + p.period - 1
    assert_same(np.concatenate(parts, axis=2)[0].T.copy(), want, "frame by frame")


def test_latency_of_every_output_in_frames_and_ms(shop: Workshop) -> None:
    path = shop.save(three_rates())
    report = analyze(path, Options(hop=4, rate=50.0))
    rows = {row["name"]: row for row in report.to_json()["outputs"]}
    # left 0 and right 2 frames ahead; then 2 more, one window of two, half a frame of the transposed convolution.
    assert {name: row["lookahead_frames"] for name, row in rows.items()} == {"same": 4, "slow": 3, "fast": 3}
    assert {name: row["lookahead_ms"] for name, row in rows.items()} == {"same": 80.0, "slow": 60.0, "fast": 60.0}
    assert all(0 <= row["hop_wait_frames"] <= 3 for row in rows.values())
    assert rows["same"]["hop_wait_ms"] == 20.0 * rows["same"]["hop_wait_frames"] == 60.0
    single = analyze(path, replace(Options(rate=50.0), hop=1)).to_json()["outputs"]
    assert all(row["hop_wait_frames"] == 0 for row in single)


def test_float_bias_is_rounded_as_onnxruntime_rounds_it(tmp_path: Path) -> None:
    """Found by a random graph: bias / (x_scale * w_scale) is a tie in float32 and not in float64."""
    exact = (float.fromhex(text) for text in ("0x1.3f474ap-6", "0x1.bd7c6cp-8", "-0x1.1fdf64p-1"))
    scale, weight, bias = (np.float32(value) for value in exact)
    expected = int(np.rint(bias / (scale * weight)))
    assert expected != int(np.rint(float(bias) / float(scale * weight)))
    i8 = np.int8
    constants = {"s": scale, "z": i8(-43), "w": np.ones((1, 1, 1), i8), "ws": weight, "wz": i8(0), "b": bias.reshape(1)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        helper.make_node("Conv", ["d", "v", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    ports = [[helper.make_tensor_value_info(name, TensorProto.INT8, [1, 1, "T"])] for name in ("x", "y")]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "bias", *ports, initializers)
    path = tmp_path / "bias.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    (conv,) = load_int8(path).nodes
    assert isinstance(conv.op, ConvS8) and conv.op.bias.tolist() == [expected]


def test_one_expression_is_computed_once(shop: Workshop) -> None:
    """A pool that two convolutions read unquantized, and a convolution with a QuantizeLinear for each reader."""
    rng = np.random.default_rng(5)
    constants = {
        "s": np.float32(0.05),
        "z": np.int8(-3),
        "ys": np.float32(0.2),
        "yz": np.int8(4),
        "ws": np.float32(0.01),
    }
    constants |= {f"w{i}": rng.integers(-127, 128, (2, 2, 3)).astype(np.int8) for i in range(3)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xr"]),
        helper.make_node("MaxPool", ["xr"], ["pooled"], "the_pool", kernel_shape=[2]),
    ]
    for i, source in enumerate(("pooled", "pooled", "xr")):
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{i}", "ws"], [f"w{i}r"]),
            helper.make_node("Conv", [source, f"w{i}r"], [f"c{i}"], f"conv{i}"),
        ]
    pairs = [("c0", "y0"), ("c1", "y1"), ("c2", "y2"), ("c2", "y3")]
    nodes += [helper.make_node("QuantizeLinear", [a, "ys", "yz"], [b]) for a, b in pairs]
    ports = [helper.make_tensor_value_info(n, TensorProto.INT8, [1, 2, "T"]) for n in ("x", *(y for _, y in pairs))]
    tensors = [numpy_helper.from_array(np.asarray(a), k) for k, a in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    g = shop.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10))
    kinds = [node.op_type for node in g.graph.nodes]
    assert sorted(kinds) == ["Conv", "Conv", "Conv", "MaxPool"], kinds
    feed = random_feed(g.graph, 40)
    want, got, ort = whole_clip.run(g.graph, feed), shop.host(g).run(feed, [3]), runtime_run(g.path, feed)
    for _, y in pairs:
        assert_same(got[y], want[y], f"C, {y}")
        assert_same(want[y], ort[y], f"onnxruntime, {y}")
