"""Outputs that take over memory of their operand: the kernels in one block of memory, at the least distance."""

from __future__ import annotations

import numpy as np
import pytest
from shapes import axis_window
from window_layers import Case, Layer, kernels

from codegen.ir.geometry import Geometry
from codegen.ir.time import Window
from codegen.kernels.move import Concat
from codegen.kernels.window import lead, lead_back
from codegen.ops.move import ConcatS8

SHAPES = 600


def in_one_block(case: Case, row: int, distance: int, backwards: bool) -> np.ndarray:
    """y at `distance` bytes from the given row of x, in a block that holds both; the other rows elsewhere."""
    rows, frame = case.x.shape
    block = np.zeros(frame + case.outputs + 2 * abs(distance) + 64, np.int8)
    at_x = max(0, -distance)
    block[at_x : at_x + frame] = case.x[row]
    y = block[at_x + distance : at_x + distance + case.outputs]
    case.struct.backwards = int(backwards)
    case.run_rows([block[at_x : at_x + frame] if i == row else case.x[i] for i in range(rows)], y)
    case.struct.backwards = 0
    return y


@pytest.mark.parametrize(("kind", "lanes"), [("conv", False), ("conv", True), ("maxpool", False), ("avgpool", False)])
def test_the_least_distance_is_enough(kind: str, lanes: bool) -> None:
    """Forwards with y below x, backwards with y above; and two positions less are often too little."""
    r = np.random.default_rng(77)
    too_near = 0
    for _ in range(SHAPES):
        layer = Layer(kind, r)
        case = Case(*kernels(lanes), layer, layer.plan())
        case.struct.missing = -1
        geometry, channels = layer.geometry, layer.channels
        want = case.run(False, case.ffi.NULL)
        least, back = lead(geometry, *channels), lead_back(geometry, *channels)
        row = int(r.integers(layer.rows))
        assert np.array_equal(in_one_block(case, row, -least, False), want), f"{geometry.describe()}: lead {least}"
        assert np.array_equal(in_one_block(case, row, back, True), want), f"{geometry.describe()}: back {back}"
        too_near += not np.array_equal(in_one_block(case, row, 2 * channels[1] - least, False), want)
    print(f"{kind}: {too_near} of {SHAPES} are wrong two positions nearer")
    assert too_near > SHAPES // 4


def test_by_hand() -> None:
    """Three taps with padding on both sides, 12 x 12 positions of 64 channels: one row, and two positions."""
    axis = axis_window(12, 3, pads=(1, 1))
    geometry = Geometry(Window(), axis, axis, (12, 12), (12, 12))
    assert lead(geometry, 64, 64) == lead_back(geometry, 64, 64) == (12 + 2) * 64
    point = Geometry(Window(), Window(), Window(), (1, 48), (1, 48))
    assert lead(point, 8, 8) == lead_back(point, 8, 8) == 8
    assert lead(point, 8, 16) == 48 * 16 - 47 * 8
    assert lead_back(point, 16, 8) == 48 * 16 - 47 * 8
    half = Geometry(Window(), Window(), Window(2, 2), (1, 48), (1, 24))
    assert lead(half, 8, 8) == 8 and lead_back(half, 8, 8) == 48 * 8 - 23 * 8
    joined = ConcatS8(1, (3, 5), 4)
    concat = Concat()
    assert (concat.lead(joined, 0), concat.lead(joined, 1)) == (20, 12)
    assert concat.lead(ConcatS8(2, (3, 5), 4), 0) is None
