"""How the axes of an ONNX tensor lie in the frames of a stored tensor.

Storage is always one frame after another along the stream axis, each frame contiguous. A `View` gives, for every ONNX
axis, the pieces it is made of, outermost first. A piece is `(size, stride)` in elements of the frame, or the stream
axis itself (stride None). Transpose, Reshape, Squeeze, Unsqueeze and Flatten only make new views: no data moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple


class Piece(NamedTuple):
    """Part of an axis: `size` steps of `stride` elements; stride None is the stream axis."""

    size: int
    stride: int | None

    @property
    def is_time(self) -> bool:
        return self.stride is None


Axis = tuple[Piece, ...]


def compact(sizes: Sequence[int]) -> list[Axis]:
    """Axes of a row-major frame with these sizes."""
    axes: list[Axis] = []
    stride = 1
    for size in reversed(sizes):
        axes.append((Piece(size, stride),) if size > 1 else ())
        stride *= size
    return axes[::-1]


def normalise(axis: Sequence[Piece]) -> Axis:
    """Drop single steps and join neighbours that are contiguous with each other."""
    out: list[Piece] = []
    for piece in axis:
        if piece.size == 1 and not piece.is_time:
            continue
        last = out[-1] if out else None
        if last and last.stride is not None and piece.stride is not None and last.stride == piece.stride * piece.size:
            out[-1] = Piece(last.size * piece.size, piece.stride)
        else:
            out.append(piece)
    return tuple(out)


@dataclass(frozen=True)
class View:
    """`axes[i]` are the pieces of ONNX axis i of the stored tensor `tensor`."""

    tensor: str
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(prod(piece.size for piece in axis) for axis in self.axes)

    @property
    def time_axis(self) -> int | None:
        """The ONNX axis that holds the stream axis, alone or among other pieces."""
        return next((i for i, axis in enumerate(self.axes) if any(piece.is_time for piece in axis)), None)

    def time_is_alone(self) -> bool:
        """Whether the stream axis is an ONNX axis of its own (or absent)."""
        at = self.time_axis
        return at is None or len(self.axes[at]) == 1

    def with_length(self, length: int) -> View:
        """The same layout with another number of frames (joins are checked where strides are known, not here)."""
        axes = tuple(tuple(Piece(length, None) if p.is_time else p for p in axis) for axis in self.axes)
        return View(self.tensor, axes)

    def transpose(self, perm: Sequence[int]) -> View:
        return View(self.tensor, tuple(self.axes[i] for i in perm))

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements under another shape, or None where a dimension would cut across the stream axis."""
        rest = list(normalise([piece for axis in self.axes for piece in axis if piece.size != 1]))
        axes: list[Axis] = []
        for size in shape:
            taken: list[Piece] = []
            need = size
            while need > 1:
                if not rest:
                    return None
                piece = rest.pop(0)
                if need % piece.size == 0:
                    taken.append(piece)
                    need //= piece.size
                elif piece.stride is not None and piece.size % need == 0:
                    inner = piece.size // need
                    taken.append(Piece(need, piece.stride * inner))
                    rest.insert(0, Piece(inner, piece.stride))
                    need = 1
                else:
                    return None
            axes.append(normalise(taken))
        return None if rest else View(self.tensor, tuple(axes))

    def frame_pieces(self, order: Sequence[int]) -> list[Piece]:
        """Pieces of the given ONNX axes without the stream axis, outermost first."""
        return [piece for i in order for piece in self.axes[i] if not piece.is_time and piece.size > 1]

    def is_compact(self, order: Sequence[int]) -> bool:
        """Whether the frame is row-major over the axes in this order."""
        stride = 1
        for piece in reversed(self.frame_pieces(order)):
            if piece.stride != stride:
                return False
            stride *= piece.size
        return True

    def storage_order(self) -> tuple[int, ...]:
        """ONNX axes from the outermost in memory to the innermost; axes of one element come first."""

        def key(i: int) -> tuple[int, int]:
            strides = [piece.stride for piece in self.axes[i] if piece.stride is not None and piece.size > 1]
            return (-max(strides, default=1 << 60), i)

        return tuple(sorted(range(len(self.axes)), key=key))


def same_lengths(views: Sequence[View]) -> list[View]:
    """Views whose stream axes meet, with the shortest of their lengths.

    Whether they may meet is the planner's question, which knows the strides and names both paths.
    """
    at = {view.time_axis for view in views}
    if len(at) != 1 or None in at or not all(view.time_is_alone() for view in views):
        return list(views)
    axis = at.pop()
    assert axis is not None
    length = min(view.shape[axis] for view in views)
    return [view.with_length(length) for view in views]
