"""Tiles: the decision of every stage by hand, and on random shapes execution, budgets, maximality and task counts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from shapes import axis_window, conv_shape, pool_shape

from codegen.errors import CodegenError
from codegen.ir.geometry import Geometry, window_length
from codegen.ir.time import Window
from codegen.ops.conv import ConvS8, Requantize
from codegen.ops.pool import MaxPoolS8
from codegen.ops.table import LutS8
from codegen.ops.tile_shape import Shape
from codegen.plan.tiling import (
    Block,
    TilePlan,
    plan_tiles,
    plane_blocks,
    smallest_budget,
    span,
    tasks,
    tiles,
    working_set,
)

Array = np.ndarray[Any, Any]


# taps, stride, dilation, auto_pad, pads, ceil -> outputs for 10 inputs, (left, right)
LENGTHS = [
    (3, 1, 1, "NOTSET", (0, 0), False, 8, (0, 0)),
    (3, 2, 1, "NOTSET", (0, 0), False, 4, (0, 0)),
    (3, 2, 1, "NOTSET", (0, 0), True, 5, (0, 0)),
    (3, 2, 1, "NOTSET", (1, 1), False, 5, (1, 1)),
    (3, 2, 1, "NOTSET", (1, 1), True, 6, (1, 1)),
    (2, 2, 1, "NOTSET", (0, 1), True, 5, (0, 1)),  # the sixth window would start in the right padding
    (3, 3, 1, "VALID", (5, 5), False, 3, (0, 0)),
    (3, 1, 3, "VALID", (0, 0), False, 4, (0, 0)),
    (3, 2, 1, "SAME_UPPER", (0, 0), False, 5, (0, 1)),
    (3, 2, 1, "SAME_LOWER", (0, 0), False, 5, (1, 0)),
    (3, 1, 2, "SAME_UPPER", (0, 0), False, 10, (2, 2)),
    (4, 1, 1, "SAME_LOWER", (0, 0), False, 10, (2, 1)),
    (2, 3, 1, "SAME_UPPER", (0, 0), False, 4, (0, 1)),
    (11, 1, 1, "VALID", (0, 0), False, 0, (0, 0)),
]


@pytest.mark.parametrize(("taps", "stride", "dilation", "auto", "pads", "ceil", "out", "sides"), LENGTHS)
def test_output_sizes(
    taps: int, stride: int, dilation: int, auto: str, pads: tuple[int, int], ceil: bool, out: int, sides: Any
) -> None:
    w = axis_window(10, taps, stride, dilation, auto, pads, ceil)
    assert window_length(10, w) == out
    assert (w.left, w.right) == sides


def pool(channels: int, sizes: tuple[int, int, int], taps: int, stride: int, pad: int, depth: int = 1) -> Shape:
    d = Window(depth, depth)
    return pool_shape(1, channels, sizes, (d, Window(taps, stride, 1, pad, pad), Window(taps, stride, 1, pad, pad)))


# 2x2 pools on 8 channels of 8x8: 64 + 16 B a channel.
# 3x3 convolution 4 -> 8 on 6x6, padded: 144 + (36 + 40) B a channel.
POOL8 = pool(8, (1, 8, 8), 2, 2, 0)
CONV = conv_shape(1, 4, 8, 1, (1, 6, 6), (Window(), Window(3, 1, 1, 1, 1), Window(3, 1, 1, 1, 1)))
DEPTHWISE = conv_shape(1, 4, 8, 4, (1, 6, 6), (Window(), Window(3, 1, 1, 1, 1), Window(3, 1, 1, 1, 1)))
DEEP = pool(2, (4, 8, 8), 2, 2, 0, depth=2)  # a plane: 4*8*8 in, 2*4*4 out
HALO = pool(2, (1, 8, 8), 3, 1, 1)  # a plane: 64 in, 64 out
HALO_3D = pool_shape(1, 1, (6, 4, 4), (Window(3, 1, 1, 1, 1), Window(), Window()))

# shape, budget, cores -> stage, block, working set, tasks
DECISIONS = [
    (POOL8, None, 1, 0, Block(8, 1, 4, 4), 640, 1),
    (POOL8, 640, 1, 0, Block(8, 1, 4, 4), 640, 1),
    (POOL8, 639, 1, 1, Block(7, 1, 4, 4), 560, 2),
    (POOL8, 400, 1, 1, Block(5, 1, 4, 4), 400, 2),
    (POOL8, 400, 4, 1, Block(2, 1, 4, 4), 160, 4),
    (POOL8, None, 8, 1, Block(1, 1, 4, 4), 80, 8),
    (CONV, 600, 1, 1, Block(6, 1, 6, 6), 600, 2),
    (CONV, 599, 1, 1, Block(5, 1, 6, 6), 524, 2),
    # Two outputs a group of one input channel, 9 weights + 4: whole groups 36 + 2 * (36 + 13) = 134 B.
    (DEPTHWISE, 400, 1, 1, Block(4, 1, 6, 6), 268, 2),
    (DEPTHWISE, 100, 1, 1, Block(1, 1, 6, 6), 85, 8),
    (DEEP, 150, 1, 2, Block(1, 1, 4, 4), 144, 4),
    (DEEP, 143, 1, 2, Block(1, 1, 3, 4), 108, 8),
    (DEEP, 35, 1, 2, Block(1, 1, 1, 3), 27, 32),
    (DEEP, 144, 30, 2, Block(1, 1, 1, 3), 27, 32),
    (HALO, 100, 1, 3, Block(1, 1, 4, 8), 80, 4),  # H in 2 parts: min(8, 6) rows in, 4 out
    (HALO, 79, 1, 3, Block(1, 1, 3, 8), 64, 6),  # H in 3 parts: 5 rows in, 3 out, the last tile has 2
    (HALO, 30, 1, 3, Block(1, 1, 1, 4), 22, 32),  # a row is 3 * 8 + 8; W in 2 parts: 3 * min(8, 6) + 4
    (HALO, 10, 1, 3, Block(1, 1, 1, 1), 10, 128),
    (HALO, None, 5, 3, Block(1, 1, 3, 8), 64, 6),
    (HALO_3D, 150, 1, 3, Block(1, 3, 4, 4), 128, 2),
    (HALO_3D, 50, 1, 3, Block(1, 1, 2, 4), 32, 12),  # D in 6: 48 + 16 is too much
]


@pytest.mark.parametrize(("shape", "budget", "cores", "stage", "block", "size", "count"), DECISIONS)
def test_decisions(
    shape: Shape, budget: int | None, cores: int, stage: int, block: Block, size: int, count: int
) -> None:
    plan = plan_tiles(shape, budget, cores)
    assert (plan.stage, plan.block, plan.working_set_bytes, plan.tasks) == (stage, block, size, count)
    assert [a.stage for a in plan.attempts] == list(range(stage + 1))
    assert [a.chosen for a in plan.attempts] == [False] * stage + [True]


def test_every_stage_says_why() -> None:
    text = str(plan_tiles(HALO, 79))
    assert "stage 0: no: N*C 2 x D 1 x H 8 x W 8 needs 256 B and gives 1 tasks" in text
    assert "stage 1: no: N*C 1 x D 1 x H 8 x W 8 needs 128 B and gives 2 tasks" in text
    assert "stage 2: no: windows read padding" in text
    assert "stage 3: taken: H in 3 parts: N*C 1 x D 1 x H 3 x W 8 needs 64 B and gives 6 tasks" in text


def test_an_impossible_budget_states_the_smallest_one() -> None:
    with pytest.raises(CodegenError, match=r"9 B of fast memory hold not even one output.*at least 10 B") as caught:
        plan_tiles(HALO, 9)
    assert caught.value.exit_code == 2
    assert smallest_budget(HALO) == 10


def test_more_cores_than_outputs() -> None:
    """Every output is a task, and no more."""
    shape = pool(1, (1, 4, 4), 2, 2, 0)
    assert plan_tiles(shape, None, 100).tasks == 4
    with pytest.raises(CodegenError, match="at least 1"):
        plan_tiles(shape, None, 0)


def test_layers_of_a_graph() -> None:
    """3 x 3 convolution 4 -> 8 on rows of 16: an output row reads three rows; a clip of 10 rows is padded by one."""
    side = Window(3, 1, 1, 1, 1)
    g = Geometry(Window(3, 2, 1, 1, 1), Window(), side, (1, 16), (1, 16))
    weights, scale = np.ones((8, 3, 1, 3, 4), np.int8), np.ones(8, np.float32)
    conv = ConvS8(g, weights, np.zeros(8, np.int64), 1, 0, Requantize(scale, 0))
    row, clip = conv.tile_shape(), conv.tile_shape(10)
    assert row is not None and clip is not None
    assert row.sizes == (1, 3, 16) and row.outputs == (1, 1, 16)
    assert clip.sizes == (1, 10, 16) and clip.outputs == (1, 5, 16)
    # 3 * 16 * 4 in; an output channel: 16 codes, 36 weights, 4 bytes of bias
    assert [working_set(row, Block(n, 1, 1, 16)) for n in (1, 8)] == [192 + 56, 192 + 8 * 56]
    plan = plan_tiles(row, 400, 2)
    assert (plan.stage, plan.block, plan.tasks) == (1, Block(3, 1, 1, 16), 3)
    pooled = MaxPoolS8(g, 4).tile_shape()
    assert pooled == Shape(1, 4, 4, 1, row.sizes, row.windows)
    assert LutS8(np.zeros(256, np.int8)).tile_shape() is None


def test_halos_and_remainders() -> None:
    """k 3, s 2, p 1 on 9: outputs 0..4; two at a time."""
    w = Window(3, 2, 1, 1, 1)
    assert [(s.x, s.before, s.after) for s in (span(9, w, 0, 2), span(9, w, 2, 4), span(9, w, 4, 5))] == [
        ((0, 4), 1, 0),
        ((3, 8), 0, 0),
        ((7, 9), 0, 1),
    ]


def random_shape(rng: np.random.Generator) -> Shape:
    """Small sizes, every kind of padding, floor and ceil, dilation; pools, grouped and depthwise convolutions."""
    while True:
        sizes = tuple(int(n) for n in rng.integers(1, 8, 3))
        windows = tuple(random_window(rng, n) for n in sizes)
        if all(window_length(n, w) for n, w in zip(sizes, windows, strict=True)):
            break
    batch = int(rng.integers(1, 3))
    if rng.random() < 0.4:
        return pool_shape(batch, int(rng.integers(1, 5)), sizes, windows)  # type: ignore[arg-type]
    groups = int(rng.integers(1, 4))
    ins, outs = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 5))
    return conv_shape(batch, ins, outs, groups, sizes, windows)  # type: ignore[arg-type]


def random_window(rng: np.random.Generator, size: int) -> Window:
    taps, stride, dilation = (int(rng.integers(1, n)) for n in (4, 4, 3))
    auto = str(rng.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    extent = dilation * (taps - 1) + 1
    pads = (int(rng.integers(0, extent)), int(rng.integers(0, extent)))
    return axis_window(size, taps, stride, dilation, auto, pads, bool(rng.random() < 0.3))


def random_plan(rng: np.random.Generator) -> tuple[TilePlan, int | None, int]:
    shape = random_shape(rng)
    least, most = smallest_budget(shape), working_set(shape, Block(shape.planes, *shape.outputs))
    budget = None if rng.random() < 0.2 else int(rng.integers(least, most + 2))
    cores = int(rng.choice([1, 1, 2, 4, 9]))
    return plan_tiles(shape, budget, cores), budget, cores


def apply(
    kind: str, shape: Shape, x: Array, weights: Array | None, padding: list[tuple[int, int]], first: list[int]
) -> Array:
    """One tile (or all) in numpy: x [planes of input, D, H, W], `first` the index of its first step with padding.

    Average counts what lies inside the explicit pads, wherever the tile is.
    """
    fill = -128 if kind == "max" else 0
    x = np.pad(x, [(0, 0), *padding], constant_values=fill)
    inside = np.ones(())
    for n, w, size, start in zip(x.shape[1:], shape.windows, shape.sizes, first, strict=True):
        at = np.arange(start, start + n)
        inside = inside[..., None] * ((at >= -w.left) & (at < size + w.right))
    taken, counted = (windows_of(a, shape.windows) for a in (x, inside[None]))
    if kind == "max":
        return taken.max(axis=(-3, -2, -1))
    if kind == "average":
        return taken.sum(axis=(-3, -2, -1)) * 1000 // counted.sum(axis=(-3, -2, -1)).astype(np.int64)
    assert weights is not None
    return np.einsum("gidhwabc,goiabc->godhw", taken.reshape(-1, shape.group_in, *taken.shape[1:]), weights)


def windows_of(x: Array, windows: tuple[Window, Window, Window]) -> Array:
    """[planes, D, H, W] -> [planes, D', H', W', kd, kh, kw] without padding."""
    for axis, w in enumerate(windows, 1):
        count = (x.shape[axis] - w.extent) // w.stride + 1
        index = np.arange(count)[:, None] * w.stride + np.arange(w.taps) * w.dilation
        x = np.moveaxis(x.take(index, axis=axis), axis + 1, -1)
    return x


def execute(kind: str, plan: TilePlan, x: Array, weights: Array | None) -> Array:
    """All tiles of a plan, each from its own inputs only; every output written once."""
    shape = plan.shape
    y = np.full((shape.planes, *shape.outputs), np.iinfo(np.int64).min)
    for tile in tiles(plan):
        part = x[slice(*tile.x_planes)]
        for axis, s in enumerate(tile.spans, 1):
            part = part.take(np.arange(*s.x), axis=axis)
        first = [s.x[0] - s.before for s in tile.spans]
        own = None
        if weights is not None:
            channels = np.arange(*tile.planes) % shape.channels
            own = weights[channels].reshape(part.shape[0] // shape.group_in, -1, *weights.shape[1:])
        made = apply(kind, shape, part, own, [(s.before, s.after) for s in tile.spans], first)
        where = (slice(*tile.planes), *(slice(*s.out) for s in tile.spans))
        assert (y[where] == np.iinfo(np.int64).min).all(), "an output was computed twice"
        y[where] = made.reshape(y[where].shape)
        assert bytes_of(shape, tile) <= plan.working_set_bytes
    assert (y != np.iinfo(np.int64).min).all()
    return y


def bytes_of(shape: Shape, tile: Any) -> int:
    planes = tile.planes[1] - tile.planes[0]
    x = (tile.x_planes[1] - tile.x_planes[0]) * prod(s.x[1] - s.x[0] for s in tile.spans)
    y = planes * prod(s.out[1] - s.out[0] for s in tile.spans)
    return int(x + y + min(planes, shape.channels) * shape.channel_bytes)


def reference(kind: str, shape: Shape, x: Array, weights: Array | None) -> Array:
    """The whole operator, untiled: one tile of everything."""
    ends = [span(n, w, 0, out) for n, w, out in zip(shape.sizes, shape.windows, shape.outputs, strict=True)]
    padding = [(max(0, w.left), max(0, s.after)) for w, s in zip(shape.windows, ends, strict=True)]
    used = [n if s.after else s.x[1] for n, s in zip(shape.sizes, ends, strict=True)]
    x = x[:, : used[0], : used[1], : used[2]]
    own = None
    if weights is not None:
        own = np.tile(weights, (shape.batch, 1, 1, 1, 1)).reshape(-1, shape.group_out, *weights.shape[1:])
    made = apply(kind, shape, x, own, padding, [-w.left for w in shape.windows])
    return made.reshape(shape.planes, *shape.outputs)


@pytest.mark.parametrize("block", range(10))
def test_tiled_equals_untiled(block: int, seed: int) -> None:
    """3000 random shapes: equal results, every output once, no tile above its working set."""
    rng = np.random.default_rng([seed, block])
    stages = set()
    for _ in range(300):
        plan, _, _ = random_plan(rng)
        shape = plan.shape
        stages.add(plan.stage)
        x = rng.integers(-128, 128, (shape.batch * shape.groups * shape.group_in, *shape.sizes))
        taps = tuple(w.taps for w in shape.windows)
        weights = rng.integers(-128, 128, (shape.channels, shape.group_in, *taps)) if shape.channel_bytes else None
        padded = any(w.left >= w.extent or w.right >= w.extent for w in shape.windows)
        kind = "conv" if weights is not None else "max" if padded or rng.random() < 0.5 else "average"
        assert np.array_equal(execute(kind, plan, x, weights), reference(kind, shape, x, weights)), str(plan)
    assert stages >= {0, 1, 3}


@pytest.mark.parametrize("block", range(10))
def test_plans_fit_and_are_maximal(block: int, seed: int) -> None:
    """5000 random shapes against brute force."""
    rng = np.random.default_rng([seed, 99, block])
    seen = dict.fromkeys(range(4), 0)
    for _ in range(500):
        plan, budget, cores = random_plan(rng)
        shape, full = plan.shape, plan.shape.outputs
        wanted = min(cores, shape.planes * prod(full))

        def fits(b: Block, shape: Shape = shape, budget: int | None = budget, wanted: int = wanted) -> bool:
            return (budget is None or working_set(shape, b) <= budget) and tasks(shape, b) >= wanted

        assert fits(plan.block)
        assert plan.tasks == sum(1 for _ in tiles(plan)) == tasks(shape, plan.block)
        seen[plan.stage] += 1
        assert plan.stage == 0 or not fits(Block(shape.planes, *full))
        by_planes = [n for n in plane_blocks(shape) if fits(Block(n, *full))]
        if plan.stage == 1:
            assert plan.block == Block(max(by_planes), *full)
        elif plan.stage:
            assert not by_planes
        if plan.stage == 2:
            assert_stage_2_is_maximal(plan, fits)
    assert all(seen.values()), seen


def assert_stage_2_is_maximal(plan: TilePlan, fits: Any) -> None:
    """The axis that was cut: one step more does not fit; axes before it are at one step and one step is too much."""
    b, full = plan.block, plan.shape.outputs
    assert b.planes == 1 and not plan.shape.pads and not plan.shape.overlaps
    cut = next(i for i in range(3) if fits(Block(1, *(1,) * i, b.space[i], *full[i + 1 :])))
    assert b.space == ((1,) * cut + (b.space[cut], *full[cut + 1 :]))
    for more in range(b.space[cut] + 1, full[cut] + 1):
        assert not fits(Block(1, *(1,) * cut, more, *full[cut + 1 :]))
    for earlier in range(cut):
        for size in range(1, full[earlier] + 1):
            assert not fits(Block(1, *(1,) * earlier, size, *full[earlier + 1 :]))


def test_the_smallest_budget_works_and_one_byte_less_does_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(500):
        shape = random_shape(rng)
        least = smallest_budget(shape)
        assert plan_tiles(shape, least, int(rng.integers(1, 5))).working_set_bytes <= least
        with pytest.raises(CodegenError, match=f"at least {least} B"):
            plan_tiles(shape, least - 1)
