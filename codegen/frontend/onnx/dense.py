"""Products with a constant matrix: inside the frame, or over all frames of a clip."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.frontend.lower import Lowering, merged_axis, summed_scales
from codegen.ir.geometry import Geometry
from codegen.ir.graph import Const
from codegen.ir.real import Conv, DenseOverTime
from codegen.ir.time import Window
from codegen.ir.view import Axis, View, compact


def one_row(node: OnnxNode, bias: Const) -> Const:
    """C of a Gemm as one value per column; a C that differs from row to row is refused."""
    array = bias.array
    if array.ndim < 2 or array.shape[0] == 1:
        return bias
    if not np.array_equal(array, np.broadcast_to(array[:1], array.shape)):
        found = f"a C of shape {list(array.shape)} that differs from row to row"
        raise unsupported(IMPORT, node.title, found, "one value per column", "Use Add")
    return replace(bias, array=array[0], axis=0)


def scaled(c: Const, factor: float) -> Const:
    """factor * constant; quantized codes stay, their scale takes the factor (and a negative sign goes to the codes)."""
    if factor == 1.0:
        return c
    if c.scale is None or factor <= 0.0 or not np.isfinite(factor):
        return Const(np.asarray(c.real() * np.float32(factor), np.float32), origin=c.origin)
    return replace(c, scale=(c.scale * np.float32(factor)).astype(np.float32))


def transposed(w: Const) -> Const:
    if w.array.ndim != 2:
        raise ValueError(f"weights of rank {w.array.ndim}")
    return replace(w, array=w.array.T, axis=1 - w.axis if w.scale is not None and w.scale.size > 1 else 0)


def dense(node: OnnxNode, x: View, weights: Const, bias: Const | None, ctx: Lowering) -> View:
    """x [..., K] times weights [N, K]: a 1-tap convolution over the positions of the leading axes.

    The columns of the weights are permuted to the order in which K lies in memory, so a Flatten never moves data.
    """
    last = len(x.axes) - 1
    if x.shape[last] != weights.array.shape[1]:
        raise unsupported(IMPORT, node.title, f"{x.shape[last]} values times weights {list(weights.array.shape)}")
    if weights.scale is not None and weights.scale.size > 1 and weights.axis != 0:
        raise summed_scales(node)
    if any(piece.is_time for piece in x.axes[last]):
        return _dense_over_time(node, x, weights, bias, ctx)
    if not x.time_is_alone():
        raise merged_axis(node)
    pieces = [piece for piece in x.axes[last] if piece.size > 1]
    order = sorted(range(len(pieces)), key=lambda i: -(pieces[i].stride or 0))
    array = weights.array.reshape(-1, *(p.size for p in pieces)).transpose(0, *(i + 1 for i in order))
    rows = View(x.tensor, (*x.axes[:-1], tuple(pieces[i] for i in order)))
    lead = [i for i in range(last) if i != x.time_axis]
    lead.sort(key=lambda i: -max((p.stride or 0 for p in x.axes[i]), default=1 << 60))
    rows = ctx.arrange(rows, [*lead, last], node)
    n, k = array.shape[0], x.shape[last]
    positions = prod(x.shape[i] for i in lead)
    geometry = Geometry(Window(), Window(), Window(), (1, positions), (1, positions))
    op = Conv(geometry, replace(weights, array=array.reshape(n, 1, 1, 1, k), axis=0), bias)
    source = ctx.tensor(rows)
    name = ctx.emit(op, [rows.tensor], [1, positions, n], source.length, node)
    axes: list[Axis] = list(rows.axes)
    for i, axis in zip([*lead, last], compact([*(x.shape[i] for i in lead), n]), strict=True):
        axes[i] = axis
    return View(name, tuple(axes))


def _dense_over_time(node: OnnxNode, x: View, weights: Const, bias: Const | None, ctx: Lowering) -> View:
    """x [..., K] where K holds the stream axis: one result for the whole sequence, weights [T, N, frame]."""
    if ctx.endless:
        found = "it sums over the endless stream axis"
        raise unsupported(IMPORT, node.title, found, "a fixed T", "Fix the length of the stream, or use a convolution")
    if any(n > 1 for n in x.shape[:-1]):
        found = f"it sums over the stream axis for each of {prod(x.shape[:-1])} positions"
        raise unsupported(IMPORT, node.title, found, "one position", "Flatten everything before it")
    pieces = list(x.axes[-1])
    order = sorted(range(len(pieces)), key=lambda i: (not pieces[i].is_time, -(pieces[i].stride or 0)))
    frame = [pieces[i] for i in order[1:]]
    source = ctx.tensor(x)
    stride = 1
    for piece in frame[::-1]:
        if piece.stride != stride:
            raise unsupported(IMPORT, node.title, "its input is not one whole frame", "a Flatten of whole frames")
        stride *= piece.size
    array = weights.array.reshape(-1, *(p.size for p in pieces)).transpose(0, *(i + 1 for i in order))
    n = array.shape[0]
    array = array.reshape(n, source.length, stride).transpose(1, 0, 2)
    op = DenseOverTime(replace(weights, array=array, axis=1), bias)
    name = ctx.emit(op, [x.tensor], [n], 1, node)
    return View(name, (*((),) * (len(x.axes) - 1), compact([n])[0]))
