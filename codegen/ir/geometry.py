"""Windows over the axes of a frame: sizes, counts and the block that a reduction reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.time import Window

MAX_WINDOW = 1 << 15


def window_length(length: int, w: Window) -> int:
    """Frames that a window yields on `length` frames: floor or ceil((L + left + right - k_eff) / stride) + 1, or 0.

    Ceil mode drops a window that would start in the right padding (docs/numbers.md).
    """
    if length <= 0:
        return 0
    room = length + w.left + w.right - w.extent
    if not w.ceil_mode:
        return max(0, room // w.stride + 1)
    count = -(-room // w.stride) + 1
    if (count - 1) * w.stride - w.left >= length:
        count -= 1
    return max(0, count)


def same_padding(length: int, taps: int, stride: int, dilation: int, upper: bool) -> tuple[int, int]:
    """(left, right) of auto_pad SAME_UPPER or SAME_LOWER: ceil(L / stride) outputs, odd frame at the end or start."""
    extent = dilation * (taps - 1) + 1
    total = max((-(-length // stride) - 1) * stride + extent - length, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


@dataclass(frozen=True)
class Geometry:
    """A window over (stream axis, depth, width) of frames [depth, width, channels]; sizes are (depth, width)."""

    time: Window
    depth: Window
    width: Window
    size_in: tuple[int, int]
    size_out: tuple[int, int]

    @property
    def taps(self) -> tuple[int, int, int]:
        return self.time.taps, self.depth.taps, self.width.taps

    def patches(self, x: npt.NDArray[Any], fill: int, lengths_out: int) -> npt.NDArray[Any]:
        """All window contents: x [L, D, W, C] -> [L', D', W', kt, kd, kw, C], padding filled with `fill`."""
        for axis, (w, out) in enumerate(self.axes(lengths_out)):
            x = _unfold(x, axis, w, out, fill)
        return x

    def axes(self, length_out: int) -> list[tuple[Window, int]]:
        return [(self.time, length_out), (self.depth, self.size_out[0]), (self.width, self.size_out[1])]

    def reads(self) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """For depth and width the first input of every window, and one past its last, those in the padding left out."""
        found = []
        for w, size, out in zip((self.depth, self.width), self.size_in, self.size_out, strict=True):
            first = np.arange(out, dtype=np.int64) * w.stride - w.left
            found.append((np.clip(first, 0, size), np.clip(first + w.extent, 0, size)))
        return found

    def reads_padding(self) -> bool:
        """Whether some window may read outside its input: exact inside the frame, by the pads along the stream."""
        if self.time.left > 0 or self.time.right > 0 or self.time.ceil_mode:
            return True
        axes = zip((self.depth, self.width), self.size_in, self.size_out, strict=True)
        return any(w.left > 0 or (out - 1) * w.stride - w.left + w.extent > size for w, size, out in axes)

    def describe(self) -> str:
        parts = [_text(self.time)]
        for w, size in ((self.depth, self.size_in[0]), (self.width, self.size_in[1])):
            if size > 1 or w.taps > 1:
                parts.append(_text(w))
        return " x ".join(parts)


def _text(w: Window) -> str:
    text = f"k={w.taps} s={w.stride} p={w.left},{w.right}"
    return f"{text} d={w.dilation}" if w.dilation > 1 else text


def _unfold(x: npt.NDArray[Any], axis: int, w: Window, out: int, fill: int) -> npt.NDArray[Any]:
    """Replace `axis` by its window starts and append the taps before the channel axis, at -2."""
    index = np.arange(out)[:, None] * w.stride - w.left + np.arange(w.taps)[None, :] * w.dilation
    size = x.shape[axis]
    inside = (index >= 0) & (index < size)
    if size == 0:
        shape = [*x.shape[:axis], out, *x.shape[axis + 1 : -1], w.taps, x.shape[-1]]
        return np.full(shape, fill, x.dtype)
    taken = np.take(x, np.where(inside, index, 0).ravel(), axis=axis)
    taken = taken.reshape(*x.shape[:axis], out, w.taps, *x.shape[axis + 1 :])
    mask = inside.reshape([1] * axis + [out, w.taps] + [1] * (x.ndim - axis - 1))
    return np.moveaxis(np.where(mask, taken, np.asarray(fill, x.dtype)), axis + 1, -2)


def block_of(sizes: Sequence[int], reduced: Sequence[bool]) -> tuple[int, int, int] | None:
    """(outer, n, inner) of a row-major frame whose reduced axes are neighbours, else None."""
    marked = [i for i, (size, r) in enumerate(zip(sizes, reduced, strict=True)) if r and size > 1]
    if not marked:
        return (1, 1, prod(sizes))
    first, last = marked[0], marked[-1]
    if any(size > 1 and not reduced[i] for i, size in enumerate(sizes) if first <= i <= last):
        return None
    return prod(sizes[:first]), prod(sizes[first : last + 1]), prod(sizes[last + 1 :])


def conv_macs(geometry: Geometry, weights_shape: Sequence[int]) -> int:
    """Multiply-accumulates per output frame, padding included (what the offline model counts)."""
    return prod(geometry.size_out) * prod(weights_shape)


def describe_convolution(geometry: Geometry, groups: int) -> str:
    return geometry.describe() + (f" groups={groups}" if groups > 1 else "")
