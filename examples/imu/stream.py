"""The demo's input: held-out BasicMotions clips joined into one stream.

The clips were recorded one by one, ten seconds each. Joining them is ours: every 100th frame is an artificial boundary
where the signal may jump. Only numpy is needed; `data.py` finds the clips or fetches them with pip.

    python examples/imu/stream.py            # prints what the stream is made of
    python examples/imu/stream.py stream.npz # also saves x [1, 6, T] and the label of each clip
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

# Indices into the 40 held-out clips, every class at least once, no two neighbours of one class; 600 frames.
CLIPS = (0, 20, 10, 30, 21, 11)


def _load_data_module() -> ModuleType:
    """Load data.py from beside this file, however this file itself was loaded."""
    spec = importlib.util.spec_from_file_location("imu_example_data", Path(__file__).resolve().with_name("data.py"))
    if spec is None or spec.loader is None:
        raise ImportError("data.py is missing beside stream.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


data = _load_data_module()
CLASSES: tuple[str, ...] = data.CLASSES
CLIP_FRAMES: int = data.CLIP_FRAMES
FRAME_RATE_HZ: int = data.FRAME_RATE_HZ


def load_stream_and_labels(folder: str | Path | None = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The joined stream float32 [1, 6, T] in the sensor's units, and the class index of each of its clips [T / 100]."""
    clips: NDArray[np.float32]
    labels: NDArray[np.int64]
    clips, labels = data.load_test(folder)
    order = list(CLIPS)
    stream = np.concatenate(clips[order], axis=1)[np.newaxis]
    return np.ascontiguousarray(stream, dtype=np.float32), labels[order]


def load_stream(folder: str | Path | None = None) -> NDArray[np.float32]:
    """The joined stream, float32 [1, 6, T], T = 100 * len(CLIPS)."""
    return load_stream_and_labels(folder)[0]


def load_labels(folder: str | Path | None = None) -> NDArray[np.int64]:
    """The class index (into CLASSES) of each clip of the stream, int64 [T / 100]."""
    return load_stream_and_labels(folder)[1]


def main() -> int:
    """Print what the stream is made of; save it where a file is named."""
    try:
        x, labels = load_stream_and_labels()
    except data.DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"x {list(x.shape)} {x.dtype}, {x.shape[2] / FRAME_RATE_HZ:g} s at {FRAME_RATE_HZ} frames a second")
    for number, label in enumerate(labels):
        start = number * CLIP_FRAMES
        print(f"frames {start:3d}..{start + CLIP_FRAMES - 1:3d}: held-out clip {CLIPS[number]:2d}, {CLASSES[label]}")
    if len(sys.argv) > 1:
        np.savez_compressed(sys.argv[1], x=x, labels=labels, classes=np.array(CLASSES))
        print(f"saved {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
