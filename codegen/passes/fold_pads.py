"""Padding and cropping along the stream, or inside a frame, move into the window that reads or writes the tensor."""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.geometry import Geometry
from codegen.ir.graph import Graph, Node, prune
from codegen.ir.op import Op
from codegen.ir.time import Window
from codegen.ops.base import KernelOp
from codegen.ops.move import PadFrames


def fold_pads(graph: Graph) -> Graph:
    """Pad (or crop) -> window becomes a window with other pads; window -> crop becomes a shorter window."""
    while True:
        changed = _fold_into_reader(graph) or _fold_into_writer(graph)
        if changed is None:
            return prune(graph)
        graph = changed


def _fold_into_reader(graph: Graph) -> Graph | None:
    for node in graph.nodes:
        own, pad = _window(node), graph.producer(node.inputs[0])
        if own is None or pad is None or not isinstance(pad.op, PadFrames) or not _same_fill(pad.op, node.op):
            continue
        geometry = _widened(own, pad.op)
        if geometry is not None:
            merged = replace(node, op=_with(node, geometry), inputs=(pad.inputs[0],))
            return prune(graph.with_nodes([merged if n is node else n for n in graph.nodes]))
    return None


def _window(node: Node) -> Geometry | None:
    return node.op.window() if isinstance(node.op, KernelOp) else None


def _with(node: Node, geometry: Geometry) -> Op:
    """Operators that have a window keep it as `geometry`."""
    return replace(node.op, geometry=geometry)  # type: ignore[call-arg]


def _same_fill(pad: PadFrames, op: Op) -> bool:
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
        geometry = None if source is None else _window(source)
        if left > 0 or right > 0 or source is None or geometry is None:
            continue
        time = geometry.time
        alone = len(graph.readers(source.output)) == 1 and source.output not in outputs
        if not alone or time.ceil_mode:
            continue
        moved = replace(time, left=time.left + left * time.stride, right=time.right + right * time.stride)
        op = _with(source, replace(geometry, time=moved))
        merged = Node(crop.name, op, source.inputs, crop.output, source.onnx_name, source.op_type, source.path)
        nodes = [merged if n is crop else n for n in graph.nodes if n is not source]
        return prune(graph.with_nodes(nodes))
    return None
