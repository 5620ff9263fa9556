"""Random networks x random lengths x random chunkings: the C under sanitizers equals the reference, twice in a row.

Chains and residuals of the supported operators: stride 1 to 3, dilation, pads of any side, crops, both dtypes, QDQ and
QLinear form, pools, skips with unequal lookahead, several outputs, 1-D and 2-D frames, float and code borders, hops.
Each graph is a seed: `-k "graph[17"` runs it again.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from checks import Generated, Script, Workshop, assert_same, code_frames, reference_frames, runtime_run, split
from models import Act, Net

from codegen.plan.outputs import is_legal
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

pytestmark = pytest.mark.search

GRAPHS = 64
SLOW_GRAPHS = 400
ENOUGH = 6  # sample frames that a strided operator must leave for those behind it


class Grower:
    """Grows one random network; `time` is the stream axis of every activation."""

    def __init__(self, seed: int) -> None:
        self.r = np.random.default_rng(seed)
        form = "qop" if self.r.random() < 0.3 else "qdq"
        self.net = Net(
            str(self.r.choice(["int8", "uint8"])),
            form=form,
            seed=seed,
            opset=int(self.r.choice([13, 17, 21])),
            per_channel=bool(self.r.random() < 0.5),
            zero=int(self.r.choice([0, 100])) if self.r.random() < 0.2 else None,
        )
        self.flat = bool(self.r.random() < 0.7)
        channels = int(self.r.integers(1, 5))
        dims: list[int | str] = [1 if self.r.random() < 0.5 else "N", channels, "T"]
        if not self.flat:
            dims.append(int(self.r.integers(3, 7)))
        border = "float" if self.r.random() < 0.3 and form == "qdq" else "codes"
        self.border = border
        self.x = self.net.input(dims, border=border)
        self.taken: list[Act] = []

    def pick(self, *values: int) -> int:
        return int(self.r.choice(values))

    def window(self, stride: int, same: bool) -> dict[str, list[int]]:
        """Attributes along time; `same`: output length = input length for every T, with any lookahead."""
        taps, dilation = self.pick(1, 2, 3, 3, 4, 5), self.pick(1, 1, 1, 2, 3)
        extent = dilation * (taps - 1) + 1
        if same:
            left = self.pick(0, extent - 1, (extent - 1) // 2, int(self.r.integers(0, extent)))
            pads = [left, extent - 1 - left]
        else:
            pads = [self.pick(0, extent - 1, extent // 2, extent + 1), self.pick(0, 0, extent // 2, extent - 1)]
        return {"kernel": [taps], "strides": [stride], "dilations": [dilation], "pads": pads}

    def in_frame(self, w: dict[str, list[int]], width: int) -> dict[str, list[int]]:
        """The same window with an axis inside the frame that keeps the width."""
        taps = self.pick(1, 2, 3)
        before = int(self.r.integers(0, taps))
        pads = [w["pads"][0], before, w["pads"][1], taps - 1 - before]
        return {
            "kernel": [*w["kernel"], taps],
            "strides": [*w["strides"], 1],
            "dilations": [*w["dilations"], 1],
            "pads": pads,
        }

    def conv(self, x: Act, channels: int | None = None, same: bool = False) -> Act:
        strides = [1] if same or x.real.shape[2] < 3 * ENOUGH else [1, 1, 2, 3]
        w = self.window(self.pick(*strides), same)
        if not self.flat:
            w = self.in_frame(w, x.real.shape[3])
        inputs = x.real.shape[1]
        group = 1
        if self.r.random() < 0.3:
            group, channels = inputs, channels if channels and channels % inputs == 0 else inputs * self.pick(1, 2)
            channels = min(channels, 3 * inputs)
        channels = channels or self.pick(1, 2, 3, 5, 8)
        then: list[tuple[str, tuple[float, ...]]] = []
        if self.r.random() < 0.4:
            then = [("Relu", ())] if self.r.random() < 0.6 else [("Clip", (-0.6, 0.9))]
        bias = [None, "int32", "int32", "float"][int(self.r.integers(0, 4))]
        kernel = w.pop("kernel")
        return self.net.conv(x, channels, kernel, bias=bias, then=then, group=group, **w)

    def pool(self, x: Act) -> Act:
        taps = self.pick(2, 3)
        stride = self.pick(1, 2) if x.real.shape[2] >= 3 * ENOUGH else 1
        pads = [self.pick(0, taps - 1), self.pick(0, taps - 1)]
        ceil = int(self.r.random() < 0.25)
        attrs = {"kernel_shape": [taps], "strides": [stride], "pads": pads, "ceil_mode": ceil}
        if not self.flat:
            attrs |= {"kernel_shape": [taps, 2], "strides": [stride, 1], "pads": [pads[0], 0, pads[1], 1]}
        if self.r.random() < 0.5:
            return self.net.code_op("MaxPool", x, **attrs)
        return self.net.real_op("MaxPool", [x], same=True, **attrs)

    def residual(self, x: Act) -> Act:
        """Two branches of equal length and unequal lookahead; one may be valid, with the skip cropped to meet it."""
        if self.r.random() < 0.3 and self.flat:
            taps = self.pick(2, 3, 5)
            first = self.pick(0, taps - 1, (taps - 1) // 2)
            branch = self.net.conv(x, x.real.shape[1], [taps])
            last = taps - 1 - first
            if first == 0 and last == 0:
                return self.net.add(branch, x)
            bounds = [np.asarray([v], np.int64) for v in (first, -last if last else 2**31 - 1, 2)]
            skip = self.net.code_op("Slice", x, bounds)
            return self.net.add(branch, skip)
        branch = self.conv(x, x.real.shape[1], same=True)
        while branch.real.shape[1] != x.real.shape[1] or self.r.random() < 0.3:
            w = self.window(1, same=True)
            w = w if self.flat else self.in_frame(w, x.real.shape[3])
            branch = self.net.conv(branch, x.real.shape[1], w.pop("kernel"), **w)
        return self.net.add(branch, x) if self.r.random() < 0.5 else self.net.add(x, branch)

    def pad(self, x: Act) -> Act:
        amounts = [self.pick(-1, 0, 1, 3), self.pick(-1, 0, 2)]
        pads = [0] * (2 * x.real.ndim)
        pads[2], pads[2 + x.real.ndim] = amounts
        return self.net.real_op("Pad", [x], consts=[np.asarray(pads, np.int64)], same=True)

    def grow(self) -> onnx.ModelProto:
        x = self.x
        for _ in range(int(self.r.integers(2, 6))):
            step = [self.conv, self.conv, self.pool, self.residual, self.residual, self.pad][int(self.r.integers(0, 6))]
            x = step(x)
            if self.r.random() < 0.2:
                self.taken.append(x)
        if x is self.x or x.real.shape[2] < 1:
            x = self.conv(self.x)
        seen = {x.name}
        self.net.output(x, self.border)
        for extra in self.taken[:2]:
            if extra.name not in seen:
                seen.add(extra.name)
                self.net.output(extra, self.border)
        return self.net.model()


def lengths(g: Generated, r: np.random.Generator) -> list[int]:
    """0, 1, shorter than the window, odd, and one that fills the pipeline."""
    from codegen.ir.periods import warm_up

    full = warm_up(g.graph.time_graph())
    return [0, 1, int(r.integers(2, 7)), full // 2, full + int(r.integers(1, 40)), 2 * int(r.integers(15, 40)) + 1]


def run_clips(shop: Workshop, g: Generated, seed: int, compilers: tuple[str, ...]) -> None:
    r = np.random.default_rng(seed)
    time = g.graph.time_graph()
    script = Script(g)
    plan: list[tuple[str, list[int] | None, int, object]] = []
    for total in lengths(g, r):
        frames = (
            code_frames(g, random_feed(g.graph, total, seed + total))
            if total
            else [np.zeros((0, p["frame_elements"]), p["code_dtype"]) for p in g.manifest["inputs"]]
        )
        legal = is_legal(time, total)
        want = reference_frames(g, frames) if legal else None
        for poison in (0xA5, 0x00, None):  # None: after the finish before, which must have reset
            if poison is not None:
                script.poison(poison)
            sizes = split(total, r)
            at = 0
            for n in sizes:
                script.push([f[at : at + n] for f in frames], n)
                at += n
            script.finish()
            plan.append((f"T={total} pushes {sizes}", sizes, total, want))
    for compiler in compilers:
        results = iter(script.run(shop.driver(g, compiler)))
        for what, sizes, _, want in plan:
            assert sizes is not None
            answers = [next(results) for _ in range(len(sizes) + 1)]
            assert all(status == 0 for status, _ in answers[:-1])
            status = answers[-1][0]
            if want is None:
                assert status == -1, f"{what}: operands differ in length, finish says {status}"
                continue
            assert status == 0, f"{what}: finish says {status}"
            for i, port in enumerate(g.graph.outputs):
                got = np.concatenate([outs[i] for _, outs in answers])
                assert_same(got, want[i], f"{compiler}, {what}, output {port.name}")  # type: ignore[index]


def check_graph(shop: Workshop, seed: int, compilers: tuple[str, ...]) -> None:
    model = Grower(seed).grow()
    hop = int(np.random.default_rng(seed).choice([1, 1, 2, 3, 5]))
    print(f"seed {seed}, hop {hop}")
    g = shop.build(model, hop=hop)
    run_clips(shop, g, seed, compilers)
    total = next(n for n in range(60, 300) if is_legal(g.graph.time_graph(), n))
    feed = random_feed(g.graph, total, seed)
    ours, theirs = whole_clip.run(g.graph, feed), runtime_run(g.path, feed)
    for port in g.graph.outputs:
        # An Add may round a tie otherwise there, and a later layer makes more than one code of it.
        a, b = (np.asarray(v[port.name], np.float64) for v in (ours, theirs))
        step = port.qparams.scale if port.qparams and a.dtype != b.dtype else 1.0
        assert a.shape == b.shape
        assert np.mean(np.abs(a - b) > 1e-6 * step) < 0.05, f"{port.name}: many values differ from onnxruntime's"


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_graph(shop: Workshop, seed: int) -> None:
    check_graph(shop, seed, ("gcc", "clang"))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1000 + SLOW_GRAPHS, 20))
def test_more_graphs(shop: Workshop, first: int) -> None:
    for seed in range(first, first + 20):
        check_graph(shop, seed, ("gcc", "clang"))
