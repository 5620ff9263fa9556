"""What an operator does along the stream axis, and nothing else.

Receptive fields, counts, rings and schedules are computed from these rules alone, so that one algebra serves float
models, int8 models and hand-written tests. Frames count from 0; an index < 0 or >= the tensor's length is padding.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
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


@dataclass(frozen=True)
class Join:
    """Output j reads frame j of every operand; with one operand: pointwise.

    Operands must be equally long, but for `shortest`: it reads the first one, and ends with the first that ends.
    """

    shortest: bool = False


@dataclass(frozen=True)
class Upsample:
    """Nearest upsampling by `factor`: output j reads input floor((j + offset) / factor), clamped to the last frame."""

    factor: int
    offset: int = 0


@dataclass(frozen=True)
class Transposed:
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


@dataclass(frozen=True)
class Recurrent:
    """Output j reads input 0..j: RNN, cumulative sum."""


@dataclass(frozen=True)
class Reduce:
    """One output frame that reads the whole sequence; it exists at the end of the stream."""


@dataclass(frozen=True)
class Last:
    """One output frame, a copy of the last `count` frames' first one; it exists at the end of the stream."""

    count: int = 1


@dataclass(frozen=True)
class Unstreamable:
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
