"""Resize and Upsample by whole factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering
from codegen.ir.graph import Const
from codegen.ir.real import Resample
from codegen.ir.time import Join, Rule, Upsample
from codegen.ir.view import Axis, Piece, View, compact


def lower_resize(node: OnnxNode, args: Sequence[View | Const | None], ctx: Lowering) -> Sequence[View | Const]:
    """Nearest upsampling by whole factors: source floor((j + offset) / factor)."""
    x = args[0]
    assert isinstance(x, View)
    rank = len(x.axes)
    factors = _factors(node, args, x, rank)
    mode = node.attrs.get("mode", "nearest")
    mapping = node.attrs.get(
        "coordinate_transformation_mode", "half_pixel" if node.op_type == "Resize" else "asymmetric"
    )
    rounding = node.attrs.get("nearest_mode", "round_prefer_floor" if node.op_type == "Resize" else "floor")
    at = x.time_axis
    if mode != "nearest":
        where = "on the stream axis" if at is not None and factors[at] != 1 else "inside the frame"
        raise unsupported(IMPORT, node.title, f"mode={mode} {where}", "mode=nearest with whole factors")
    order = x.storage_order()
    x = ctx.arrange(x, order, node)
    source = ctx.tensor(x)
    frame_axes = [i for i in order if i != at]
    factor = factors[at] if at is not None else 1
    offsets = {f: _offset(node, mapping, rounding, f) for f in set(factors) if f > 1}
    frame_in = tuple(x.shape[i] for i in frame_axes)
    index = tuple(_sources(x.shape[i], factors[i], offsets.get(factors[i], 0)) for i in frame_axes)
    length = source.length * factor
    rule: Rule = Upsample(factor, offsets[factor]) if factor > 1 else Join()
    sizes = [len(steps) for steps in index]
    name = ctx.emit(Resample(rule, frame_in, index), [x.tensor], sizes or [1], length, node)
    axes: list[Axis] = [()] * rank
    for i, axis in zip(frame_axes, compact(sizes), strict=True):
        axes[i] = axis
    if at is not None:
        axes[at] = (Piece(length, None),)
    return [View(name, tuple(axes))]


def _sources(size: int, factor: int, offset: int) -> tuple[int, ...]:
    """Source step of every output step inside a frame, kept inside the frame at both ends."""
    return tuple(min(max((j + offset) // factor, 0), size - 1) for j in range(size * factor))


def _factors(node: OnnxNode, args: Sequence[View | Const | None], x: View, rank: int) -> list[int]:
    constants = [a for a in args[1:] if isinstance(a, Const) and a.array.size]
    values: list[float]
    sizes = args[3] if len(args) > 3 else None
    if isinstance(sizes, Const) and sizes.array.size:
        values = [float(n) / x.shape[i] for i, n in enumerate(sizes.array.ravel().tolist())]
    elif "scales" in node.attrs:
        values = list(node.attrs["scales"])
    else:
        scales = [c for c in constants if c.array.dtype.kind == "f" and c.array.size == rank]
        if not scales:
            raise unsupported(IMPORT, node.title, "scales or sizes computed at run time", "constant whole factors")
        values = [float(v) for v in scales[-1].array.ravel()]
    if len(values) != rank or any(v < 1 or v != int(v) for v in values):
        allowed, hint = "whole factors of at least 1", "Resample by integers"
        raise unsupported(IMPORT, node.title, f"factors {values}", allowed, hint)
    return [int(v) for v in values]


def _offset(node: OnnxNode, mapping: str, rounding: str, factor: int) -> int:
    """The q of floor((j + q) / f) for a coordinate map and a rounding (ONNX Resize-19), found on one period."""
    if mapping not in ("asymmetric", "half_pixel", "pytorch_half_pixel"):
        found = f"coordinate_transformation_mode={mapping}"
        raise unsupported(IMPORT, node.title, found, "asymmetric and half_pixel", "Resize by a whole factor")
    j = np.arange(4 * factor, dtype=np.float64)
    real = j / factor if mapping == "asymmetric" else (j + 0.5) / factor - 0.5
    index = {
        "floor": np.floor(real),
        "ceil": np.ceil(real),
        "round_prefer_floor": np.ceil(real - 0.5),
        "round_prefer_ceil": np.floor(real + 0.5),
    }[rounding]
    for offset in range(-factor, factor + 1):
        if np.array_equal(np.floor((j + offset) / factor), index):
            return offset
    raise unsupported(IMPORT, node.title, f"{mapping} with {rounding} by {factor}", "a map of the form floor((j+q)/f)")


LOWER = {
    ("", "Resize"): lower_resize,
    ("", "Upsample"): lower_resize,
}

RULES = {
    **dict.fromkeys(
        ("Resize", "Upsample"),
        "mode nearest by whole factors; asymmetric or half_pixel maps of the form floor((j+q)/f)",
    ),
}
