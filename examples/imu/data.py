"""BasicMotions, read from the `aeon` package without importing or installing it.

The data set is not part of this repository (see README.md for why). `find_files` looks, in this order, in

1. the folder given by the caller or by the environment variable ``BASICMOTIONS_DIR``,
2. the data folder of an installed `aeon` package,
3. the cache beside this file, from an earlier fetch,
4. the wheel that ``pip download aeon==1.6.0 --no-deps`` brings, of which only the two files needed are kept.

Every file is checked against the SHA-256 it had when the committed model was trained. Needs only numpy (and pip for 4).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

AEON_REQUIREMENT = "aeon==1.6.0"
FOLDER_IN_PACKAGE = "datasets/data/BasicMotions"
SHA256 = {
    "BasicMotions_TRAIN.ts": "8dc43cc6306cb679c888c01e26f91772ac4441a916da43bac8b79734a538b9d6",
    "BasicMotions_TEST.ts": "79213102bc6fca1a398ad98ce1185dff0208fa3d1465e687f48288946b0ff8dc",
}
CLASSES = ("Standing", "Running", "Walking", "Badminton")
CHANNELS = 6
CLIP_FRAMES = 100
FRAME_RATE_HZ = 10
CACHE = Path(__file__).resolve().parent / ".cache"


class DataError(RuntimeError):
    """The data set cannot be found, fetched or read."""


def _mismatch(folder: Path) -> str | None:
    """Name what is wrong with the files in `folder`, or None if both are the expected ones."""
    for name, digest in SHA256.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return f"{name} is not the file that ships in {AEON_REQUIREMENT}"
    return None


def _installed_folder() -> Path | None:
    """The data folder of an installed aeon package; the package itself is not imported."""
    spec = importlib.util.find_spec("aeon")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / FOLDER_IN_PACKAGE


def _fetch(folder: Path) -> None:
    """Download the aeon wheel with pip into a temporary folder and keep the two files of BasicMotions in `folder`."""
    with tempfile.TemporaryDirectory() as tmp:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", tmp, AEON_REQUIREMENT]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(tmp).glob("aeon-*.whl"))
        if result.returncode != 0 or not wheels:
            raise DataError(
                f"BasicMotions comes from the {AEON_REQUIREMENT} wheel, and pip could not download it:\n"
                f"{result.stderr.strip()}\n"
                "Give a folder with " + " and ".join(SHA256) + " in BASICMOTIONS_DIR instead."
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot keep BasicMotions in {folder}: {error}") from None
        with zipfile.ZipFile(wheels[0]) as wheel:
            for name in SHA256:
                try:
                    content = wheel.read(f"aeon/{FOLDER_IN_PACKAGE}/{name}")
                except KeyError:
                    raise DataError(f"{wheels[0].name} has no {FOLDER_IN_PACKAGE}/{name}") from None
                partial = folder / f"{name}.{os.getpid()}.part"
                partial.write_bytes(content)
                partial.replace(folder / name)


def find_files(folder: str | Path | None = None) -> Path:
    """Return a folder that holds the two expected .ts files, fetching them if there is none yet."""
    given = folder or os.environ.get("BASICMOTIONS_DIR")
    if given:
        problem = _mismatch(Path(given))
        if problem:
            raise DataError(f"{given}: {problem}")
        return Path(given)
    installed = _installed_folder()
    for candidate in (installed, CACHE):
        if candidate is not None and _mismatch(candidate) is None:
            return candidate
    _fetch(CACHE)
    problem = _mismatch(CACHE)
    if problem:
        raise DataError(f"after the fetch, {problem}")
    return CACHE


def read_ts(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read one .ts file: clips float32 [n, 6, 100] and class indices int64 [n].

    A data line holds the channels, split by colons, and the class name after the last colon.
    """
    clips, labels = [], []
    in_data = False
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("@"):
            in_data = text.lower() == "@data"
            continue
        if not in_data:
            raise DataError(f"{path.name}: a data line before @data")
        *channels, label = text.split(":")
        clip = np.array([[float(value) for value in channel.split(",")] for channel in channels], dtype=np.float32)
        if clip.shape != (CHANNELS, CLIP_FRAMES):
            raise DataError(f"{path.name}: a clip of shape {clip.shape}, expected {(CHANNELS, CLIP_FRAMES)}")
        clips.append(clip)
        labels.append(CLASSES.index(label.strip()))
    return np.stack(clips), np.array(labels, dtype=np.int64)


def load_train(folder: str | Path | None = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The 40 training clips [40, 6, 100] and their class indices [40]."""
    return read_ts(find_files(folder) / "BasicMotions_TRAIN.ts")


def load_test(folder: str | Path | None = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The 40 held-out clips [40, 6, 100] and their class indices [40]."""
    return read_ts(find_files(folder) / "BasicMotions_TEST.ts")
