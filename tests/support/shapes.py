"""Windows of one axis with ONNX attributes, and layer shapes for tiles, as tests name them."""

from __future__ import annotations

from math import prod

from codegen.ir.geometry import same_padding
from codegen.ir.time import Window
from codegen.ops.tile_shape import Shape, Triple, Windows


def axis_window(
    size: int,
    taps: int,
    stride: int = 1,
    dilation: int = 1,
    auto_pad: str = "NOTSET",
    pads: tuple[int, int] = (0, 0),
    ceil_mode: bool = False,
) -> Window:
    """The window of one axis of `size` inputs with ONNX attributes; outputs are `window_length(size, window)`.

    NOTSET uses `pads`, VALID none; SAME_UPPER and SAME_LOWER give ceil(size / stride) outputs (ONNX Conv-11).
    """
    if auto_pad == "VALID":
        pads = (0, 0)
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = same_padding(size, taps, stride, dilation, auto_pad == "SAME_UPPER")
    return Window(taps, stride, dilation, *pads, ceil_mode)


def pool_shape(batch: int, channels: int, sizes: Triple, windows: Windows) -> Shape:
    """A pool on int8 codes."""
    return Shape(batch, channels, channels, 1, sizes, windows)


def conv_shape(
    batch: int, channels_in: int, channels: int, groups: int, sizes: Triple, windows: Windows, weight_bytes: int = 1
) -> Shape:
    """A convolution on int8 codes with int32 bias."""
    per = channels_in // groups
    taps = prod(w.taps for w in windows)
    return Shape(batch, channels, groups, per, sizes, windows, taps * per * weight_bytes + 4)
