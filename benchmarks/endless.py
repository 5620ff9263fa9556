"""Cost per frame of endless windows: a window of T frames with a pooled sum behind it, padded and not.

    python -m benchmarks.endless [--target m4]

A running sum costs the same whatever T is; a window summed anew for every frame would cost T times as much.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.target import measure
from benchmarks.targets import TARGETS
from codegen.options import Options
from codegen.output_folder import write_files
from codegen.pipeline import build

WINDOWS = (32, 128, 512, 2000)
CHANNELS = 8


def window(frames: int, pad: int, pool: str = "GlobalAveragePool") -> ModelProto:
    """Conv of three taps with `pad` frames of padding on both sides, then the pool over all frames, int8."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-90, 91, (CHANNELS, CHANNELS, 3)).astype(np.int8)
    arrays = [numpy_helper.from_array(np.float32(scale), f"s{i}") for i, scale in enumerate((0.05, 0.01, 0.08))]
    arrays += [numpy_helper.from_array(np.int8(0), "z"), numpy_helper.from_array(weights, "w")]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s0", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "s1", "z"], ["wr"]),
        helper.make_node("Conv", ["xr", "wr"], ["yr"], "conv", pads=[pad, pad]),
        helper.make_node("QuantizeLinear", ["yr", "s2", "z"], ["y"]),
        helper.make_node("DequantizeLinear", ["y", "s2", "z"], ["yd"]),
        helper.make_node(pool, ["yd"], ["pr"], "pool"),
        helper.make_node("QuantizeLinear", ["pr", "s2", "z"], ["p"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1, CHANNELS, frames])
    p = helper.make_tensor_value_info("p", TensorProto.INT8, None)
    graph = helper.make_graph(nodes, "window", [x], [p], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def cost(model: ModelProto, target: str) -> float:
    """Instructions per input frame in steady state."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "window.onnx"
        path.write_bytes(model.SerializeToString())
        write_files(Path(folder) / "out", build(path, Options(name="window", endless=True)))
        return measure(Path(folder) / "out", TARGETS[target], "-O2").instructions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endless", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, default="m4")
    target = parser.parse_args().target
    print(f"| T | instructions per frame ({target}) | padded |")
    print("| ---: | ---: | ---: |")
    for frames in WINDOWS:
        print(
            f"| {frames} | {cost(window(frames, 0), target):,.0f} | {cost(window(frames, 1), target):,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
