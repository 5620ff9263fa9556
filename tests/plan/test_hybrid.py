"""Plans of clips: which is taken, what it needs, what it says; the forms of memory against each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from checks import Workshop, assert_same
from models import Net, causal_chain, image_clip, shrinking_clip
from paths import MODELS

from codegen import CodegenError, analyze, build
from codegen.kernels import KERNELS
from codegen.options import Options
from codegen.pipeline import compile_model, load_int8
from codegen.plan import streaming
from codegen.plan.kernels import PORTABLE, choose
from codegen.plan.layout import FORMS, form_of, layout
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

RAM = {
    "mlperf_tiny/vww_mobilenet_i8io": 10_752,
    "mlperf_tiny/ic_resnet8_i8io": 10_300,
    "mlperf_tiny/kws_dscnn_i8io": 3_600,
    "mlperf_tiny/sww_streaming_dyn_i8io": 3_800,
    "unet1d_3level": 3_845,
}
"""State and scratch in bytes that the planner is to reach or to beat, input rows included."""


@pytest.fixture(scope="module")
def clip(shop: Workshop) -> Path:
    return shop.save(shrinking_clip())


@pytest.mark.parametrize("name", RAM)
def test_ram_of_known_models(name: str) -> None:
    found = sorted(MODELS.glob(f"{name}*.onnx"))
    if not found:
        pytest.skip(f"{name} is not there")
    memory = compile_model(found[0], Options()).layout
    print(f"{name}: {memory.state_bytes} + {memory.scratch_bytes} B, {memory.form}, bound {memory.lower_bound}")
    assert memory.ram_bytes <= RAM[name]


def test_the_plan_with_the_least_memory_is_taken(clip: Path) -> None:
    sizes = {
        plan: compile_model(clip, Options(plan=plan, plan_for="ram")).layout.ram_bytes
        for plan in ("stream", "hybrid", "auto")
    }
    assert sizes["auto"] == sizes["hybrid"] < sizes["stream"]
    report = compile_model(clip, Options(plan_for="ram")).report.to_json()
    plan, memory = report["plan"], report["memory"]
    assert plan["plan"] == "hybrid" and plan["cut"] and plan["plan_for"] == "ram"
    first = plan["tried"][0]
    assert (first["cut"], first["ram_bytes"]) == (None, sizes["stream"]) and len(plan["tried"]) >= 8
    assert [p["cut"] for p in plan["front"] if p["chosen"]] == [plan["cut"]]
    assert plan["front"][-1]["ram_bytes"] == sizes["auto"] == min(p["ram_bytes"] for p in plan["front"])
    assert memory["shared_bytes"] > 0, "layers of the tail take over from each other"
    assert memory["form"] in FORMS and 0 < memory["lower_bound"] <= sizes["auto"]
    notes = [note for note in report["notes"] if note.startswith("hybrid")]
    assert len(notes) == 1 and f"{sizes['auto']} B" in notes[0] and f"{sizes['stream']} B" in notes[0]


def test_a_hybrid_does_its_tail_with_the_last_push(clip: Path) -> None:
    """The largest push of a hybrid is the last: the tail's work, and the head's last rows."""
    hybrid, stream = (compile_model(clip, Options(plan=plan)).report for plan in ("hybrid", "stream"))
    assert hybrid.macs_mean == stream.macs_mean
    cut = next(i for i, row in enumerate(hybrid.nodes) if row.op == "kept")
    frames = {row.name: row for row in hybrid.nodes}
    tail = sum(frames[row.name].macs for row in hybrid.nodes[cut:])
    assert tail <= hybrid.macs_peak < tail + hybrid.macs_mean * 16


@pytest.mark.parametrize("plan", ["stream", "hybrid", "whole", "auto"])
def test_every_plan_gives_the_same_codes(shop: Workshop, clip: Path, plan: str) -> None:
    g = shop.build(clip, plan=plan)
    feed = random_feed(g.graph, seed=3)
    want = whole_clip.run(load_int8(clip, Options(plan="stream")), feed)
    host = shop.host(g)
    for chunks in (None, [1], [5, 2]):
        got = host.run(feed, None if plan == "whole" else chunks)
        for name, values in want.items():
            assert_same(got[name], values, f"{plan}, {name}, {chunks}")


def test_a_clip_is_armed_again(shop: Workshop, clip: Path) -> None:
    """Two clips in one push, then the first again: nothing of a clip is left in the next."""
    g = shop.build(clip, plan="hybrid")
    host = shop.host(g)
    feeds = [random_feed(g.graph, seed=seed) for seed in (1, 2)]
    want = [whole_clip.run(g.graph, feed) for feed in feeds]
    (port,) = g.graph.inputs
    axis = port.view.time_axis
    assert axis is not None
    both = {port.name: np.concatenate([feed[port.name] for feed in (*feeds, feeds[0])], axis=axis)}
    host.reset()
    (got,) = host.push(both).values()
    (name,) = want[0]
    assert_same(got.reshape(3, -1), np.stack([want[i][name].reshape(-1) for i in (0, 1, 0)]), "three clips")


def refused(path: Path, options: Options) -> CodegenError:
    with pytest.raises(CodegenError) as caught:
        build(path, options)
    return caught.value


def test_hybrid_where_there_is_no_cut(shop: Workshop) -> None:
    endless = refused(shop.save(causal_chain()), Options(plan="hybrid"))
    assert endless.exit_code == 3 and "an endless stream" in str(endless)
    rows = refused(shop.save(image_clip()), Options(plan="hybrid"))  # its output is a stream of rows
    assert rows.exit_code == 3 and "--plan stream" in str(rows)


def test_a_skip_is_no_cut(shop: Workshop) -> None:
    """Only what lies before or behind a residual is a cut, nothing beside its skip."""
    net = Net(seed=4)
    x = net.input([1, 2, 12])
    y = net.conv(x, 4, [3], pads=[1, 1])
    inside = net.conv(y, 4, [3], pads=[1, 1])
    z = net.add(y, net.conv(inside, 4, [3], pads=[1, 1]))
    net.output(net.gemm(net.code_op("Flatten", net.real_op("GlobalAveragePool", [z]), axis=1), 3))
    tried = compile_model(shop.save(net.model()), Options(plan="hybrid")).report.plan
    assert tried is not None
    cuts = {point.cut for point in tried.tried} - {""}
    assert cuts == {x.name, y.name, z.name}


def test_hop_and_hybrid(shop: Workshop, clip: Path) -> None:
    for hop in (2, 3, 16, 50):
        g = shop.build(clip, plan="hybrid", hop=hop)
        feed = random_feed(g.graph, seed=hop)
        want = whole_clip.run(g.graph, feed)
        got = shop.host(g).run(feed, [1, 4])
        for name, values in want.items():
            assert_same(got[name], values, f"hop {hop}")


def test_forms_of_memory(clip: Path) -> None:
    """Each form holds what it says, and the layout is the smallest, the first of equals."""
    graph = load_int8(clip, Options(plan="stream"))
    plan = streaming.plan(graph.time_graph())
    made = {form: form_of(form, graph, plan, choose(graph, PORTABLE, (), KERNELS)) for form in FORMS}
    sizes = {form: memory.ram_bytes for form, memory in made.items() if memory is not None}
    assert set(sizes) == set(FORMS)
    for form, memory in made.items():
        assert memory is not None and memory.form == form and memory.lower_bound <= memory.ram_bytes
        assert (memory.scratch_bytes == 4) == (form != "apart") and bool(memory.row_table) == (form == "rows")
    best = layout(graph, plan, choose(graph, PORTABLE, (), KERNELS))
    assert best.ram_bytes == min(sizes.values())
    other = streaming.plan(graph.time_graph(), 2)
    assert form_of("rows", graph, other, choose(graph, PORTABLE, (), KERNELS)) is None, "rows are for a hop of 1"


def test_an_endless_stream_has_one_form(shop: Workshop) -> None:
    graph = load_int8(shop.save(causal_chain()), Options())
    plan = streaming.plan(graph.time_graph())
    assert [form_of(form, graph, plan, choose(graph, PORTABLE, (), KERNELS)) is None for form in FORMS] == [
        False,
        True,
        True,
    ]


def test_report_of_a_clip_in_rows(shop: Workshop, clip: Path) -> None:
    """Every row of the picture lies inside the block, and no two that live at one time share more than they may."""
    g = shop.build(clip, plan="stream")
    report = json.loads(g.files["report.json"])
    assert report["memory"]["form"] == "rows"
    picture = report["state_overlay"]
    assert all(b["offset"] >= 0 and b["offset"] + b["bytes"] <= picture["bytes"] for b in picture["buffers"])
    assert all(b["first_step"] <= b["last_step"] < len(picture["steps"]) for b in picture["buffers"])
    assert picture["lower_bound"] <= picture["bytes"]
    text = g.files["src/m_weights.c"]
    assert f"m_row_at[{report['memory']['row_table_bytes'] // 2}]" in text


def test_streams_of_several_axes(shop: Workshop) -> None:
    """`--stream x:2` leaves the other input without a stream: the clip is built whole, and a note says why."""
    net = Net(seed=6)
    a, b = net.input([1, 3, 24], name="a"), net.input([1, 3, 24], name="b")
    net.output(net.add(net.conv(a, 3, [3], pads=[1, 1]), b))
    path = shop.save(net.model())
    report = analyze(path, Options(stream="a:2"))
    assert report.kind.startswith("whole") and any("one push is the whole clip" in note for note in report.notes)
    error = refused(path, Options(stream="a:2", plan="stream"))
    assert error.exit_code == 3 and "--stream AXIS instead of INPUT:AXIS" in str(error)
    build(path, Options(stream="2"))
    assert analyze(path, Options(stream="2")).kind == "clip of 24 frames"


def test_a_hop_beyond_the_clip_costs_nothing(clip: Path) -> None:
    """Frames of two clips never share a tick."""
    for plan in ("stream", "hybrid", "whole"):
        sizes = [compile_model(clip, Options(plan=plan, hop=hop)).layout.ram_bytes for hop in (16, 17, 1000)]
        assert len(set(sizes)) == 1, plan


def test_hybrid_without_a_stream(shop: Workshop, clip: Path) -> None:
    error = refused(clip, Options(plan="hybrid", stream="none"))
    assert error.exit_code == 3 and "no stream axis" in str(error)


def test_hybrid_whose_tail_has_no_tile(clip: Path) -> None:
    """Not a streamed model without a word: the layer that does not fit is named."""
    least = 0
    while True:  # the smallest fast memory that the streamed layers work with
        try:
            compile_model(clip, Options(plan="stream", fast_memory=least + 1))
            break
        except CodegenError as error:
            least = max(int(problem.allowed.split()[-2]) for problem in error.problems) - 1
    plan = compile_model(clip, Options(plan="stream", fast_memory=least + 1)).report.plan
    assert plan is not None and plan.plan == "stream"
    try:
        chosen = compile_model(clip, Options(plan="hybrid", fast_memory=least + 1)).report.plan
        assert chosen is not None and chosen.plan == "hybrid"
    except CodegenError as error:
        assert "fast memory" in str(error)


def test_planning_stays_quick(shop: Workshop) -> None:
    """Work, not time: a long clip of many layers has as many cuts, most of which need no placement."""
    net = Net(seed=2)
    y = net.input([1, 4, 1000])
    for _ in range(30):
        y = net.conv(y, 4, [3], pads=[1, 1])
    net.output(net.gemm(net.code_op("Flatten", net.real_op("GlobalAveragePool", [y]), axis=1), 4))
    tried = compile_model(shop.save(net.model()), Options()).report.plan
    assert tried is not None and tried.plan == "stream"
    assert all(point.ram_bytes is None for point in tried.tried if point.cut), (
        "1,000 frames are more than all histories"
    )
