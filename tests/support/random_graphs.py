"""Seeded quantized ONNX graphs for streaming tests: chains, residuals, concats, U-Nets; and a census of what they are.

Everything that meets at a join has equal length for every T that the strides above allow, so that the graphs are models
that somebody could have trained. Scales are calibrated by running each operator on a sample (models.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from models import Act, Array, Net, float_node
from onnx import helper

from codegen.ir.graph import Graph
from codegen.ir.time import Transposed, Upsample
from codegen.ops.transposed import ConvTransposeS8

SAMPLE = 72  # frames of calibration data, a multiple of every total stride that a U-Net here has
ENOUGH = 8  # sample frames that must be left for the operators behind a stride
LAYOUTS: dict[str, tuple[int | str, ...]] = {
    "[C]": ("T",),
    "[W,C]": ("T", 4),
    "[W,C] of [N,C,W,T]": (4, "T"),
    "[W,C] wide": ("T", 5),
    "[D,W,C]": ("T", 2, 3),
    "[D,W,C] of [N,C,D,T,W]": (3, "T", 2),
}


@dataclass(frozen=True)
class Span:
    """A window along one axis."""

    taps: int
    stride: int = 1
    dilation: int = 1
    left: int = 0
    right: int = 0

    @property
    def extent(self) -> int:
        return self.dilation * (self.taps - 1) + 1


def attributes(spans: Sequence[Span]) -> dict[str, list[int]]:
    """ONNX attributes of a Conv or pool from one span per spatial axis."""
    return {
        "strides": [s.stride for s in spans],
        "dilations": [s.dilation for s in spans],
        "pads": [s.left for s in spans] + [s.right for s in spans],
    }


class GraphMaker:
    """Grows one network from a seed. `at` is the stream axis among the spatial axes of every activation."""

    def __init__(self, seed: int, family: str | None = None, clip: int | None = None, ended: bool = False) -> None:
        """`clip`: the number of frames is fixed; `ended`: then every output is one result of the whole clip."""
        self.ended = ended
        self.r = np.random.default_rng(seed)
        self.family = family or str(self.r.choice(FAMILIES, p=FAMILY_SHARE))
        dtype = str(self.r.choice(["int8", "uint8"]))
        self.net = Net(
            dtype,
            form="qop" if self.chance(0.2) else "qdq",
            seed=seed,
            opset=self.pick(13, 17, 18, 21),
            per_channel=self.chance(0.5),
            # One zero point for all tensors, near the middle so that neither sign is left without codes.
            zero=self.pick(-41, 0, 3, 31) + 128 * (dtype == "uint8") if self.chance(0.15) else None,
        )
        layout = str(self.r.choice(list(LAYOUTS), p=[0.6, 0.12, 0.1, 0.06, 0.06, 0.06]))
        self.at = LAYOUTS[layout].index("T")
        self.sizes = tuple(clip if clip and size == "T" else size for size in LAYOUTS[layout])
        self.border = "float" if self.net.form == "qdq" and self.chance(0.25) else "codes"
        self.taken: list[Act] = []

    def chance(self, p: float) -> bool:
        return bool(self.r.random() < p)

    def pick(self, *values: int) -> int:
        return int(self.r.choice(values))

    # ------------------------------------------------------------------ small helpers

    def new_input(self, name: str, channels: int) -> Act:
        batch = 1 if self.chance(0.6) else "N"
        return self.net.input([batch, channels, *self.sizes], name=name, border=self.border, length=SAMPLE)

    def frames(self, x: Act) -> int:
        return int(x.real.shape[2 + self.at])

    def channels(self, x: Act) -> int:
        return int(x.real.shape[1])

    def spans(self, x: Act, time: Span, shrink: bool = False) -> list[Span]:
        """`time` on the stream axis, windows that keep the size (or, `shrink`, may not) on the axes of a frame."""
        result = []
        for i, size in enumerate(x.real.shape[2:]):
            if i == self.at:
                result.append(time)
            elif shrink and size > 1 and self.chance(0.5):
                result.append(Span(min(size, self.pick(1, 2)), self.pick(1, 2)))
            else:
                taps = self.pick(1, 2, 3)
                before = int(self.r.integers(0, taps))
                result.append(Span(taps, 1, 1, before, taps - 1 - before))
        return result

    def same_span(self, most: int = 24) -> Span:
        """Stride 1, as many frames out as in, any lookahead."""
        taps, dilation = self.pick(1, 2, 3, 3, 3, 4, 5), self.pick(1, 1, 1, 2, 3, 4, 5, 8)
        while dilation * (taps - 1) >= most:
            dilation -= 1
        rest = dilation * (taps - 1)
        left = self.pick(0, rest, rest // 2, int(self.r.integers(0, rest + 1)))
        return Span(taps, 1, dilation, left, rest - left)

    def free_span(self, x: Act, most_stride: int = 3) -> Span:
        taps, dilation = self.pick(1, 2, 3, 3, 4, 5), self.pick(1, 1, 1, 2, 3, 6)
        stride = self.pick(1, 1, 2, 3) if self.frames(x) >= 3 * ENOUGH else 1
        while dilation * (taps - 1) > max(2, self.frames(x) - ENOUGH):
            dilation, taps = max(1, dilation - 1), max(1, taps - 1)
        e = dilation * (taps - 1) + 1
        left, right = self.pick(0, e - 1, e // 2, e + 1), self.pick(0, 0, e // 2, e - 1)
        return Span(taps, min(stride, most_stride), dilation, left, right)

    def clamp(self) -> list[tuple[str, tuple[float, ...]]]:
        if self.chance(0.3):
            return [("Relu", ())]
        return [("Clip", (-0.9, 1.3))] if self.chance(0.15) else []

    # ------------------------------------------------------------------ operators of one input

    def conv(self, x: Act, channels: int | None = None, time: Span | None = None, shrink: bool = False) -> Act:
        spans = self.spans(x, time or self.free_span(x), shrink)
        inputs = self.channels(x)
        channels = channels or self.pick(2, 3, 4, 6)
        group = 1
        if inputs > 1 and channels % inputs == 0 and self.chance(0.3):
            group = inputs
        attrs: dict[str, Any] = attributes(spans)
        if time is None and self.chance(0.15) and all(s.dilation == 1 for s in spans):
            # SAME with a stride on the stream axis depends on T, so it is refused; without one it is any other padding.
            attrs["strides"][self.at] = 1
            del attrs["pads"]
            attrs["auto_pad"] = str(self.r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
            if attrs["auto_pad"] == "VALID" and any(s.extent > n for s, n in zip(spans, x.real.shape[2:], strict=True)):
                attrs["auto_pad"] = "SAME_UPPER"
        bias = [None, "int32", "int32", "float"][self.pick(0, 1, 2, 3)]
        return self.net.conv(x, channels, [s.taps for s in spans], bias=bias, then=self.clamp(), group=group, **attrs)

    def same(self, x: Act, channels: int | None = None) -> Act:
        return self.conv(x, channels, self.same_span())

    def pool(self, x: Act, stride: int | None = None) -> Act:
        """A pool; with `stride` one that divides the length exactly."""
        taps = self.pick(2, 3)
        step = stride or (self.pick(1, 2, 3) if self.frames(x) >= 3 * ENOUGH else 1)
        left, right = self.pick(0, taps - 1), self.pick(0, taps - 1)
        ceil = int(self.chance(0.3))
        if stride:
            taps, left, right, ceil = stride, 0, 0, 0
        spans = [
            Span(taps, step, 1, left, right) if i == self.at else Span(min(2, n), 1, 1, 0, min(2, n) - 1)
            for i, n in enumerate(x.real.shape[2:])
        ]
        attrs: dict[str, Any] = {"kernel_shape": [s.taps for s in spans], "ceil_mode": ceil} | attributes(spans)
        del attrs["dilations"]
        if self.chance(0.4):
            if self.net.opset < 19:
                attrs["ceil_mode"] = 0  # AveragePool of older runtimes counts cells beyond the padding
            return self.net.real_op("AveragePool", [x], count_include_pad=self.pick(0, 1), **attrs)
        if self.chance(0.5):
            return self.net.code_op("MaxPool", x, **attrs)
        return self.net.real_op("MaxPool", [x], same=True, **attrs)

    def pad(self, x: Act) -> Act:
        """A Pad node: zeros or a crop at either end; sometimes a pure delay."""
        first, last = self.pick(-2, -1, 0, 1, 3), self.pick(-1, 0, 2)
        if self.chance(0.3):
            last = -first
        amounts = [0] * (2 * x.real.ndim)
        amounts[2 + self.at], amounts[2 + self.at + x.real.ndim] = first, last
        return self.net.real_op("Pad", [x], consts=[np.asarray(amounts, np.int64)], same=True)

    def crop(self, x: Act, first: int, last: int) -> Act:
        """Slice off frames at both ends."""
        if first == last == 0:
            return x
        end = -last if last else 2**31 - 1
        bounds = [np.asarray([v], np.int64) for v in (first, end, 2 + self.at)]
        if self.chance(0.5):
            return self.net.code_op("Slice", x, bounds)
        return self.net.real_op("Slice", [x], consts=bounds, same=True)

    def curve(self, x: Act) -> Act:
        return self.net.real_op(str(self.r.choice(["Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"])), [x])

    def constant(self, x: Act) -> Act:
        """An operand that is the same for every frame, broadcast from [C, 1, ...]."""
        op = str(self.r.choice(["Mul", "Add", "Sub"]))
        shape = [self.channels(x), *[1] * (x.real.ndim - 2)]
        value = self.r.uniform(0.5, 1.5, shape).astype(np.float32)
        return self.net.real_op(op, [x], consts=[value])

    def split(self, x: Act) -> Act:
        """Split over channels, each part its own way, joined again (in another order)."""
        total = self.channels(x)
        if total < 2:
            return self.same(x)
        sizes = [total // 2, total - total // 2]
        names = [self.net.name("part") for _ in sizes]
        inputs = [x.name, self.net.const(np.asarray(sizes, np.int64))]
        self.net.nodes.append(helper.make_node("Split", inputs, names, self.net.name("n_split"), axis=1))
        reals = np.split(x.real, [sizes[0]], axis=1)
        parts = [Act(name, real, x.scale, x.zero) for name, real in zip(names, reals, strict=True)]
        return self.concat([self.same(parts[1], 2), parts[0] if self.chance(0.5) else self.same(parts[0], 3)])

    def one_channel(self, x: Act) -> Act:
        index = np.asarray([int(self.r.integers(0, self.channels(x)))], np.int64)
        return self.same(self.net.code_op("Gather", x, [index], axis=1), 3)

    # ------------------------------------------------------------------ operators of several inputs

    def concat(self, parts: Sequence[Act]) -> Act:
        return self.net.real_op("Concat", parts, axis=1)

    def join(self, a: Act, b: Act) -> Act:
        """Add, Sub or Mul of two activations in either order."""
        a, b = (a, b) if self.chance(0.5) else (b, a)
        op = "Add" if self.net.form == "qop" or self.chance(0.6) else str(self.r.choice(["Mul", "Sub"]))
        return self.net.add(a, b, op, then=[] if self.net.form == "qop" else self.clamp())

    def residual(self, x: Act) -> Act:
        """A branch of one to three convolutions joined with its input; or a valid one, the skip cropped to it."""
        channels = self.channels(x)
        if self.chance(0.3) and self.frames(x) > 3 * ENOUGH:
            taps = self.pick(2, 3, 5)
            first = self.pick(0, taps - 1, (taps - 1) // 2)
            return self.join(self.conv(x, channels, Span(taps)), self.crop(x, first, taps - 1 - first))
        branch = x
        for _ in range(self.pick(1, 1, 2, 3)):
            branch = self.same(branch, channels)
        return self.join(branch, x)

    def wide_concat(self, x: Act) -> Act:
        """Two to four branches of different lookahead side by side."""
        parts = [self.same(x, self.pick(1, 2, 3)) for _ in range(self.pick(2, 3, 4))]
        if self.chance(0.4):
            parts[0] = x
        return self.concat(parts)

    def gate(self, x: Act) -> Act:
        """x times a branch that has one value per frame and channel, broadcast over the axes of the frame."""
        if x.real.ndim == 3:
            return self.residual(x)
        spans = [self.same_span() if i == self.at else Span(n) for i, n in enumerate(x.real.shape[2:])]
        narrow = self.net.conv(x, self.channels(x), [s.taps for s in spans], **attributes(spans))
        return self.net.real_op("Mul", [x, narrow])

    # ------------------------------------------------------------------ U-Nets

    def down(self, x: Act, stride: int) -> Act:
        """L -> L / stride for every L that the stride divides."""
        if self.chance(0.4):
            return self.pool(x, stride)
        taps = self.pick(*range(max(2, stride), stride + 4))
        total = int(self.r.integers(taps - stride, taps))
        left = int(self.r.integers(0, total + 1))
        return self.conv(x, None, Span(taps, stride, 1, left, total - left))

    def up(self, x: Act, stride: int, channels: int) -> Act:
        """L -> L * stride, by a transposed convolution or by repeating frames."""
        if self.chance(0.6):
            return self.transposed(x, stride, channels)
        modes = [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("asymmetric", "round_prefer_ceil")]
        mapping, rounding = modes[self.pick(0, 0, 1, 2) if stride == 2 else self.pick(0, 2)]
        scales = np.ones(x.real.ndim, np.float32)
        scales[2 + self.at] = stride
        attrs = {"mode": "nearest", "coordinate_transformation_mode": mapping, "nearest_mode": rounding}
        return self.net.real_op("Resize", [x], consts=[np.zeros(0, np.float32), scales], same=True, **attrs)

    def transposed(self, x: Act, stride: int, channels: int) -> Act:
        """ConvTranspose whose output is `stride` times as long; the crop and the taps vary."""
        taps = self.pick(stride, stride + 1, 2 * stride, 2 * stride - 1, 3 * stride)
        extra = int(self.r.integers(0, stride)) if self.chance(0.3) else 0
        spare = taps - stride + extra
        left = self.pick(0, spare // 2, spare)
        inside = [self.pick(1, 3) for _ in x.real.shape[2:]]
        kernel = [taps if i == self.at else n for i, n in enumerate(inside)]
        first = [left if i == self.at else n // 2 for i, n in enumerate(inside)]
        last = [spare - left if i == self.at else n // 2 for i, n in enumerate(inside)]
        rank = len(kernel)
        strides = [stride if i == self.at else 1 for i in range(rank)]
        attrs: dict[str, Any] = {"strides": strides, "pads": first + last}
        if extra:
            attrs["output_padding"] = [extra if i == self.at else 0 for i in range(rank)]
        return conv_transpose(self.net, x, channels, kernel, then=self.clamp(), **attrs)

    def unet(self, x: Act, levels: int) -> Act:
        skips: list[tuple[Act, int]] = []
        for level in range(levels):
            x = self.same(x)
            stride = 3 if levels < 3 and self.chance(0.25) else 2
            skips.append((x, stride))
            x = self.down(x, stride)
            if self.chance(0.1) and level == 0:
                x = self.curve(x)
        if self.chance(0.5):
            x = self.residual_same(x)
        for skip, stride in reversed(skips):
            if self.chance(0.2):
                self.taken.append(x)
            x = self.up(x, stride, self.channels(skip))
            if self.chance(0.5) and self.channels(x) == self.channels(skip):
                x = self.join(x, skip)
            else:
                x = self.concat([x, skip] if self.chance(0.5) else [skip, x])
            if self.chance(0.5):
                x = self.same(x)
        return x

    def residual_same(self, x: Act) -> Act:
        return self.join(self.same(x, self.channels(x)), x)

    # ------------------------------------------------------------------ whole networks

    def steps(self, x: Act, count: int, kinds: Sequence[str]) -> Act:
        for _ in range(count):
            if self.frames(x) < ENOUGH:
                break
            x = getattr(self, str(self.r.choice(kinds)))(x)
            if self.chance(0.15):
                self.taken.append(x)
        return x

    def grow(self) -> onnx.ModelProto:
        x = self.new_input("x", self.pick(1, 2, 3, 4))
        first = x
        others = [self.new_input(f"x{i}", self.pick(1, 2, 3)) for i in range(1, self.pick(1, 1, 1, 1, 1, 2, 2, 3))]
        for other in others:
            x = self.same(x, 3)
            x = self.join(x, self.same(other, 3)) if self.chance(0.5) else self.concat([x, self.same(other, 2)])
        chain = ["conv", "conv", "pool", "pad", "curve", "constant", "one_channel"]
        if self.family == "chain":
            x = self.steps(x, self.pick(2, 3, 4, 5), [*chain, "upsampled"])
        elif self.family == "residual":
            x = self.steps(x, self.pick(1, 2, 3), ["residual", "residual", "gate", "conv", "pad"])
        elif self.family == "concat":
            x = self.steps(x, self.pick(1, 2), ["wide_concat", "split", "wide_concat", "conv"])
        elif self.family == "unet":
            x = self.unet(x, self.pick(1, 1, 2, 2, 3))
        else:
            x = self.steps(x, self.pick(3, 4, 5), [*chain, "residual", "wide_concat", "split", "gate", "upsampled"])
        if x.name == first.name or self.chance(0.3):
            x = self.same(x, self.pick(1, 2, 3))
        self.outputs(x, {first.name, *(o.name for o in others)})
        return self.net.model()

    def upsampled(self, x: Act) -> Act:
        if self.frames(x) > 2 * SAMPLE:
            return self.conv(x)
        return self.up(x, self.pick(2, 2, 3), self.pick(2, 3))

    def outputs(self, last: Act, inputs: set[str]) -> None:
        seen = set(inputs)
        for x in [last, *self.taken[:3]]:
            if x.name not in seen:
                seen.add(x.name)
                self.net.output(self.result(x) if self.ended else x, self.border)

    def result(self, x: Act) -> Act:
        """One vector of everything: a global pool and a Gemm."""
        pool = "GlobalAveragePool" if self.chance(0.6) else "GlobalMaxPool"
        flat = self.net.code_op("Flatten", self.net.real_op(pool, [x], same=pool == "GlobalMaxPool"), axis=1)
        return self.net.gemm(flat, self.pick(3, 8))


FAMILIES = ["chain", "residual", "concat", "unet", "mixed"]
FAMILY_SHARE = [0.2, 0.18, 0.14, 0.28, 0.2]


def conv_transpose(
    net: Net, x: Act, channels: int, kernel: Sequence[int], *, then: Any = (), group: int = 1, **attrs: Any
) -> Act:
    """ConvTranspose with quantized weights, int32 bias, then Relu or Clip."""
    inputs = int(x.real.shape[1])
    per_channel, net.per_channel = net.per_channel, net.per_channel and group == 1
    stride = int(np.prod(attrs.get("strides", [1])))
    w = net.weights([inputs, channels // group, *kernel], 1, max(1, inputs * int(np.prod(kernel)) // stride))
    b, b_real = net.bias(x, w, channels, "int32")
    net.per_channel = per_channel
    if group > 1:
        attrs["group"] = group
    real = float_node("ConvTranspose", [x.real, w.real, b_real], attrs, net.opset)
    out = net.node("ConvTranspose", [net.dequantize(x), net.dequantized(w), b], "y", **attrs)
    return net.clamped(out, real, then)


def random_graph(seed: int, family: str | None = None) -> onnx.ModelProto:
    """The model of a seed."""
    return GraphMaker(seed, family).grow()


def random_clip(seed: int, frames: int, ended: bool) -> tuple[onnx.ModelProto, int]:
    """The model of a seed for clips of `frames` frames, and its stream axis."""
    maker = GraphMaker(seed, None, frames, ended)
    return maker.grow(), 2 + maker.at


@dataclass
class Census:
    """What a set of graphs consists of: the lower bounds that keep a generator honest are asserted on it."""

    graphs: int = 0
    tensors: int = 0
    wide: int = 0
    joins: int = 0
    transposed: int = 0
    upsampled: int = 0
    unsigned: int = 0
    odd_zero: int = 0
    several_outputs: int = 0
    several_inputs: int = 0
    frames_2d: int = 0
    frames_3d: int = 0
    operators: dict[str, int] = field(default_factory=dict)

    def add(self, graph: Graph, codes: dict[str, Array]) -> None:
        """Count a graph; `codes` are all tensors of one long clip."""
        self.graphs += 1
        for name, tensor in graph.tensors.items():
            self.tensors += 1
            self.wide += np.unique(codes[name]).size >= 64
            q = tensor.qparams
            self.odd_zero += q is not None and q.zero_point not in (-128, 0, 127)
        for node in graph.nodes:
            kind = type(node.op).__name__
            self.operators[kind] = self.operators.get(kind, 0) + 1
            self.joins += len(set(node.inputs)) > 1
            self.transposed += isinstance(node.op, ConvTransposeS8) and isinstance(node.op.rule(), Transposed)
            self.upsampled += isinstance(node.op.rule(), Upsample)
        self.unsigned += any(port.qparams is not None and port.qparams.unsigned for port in graph.inputs)
        self.several_outputs += len(graph.outputs) > 1
        self.several_inputs += len(graph.inputs) > 1
        rank = len(graph.inputs[0].shape)
        self.frames_2d += rank == 4
        self.frames_3d += rank == 5

    def __iadd__(self, other: Census) -> Census:
        for name, value in vars(other).items():
            if name != "operators":
                setattr(self, name, getattr(self, name) + value)
        for kind, count in other.operators.items():
            self.operators[kind] = self.operators.get(kind, 0) + count
        return self

    def lines(self) -> Iterator[str]:
        for name, value in vars(self).items():
            if name != "operators":
                yield f"{name:<16} {value}"
        for kind, count in sorted(self.operators.items()):
            yield f"  {kind:<16} {count}"
