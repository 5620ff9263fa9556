"""A window operator as tiles see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.codes import CodeType
from codegen.ir.geometry import Geometry, window_length
from codegen.ir.time import Window

Triple = tuple[int, int, int]
Windows = tuple[Window, Window, Window]


@dataclass(frozen=True)
class Shape:
    """A pool or convolution: `batch` items of `groups` * `group_in` channels of D x H x W = `sizes`, to `channels`.

    `channel_bytes` are the weights and parameters of one output channel (0: a pool). A pool has one group per channel.
    """

    batch: int
    channels: int
    groups: int
    group_in: int
    sizes: Triple
    windows: Windows
    channel_bytes: int = 0
    x_bytes: int = 1
    y_bytes: int = 1

    @property
    def outputs(self) -> Triple:
        d, h, w = (window_length(n, a) for n, a in zip(self.sizes, self.windows, strict=True))
        return d, h, w

    @property
    def group_out(self) -> int:
        return self.channels // self.groups

    @property
    def planes(self) -> int:
        """N*C."""
        return self.batch * self.channels

    @property
    def pads(self) -> bool:
        """Whether some window reads outside its axis."""
        return any(
            a.left > 0 or (out - 1) * a.stride - a.left + a.extent > n
            for n, out, a in zip(self.sizes, self.outputs, self.windows, strict=True)
        )

    @property
    def overlaps(self) -> bool:
        """Whether neighbouring windows share inputs: k_eff > stride on an axis with more than one output."""
        return any(a.extent > a.stride and out > 1 for out, a in zip(self.outputs, self.windows, strict=True))


def window_shape(
    g: Geometry, frames: int | None, channels: int, groups: int, group_in: int, own: int, kind: CodeType
) -> Shape:
    """D and W lie inside a frame, H is the stream. `own`: bytes of tables per channel, `kind`: what it writes.

    `frames`: input frames of a layer that runs on the whole clip; None: one output frame, from the rows it reads.
    """
    rows = replace(g.time, left=0, right=0, ceil_mode=False) if frames is None else g.time
    sizes = (g.size_in[0], rows.extent if frames is None else frames, g.size_in[1])
    return Shape(1, channels, groups, group_in, sizes, (g.depth, rows, g.width), own, 1, kind.bytes)
