"""Padding and cropping along the stream, or inside a frame, move into the window that reads or writes the tensor."""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.geometry import Geometry
from codegen.ir.graph import Graph, Node, prune
from codegen.ir.time import Window
from codegen.ops.conv import ConvS8
from codegen.ops.move import PadFrames
from codegen.ops.pool import MaxPoolS8


def fold_pads(graph: Graph) -> Graph:
    """Pad (or crop) -> window becomes a window with other pads; window -> crop becomes a shorter window."""
    while True:
        changed = _fold_into_reader(graph) or _fold_into_writer(graph)
        if changed is None:
            return prune(graph)
        graph = changed


def _fold_into_reader(graph: Graph) -> Graph | None:
    for node in graph.nodes:
        if not isinstance(node.op, ConvS8 | MaxPoolS8):
            continue
        pad = graph.producer(node.inputs[0])
        if pad is None or not isinstance(pad.op, PadFrames) or not _same_fill(pad.op, node.op):
            continue
        geometry = _widened(node.op.geometry, pad.op)
        if geometry is not None:
            merged = replace(node, op=replace(node.op, geometry=geometry), inputs=(pad.inputs[0],))
            return prune(graph.with_nodes([merged if n is node else n for n in graph.nodes]))
    return None


def _same_fill(pad: PadFrames, op: ConvS8 | MaxPoolS8) -> bool:
    """Cropping never fills; padding must fill with what the window itself would use."""
    fills = any(amount > 0 for pair in (pad.time, *pad.frame) for amount in pair)
    return not fills or pad.code == op.pad_code()


def _widened(g: Geometry, pad: PadFrames) -> Geometry | None:
    """The window on the unpadded tensor, or None where its own padding would be cut or a crop lies inside the frame."""
    if any(amount < 0 for pair in pad.frame for amount in pair):
        return None
    time = _shifted(g.time, pad.time)
    spatial = pad.frame[:-1]
    if pad.frame and pad.frame[-1] != (0, 0):
        return None
    if len(spatial) > 2 or time is None:
        return None
    pairs = [(0, 0)] * (2 - len(spatial)) + list(spatial)
    sizes_before = [1] * (2 - len(spatial)) + list(pad.frame_in[:-1])
    expected = tuple(n + a + b for n, (a, b) in zip(sizes_before, pairs, strict=True))
    if expected != g.size_in:
        return None
    depth, width = _shifted(g.depth, pairs[0]), _shifted(g.width, pairs[1])
    if depth is None or width is None:
        return None
    return replace(g, time=time, depth=depth, width=width, size_in=(sizes_before[0], sizes_before[1]))


def _shifted(w: Window, pad: tuple[int, int]) -> Window | None:
    """The window with more padding (or less, for a crop that does not meet the window's own padding)."""
    before, after = pad
    if (before < 0 and w.left > 0) or (after < 0 and w.right > 0) or (w.ceil_mode and pad != (0, 0)):
        return None
    return replace(w, left=w.left + before, right=w.right + after)


def _fold_into_writer(graph: Graph) -> Graph | None:
    """A crop along the stream of a window that nobody else reads: the window starts later and ends earlier."""
    outputs = {port.tensor for port in graph.outputs}
    for crop in graph.nodes:
        if not isinstance(crop.op, PadFrames) or any(pair != (0, 0) for pair in crop.op.frame):
            continue
        left, right = crop.op.time
        source = graph.producer(crop.inputs[0])
        if left > 0 or right > 0 or source is None or not isinstance(source.op, ConvS8 | MaxPoolS8):
            continue
        time = source.op.geometry.time
        alone = len(graph.readers(source.output)) == 1 and source.output not in outputs
        if not alone or time.ceil_mode:
            continue
        moved = replace(time, left=time.left + left * time.stride, right=time.right + right * time.stride)
        op = replace(source.op, geometry=replace(source.op.geometry, time=moved))
        merged = Node(crop.name, op, source.inputs, crop.output, source.onnx_name, source.op_type, source.path)
        nodes = [merged if n is crop else n for n in graph.nodes if n is not source]
        return prune(graph.with_nodes(nodes))
    return None
