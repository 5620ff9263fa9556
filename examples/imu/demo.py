"""The whole path on one page: quantized model -> C -> host compiler -> recorded data, streamed -> compared.

    make demo

builds imu_tcn_int8.onnx, prints the per-node table, compiles the C, pushes the recorded stream of stream.py through
it in uneven pieces, shows what was recognised, and compares every value with the numpy reference and with onnxruntime.
The generated C stays in build/imu. Exit code 1 if anything differs. Where the recording cannot be fetched, random data
takes its place and the output says so.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import stream
from codegen import Options, cli, host, pipeline
from codegen.verify.verification import random_feed, verify

HERE = Path(__file__).resolve().parent
MODEL = HERE / "imu_tcn_int8.onnx"
OUT = HERE.parents[1] / "build" / "imu"
RANDOM_FRAMES = 600
PUSHES = (1, 7, 2, 25, 3)  # frames per push, repeated


def recording() -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """The stream [1, 6, T] and the class of each of its clips; random data and None where it cannot be had."""
    os.environ.setdefault("PIP_RETRIES", "1")
    try:
        x, labels = stream.load_stream_and_labels()
    except stream.data.DataError as error:
        print(f"The recorded data is not available: {error}")
        print("RANDOM DATA is streamed instead: the comparison below holds, the activities mean nothing.")
        return random_feed(pipeline.load_int8(MODEL), RANDOM_FRAMES)["x"], None
    print(f"recorded data: {len(labels)} held-out clips of BasicMotions, joined into {x.shape[2]} frames")
    return x, labels


def pieces(x: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """The stream cut along time into pieces of PUSHES frames."""
    at, turn = 0, 0
    while at < x.shape[2]:
        size = PUSHES[turn % len(PUSHES)]
        yield x[:, :, at : at + size]
        at, turn = at + size, turn + 1


def stream_through(model: host.HostModel, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Logits [1, 4, T // 2], frame by frame as they come out of the C."""
    model.reset()
    parts = [model.push({"x": piece})["logits"] for piece in pieces(x)]
    parts.append(model.finish()["logits"])
    print(f"\nstreamed {x.shape[2]} frames in {len(parts) - 1} pushes of {', '.join(map(str, PUSHES))}, ... frames")
    return np.concatenate(parts, axis=2)


def show_activities(logits: NDArray[np.float32], labels: NDArray[np.int64] | None) -> None:
    """Label and prediction, one letter a second; then the share of each clip that was right."""
    found = logits[0].argmax(axis=0)
    names = stream.CLASSES
    step = max(1, stream.FRAME_RATE_HZ * len(found) // RANDOM_FRAMES)
    seconds = [np.bincount(found[i : i + step]).argmax() for i in range(0, len(found), step)]
    print(f"recognised activity, one letter a second ({', '.join(f'{n[0]} {n.lower()}' for n in names)}):")
    if labels is not None:
        truth = np.repeat(labels, len(seconds) // len(labels))
        print(f"  label     {''.join(names[i][0] for i in truth)}")
    print(f"  predicted {''.join(names[i][0] for i in seconds)}")
    if labels is not None:
        right = (found == np.repeat(labels, len(found) // len(labels))).reshape(len(labels), -1).mean(axis=1)
        print(
            "  frames right in each clip: "
            + ", ".join(f"{names[i]} {s:.0%}" for i, s in zip(labels, right, strict=True))
        )


def compare(x: NDArray[np.float32]) -> bool:
    """Everything `codegen verify` compares, with this stream as data; prints the closing line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream.npz"
        np.savez(file, x=x)
        result = verify(MODEL, Options(), file)
    peers = "numpy reference and onnxruntime" if result.runtime else "numpy reference"
    print(f"\ncompared with {peers}: whole stream and 5 push patterns, this data and random codes")
    for note in result.notes:
        print(f"note: {note}")
    for item in [*result.c, *result.runtime]:
        if not item.equal:
            print(f"{item.tensor}: {item.what}: {item.different} of {item.values} differ; {item.first}")
    # This model has no operator that may deviate: onnxruntime must agree too.
    values = result.values + sum(item.values for item in result.runtime)
    mismatches = result.mismatches + sum(item.different for item in result.runtime)
    good = mismatches == 0
    print(f"{'OK' if good else 'MISMATCH'}: {values} values, {mismatches} mismatches")
    return good


def main() -> int:
    """Run the steps in the module's docstring."""
    x, labels = recording()
    status = cli.main(["build", str(MODEL), "-o", str(OUT), "--rate", str(stream.FRAME_RATE_HZ)])
    if status != 0:
        return status
    show_activities(stream_through(host.load(OUT), x), labels)
    return 0 if compare(x) else 1


if __name__ == "__main__":
    sys.exit(main())
