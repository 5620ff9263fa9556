"""Kernels, strides, dilations and pads of ONNX's convolutions and pools, and the layout of what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.geometry import MAX_WINDOW, Geometry, same_padding, window_length
from codegen.ir.time import Window
from codegen.ir.view import Axis, Piece, View, compact


def parse_windows(
    attrs: dict[str, Any], where: str, kernel: Sequence[int], sizes: Sequence[int], endless_axis: int | None
) -> list[Window]:
    """One window per spatial axis from strides, dilations, pads, auto_pad and ceil_mode.

    `endless_axis` is the spatial axis of unknown length, where SAME_* with a stride has no fixed left padding.
    """
    rank = len(kernel)
    strides = list(attrs.get("strides") or [1] * rank)
    dilations = list(attrs.get("dilations") or [1] * rank)
    pads = list(attrs.get("pads") or [0] * (2 * rank))
    auto = attrs.get("auto_pad", "NOTSET") or "NOTSET"
    lists = (strides, dilations, kernel)
    if any(len(v) != rank for v in lists) or len(pads) != 2 * rank or len(sizes) != rank:
        found = f"kernel {list(kernel)}, strides {strides}, dilations {dilations}, pads {pads} for {len(sizes)} axes"
        raise unsupported(IMPORT, where, found, "one entry per spatial axis (two for pads) is allowed")
    if any(v < 1 for values in lists for v in values):
        found = f"kernel {list(kernel)}, strides {strides}, dilations {dilations}"
        raise unsupported(IMPORT, where, found, "all must be at least 1")
    check_sizes(where, kernel, strides, dilations, pads)
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise unsupported(IMPORT, where, f"auto_pad={auto}", "NOTSET, VALID, SAME_UPPER and SAME_LOWER exist")
    windows = []
    for i in range(rank):
        left, right = pads[i], pads[i + rank]
        if auto == "VALID":
            left, right = 0, 0
        elif auto != "NOTSET":
            if i == endless_axis and strides[i] > 1:
                raise unsupported(
                    IMPORT,
                    where,
                    f"auto_pad={auto} with stride {strides[i]} on the endless stream axis: its padding depends on T",
                    "explicit pads or a fixed T are allowed",
                    "Export with explicit pads",
                )
            left, right = same_padding(sizes[i], kernel[i], strides[i], dilations[i], auto == "SAME_UPPER")
        if left < 0 or right < 0:
            raise unsupported(IMPORT, where, f"negative pads {pads}", "pads must be >= 0", "Use Slice to crop")
        windows.append(Window(kernel[i], strides[i], dilations[i], left, right, bool(attrs.get("ceil_mode", 0))))
    return windows


def check_sizes(
    where: str, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> None:
    """Refuse windows, strides and pads that no device runs, before anything is allocated for them."""
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    largest = max(*extents, *strides, *map(abs, pads))
    if largest > MAX_WINDOW:
        found = f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}, pads {list(pads)}"
        raise unsupported(IMPORT, where, found, f"windows, strides and pads of at most {MAX_WINDOW}")


def spatial_layout(node: OnnxNode, x: View, ctx: Lowering) -> tuple[View, list[int], int | None, tuple[int, int]]:
    """x [N, C, spatial...] as frames [D, W, C]: the arranged view, the spatial axes inside the frame, which of them
    is the stream (None: the stream is the batch axis, or there is none), and the sizes (D, W)."""
    rank = len(x.axes)
    if rank < 3 or rank > 5:
        raise unsupported(IMPORT, node.title, f"an input of rank {rank}", "[N, C, 1 to 3 spatial axes] are supported")
    if not x.time_is_alone() or x.time_axis == 1:
        raise unsupported(
            IMPORT,
            node.title,
            "the stream axis is part of its channels",
            "a spatial axis",
            "Name another with --stream",
        )
    at = x.time_axis
    stream = at - 2 if at is not None and at >= 2 else None
    inner = [i for i in range(2, rank) if i != at]
    lead = [0] if at != 0 and x.shape[0] > 1 else []
    frame_axes = lead + inner
    if len(frame_axes) > 2:
        found = f"{len(frame_axes)} axes inside a frame"
        raise unsupported(IMPORT, node.title, found, "two besides channels", "Use a batch of 1")
    x = ctx.arrange(x, [*frame_axes, 1] if at == 0 or lead else [0, *frame_axes, 1], node)
    sizes = [1] * (2 - len(frame_axes)) + [x.shape[i] for i in frame_axes]
    return x, inner, stream, (sizes[0], sizes[1])


def build_geometry(
    windows: Sequence[Window], inner: Sequence[int], stream: int | None, sizes: tuple[int, int]
) -> Geometry:
    """Distribute the ONNX spatial windows over (stream, depth, width)."""
    frame = [windows[i - 2] for i in inner]
    pair = [Window()] * (2 - len(frame)) + frame
    time = Window() if stream is None else windows[stream]
    out = (window_length(sizes[0], pair[0]), window_length(sizes[1], pair[1]))
    return Geometry(time, pair[0], pair[1], sizes, out)


def output_view(name: str, x: View, geometry: Geometry, inner: Sequence[int], channels: int, length: int) -> View:
    """The ONNX axes of a [N, C, spatial...] result whose frames are [D', W', channels]."""
    rank = len(x.axes)
    at = x.time_axis
    frame = compact([*geometry.size_out, channels])
    axes: list[Axis] = [()] * rank
    axes[1] = frame[2]
    slots = [*([0] if at != 0 and x.shape[0] > 1 else []), *inner]
    for i, axis in zip(slots[::-1], frame[1::-1], strict=False):
        axes[i] = axis
    if at is not None:
        axes[at] = (Piece(length, None),)
    return View(name, tuple(axes))
