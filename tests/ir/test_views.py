"""Views: layout operators move no data, and the border takes frames in the order the first layer reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import Net

from codegen.ir.view import Piece, View, compact, same_lengths
from codegen.ops.move import Copy
from codegen.pipeline import load_int8
from codegen.reference.whole_clip import from_frames, to_frames

TIME = (Piece(6, None),)


def view(*sizes: int, time: int | None = None) -> View:
    frame = compact([n for i, n in enumerate(sizes) if i != time])
    if time is not None:
        frame.insert(time, (Piece(sizes[time], None),))
    return View("x", tuple(frame))


@pytest.mark.parametrize(
    ("shape", "target"),
    [((1, 6, 4), (1, 6, 2, 2)), ((1, 6, 4), (6, 4)), ((1, 2, 3, 4), (1, 24)), ((2, 3, 4), (6, 4)), ((4, 6), (2, 12))],
)
def test_reshape_of_plain_frames_equals_numpy(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(np.int8)
    made = view(*shape).reshape(target)
    assert made is not None and made.shape == target
    assert np.array_equal(from_frames(to_frames(x, view(*shape)), made), x.reshape(target))


def test_reshape_never_cuts_the_stream_axis() -> None:
    x = view(1, 6, 4, time=1)
    assert x.reshape((1, 2, 3, 4)) is None
    merged = x.reshape((1, 24))
    assert merged is not None and not merged.time_is_alone()
    assert merged.reshape((1, 6, 4)) == x


def test_transpose_then_reshape_equals_numpy() -> None:
    x = np.arange(48).reshape(1, 6, 2, 4).astype(np.int8)
    made = view(1, 6, 2, 4, time=1).transpose([0, 3, 1, 2])
    assert np.array_equal(from_frames(to_frames(x, view(1, 6, 2, 4, time=1)), made), x.transpose(0, 3, 1, 2))


def test_join_takes_the_shorter_length() -> None:
    a, b = same_lengths([view(1, 6, 4, time=1), view(1, 5, 4, time=1)])
    assert a.shape == b.shape == (1, 5, 4)
    assert same_lengths([view(1, 6, 4), view(1, 5, 4)])[0].shape == (1, 6, 4)


@pytest.mark.parametrize("channels", [1, 3])
def test_image_rows_come_channels_last(channels: int, tmp_path: Path) -> None:
    """A first convolution over NCHW wants [W, C] frames: the border has that order and no copy is made."""
    net = Net("int8", seed=3)
    x = net.input([1, channels, 12, 7])
    net.output(net.conv(x, 4, [3, 3], pads=[1, 1, 1, 1]))
    path = tmp_path / "image.onnx"
    path.write_bytes(net.model().SerializeToString())
    graph = load_int8(path)
    assert not any(isinstance(node.op, Copy) for node in graph.nodes)
    assert graph.inputs[0].view.is_compact([0, 3, 1])
