"""Tiles of pools and convolutions: the block of (N*C, D, H, W) outputs that fits fast memory and gives enough tasks.

The three-stage decision of docs/tiles.md, on numbers only. A tile is a block of outputs with everything it reads:

    N*C   output channels of all batch items, flattened. A convolution's channel reads all input channels of its group,
          so a block holds whole groups or lies inside one: it never straddles two.
    D H W `count` outputs of an axis from `start` on read (count-1)*stride + k_eff inputs from start*stride - left on,
          cut at the ends of the input: the halo is part of the tile, padding is not.

    working set = x tile + y tile + weights and bias of the tile's channels, in bytes

It grows with every block size, so binary search finds the largest block that fits. An x tile is accounted with
min(input, (count-1)*stride + k_eff) steps of an axis for every tile, also at the ends: one buffer serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen.errors import EXIT_INPUT, CodegenError, input_error
from codegen.ir.graph import Graph
from codegen.ir.time import Window
from codegen.ops.base import KernelOp
from codegen.ops.tile_shape import Shape, Triple

STAGE = "tiling"


def plan_layers(graph: Graph, fast_memory_bytes: int | None, cores: int) -> dict[str, TilePlan]:
    """The tiles of every convolution and pool of an int8 graph, by node name; one output frame at a time.

    Raises CodegenError with every layer of which not even one output fits.
    """
    found, problems = {}, []
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        shape = node.op.tile_shape()
        if shape is None:
            continue
        try:
            found[node.name] = plan_tiles(shape, fast_memory_bytes, cores)
        except CodegenError as error:
            problems += [replace(problem, where=node.where) for problem in error.problems]
    if problems:
        raise CodegenError(STAGE, problems, EXIT_INPUT)
    return found


@dataclass(frozen=True)
class Block:
    """Outputs of one tile: `planes` of N*C, and D, H, W. The last tile of an axis may be smaller (remainder)."""

    planes: int
    d: int
    h: int
    w: int

    @property
    def space(self) -> Triple:
        return self.d, self.h, self.w

    def __str__(self) -> str:
        return f"N*C {self.planes} x D {self.d} x H {self.h} x W {self.w}"


@dataclass(frozen=True)
class Attempt:
    """One stage tried: what came of it and why."""

    stage: int
    chosen: bool
    reason: str


@dataclass(frozen=True)
class TilePlan:
    """The block of every tile. stage 0: the whole layer is one tile; 1 .. 3 as in docs/tiles.md."""

    shape: Shape
    block: Block
    stage: int
    working_set_bytes: int
    tasks: int
    attempts: tuple[Attempt, ...]

    @property
    def is_cut(self) -> bool:
        """Whether there is more than the whole layer as one tile."""
        return self.stage > 0

    def __str__(self) -> str:
        lines = [f"stage {self.stage}: {self.block}, {self.working_set_bytes} B, {self.tasks} tasks"]
        lines += [f"  stage {a.stage}: {'taken' if a.chosen else 'no'}: {a.reason}" for a in self.attempts]
        return "\n".join(lines)


@dataclass(frozen=True)
class Span:
    """One axis of a tile: outputs out[0] .. out[1]-1 read inputs x[0] .. x[1]-1, `before` and `after` them padding."""

    out: tuple[int, int]
    x: tuple[int, int]
    before: int
    after: int


@dataclass(frozen=True)
class Tile:
    """Output planes and input planes (flattened N*C, first and one past the last), and the spans of D, H, W."""

    planes: tuple[int, int]
    x_planes: tuple[int, int]
    spans: tuple[Span, Span, Span]


def working_set(shape: Shape, block: Block) -> int:
    """Bytes that the largest tile of this block size needs in fast memory."""
    groups = max(1, block.planes // shape.group_out)
    reads = [x_steps(n, a, out) for n, a, out in zip(shape.sizes, shape.windows, block.space, strict=True)]
    x = groups * shape.group_in * prod(reads) * shape.x_bytes
    y = block.planes * prod(block.space) * shape.y_bytes
    return x + y + min(block.planes, shape.channels) * shape.channel_bytes


def x_steps(size: int, window: Window, out: int) -> int:
    """Steps of an axis that `out` neighbouring outputs read, padding not counted: at most the axis itself."""
    return min(size, (out - 1) * window.stride + window.extent)


def tasks(shape: Shape, block: Block) -> int:
    """Number of tiles."""
    inside = -(-shape.group_out // block.planes) if block.planes < shape.group_out else 1
    whole = max(1, block.planes // shape.group_out)
    planes = -(-shape.batch * shape.groups // whole) * inside
    return planes * prod(-(-n // b) for n, b in zip(shape.outputs, block.space, strict=True))


def plane_blocks(shape: Shape) -> list[int]:
    """Block sizes along N*C in rising order: parts of one group, then whole groups."""
    parts = list(range(1, shape.group_out))
    return parts + [shape.group_out * n for n in range(1, shape.batch * shape.groups + 1)]


def plan_tiles(shape: Shape, fast_memory_bytes: int | None = None, cores: int = 1) -> TilePlan:
    """The first stage that fits the budget with at least `cores` tasks (or as many as there are outputs).

    Raises CodegenError (exit code 2) where not even one output fits; it states the smallest budget that works.
    """
    _check(shape, cores)
    full = Block(shape.planes, *shape.outputs)
    wanted = min(cores, shape.planes * prod(shape.outputs))

    def fits(block: Block) -> bool:
        small = fast_memory_bytes is None or working_set(shape, block) <= fast_memory_bytes
        return small and tasks(shape, block) >= wanted

    attempts: list[Attempt] = []
    for stage, search in enumerate((_whole, _planes_only, _no_overlap, _shrink)):
        block, reason = search(shape, full, fits)
        attempts.append(Attempt(stage, block is not None, reason))
        if block is not None:
            size, count = working_set(shape, block), tasks(shape, block)
            return TilePlan(shape, block, stage, size, count, tuple(attempts))
    raise _impossible(shape, fast_memory_bytes, attempts)


def smallest_budget(shape: Shape) -> int:
    """Bytes of fast memory below which no tile exists: one output of one channel and what it reads."""
    return working_set(shape, Block(1, 1, 1, 1))


def _check(shape: Shape, cores: int) -> None:
    if min(shape.outputs) < 1 or shape.planes < 1:
        raise input_error(STAGE, "shape", f"outputs {shape.planes} x {shape.outputs}", "at least one output")
    if cores < 1:
        raise input_error(STAGE, "cores", str(cores), "a whole number of at least 1")


def _impossible(shape: Shape, budget: int | None, attempts: Sequence[Attempt]) -> CodegenError:
    needed = smallest_budget(shape)
    found = f"{budget} B of fast memory hold not even one output and what it reads"
    tried = "; ".join(f"stage {a.stage}: {a.reason}" for a in attempts)
    return input_error(
        STAGE, "fast memory", f"{found} ({tried})", f"at least {needed} B", f"Set it to {needed} or more"
    )


Fits = Callable[[Block], bool]
Found = tuple[Block | None, str]


def _why_not(shape: Shape, block: Block) -> str:
    return f"{block} needs {working_set(shape, block)} B and gives {tasks(shape, block)} tasks"


def _whole(shape: Shape, full: Block, fits: Fits) -> Found:
    return (full if fits(full) else None), _why_not(shape, full)


def _planes_only(shape: Shape, full: Block, fits: Fits) -> Found:
    """Stage 1: the largest N*C block that fits, with full D, H, W."""
    sizes = plane_blocks(shape)
    best = _largest(len(sizes), lambda i: fits(replace(full, planes=sizes[i - 1])))
    if not best:
        return None, _why_not(shape, replace(full, planes=1))
    block = replace(full, planes=sizes[best - 1])
    return block, f"largest N*C block: {_why_not(shape, block)}"


def _no_overlap(shape: Shape, full: Block, fits: Fits) -> Found:
    """Stage 2: one plane; the largest part of D, else one step of D and the largest part of H, then of W.

    Tiles are whole strides of the input, so no input is copied twice.
    """
    if shape.pads or shape.overlaps:
        return None, f"windows {'read padding' if shape.pads else 'overlap (k > s)'}"
    block = replace(full, planes=1)
    for axis, size in zip("dhw", full.space, strict=True):
        best = _largest(size, lambda n, b=block, a=axis: fits(replace(b, **{a: n})))  # type: ignore[misc]
        if best:
            block = replace(block, **{axis: best})
            return block, f"largest part of {axis.upper()}: {_why_not(shape, block)}"
        block = replace(block, **{axis: 1})
    return None, _why_not(shape, block)


def _shrink(shape: Shape, full: Block, fits: Fits) -> Found:
    """Stage 3: one plane; cut D into more and more equal parts down to one step, then H, and W, which is contiguous,
    last. Without padding and overlap there is one block left to try: one stride."""
    if not (shape.pads or shape.overlaps):
        least = Block(1, 1, 1, 1)
        return (least if fits(least) else None), f"one stride: {_why_not(shape, least)}"
    block = replace(full, planes=1)
    for axis, size in zip("dhw", full.space, strict=True):
        for parts in range(1, size + 1):
            block = replace(block, **{axis: -(-size // parts)})
            if fits(block):
                return block, f"{axis.upper()} in {parts} parts: {_why_not(shape, block)}"
    return None, _why_not(shape, block)


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest n in 1 .. most with holds(n), for a condition that, once false, stays false; 0 if there is none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def tiles(plan: TilePlan) -> Iterator[Tile]:
    """All tiles, N*C outermost and W innermost; together they are every output exactly once."""
    shape, block = plan.shape, plan.block
    axes = [
        [span(n, a, start, min(start + step, out)) for start in range(0, out, step)]
        for n, a, out, step in zip(shape.sizes, shape.windows, shape.outputs, block.space, strict=True)
    ]
    for planes in _plane_ranges(shape, block.planes):
        first, last = planes[0] // shape.group_out, (planes[1] - 1) // shape.group_out
        x_planes = (first * shape.group_in, (last + 1) * shape.group_in)
        for d in axes[0]:
            for h in axes[1]:
                for w in axes[2]:
                    yield Tile(planes, x_planes, (d, h, w))


def _plane_ranges(shape: Shape, step: int) -> Iterator[tuple[int, int]]:
    unit = shape.group_out if step < shape.group_out else shape.planes
    for start in range(0, shape.planes, unit):
        for at in range(start, start + unit, step):
            yield at, min(at + step, start + unit)


def span(size: int, window: Window, start: int, stop: int) -> Span:
    """What outputs start .. stop-1 of an axis read: inputs inside it, and padding before and after them."""
    first = start * window.stride - window.left
    end = (stop - 1) * window.stride - window.left + window.extent
    low, high = max(first, 0), min(end, size)
    if low >= high:  # nothing but padding
        return Span((start, stop), (0, 0), end - first, 0)
    return Span((start, stop), (low, high), low - first, end - high)
