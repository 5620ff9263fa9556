"""What an operator does along the stream axis, and nothing else.

Receptive fields, counts, rings and schedules are computed from these rules alone, so that one algebra serves float
models, int8 models and hand-written tests. Frames count from 0; an index < 0 or >= the tensor's length is padding.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """floor((mul * x + add) / div), mul >= 0: what the formulas of all rules are made of."""

    mul: int = 1
    add: int = 0
    div: int = 1

    def __call__(self, x: int) -> int:
        return (self.mul * x + self.add) // self.div


class FrameByFrame:
    """The formulas of a rule, one place for numbers and for C; these are of output j reading frame j.

    Of several formulas for one number the least counts, and of several operands the least.
    """

    @property
    def held_back(self) -> int:
        """e: input frames (window) or output frames (transposed) that wait because the end of the clip may cut them."""
        return 0

    def count(self) -> Affine:
        """Signed number of output frames that so many frames of the operand allow (docs/streaming.md)."""
        return Affine()

    def length(self) -> tuple[Affine, ...]:
        """Output length before clipping at 0, for an operand of so many frames, at least one."""
        return (Affine(),)

    def lowest(self) -> Affine:
        """lo: the lowest input frame that output frames >= j read."""
        return Affine()

    def reads(self, j: int) -> list[int]:
        """Input frames that output frame j reads (of every operand), neither clipped nor clamped."""
        return [j]


@dataclass(frozen=True)
class Window(FrameByFrame):
    """Output j reads input j*stride - left + t*dilation for t in 0..taps-1. Negative padding crops."""

    taps: int = 1
    stride: int = 1
    dilation: int = 1
    left: int = 0
    right: int = 0
    ceil_mode: bool = False

    @property
    def extent(self) -> int:
        """k_eff: frames from the first to the last tap."""
        return self.dilation * (self.taps - 1) + 1

    @property
    def held_back(self) -> int:
        return max(0, -self.right)

    def count(self) -> Affine:
        return Affine(1, self.left - self.extent - self.held_back + self.stride, self.stride)

    def length(self) -> tuple[Affine, ...]:
        """In ceil mode windows may hang over the right end, but each starts before the right padding (ONNX pools)."""
        span, s = self.left + self.right - self.extent, self.stride
        if not self.ceil_mode:
            return (Affine(1, span + s, s),)
        return (Affine(1, span + 2 * s - 1, s), Affine(1, self.left - 1 + s, s))

    def lowest(self) -> Affine:
        return Affine(self.stride, -self.left)

    def reads(self, j: int) -> list[int]:
        return [j * self.stride - self.left + tap * self.dilation for tap in range(self.taps)]


@dataclass(frozen=True)
class Join(FrameByFrame):
    """Output j reads frame j of every operand; with one operand: pointwise.

    Operands must be equally long, but for `shortest`: it reads the first one, and ends with the first that ends.
    """

    shortest: bool = False


@dataclass(frozen=True)
class Upsample(FrameByFrame):
    """Nearest upsampling by `factor`: output j reads input floor((j + offset) / factor), clamped to the last frame."""

    factor: int
    offset: int = 0

    def count(self) -> Affine:
        return Affine(self.factor, -self.offset)

    def length(self) -> tuple[Affine, ...]:
        return (Affine(self.factor),)

    def lowest(self) -> Affine:
        return Affine(1, self.offset, self.factor)

    def reads(self, j: int) -> list[int]:
        return [self.lowest()(j)]


@dataclass(frozen=True)
class Transposed(FrameByFrame):
    """Transposed convolution: output j reads every input i with i*stride + t*dilation - left == j for a tap t.

    Length (L-1)*stride + extent - left - right + output_padding (ONNX ConvTranspose-11).
    """

    taps: int
    stride: int = 1
    dilation: int = 1
    left: int = 0
    right: int = 0
    output_padding: int = 0

    @property
    def extent(self) -> int:
        return self.dilation * (self.taps - 1) + 1

    @property
    def held_back(self) -> int:
        return max(0, self.stride + self.right - self.extent - self.output_padding)

    def count(self) -> Affine:
        return Affine(self.stride, -self.left - self.held_back)

    def length(self) -> tuple[Affine, ...]:
        rest = self.extent - self.left - self.right + self.output_padding
        return (Affine(self.stride, rest - self.stride),)

    def lowest(self) -> Affine:
        return Affine(1, self.left - self.extent + self.stride, self.stride)

    def reads(self, j: int) -> list[int]:
        shifted = (j + self.left - tap * self.dilation for tap in range(self.taps))
        return sorted(q // self.stride for q in shifted if q % self.stride == 0)


@dataclass(frozen=True)
class Recurrent(FrameByFrame):
    """Output j reads input 0..j, as frame j and a state of its own: RNN, cumulative sum."""


@dataclass(frozen=True)
class Reduce(FrameByFrame):
    """One output frame that reads the whole sequence, one new frame at a time; it exists at the end of the stream."""

    def count(self) -> Affine:
        return Affine(0)

    def length(self) -> tuple[Affine, ...]:
        return (Affine(0, 1),)


@dataclass(frozen=True)
class Last(FrameByFrame):
    """One output frame, a copy of the last `frames` frames' first one; it exists at the end of the stream."""

    frames: int = 1

    def count(self) -> Affine:
        return Affine(0)

    def length(self) -> tuple[Affine, ...]:
        return (Affine(0, 1), *([Affine(1, 0, self.frames)] if self.frames > 1 else []))


@dataclass(frozen=True)
class Unstreamable(FrameByFrame):
    """The dependency is the whole sequence for every output frame (softmax over time, reverse RNN, ...)."""

    reason: str


Rule = Window | Join | Upsample | Transposed | Recurrent | Reduce | Last | Unstreamable


@dataclass(frozen=True)
class TimeNode:
    """A node reduced to its rule; `inputs` are the tensors that carry the stream axis.

    `starts`: its first frame is made in another way than those after it, which build on the one before.
    """

    name: str
    rule: Rule
    inputs: tuple[str, ...]
    output: str
    starts: bool = False


@dataclass(frozen=True)
class TimeGraph:
    """Nodes in topological order. Every tensor in `inputs` advances one frame per clock."""

    inputs: tuple[str, ...]
    nodes: tuple[TimeNode, ...]
    outputs: tuple[str, ...]
