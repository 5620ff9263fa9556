"""Which axis of each input is the stream: the user's word, else the dynamic dimension, else the first window's axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.errors import input_error, printable
from codegen.frontend.load import Model, Value

STAGE = "stream axis"
TIME_NAME = re.compile(
    r"^(t|time|frames?|samples?|seq|sequence|steps?|length|len|width|n_?frames|n_?samples)\b|time|seq|frame",
    re.IGNORECASE,
)

WHOLE = "none"


@dataclass(frozen=True)
class PinnedInput:
    """A graph input with all dimensions numbers. `endless`: the stream axis has no fixed length.

    `frame_order`: the other ONNX axes from the outermost to the innermost in a frame (default: as in the file).
    """

    name: str
    dtype: str
    declared: tuple[int | str, ...]
    shape: tuple[int, ...]
    stream_axis: int | None
    endless: bool
    frame_order: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """Frames along the stream axis (1 where there is none)."""
        return 1 if self.stream_axis is None else self.shape[self.stream_axis]

    def at(self, length: int) -> PinnedInput:
        """The same input with another clip length."""
        if self.stream_axis is None or not self.endless:
            return self
        shape = tuple(length if i == self.stream_axis else n for i, n in enumerate(self.shape))
        return replace(self, shape=shape)


def pin(model: Model, stream: str | None) -> tuple[list[PinnedInput], list[str]]:
    """Every input with symbols resolved (batch 1, stream axis 1 for now), and the notices about it."""
    notes: list[str] = []
    whole = stream == WHOLE
    return [_pin(v, None if whole else _named_axis(v, stream), whole, notes) for v in model.inputs], notes


def with_stream_axis(inputs: Sequence[PinnedInput], index: int, axis: int) -> list[PinnedInput]:
    """Make `axis` of input `index` the (fixed length) stream axis, and the same axis of inputs that share its size."""
    length = inputs[index].shape[axis]
    return [
        replace(p, stream_axis=axis)
        if i == index or (p.stream_axis is None and len(p.shape) > axis and p.shape[axis] == length)
        else p
        for i, p in enumerate(inputs)
    ]


def _named_axis(value: Value, stream: str | None) -> int | None:
    """The axis that `--stream AXIS` or `--stream INPUT:AXIS` names for this input; AXIS is a number or a symbol."""
    if stream is None or value.shape is None:
        return None
    name, _, axis = stream.rpartition(":")
    if name and name != value.name:
        return None
    if axis.lstrip("-").isdigit():
        number = int(axis)
        if not -len(value.shape) <= number < len(value.shape):
            found = f"--stream {stream}, but its shape is {list(value.shape)}"
            raise input_error(STAGE, f"input {printable(value.name)}", found)
        return number % len(value.shape)
    if axis in value.shape:
        return value.shape.index(axis)
    found = f"--stream {stream}, but its dimensions are {list(value.shape)}"
    raise input_error(STAGE, f"input {printable(value.name)}", found, hint="Name an axis number or one of the symbols")


def _pin(value: Value, named: int | None, whole: bool, notes: list[str]) -> PinnedInput:
    where = f"input {printable(value.name)}"
    if value.shape is None:
        raise input_error(STAGE, where, "it has no shape", "a rank is needed", "Export with a shape for every input")
    symbols = [i for i, n in enumerate(value.shape) if isinstance(n, str)]
    axis = named
    if axis is None and not whole:
        axis = _dynamic_axis(value, symbols, where)
    shape: list[int] = []
    for i, size in enumerate(value.shape):
        if isinstance(size, int):
            shape.append(size)
        elif i == axis:
            shape.append(1)
        elif i == 0:
            notes.append(f"{where}: batch dimension '{printable(size)}' pinned to 1")
            shape.append(1)
        else:
            found = f"dimension {i} ('{printable(size)}') has no size"
            raise input_error(
                STAGE, where, found, "only the stream axis may be free", "Fix it, or name it with --stream"
            )
    if any(n == 0 for n in shape):
        raise input_error(
            STAGE, where, f"shape {shape} has a dimension of zero", "sizes are at least 1", "Export the model again"
        )
    endless = axis is not None and isinstance(value.shape[axis], str)
    return PinnedInput(value.name, value.dtype, value.shape, tuple(shape), axis, endless)


def _dynamic_axis(value: Value, symbols: list[int], where: str) -> int | None:
    assert value.shape is not None
    timed = [i for i in symbols if TIME_NAME.search(str(value.shape[i]))]
    later = [i for i in symbols if i > 0]
    if len(later) == 1:
        return later[0]
    if len(later) > 1:
        named = [i for i in timed if i > 0]
        if len(named) == 1:
            return named[0]
        found = f"several dimensions have no size: {list(value.shape)}"
        raise input_error(STAGE, where, found, "one of them can be the stream axis", "Name it with --stream AXIS")
    if symbols == [0] and timed == [0] and len(value.shape) > 1 and value.shape[0] not in ("N", "batch"):
        return 0
    return None
