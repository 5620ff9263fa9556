"""All operators on real numbers: what a model computes, before any code is chosen for a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codegen.ir.geometry import Geometry, conv_macs, describe_convolution
from codegen.ir.graph import Const, QParams
from codegen.ir.op import Op
from codegen.ir.time import Join, Last, Reduce, Rule, Transposed, Unstreamable


@dataclass(frozen=True, eq=False)
class Quantize(Op):
    """real -> code: saturate(round_half_even(x / scale) + zero_point) (ONNX QuantizeLinear-10)."""

    qparams: QParams


@dataclass(frozen=True, eq=False)
class Dequantize(Op):
    """code -> real: (code - zero_point) * scale (ONNX DequantizeLinear-10)."""

    qparams: QParams


@dataclass(frozen=True, eq=False)
class Unary(Op):
    """A real function of one real: `kind` is the ONNX name, `params` its numbers."""

    kind: str
    params: tuple[tuple[str, float], ...] = ()

    def describe(self) -> str:
        return " ".join(f"{name}={value:g}" for name, value in self.params)


@dataclass(frozen=True, eq=False)
class Binary(Op):
    """`kind` of two operands; a constant operand stands in `constant` as a whole frame, and `swapped` puts it first.

    `total`: it rounds once the zero point of its result is added, as com.microsoft's QLinear operators do.
    """

    kind: str
    constant: Const | None = None
    swapped: bool = False
    total: bool = False


@dataclass(frozen=True, eq=False)
class Composite(Unary):
    """`kind` of two functions of the same real: x -> left(x) kind right(x), such as x * sigmoid(x)."""

    left: tuple[Unary, ...] = ()
    right: tuple[Unary, ...] = ()


@dataclass(frozen=True, eq=False)
class Conv(Op):
    """Real convolution of frames [D, W, Ci] with a constant [Co, kt, kd, kw, Ci/groups] and a bias [Co]."""

    geometry: Geometry
    weights: Const
    bias: Const | None
    groups: int = 1

    def rule(self) -> Rule:
        return self.geometry.time

    def macs(self) -> int:
        return conv_macs(self.geometry, self.weights.array.shape)

    def describe(self) -> str:
        return describe_convolution(self.geometry, self.groups)


@dataclass(frozen=True, eq=False)
class DenseOverTime(Op):
    """Real product of the whole sequence with constants [T, N, frame]."""

    weights: Const
    bias: Const | None

    def rule(self) -> Rule:
        return Reduce()

    def macs(self) -> int:
        """Per input frame."""
        return int(prod(self.weights.array.shape[1:]))


@dataclass(frozen=True, eq=False)
class Resample(Op):
    """Nearest upsampling of real frames; `index[i]` lists the source step of every output step along frame axis i."""

    time: Rule
    frame_in: tuple[int, ...]
    index: tuple[tuple[int, ...], ...]

    def rule(self) -> Rule:
        return self.time


@dataclass(frozen=True, eq=False)
class LastFrame(Op):
    """The last frame of the sequence."""

    def rule(self) -> Rule:
        return Last()


@dataclass(frozen=True, eq=False)
class ConvTranspose(Op):
    """Real transposed convolution of frames [D, W, Ci]; weights [Co, kt, kd, kw, Ci/groups]."""

    time: Transposed | None
    depth: Transposed
    width: Transposed
    size_in: tuple[int, int]
    size_out: tuple[int, int]
    weights: Const
    bias: Const | None
    groups: int

    def rule(self) -> Rule:
        return self.time or Join()

    def macs(self) -> int:
        return prod(self.size_in) * prod(self.weights.array.shape) // (self.time.stride if self.time else 1)


@dataclass(frozen=True, eq=False)
class Pool(Op):
    """Real pool of frames [D, W, C]; `kind` is Max, Average or Lp."""

    kind: str
    geometry: Geometry
    count_include_pad: bool = False

    def rule(self) -> Rule:
        return self.geometry.time

    def describe(self) -> str:
        return self.geometry.describe()


@dataclass(frozen=True, eq=False)
class GlobalReduce(Op):
    """A real reduction of frames [outer, n, inner] over n; over the stream (`frames` frames) too if `over_time`."""

    kind: str
    over_time: bool
    block: tuple[int, int, int]
    frames: int

    def rule(self) -> Rule:
        return Reduce() if self.over_time else Join()

    def describe(self) -> str:
        return "over the stream axis" if self.over_time else "inside the frame"


@dataclass(frozen=True, eq=False)
class Concat(Op):
    """Joins frames [outer, n_i, inner] along the middle axis."""

    outer: int
    sizes: tuple[int, ...]
    inner: int


class Loop(NamedTuple):
    """`size` steps of `a` elements through the left operand's frame and of `b` through the right one's."""

    size: int
    a: int
    b: int


@dataclass(frozen=True, eq=False)
class Contract(Op):
    """Real y[out] = sum over `summed` of a * b. With `constant` the right operand is that constant, not a stream.

    Then it is [rows, K], and `channel` says how far each output loop steps through its rows, which have a scale each.
    """

    out: tuple[Loop, ...]
    summed: tuple[Loop, ...]
    constant: Const | None = None
    channel: tuple[int, ...] = ()

    def macs(self) -> int:
        return prod(loop.size for loop in (*self.out, *self.summed))

    def describe(self) -> str:
        return describe_contraction(self.out, self.summed)


def describe_contraction(out: Sequence[Loop], summed: Sequence[Loop]) -> str:
    """`2x3 of 4`: output loops, and how many products each sum has."""
    return f"{'x'.join(str(loop.size) for loop in out) or '1'} of {prod(loop.size for loop in summed)} products"


def order_text(order: Sequence[tuple[int, int]], count: int) -> str:
    """`(0 1) then (2 [0 1])`: the pairs of a chain, for the report."""
    names = [str(i) for i in range(count)]
    for i, j in order:
        names.append(f"({names[i]} {names[j]})")
    return names[-1]


@dataclass(frozen=True)
class Step:
    """Operands `left` and `right` (numbers from the operand count on are results of earlier steps) to one result."""

    left: int
    right: int
    out: tuple[Loop, ...]
    summed: tuple[Loop, ...]

    @property
    def outputs(self) -> int:
        return prod(loop.size for loop in self.out)

    @property
    def terms(self) -> int:
        return prod(loop.size for loop in self.summed)


@dataclass(frozen=True, eq=False)
class EinsumChain(Op):
    """Real contraction of three and more operands, streams first, then `constants`, in `steps`."""

    streams: int
    constants: tuple[Const, ...]
    steps: tuple[Step, ...]

    def macs(self) -> int:
        return sum(step.outputs * step.terms for step in self.steps)

    def describe(self) -> str:
        count = self.streams + len(self.constants)
        return f"order {order_text([(s.left, s.right) for s in self.steps], count)}"


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Affine(Op):
    """Real scale[c] * x + offset[c]; `channel` is c of every element of a frame, in memory order."""

    scale: Floats
    offset: Floats
    channel: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Softmax(Op):
    """Real softmax over the innermost `size` elements; over the stream axis where `over_time`."""

    kind: str
    size: int
    over_time: bool = False

    def rule(self) -> Rule:
        return Unstreamable(f"{self.kind} over the stream axis") if self.over_time else Join()


@dataclass(frozen=True, eq=False)
class Sequential(Op):
    """An operator known only by what it does along the stream axis."""

    kind: str
    time: Rule
    reason: str = ""

    def rule(self) -> Rule:
        return self.time

    def describe(self) -> str:
        return self.reason
