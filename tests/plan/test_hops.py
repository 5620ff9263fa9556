"""The hop is a matter of memory and time, never of codes: the table of hops, and the latencies of every output."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx
import pytest
from checks import Workshop, assert_same, legal_length
from models import Net, causal_chain, dense_only, image_clip, residual, two_inputs, two_outputs, wide_stream

from codegen import analyze
from codegen.cli import main
from codegen.options import Options
from codegen.plan.hops import HOPS, weight_traffic
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed


def rates(seed: int = 0) -> onnx.ModelProto:
    """Four outputs: every frame with lookahead, causal, a third of the rate, and twice the rate again above it."""
    net = Net(seed=seed)
    x = net.input([1, 3, "T"])
    y = net.conv(x, 4, [5], pads=[1, 3])
    net.output(y, name="ahead")
    net.output(net.conv(x, 2, [3], pads=[2, 0]), name="causal")
    slow = net.conv(y, 4, [3], strides=[3], pads=[1, 1])
    net.output(slow, name="slow")
    net.output(net.conv(slow, 3, [2], strides=[2]), name="slower")
    return net.model()


STREAMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "causal_chain": causal_chain,
    "residual": residual,
    "two_outputs": two_outputs,
    "two_inputs": two_inputs,
    "wide_stream": wide_stream,
    "image_clip": image_clip,
    "rates": rates,
}


@pytest.mark.parametrize("name", STREAMS)
def test_codes_do_not_depend_on_the_hop(shop: Workshop, name: str) -> None:
    """The same codes for every hop and chunking, and the memory that the table promises for that hop."""
    path = shop.save(STREAMS[name]())
    rows = {row.hop: row for row in analyze(path).hops}
    assert set(rows) == set(HOPS)
    for hop in HOPS:
        g = shop.build(path, hop=hop)
        feed = random_feed(g.graph, legal_length(g.graph, 60), 4)
        want = whole_clip.run(g.graph, feed)
        assert g.manifest["memory"]["state_bytes"] == rows[hop].state_bytes
        assert g.manifest["memory"]["scratch_bytes"] == rows[hop].scratch_bytes
        assert json.loads(g.files["report.json"])["totals"]["macs_per_push"] == rows[hop].macs_per_push
        host = shop.host(g)
        for chunks in ([1], [hop], [3, 8, 1], None):
            host.poison(0xA5)
            for port, got in host.run(feed, chunks).items():
                assert_same(got, want[port], f"hop {hop}, pushes {chunks}, output {port}")


def test_table_of_hops(shop: Workshop) -> None:
    """conv (S 1) -> pool 2/2 (S 2) -> conv: by hand. Larger hops read weights less often and never need less memory."""
    report = analyze(shop.save(causal_chain()), Options(hop=3))
    assert [row.hop for row in report.hops] == [1, 2, 3, 4, 8]
    first, last = report.nodes[0].weight_bytes, report.nodes[2].weight_bytes
    want = {1: first + Fraction(last, 2), 2: Fraction(first + last, 2), 4: Fraction(first + last, 4)}
    for row in report.hops:
        if row.hop in want:
            assert row.weight_bytes_per_frame == -(-want[row.hop] // 1)
    for a, b in zip(report.hops, report.hops[1:], strict=False):
        assert a.weight_bytes_per_frame > b.weight_bytes_per_frame
        assert a.scratch_bytes <= b.scratch_bytes and a.macs_per_push <= b.macs_per_push
    chosen = next(row for row in report.hops if row.hop == report.hop)
    assert (chosen.state_bytes, chosen.scratch_bytes) == (report.state_bytes, report.scratch_bytes)
    assert chosen.macs_per_push == report.macs_peak


@pytest.mark.parametrize("hop", [1, 2, 3, 4, 7])
def test_weight_traffic_is_what_a_simulation_counts(shop: Workshop, hop: int) -> None:
    """Ticks in which a node has a frame, counted over a long run of the schedule."""
    g = shop.build(rates(), hop=hop)
    time = g.graph.time_graph()
    sizes = {node.name: 100 + i for i, node in enumerate(g.graph.nodes)}
    from codegen.plan.streaming import plan

    schedule, start, span = plan(time, hop), 42, 42 * hop
    total = 0
    for clock in range(start, start + span, hop):
        before, after = schedule.available(clock), schedule.available(clock + hop)
        total += sum(sizes[n.name] for n in g.graph.nodes if after[n.output] > before[n.output])
    assert Fraction(total, span) == weight_traffic(time, sizes, hop)


def test_clips_and_whole_models(shop: Workshop) -> None:
    """No hop longer than the clip; a model of one push has rows too; carried state goes step by step."""
    net = Net()
    y = net.conv(net.input([1, 3, 5]), 4, [3])
    net.output(net.gemm(net.code_op("Flatten", y, axis=1), 12))
    clip = analyze(shop.save(net.model()))
    assert [row.hop for row in clip.hops] == [1, 2, 4]
    assert clip.hops[0].weight_bytes_per_frame >= sum(node.weight_bytes for node in clip.nodes) // 5
    assert analyze(shop.save(dense_only())).hops[0].hop == 1
    net = Net()
    x, h = net.input([1, 4]), net.input([1, 4], name="h")
    hn = net.add(x, h)
    net.output(net.gemm(hn, 3), name="y")
    net.output(hn, name="hn")
    assert [row.hop for row in analyze(shop.save(net.model()), Options(state=("h=hn",), hop=4)).hops] == [1]


def test_printed_and_in_files(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    path = shop.save(causal_chain())
    assert main(["analyze", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if "weights B per frame" in line)
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == ["1", "2", "4", "8"]
    assert main(["analyze", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["hops"]
    assert [row["hop"] for row in rows] == [1, 2, 4, 8]
    g = shop.build(path)
    assert json.loads(g.files["report.json"])["hops"] == rows
    for row in rows:
        assert f"| {row['hop']} | {row['state_bytes']} | {row['scratch_bytes']} |" in g.files["README.md"]


@pytest.mark.parametrize("hop", [1, 2, 4, 5, 6])
def test_latencies_are_what_a_stream_shows(shop: Workshop, hop: int) -> None:
    """Lookahead: when a frame comes with pushes of 1. Hop wait: how much later, at most, with pushes of a whole hop."""
    g = shop.build(rates(), hop=hop)
    report = analyze(g.path, Options(hop=hop))
    total = 420
    feed = random_feed(g.graph, total, 1)
    single, full = (arrival(shop, g, feed, size) for size in (1, hop))
    for row in report.outputs:
        assert row.stride is not None
        times = single[row.name]
        late = [n - 1 - row.stride * j for j, n in enumerate(times)]
        assert max(late) == row.lookahead, "a frame is complete when its last input frame has come"
        waits = [m - n for n, m in zip(times, full[row.name], strict=False)][8:]
        assert max(waits) == row.hop_wait, row.name
        assert row.hop_wait < hop


def arrival(shop: Workshop, g: object, feed: dict[str, np.ndarray], size: int) -> dict[str, list[int]]:
    """Input frames pushed when output frame j came, for every output."""
    host = shop.host(g)  # type: ignore[arg-type]
    times: dict[str, list[int]] = {o.name: [] for o in host.outputs}
    for at in range(0, 420 - 420 % size, size):
        for name, y in host.push({k: v[:, :, at : at + size] for k, v in feed.items()}).items():
            times[name] += [at + size] * y.shape[2]
    return times


def test_latencies_are_printed(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    """Each output's algorithmic and buffering latency in frames and ms."""
    path = shop.save(rates())
    assert main(["analyze", str(path), "--rate", "100", "--hop", "4"]) == 0
    lines = {
        line.split()[1].rstrip(":"): line for line in capsys.readouterr().out.splitlines() if line[:7] == "output "
    }
    assert "lookahead 3 frames = 30 ms, waits at most 3 frames = 30 ms for a full hop" in lines["ahead"]
    assert "lookahead 0 frames = 0 ms, waits at most 3 frames = 30 ms for a full hop" in lines["causal"]
    assert "lookahead 4 frames = 40 ms" in lines["slow"] and "lookahead 7 frames = 70 ms" in lines["slower"]
    rows = {row["name"]: row for row in analyze(path, Options(rate=100.0, hop=4)).to_json()["outputs"]}
    assert (rows["slower"]["lookahead_ms"], rows["slower"]["hop_wait_ms"]) == (
        70.0,
        10.0 * rows["slower"]["hop_wait_frames"],
    )
    assert [rows[n]["window"]["S"] for n in ("ahead", "causal", "slow", "slower")] == [1, 1, 3, 6]
