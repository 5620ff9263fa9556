"""Removal of constant and unread channels: codes unchanged on random graphs, by hand, on the MLPerf Tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Generated, Workshop
from paths import MLPERF_TINY

from codegen.codes import INT32
from codegen.emit.model import Compiled
from codegen.frontend.read import read, require
from codegen.int8.builder import to_int8
from codegen.int8.pairs import pair_s8
from codegen.ir.geometry import Geometry, window_length
from codegen.ir.graph import Graph, Node, Port, QParams, Tensor, prune
from codegen.ir.time import Join, Last, Transposed, Window
from codegen.ir.view import Piece, View, compact
from codegen.kernels import KERNELS
from codegen.ops.channels import affine
from codegen.ops.conv import ConvAccS8, ConvS8, Requantize
from codegen.ops.move import ConcatS8, Copy, LastS8, PadFrames, UpsampleS8
from codegen.ops.pool import AveragePoolS8, MaxPoolS8
from codegen.ops.reduce import DenseOverTimeS8, ReduceS8
from codegen.ops.table import LutChannelsS8, LutS8
from codegen.ops.transposed import ConvTransposeS8
from codegen.options import Options
from codegen.passes import PASSES
from codegen.passes.code_intervals import analyse
from codegen.passes.constant_channels import remove_constant_channels, shrunk, work
from codegen.pipeline import compile_chosen, render
from codegen.plan import streaming
from codegen.plan.choose import Chosen, PlanRow
from codegen.plan.kernels import PORTABLE, choose
from codegen.plan.layout import layout
from codegen.reference import whole_clip

Q = QParams(0.0625, 3)


class Net:
    """An int8 graph under construction: tensors are frames [D, W, C], all with the stride of the input."""

    def __init__(self, rng: np.random.Generator, frame: tuple[int, int, int], length: int, clip: bool = True) -> None:
        self.rng, self.clip, self.length = rng, clip, length
        self.nodes: list[Node] = []
        self.tensors = {"x": Tensor("x", frame, length, Q)}

    def add(self, op: Any, inputs: list[str], frame: tuple[int, ...], q: QParams, length: int | None = None) -> str:
        name = f"t{len(self.nodes)}"
        total = self.tensors[inputs[0]].length if length is None else length
        self.tensors[name] = Tensor(name, frame, total, q, name)
        self.nodes.append(Node(name, op, tuple(inputs), name, name, type(op).__name__))
        return name

    def quant(self) -> QParams:
        return QParams(float(np.float32(self.rng.uniform(0.01, 0.2))), int(self.rng.choice([-128, -3, 0, 7, 127])))

    def graph(self, outputs: list[str]) -> Graph:
        ins = (self._port("x"),)
        outs = tuple(self._port(name) for name in dict.fromkeys(outputs))
        taps = {name: View(name, self._view(name).axes) for name in self.tensors}
        clip = self.length if self.clip else None
        return prune(Graph("net", ins, outs, self.tensors, tuple(self.nodes), clip, (), taps))

    def _view(self, name: str) -> View:
        tensor = self.tensors[name]
        return View(name, ((Piece(tensor.length, None),), *compact(tensor.frame_shape)))

    def _port(self, name: str) -> Port:
        tensor = self.tensors[name]
        return Port(f"p_{name}", self._view(name), "int8", (tensor.length, *tensor.frame_shape), tensor.qparams)


def window(rng: np.random.Generator, size: int, same: bool) -> tuple[Window, int]:
    """A window along one axis and its output size; `same` keeps the size (stride 1)."""
    while True:
        taps, stride = int(rng.integers(1, 4)), 1 if same else int(rng.integers(1, 3))
        dilation = int(rng.integers(1, 3)) if size > 4 else 1
        extent = dilation * (taps - 1) + 1
        left = int(rng.integers(0, extent)) if extent > 1 and rng.random() < 0.6 else 0
        w = Window(taps, stride, dilation, left, extent - 1 - left if same else int(rng.integers(0, extent)))
        out = window_length(size, w)
        if out >= 1:
            return w, out


def geometry(net: Net, name: str, pointwise: bool) -> tuple[Geometry, int]:
    rng, t = net.rng, net.tensors[name]
    d, w, _ = t.frame_shape
    if pointwise:
        return Geometry(Window(), Window(), Window(), (d, w), (d, w)), t.length
    time, length = window(rng, t.length, True)
    wd, do = window(rng, d, False)
    ww, wo = window(rng, w, False)
    return Geometry(time, wd, ww, (d, w), (do, wo)), length


def conv(net: Net, name: str, pointwise: bool | None = None) -> str:
    """A convolution of which many outputs are forced to one code, and many inputs have no weights."""
    rng = net.rng
    g, length = geometry(net, name, bool(rng.random() < 0.5) if pointwise is None else pointwise)
    ci = net.tensors[name].frame_shape[-1]
    groups = int(rng.choice([n for n in range(1, ci + 1) if ci % n == 0] + [1, ci]))
    co = groups * int(rng.integers(1, 3)) if groups > 1 else int(rng.integers(1, 9))
    weights = rng.integers(-127, 128, (co, *g.taps, ci // groups)).astype(np.int8)
    weights[rng.random(co) < 0.3] = 0
    if groups == 1:
        weights[..., rng.random(ci) < 0.2] = 0
    bias = rng.integers(-2000, 2000, co)
    bias[rng.random(co) < 0.3] = -(1 << 22)
    q = net.quant()
    low = q.zero_point if rng.random() < 0.5 else -128
    scale = rng.uniform(0.0005, 0.01, co).astype(np.float32)
    zero = net.tensors[name].qparams
    assert zero is not None
    op = ConvS8(g, weights, bias.astype(np.int64), groups, zero.zero_point, Requantize(scale, q.zero_point, low))
    return net.add(op, [name], (*g.size_out, co), q, length)


def conv_transpose(net: Net, name: str) -> str:
    """Along the width; whole outputs and inputs without weights."""
    rng, t = net.rng, net.tensors[name]
    d, w, ci = t.frame_shape
    taps, stride = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    width = Transposed(taps, stride, 1, int(rng.integers(0, taps)), 0)
    out = (w - 1) * stride + taps - width.left
    if out < 1:
        return name
    groups = ci if rng.random() < 0.3 else 1
    co = groups * int(rng.integers(1, 4))
    weights = rng.integers(-127, 128, (co, 1, 1, taps, ci // groups)).astype(np.int8)
    weights[rng.random(co) < 0.3] = 0
    if groups == 1:
        weights[..., rng.random(ci) < 0.2] = 0
    q, zero = net.quant(), (t.qparams or Q).zero_point
    requantize = Requantize(rng.uniform(0.001, 0.01, co).astype(np.float32), q.zero_point)
    bias = rng.integers(-2000, 2000, co).astype(np.int64)
    op = ConvTransposeS8(None, Transposed(1), width, (d, w), (d, out), weights, bias, groups, zero, requantize)
    return net.add(op, [name], (d, out, co), q)


def lut(net: Net, name: str) -> str:
    table = np.sort(net.rng.integers(-128, 128, 256)).astype(np.int8)
    if net.rng.random() < 0.5:
        table[: int(net.rng.integers(1, 256))] = table[0]
    return net.add(LutS8(table), [name], net.tensors[name].frame_shape, net.quant())


def lut_channels(net: Net, name: str) -> str:
    rng, c = net.rng, net.tensors[name].frame_shape[-1]
    tables = rng.integers(-128, 128, (3, 256)).astype(np.int8)
    tables[1] = 5
    return net.add(
        LutChannelsS8(tables, rng.integers(0, 3, c).astype(np.uint8)),
        [name],
        net.tensors[name].frame_shape,
        net.quant(),
    )


def pair(net: Net, name: str) -> str:
    """With another tensor of the same shape, else with itself."""
    t, q = net.tensors[name], net.quant()
    equal = [n for n, o in net.tensors.items() if (o.frame_shape, o.length) == (t.frame_shape, t.length)]
    other = str(net.rng.choice(equal))
    a, b = t.qparams, net.tensors[other].qparams
    assert a is not None and b is not None
    op = pair_s8(str(net.rng.choice(["Add", "Sub", "Mul"])), a, b, q, (-128, 127))
    return net.add(op, [name, other], t.frame_shape, q)


def concat(net: Net, name: str) -> str:
    t = net.tensors[name]
    d, w, c = t.frame_shape
    equal = [n for n, o in net.tensors.items() if (o.frame_shape[:2], o.length) == (t.frame_shape[:2], t.length)]
    other = str(net.rng.choice(equal))
    n = net.tensors[other].frame_shape[-1]
    if n == c and net.rng.random() < 0.5:
        return net.add(ConcatS8(d, (w, w), c), [name, other], (d, 2 * w, c), t.qparams or Q)
    return net.add(ConcatS8(d * w, (c, n), 1), [name, other], (d, w, c + n), t.qparams or Q)


def pool(net: Net, name: str) -> str:
    t = net.tensors[name]
    g, length = geometry(net, name, False)
    c = t.frame_shape[-1]
    x = t.qparams or Q
    inside = all(w.right < w.extent and not (w.left and w.right) for w in (g.time, g.depth, g.width))
    if not inside:
        return name
    if net.rng.random() < 0.5:
        return net.add(MaxPoolS8(g, c), [name], (*g.size_out, c), x, length)
    q = net.quant()
    op = AveragePoolS8(g, c, bool(net.rng.random() < 0.5), x, q)
    return net.add(op, [name], (*g.size_out, c), q, length)


def move(net: Net, name: str) -> str:
    """A transposition inside the frame and back, padding, upsampling, or a slice of channels."""
    t, rng = net.tensors[name], net.rng
    d, w, c = t.frame_shape
    q = t.qparams or Q
    kind = rng.integers(0, 4)
    if kind == 0:
        return net.add(
            PadFrames((0, 0), (d, w, c), ((0, 0), (1, 0), (0, 0)), 0.0, q.zero_point), [name], (d, w + 1, c), q
        )
    if kind == 1:
        index = (tuple(range(d)), tuple(i // 2 for i in range(2 * w)), tuple(range(c)))
        return net.add(UpsampleS8(Join(), (d, w, c), index), [name], (d, 2 * w, c), q)
    if kind == 2 and c > 2:
        return net.add(Copy((Piece(d * w, c), Piece(c - 2, 1)), 1), [name], (d, w, c - 2), q)
    # [D, W, C] -> [D, C, W]: channels are rows now.
    return net.add(Copy((Piece(d, w * c), Piece(c, 1), Piece(w, c))), [name], (d, c, w), q)


STEPS = (conv, conv, conv, conv, conv_transpose, lut, lut_channels, pair, pair, concat, pool, move)


def random_net(seed: int, clip: bool = True) -> Graph:
    rng = np.random.default_rng(seed)
    frame = (int(rng.integers(1, 3)), int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    net = Net(rng, frame, int(rng.integers(4, 9)), clip)
    name = conv(net, "x")
    for _ in range(int(rng.integers(2, 9))):
        start = name if rng.random() < 0.7 else str(rng.choice(list(net.tensors)))
        made = STEPS[int(rng.integers(len(STEPS)))](net, start)
        if net.tensors[made].frame_bytes < 400:
            name = made
    outputs = [name]
    if rng.random() < 0.3:
        outputs.append(str(rng.choice([n for n in net.tensors if n != "x"])))
    if clip and rng.random() < 0.5:
        outputs[0] = ending(net, name)
    outputs = outputs if outputs[0] != "x" else [conv(net, "x")]
    return net.graph(outputs)


def ending(net: Net, name: str) -> str:
    """A reduction over the clip and a small dense layer, or a dense layer over the whole clip."""
    rng, t = net.rng, net.tensors[name]
    d, w, c = t.frame_shape
    x, q = t.qparams or Q, net.quant()
    if rng.random() < 0.2:
        return conv(net, net.add(LastS8(Last()), [name], (d, w, c), x, 1), True)
    if rng.random() < 0.5:
        kind = str(rng.choice(["Mean", "Average", "Max", "Min", "Sum"]))
        q = x if kind in ("Max", "Min") else q
        op = ReduceS8(kind, (1, d * w, c), True, t.length, x, q)
        return conv(net, net.add(op, [name], (1, 1, c), q, 1), True)
    n = int(rng.integers(1, 5))
    weights = rng.integers(-127, 128, (t.length, n, d * w * c)).astype(np.int8)
    bias = rng.integers(-500, 500, n).astype(np.int64)
    scale = rng.uniform(0.0001, 0.001, n).astype(np.float32)
    dense = DenseOverTimeS8(weights, bias, x.zero_point, Requantize(scale, q.zero_point))
    return net.add(dense, [name], (1, 1, n), q, 1)


def feed_of(graph: Graph, seed: int, extreme: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shape = (graph.clip_length or 7, *graph.tensors["x"].frame_shape)
    if extreme:
        return {"p_x": rng.choice(np.asarray([-128, 3, 127], np.int8), shape)}
    return {"p_x": rng.integers(-128, 128, shape).astype(np.int8)}


def assert_same(before: Graph, after: Graph, feed: dict[str, Any]) -> None:
    want, got = whole_clip.run(before, feed, list(after.taps)), whole_clip.run(after, feed, list(after.taps))
    for name, value in want.items():
        assert np.array_equal(value, got[name]), name


@pytest.mark.parametrize("block", range(12))
def test_codes_are_unchanged_on_random_graphs(block: int, seed: int) -> None:
    """Outputs and every tap that is left; and every code that occurs lies in its interval."""
    removed = 0
    for i in range(25):
        graph = random_net(seed + 1000 * block + i)
        small = remove_constant_channels(graph)
        removed += sum(t.frame_bytes for t in graph.tensors.values())
        removed -= sum(t.frame_bytes for t in small.tensors.values())
        intervals = analyse(graph)
        for extreme in (False, True):
            feed = feed_of(graph, i, extreme)
            assert_same(graph, small, feed)
            for name, codes in whole_clip.run_codes(graph, {"x": feed["p_x"]}).items():
                flat = codes.reshape(codes.shape[0], -1)
                assert (flat >= intervals[name].low).all() and (flat <= intervals[name].high).all(), name
        assert work(small)[1] <= work(graph)[1]
        assert remove_constant_channels(small) is small
    assert removed > 40, "the generator no longer makes dead channels"


def compiled(graph: Graph, hop: int) -> Compiled:
    stream = streaming.plan(graph.time_graph(), hop)
    kernels = choose(graph, PORTABLE, (), KERNELS)
    chosen = Chosen(graph, stream, layout(graph, stream, kernels), kernels, PlanRow("stream"))
    return compile_chosen(Path("net.onnx"), "0" * 64, chosen, Options(name="m"))


def generate(graph: Graph, hop: int, folder: Path) -> Generated:
    files = render(compiled(graph, hop))
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return Generated(folder, folder, files, graph, json.loads(files["manifest.json"]))


@pytest.mark.parametrize("index", range(16))
def test_streamed_c_equals_the_unpruned_reference(index: int, shop: Workshop, seed: int, tmp_path: Path) -> None:
    """C of the smaller graph, pushed in pieces, against numpy on the whole one; clips and endless streams."""
    graph = random_net(seed + 7777 + index, clip=index % 2 == 0)
    small = remove_constant_channels(graph)
    model = shop.host(generate(small, 1 + index % 3, tmp_path / "out"))
    for turn, chunks in enumerate(([1], [2, 3], None)):
        feed = feed_of(graph, turn)
        want, got = whole_clip.run(graph, feed), model.run(feed, chunks)
        for port in graph.outputs:
            assert np.array_equal(want[port.name], got[port.name]), (port.name, chunks)


def chain(first: ConvS8, second: ConvS8, frame: tuple[int, int, int]) -> Graph:
    net = Net(np.random.default_rng(0), frame, 4)
    a = net.add(first, ["x"], (*first.geometry.size_out, first.channels[1]), Q)
    b = net.add(second, [a], (*second.geometry.size_out, second.channels[1]), Q)
    return net.graph([b])


def pointwise(weights: list[list[int]], bias: list[int], low: int = -128, pad: int = 0) -> ConvS8:
    """1 x 1 on a frame of 4 columns; with `pad`, a 3-column window of equal weights."""
    w = np.asarray(weights, np.int8)[:, None, None, None, :].repeat(1 + 2 * pad, axis=3)
    g = Geometry(Window(), Window(), Window(1 + 2 * pad, 1, 1, pad, pad), (1, 4), (1, 4))
    scale = np.full(len(bias), 0.01, np.float32)
    return ConvS8(g, w, np.asarray(bias, np.int64), 1, Q.zero_point, Requantize(scale, Q.zero_point, low))


def test_constant_at_the_zero_point_goes_also_where_padding_is_read() -> None:
    first = pointwise([[5, 1], [0, 0], [1, 1]], [0, 0, 0])
    graph = chain(first, pointwise([[1, 2, 3], [4, 5, 6]], [7, 8], pad=1), (1, 4, 2))
    small = remove_constant_channels(graph)
    op = small.nodes[1].op
    assert isinstance(op, ConvS8)
    assert small.tensors["t0"].frame_shape == (1, 4, 2)
    assert op.weights[:, 0, 0, 0].tolist() == [[1, 3], [4, 6]]
    assert op.bias.tolist() == [7, 8]
    assert "t0" not in small.taps and "t1" in small.taps
    assert small.notes[0] == "removed 1 of 3 channels of t0: 1 constant at the zero point"
    assert_same(graph, small, feed_of(graph, 0))


def test_channels_that_only_move_have_no_total() -> None:
    """No line that counts MACs and weights from n to n."""
    net = Net(np.random.default_rng(1), (1, 1, 4), 5)
    turned = net.add(Copy((Piece(4, 1),)), ["x"], (1, 1, 4), Q)
    half = net.add(Copy((Piece(2, 1),), 1), [turned], (1, 1, 2), Q)
    small = remove_constant_channels(net.graph([half]))
    (note,) = small.notes
    assert note.startswith("removed 2 of 4 channels")


def test_another_constant_moves_into_the_bias_only_without_padding() -> None:
    """Accumulator 500 at scale 0.01 is code 5 + zero point 3: 5 units of each weight."""
    first = pointwise([[5, 1], [0, 0], [1, 1]], [0, 500, 0])
    graph = chain(first, pointwise([[1, 2, 3], [4, 5, 6]], [7, 8]), (1, 4, 2))
    op = remove_constant_channels(graph).nodes[1].op
    assert isinstance(op, ConvS8)
    assert op.bias.tolist() == [7 + 5 * 2, 8 + 5 * 5]
    padded = chain(first, pointwise([[1, 2, 3], [4, 5, 6]], [7, 8], pad=1), (1, 4, 2))
    assert remove_constant_channels(padded) is padded


def test_a_clamped_channel_is_constant() -> None:
    """Relu at the zero point, and a bias that no input can outweigh: 130 * 6 < 1000."""
    graph = chain(pointwise([[5, 1], [5, -1]], [-1000, 0], low=3), pointwise([[1, 2]], [0]), (1, 4, 2))
    small = remove_constant_channels(graph)
    assert small.tensors["t0"].frame_shape == (1, 4, 1)
    close = chain(pointwise([[5, 1], [5, -1]], [-600, 0], low=3), pointwise([[1, 2]], [0]), (1, 4, 2))
    assert remove_constant_channels(close) is close


def test_channels_without_weights_in_any_reader_go() -> None:
    graph = chain(pointwise([[5, 1], [5, -1]], [0, 0]), pointwise([[0, 2]], [0]), (1, 4, 2))
    small = remove_constant_channels(graph)
    assert small.notes[0] == "removed 1 of 2 channels of t0: 1 that no output depends on"
    both = replace(graph, outputs=(*graph.outputs, replace(graph.outputs[0], name="p_t0", view=graph.taps["t0"])))
    assert remove_constant_channels(both) is both


def test_a_constant_network_keeps_one_channel_everywhere() -> None:
    graph = chain(pointwise([[0, 0], [0, 0]], [0, 0]), pointwise([[1, 2], [3, 4]], [5, 6]), (1, 4, 2))
    small = remove_constant_channels(graph)
    assert [t.frame_shape for t in small.tensors.values()] == [(1, 4, 2), (1, 4, 1), (1, 4, 2)]
    assert_same(graph, small, feed_of(graph, 0))


def test_accumulators_of_a_float_output_lose_inputs_only() -> None:
    """The float output keeps its channels; its inputs that are constant go into its bias."""
    first = pointwise([[5, 1], [0, 0], [1, 1]], [0, 500, 0])
    last = pointwise([[1, 2, 3], [4, 5, 6]], [7, 8])
    sums = ConvAccS8(last.geometry, last.weights, last.bias, 1, Q.zero_point, np.asarray([0.5, 0.25], np.float32))
    net = Net(np.random.default_rng(0), (1, 4, 2), 4)
    net.add(first, ["x"], (1, 4, 3), Q)
    net.add(sums, ["t0"], (1, 4, 2), Q)
    net.tensors["t1"] = replace(net.tensors["t1"], qparams=None, type=INT32)
    graph = net.graph(["t1"])
    small = remove_constant_channels(graph)
    op = small.nodes[1].op
    assert isinstance(op, ConvAccS8)
    assert op.bias.tolist() == [7 + 5 * 2, 8 + 5 * 5] and op.scales.tolist() == [0.5, 0.25]
    codes = feed_of(graph, 0)["p_x"]
    want, got = (whole_clip.run_codes(g, {"x": codes})["t1"] for g in (graph, small))
    assert np.array_equal(want, got)


def test_affine_loops() -> None:
    assert affine(np.asarray([4, 5, 8, 9, 12, 13])) == (Piece(3, 4), Piece(2, 1))
    assert affine(np.asarray([7])) == ()
    assert affine(np.asarray([0, 0, 1, 1])) == (Piece(2, 1), Piece(2, 0))
    assert affine(np.asarray([0, 1, 3])) is None
    assert affine(np.asarray([3, 2, 1])) is None


def test_frame_shapes_of_what_is_kept() -> None:
    keep = np.ones((2, 3, 4), np.bool_)
    keep[:, :, 1] = False
    assert shrunk((2, 3, 4), keep.reshape(-1)) == (2, 3, 3)
    keep[0, 0, 0] = False
    assert shrunk((2, 3, 4), keep.reshape(-1)) == (17,)


def unpruned(path: Path) -> Graph:
    graph = to_int8(require(read(path, None)))
    for run in PASSES:
        graph = graph if run is remove_constant_channels else run(graph)
    return graph


@pytest.mark.parametrize(
    ("model", "macs", "weights"), [("vww_mobilenet", 3_850_000, 30_000), ("vww_mobilenet_i8io", 3_850_000, 30_000)]
)
def test_visual_wake_words_halves(model: str, macs: int, weights: int, shop: Workshop) -> None:
    """Real images: the C of the smaller model against the reference of the whole one."""
    path = MLPERF_TINY / f"{model}.onnx"
    if not path.is_file():
        pytest.skip("the shared MLPerf Tiny models are not here")
    graph = unpruned(path)
    small = remove_constant_channels(graph)
    assert work(graph) == (7_489_664, 208_112)
    assert work(small)[0] <= macs and work(small)[1] <= weights
    assert sum("removed" in note for note in small.notes) == 18
    host = shop.host(shop.build(path))
    with np.load(MLPERF_TINY / "vww_mobilenet_real.npz") as arrays:
        key = next(name for name in arrays.files if arrays[name].ndim == 4)
        images = arrays[key][:4]
    for image in images:
        feed = {graph.inputs[0].name: image[None].astype(_border(graph))}
        want = whole_clip.run(graph, feed)
        got = host.run(feed, [5])
        for name, value in want.items():
            assert np.array_equal(value, got[name])


def _border(graph: Graph) -> type:
    return {"int8": np.int8, "uint8": np.uint8}.get(graph.inputs[0].dtype, np.float32)
