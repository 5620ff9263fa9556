"""Explicit state (`--state IN=OUT`): a model of one step becomes an endless stream of steps.

The step model is run three ways: by onnxruntime once per step, its state fed back by hand; by the numpy reference;
by the generated C in pushes of several sizes. State goes back as real values: where input and output have other
scales its codes are rescaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import Array, Feed, Generated, Workshop, assert_same, runtime_run
from models import Act, Net, causal_chain, dense_only, residual, two_inputs, two_outputs

from codegen import CodegenError, analyze
from codegen.cli import main
from codegen.ir.graph import Graph, Port
from codegen.options import Options
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed, verify

STEPS = 23


def gru_cell(dtype: str = "int8", border: str = "codes", seed: int = 0) -> onnx.ModelProto:
    """h' = (1 - z) * n + z * h = n + z * (h - n), with z, n from Gemms of x and of r * h; y = W h'."""
    net = Net(dtype, seed=seed)
    x, h = net.input([1, 5], border=border), net.input([1, 6], name="h", border=border)

    def gate(op_type: str, b: Act) -> Act:
        return net.real_op(op_type, [net.add(net.gemm(x, 6), net.gemm(b, 6))])

    z, r = gate("Sigmoid", h), gate("Sigmoid", h)
    n = gate("Tanh", net.real_op("Mul", [r, h]))
    hn = net.add(n, net.real_op("Mul", [z, net.add(h, n, "Sub")]))
    net.output(net.gemm(hn, 3), border, "y")
    net.output(hn, border, "hn")
    return net.model()


def elman(dtype: str = "int8", border: str = "codes", seed: int = 0) -> onnx.ModelProto:
    """h' = Relu(W [x, h]), y = V h': every operator is one that onnxruntime computes in integers."""
    net = Net(dtype, seed=seed)
    x, h = net.input([1, 4], border=border), net.input([1, 5], name="h", border=border)
    hn = net.real_op("Relu", [net.gemm(net.real_op("Concat", [x, h], axis=1), 5)])
    net.output(net.gemm(hn, 3), border, "y")
    net.output(hn, border, "hn")
    return net.model()


def cached_conv(
    chunk: int = 4, taps: int = 3, dtype: str = "int8", border: str = "codes", seed: int = 0
) -> onnx.ModelProto:
    """Two causal convolutions on chunks of fixed length, each with the last taps - 1 frames of its input as a cache."""
    net = Net(dtype, seed=seed)
    x = net.input([1, 3, chunk], border=border)

    def causal(y: Act, name: str, channels: int) -> tuple[Act, Act]:
        cache = net.input([1, y.real.shape[1], taps - 1], name=f"{name}_in", border=border)
        padded = net.real_op("Concat", [cache, y], axis=2)
        ends = [np.asarray([v], np.int64) for v in (-(taps - 1), 1 << 30, 2)]
        return net.conv(padded, channels, [taps]), net.code_op("Slice", padded, ends)

    y, first = causal(x, "cache_a", 4)
    y, second = causal(y, "cache_b", 2)
    net.output(y, border, "y")
    net.output(first, border, "cache_a_out")
    net.output(second, border, "cache_b_out")
    return net.model()


def leaky(dtype: str = "int8", border: str = "codes", same: bool = False, seed: int = 0) -> onnx.ModelProto:
    """h' = 0.9 h + x; `same`: h' has the scale and zero point of h."""
    net = Net(dtype, seed=seed)
    x, h = net.input([1, 4], border=border), net.input([1, 4], name="h", border=border)
    kept = net.real_op("Mul", [h], consts=[np.float32(0.9)])
    scale = (float(h.scale), h.zero) if same else None
    hn = net.real_op("Add", [kept, x], scale=scale)
    net.output(net.gemm(hn, 3), border, "y")
    net.output(hn, border, "hn")
    return net.model()


def vectors(dtype: str = "int8", border: str = "codes", seed: int = 0) -> onnx.ModelProto:
    """No leading 1 in any shape: h' = 0.8 h + x of six elements, y [2, 3]. Steps are an axis more."""
    net = Net(dtype, seed=seed)
    x, h = net.input([6], border=border), net.input([6], name="h", border=border)
    hn = net.real_op("Add", [net.real_op("Mul", [h], consts=[np.float32(0.8)]), x])
    y = net.real_op("Tanh", [net.code_op("Reshape", hn, [np.asarray([2, 3], np.int64)])])
    net.output(y, border, "y")
    net.output(hn, border, "hn")
    return net.model()


def delay_line(dtype: str = "int8", seed: int = 0) -> onnx.ModelProto:
    """a' = x, b' = a, c' = d, d' = c: states that are each other's sources; y = Gemm [x, a, b, c, d]."""
    net = Net(dtype, seed=seed)
    x = net.input([1, 3])
    a, b, c, d = (net.input([1, 3], name=name) for name in "abcd")
    net.output(net.gemm(net.real_op("Concat", [x, a, b, c, d], axis=1), 4), name="y")
    for source, name in ((x, "an"), (a, "bn"), (d, "cn"), (c, "dn")):
        net.output(source, name=name)
    return net.model()


def pairs_of(states: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=") for text in states)  # type: ignore[misc]


def rescaled(value: Array, source: Port, target: Port) -> Array:
    """What a caller of the step model does between steps: the same real values in the target's type and scale."""
    if source.dtype == target.dtype == "float32":
        return value
    return whole_clip.dequantize_output(whole_clip.quantize_input(real_values(value, source), as_float(target)), target)


def as_float(port: Port) -> Port:
    return Port(port.name, port.view, "float32", port.shape, port.qparams)


def real_values(value: Array, port: Port) -> Array:
    return whole_clip.dequantize_output(whole_clip.quantize_input(value, port), as_float(port))


def by_runtime(
    path: Path, feed: Mapping[str, Array], states: Sequence[str], resync: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """onnxruntime step by step from real 0; `resync`: the state output of every step that goes on (the reference's)."""
    step = load_int8(path, Options(plan="whole"))
    inputs, outputs = ({p.name: p for p in ports} for ports in (step.inputs, step.outputs))
    state = {n: whole_clip.dequantize_output(_zero(step, inputs[n]), inputs[n]) for n in pairs_of(states)}
    rows: list[dict[str, Array]] = []
    for j in range(len(next(iter(feed.values())))):
        rows.append(
            runtime_run(path, {**{n: np.reshape(x[j : j + 1], inputs[n].view.shape) for n, x in feed.items()}, **state})
        )
        for name, source in pairs_of(states).items():
            value = rows[-1][source] if resync is None else resync[source][j : j + 1]
            state[name] = rescaled(value, outputs[source], inputs[name]).reshape(inputs[name].view.shape)
    return joined(rows, outputs)


def joined(rows: Sequence[Mapping[str, Array]], ports: Mapping[str, Port]) -> dict[str, Array]:
    """Steps on axis 0: the model's own where it is 1, else one more."""
    join = {name: np.concatenate if port.view.shape[0] == 1 else np.stack for name, port in ports.items()}
    return {name: join[name]([row[name] for row in rows]) for name in rows[0]}


def _zero(graph: Graph, port: Port) -> Array:
    zero = port.qparams.zero_point if port.qparams else 0
    return np.full((1, graph.tensors[port.tensor].frame_elements), zero, np.int8)


def by_reference(path: Path, feed: Mapping[str, Array], states: Sequence[str]) -> dict[str, Array]:
    """The numpy reference of the step model, called once a step."""
    step = load_int8(path, Options(plan="whole"))
    inputs, outputs = ({p.name: p for p in ports} for ports in (step.inputs, step.outputs))
    state = {n: whole_clip.dequantize_output(_zero(step, inputs[n]), inputs[n]) for n in pairs_of(states)}
    rows: list[dict[str, Array]] = []
    for j in range(len(next(iter(feed.values())))):
        rows.append(
            whole_clip.run(
                step, {**{n: np.reshape(x[j : j + 1], inputs[n].view.shape) for n, x in feed.items()}, **state}
            )
        )
        for name, source in pairs_of(states).items():
            state[name] = rescaled(rows[-1][source], outputs[source], inputs[name])
    return joined(rows, outputs)


def stateful(shop: Workshop, model: onnx.ModelProto, states: Sequence[str]) -> tuple[Generated, Feed]:
    g = shop.build(model, state=tuple(states))
    return g, random_feed(g.graph, STEPS, 3)


H = ("h=hn",)
CACHES = ("cache_a_in=cache_a_out", "cache_b_in=cache_b_out")
LINE = ("a=an", "b=bn", "c=cn", "d=dn")
MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[str, ...], str]] = {
    "gru": (gru_cell, H, "ties"),
    "gru_uint8": (lambda: gru_cell("uint8"), H, "ties"),
    "gru_float": (lambda: gru_cell("int8", "float"), H, "ties"),
    "gru_float_uint8": (lambda: gru_cell("uint8", "float"), H, "ties"),
    "elman": (elman, H, "equal"),
    "elman_uint8": (lambda: elman("uint8"), H, "equal"),
    "elman_float": (lambda: elman("int8", "float"), H, "equal"),
    "cached_conv": (cached_conv, CACHES, "equal"),
    "cached_conv_1": (lambda: cached_conv(1), CACHES, "equal"),
    "cached_conv_k2": (lambda: cached_conv(1, 2), CACHES, "equal"),
    "cached_conv_uint8": (lambda: cached_conv(3, 3, "uint8"), CACHES, "equal"),
    "cached_conv_float": (lambda: cached_conv(4, 3, "uint8", "float"), CACHES, "equal"),
    "leaky": (leaky, H, "ties"),
    "leaky_same_scale": (lambda: leaky(same=True), H, "ties"),
    "leaky_uint8": (lambda: leaky("uint8"), H, "ties"),
    "vectors": (vectors, H, "ties"),
    "vectors_float": (lambda: vectors("uint8", "float"), H, "ties"),
    "delay_line": (delay_line, LINE, "equal"),
    "delay_line_uint8": (lambda: delay_line("uint8"), LINE, "equal"),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps(shop: Workshop, name: str) -> None:
    """Streamed C == reference of the whole stream == reference step by step == onnxruntime step by step."""
    make, states, runtime = MODELS[name]
    g, feed = stateful(shop, make(), states)
    assert g.graph.clip_length is None and [p.name for p in g.graph.outputs] == ["y"]
    want = whole_clip.run(g.graph, feed)["y"]
    assert np.unique(want).size > 8, "a dead output shows nothing"
    steps = by_reference(g.path, feed, states)
    assert_same(want, steps["y"], "the stream against single steps of the reference")
    host = shop.host(g)
    for chunks in (None, [1], [2], [3, 1, 2], [50]):
        host.poison(0xA5)
        assert_same(host.run(feed, chunks)["y"], want, f"C against reference, pushes {chunks}")
    if runtime == "equal":
        assert_same(want, by_runtime(g.path, feed, states)["y"], "reference against onnxruntime step by step")
        return
    theirs = by_runtime(g.path, feed, states, steps)
    for port in load_int8(g.path, Options(plan="whole")).outputs:
        step = port.qparams.scale if port.dtype == "float32" and port.qparams else 1.0
        assert_same(steps[port.name], theirs[port.name], f"one step of onnxruntime, {port.name}", 1, step)


def lstm_like(dtype: str = "int8", border: str = "codes", same: bool = False, seed: int = 0) -> onnx.ModelProto:
    """c' = 0.8 c + W [x, h], h' = tanh c', and nothing else is an output."""
    net = Net(dtype, seed=seed)
    x = net.input([1, 4], border=border)
    h, c = (net.input([1, 5], name=name, border=border) for name in "hc")
    kept = net.real_op("Mul", [c], consts=[np.float32(0.8)])
    gate = net.gemm(net.real_op("Concat", [x, h], axis=1), 5)
    cn = net.real_op("Add", [kept, gate], scale=(float(c.scale), c.zero) if same else None)
    net.output(net.real_op("Tanh", [cn]), border, "hn")
    net.output(cn, border, "cn")
    return net.model()


CELL = ("h=hn", "c=cn")
SHOWN: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[str, ...], tuple[str, ...], list[str]]] = {
    "all_are_states": (lstm_like, CELL, (), ["hn", "cn"]),
    "uint8": (lambda: lstm_like("uint8"), CELL, (), ["hn", "cn"]),
    "float": (lambda: lstm_like("int8", "float"), CELL, (), ["hn", "cn"]),
    "float_uint8": (lambda: lstm_like("uint8", "float"), CELL, (), ["hn", "cn"]),
    "no_table": (lambda: lstm_like(same=True), CELL, (), ["hn", "cn"]),
    "one_of_two": (lstm_like, CELL, ("hn",), ["hn"]),
    "one_is_a_state": (lstm_like, ("c=cn",), ("cn",), ["hn", "cn"]),
    "beside_another": (gru_cell, H, ("hn",), ["y", "hn"]),
    "twice": (lstm_like, ("h=hn", "c=hn"), ("hn",), ["hn", "cn"]),
    "states_of_states": (delay_line, LINE, ("bn", "cn", "dn"), ["y", "bn", "cn", "dn"]),
    "states_of_states_uint8": (lambda: delay_line("uint8"), LINE, ("an", "cn"), ["y", "an", "cn"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_state_that_is_an_output_too(shop: Workshop, name: str) -> None:
    """C == reference == single steps, in every kind of push; verify and the report know the outputs that stay."""
    make, states, shown, outputs = SHOWN[name]
    g = shop.build(make(), state=states, state_output=shown)
    feed = random_feed(g.graph, STEPS, 3)
    assert [p["name"] for p in g.manifest["outputs"]] == outputs
    want = whole_clip.run(g.graph, feed)
    steps = by_reference(g.path, feed, states)
    host = shop.host(g)
    for port in outputs:
        assert_same(want[port], steps[port], f"{port}: the stream against single steps of the reference")
    for chunks in (None, [1], [3, 1, 2]):
        host.poison(0xA5)
        got = host.run(feed, chunks)
        for port in outputs:
            assert_same(got[port], want[port], f"{port}: C against reference, pushes {chunks}")
    result = verify(g.path, Options(state=states, state_output=shown))
    assert result.passed and {item.tensor for item in result.runtime} == set(outputs), result.notes


def test_reset_poison_and_snapshot(shop: Workshop) -> None:
    """init brings back the initial value whatever memory held; a copy of the state struct continues where it was."""
    g, feed = stateful(shop, gru_cell("uint8"), H)
    host = shop.host(g)
    want = host.run(feed)["y"]
    host.push({n: x[:9] for n, x in feed.items()})
    host.reset()
    assert_same(host.push(feed)["y"], want, "after a reset in the middle")
    host.poison(0x7F)
    first = host.push({n: x[:9] for n, x in feed.items()})["y"]
    snapshot = host._state.copy()
    again = [host.push({n: x[9:] for n, x in feed.items()})["y"]]
    host._state[:] = snapshot
    again.append(host.push({n: x[9:] for n, x in feed.items()})["y"])
    for rest in again:
        assert_same(np.concatenate([first, rest]), want, "from a copy of the state")
    assert host.finish()["y"].shape[0] == 0
    assert_same(host.push(feed)["y"], want, "finish is a reset")


def test_initial_value_is_real_zero(shop: Workshop) -> None:
    """The first step equals the step model on a state of real zeros: zero points, not code 0."""
    for dtype in ("int8", "uint8"):
        g, _ = stateful(shop, leaky(dtype), H)
        step = load_int8(g.path, Options(plan="whole"))
        zero = next(p.qparams for p in step.inputs if p.name == "h")
        assert zero is not None and zero.zero_point != 0
        (state,) = g.graph.carried
        assert state.initial == zero.zero_point
        assert f"memset(st->{{}}, {zero.zero_point}, 4);".split("{}")[1] in g.files[f"src/{g.manifest['name']}.c"]


def test_scales_that_differ_go_through_a_table(shop: Workshop) -> None:
    assert all(c.table is not None for c in stateful(shop, leaky(), H)[0].graph.carried)
    assert all(c.table is None for c in stateful(shop, leaky(same=True), H)[0].graph.carried)


def test_state_lives_in_the_struct(shop: Workshop) -> None:
    """State bytes: the clock and the tensors, nothing else; the host's arrays have steps on axis 0."""
    g, feed = stateful(shop, cached_conv(), CACHES)
    assert g.manifest["memory"]["state_bytes"] == 4 + -(-(3 * 2 + 4 * 2) // 4) * 4
    assert [p["name"] for p in g.manifest["inputs"]] == ["x"]
    assert feed["x"].shape == (STEPS, 3, 4)
    host = shop.host(g)
    assert host.push({"x": feed["x"][:5]})["y"].shape == (5, 2, 4)
    assert host.run({"x": feed["x"][:0]})["y"].shape[0] == 0


@pytest.mark.parametrize(
    ("make", "states", "message"),
    [
        (gru_cell, ["g=hn"], "no input 'g'"),
        (gru_cell, ["h=h2"], "no output 'h2'"),
        (gru_cell, ["h"], "no output ''"),
        (gru_cell, ["h=y"], "shapes [1, 6] and [1, 3] differ"),
        (gru_cell, ["h=hn", "h=y"], "no input 'h'"),
        (delay_line, ["a=an", "+y"], "'y' is not fed back"),
        (delay_line, ["+an"], "no output is fed back"),
        (elman, ["h=hn", "x=y"], "shapes"),
        (dense_only, ["x=nothing"], "no output 'nothing'"),
    ],
)
def test_wrong_pairs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[], onnx.ModelProto],
    states: list[str],
    message: str,
) -> None:
    """Exit code 2 and one message that says what there is; nothing is written."""
    path = tmp_path / "model.onnx"
    path.write_bytes(make().SerializeToString())
    flags = [part for t in states for part in (("--state-output", t[1:]) if t[0] == "+" else ("--state", t))]
    assert main(["build", str(path), "-o", str(tmp_path / "out"), *flags]) == 2
    text = capsys.readouterr().err
    assert message in text and "codegen: state: --state" in text, text
    assert not (tmp_path / "out").exists()


def test_nothing_left_over(tmp_path: Path) -> None:
    """At least one input stays at the border."""
    net = Net()
    h = net.input([1, 4], name="h")
    net.output(net.gemm(h, 4), name="hn")
    path = tmp_path / "model.onnx"
    path.write_bytes(net.model().SerializeToString())
    with pytest.raises(CodegenError, match="no input remains") as error:
        load_int8(path, Options(state=("h=hn",)))
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("make", "flags"),
    [
        (gru_cell, "--state h=hn"),
        (lambda: gru_cell("int8", "float"), "--state h=hn"),
        (cached_conv, "--state cache_a_in=cache_a_out --state cache_b_in=cache_b_out"),
        (lstm_like, "--state h=hn --state c=cn"),
        (delay_line, "--state a=an --state b=bn --state c=cn --state d=dn"),
        (causal_chain, ""),
        (residual, ""),
        (two_inputs, ""),
        (two_outputs, ""),
    ],
)
def test_hints(shop: Workshop, make: Callable[[], onnx.ModelProto], flags: str) -> None:
    """`build` and `analyze` name the option where names and shapes look like state, and only there."""
    path = shop.save(make())
    notes = [note for note in analyze(path).notes if "--state" in note]
    assert [flags in note for note in notes] == ([True] if flags else []), notes
    if flags:
        pairs = tuple(flags.replace("--state ", "").split())
        assert not [note for note in analyze(path, Options(state=pairs)).notes if "--state" in note]


def test_input_and_output_are_no_state(shop: Workshop) -> None:
    """An autoencoder's `input` and `output` have equal shapes and are no state."""
    net = Net()
    x = net.input([1, 6], name="input")
    net.output(net.gemm(net.gemm(x, 3), 6), name="output")
    assert not [note for note in analyze(shop.save(net.model())).notes if "--state" in note]


@pytest.mark.parametrize("name", ["elman", "vectors", "elman_uint8", "cached_conv_uint8", "cached_conv_float", "leaky"])
def test_verify(shop: Workshop, name: str) -> None:
    """`verify --state` compares with onnxruntime step by step; codes of the state are rescaled there too."""
    make, states, runtime = MODELS[name]
    result = verify(shop.save(make()), Options(state=states))
    assert result.passed and result.values > 0
    assert result.runtime, result.notes
    if runtime == "equal":
        assert all(item.equal for item in result.runtime), result.runtime
