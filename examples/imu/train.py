"""Train, export and quantize the example network: a small causal TCN over six-axis motion data.

    python examples/imu/train.py [--data FOLDER] [--epochs N] [--out MODEL.onnx]

Needs torch, onnx, onnxscript and onnxruntime (see README.md); none of them but onnx is a dependency of the tool. Steps:

1. train on the 40 training clips of BasicMotions; the 40 held-out clips are only used to report,
2. fold the batch norms and the input scaling into the convolutions, export with the dynamo exporter
   (which writes the causal padding as pads of the Convs), drop the exporter's metadata,
3. quantize with onnxruntime (QDQ, int8 activations, int8 weights per channel), calibrated on training clips,
4. report the held-out accuracy of the float and of the int8 model, both run by onnxruntime.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from data import CHANNELS, CLASSES, CLIP_FRAMES, load_test, load_train
from stream import load_stream_and_labels

HERE = Path(__file__).resolve().parent
SEED = 20240
OPSET = 18
IR_VERSION = 10  # older than the exporter's own, so that onnx 1.17 and onnxruntime 1.20 read the file
WIDTH = 16
POOL = 2
WARM_UP = 8  # output frames (1.6 s) after a clip's start that the loss and the per-frame accuracy leave out
CLIPS_JOINED = 2


class CausalConv(nn.Module):
    """A 1-D convolution that pads on the left only, with a batch norm until it is folded."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.left = (kernel - 1) * dilation
        self.conv = nn.Conv1d(channels_in, channels_out, kernel, dilation=dilation)
        self.norm: nn.Module = nn.BatchNorm1d(channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in, time] -> [n, out, time]; frame t depends on frames up to t."""
        return self.norm(self.conv(functional.pad(x, (self.left, 0))))

    def fold(self) -> None:
        """Fold the batch norm's inference form into the convolution."""
        self.conv = fuse_conv_bn_eval(self.conv, self.norm)
        self.norm = nn.Identity()


class Residual(nn.Module):
    """Two causal dilated convolutions and the addition of the block's input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, int]) -> None:
        super().__init__()
        self.first = CausalConv(channels, channels, kernel, dilations[0])
        self.second = CausalConv(channels, channels, kernel, dilations[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, channels, time] -> the same shape."""
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class ImuTcn(nn.Module):
    """The network: logits for every second frame, no pooling over the clip and no softmax."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale.reshape(1, -1, 1))
        self.stem = CausalConv(CHANNELS, WIDTH, 3)
        self.block1 = Residual(WIDTH, 3, (1, 2))
        self.block2 = Residual(WIDTH, 3, (2, 4))
        self.head = nn.Conv1d(WIDTH, len(CLASSES), 1)
        self.folded = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 6, time] in the sensor's units -> logits [n, 4, time // 2]."""
        if not self.folded:
            x = x * self.scale
        x = self.block1(functional.relu(self.stem(x)))
        # With the indices (unused, and dropped by the exporter): torch.export fixes the time axis of the plain form.
        x, _ = functional.max_pool1d(x, POOL, POOL, return_indices=True)
        return self.head(self.block2(x))

    def fold(self) -> None:
        """Fold the batch norms, and the input scale into the first convolution (exact: zeros pad both)."""
        self.eval()
        for module in self.modules():
            if isinstance(module, CausalConv):
                module.fold()
        with torch.no_grad():
            self.stem.conv.weight *= self.scale
        self.folded = True


def joined_batch(
    x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every training clip once, joined in random pairs with jittered gain and noise; labels and mask per output frame.

    Joining lets the network see one activity follow another, as it will in a stream.
    """
    order = torch.from_numpy(rng.permutation(len(x))).reshape(-1, CLIPS_JOINED)
    joined = torch.cat([x[order[:, part]] for part in range(CLIPS_JOINED)], dim=2)
    gain = torch.from_numpy(rng.uniform(0.8, 1.25, (len(joined), CHANNELS, 1)).astype(np.float32))
    noise = torch.from_numpy(rng.normal(0, 0.05, tuple(joined.shape)).astype(np.float32))
    frames = CLIP_FRAMES // POOL
    labels = y[order].repeat_interleave(frames, dim=1)
    counted = (torch.arange(CLIPS_JOINED * frames) % frames >= WARM_UP).expand_as(labels)
    return joined * gain + noise, labels, counted


def train(x: NDArray[np.float32], y: NDArray[np.int64], epochs: int, seed: int) -> ImuTcn:
    """Train on the given clips for a fixed number of epochs; no held-out clip chooses anything here."""
    clips, labels = torch.from_numpy(x), torch.from_numpy(y)
    model = ImuTcn(1.0 / clips.std(dim=(0, 2)))
    print(f"{sum(p.numel() for p in model.parameters())} parameters before folding")
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    rng = np.random.default_rng(seed)
    model.train()
    for epoch in range(epochs):
        batch, target, counted = joined_batch(clips, labels, rng)
        loss = functional.cross_entropy(model(batch).transpose(1, 2)[counted], target[counted], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if epoch % 50 == 0 or epoch == epochs - 1:
            print(f"epoch {epoch:4d}  loss {loss.item():.4f}")
    return model


def tidy(model: onnx.ModelProto) -> None:
    """Drop what the exporter leaves besides the network: stack traces with the machine's paths, unused domains."""
    graph = model.graph
    for holder in [model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info]:
        del holder.metadata_props[:]
        holder.doc_string = ""
    del model.functions[:]
    used = {node.domain for node in graph.node}
    for unused in [entry for entry in model.opset_import if entry.domain not in used]:
        model.opset_import.remove(unused)
    model.ir_version = IR_VERSION


def export(model: ImuTcn, path: Path) -> None:
    """Export the folded model with a batch of 1 and a dynamic `time` axis."""
    example = torch.zeros(1, CHANNELS, 2 * CLIP_FRAMES)
    program = torch.onnx.export(
        model,
        (example,),
        dynamo=True,
        opset_version=OPSET,
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({2: torch.export.Dim("time", min=2 * POOL)},),
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    tidy(proto)
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)


class ClipReader(CalibrationDataReader):  # type: ignore[misc]
    """Calibration input: the training clips one by one, then all of them joined."""

    def __init__(self, clips: NDArray[np.float32]) -> None:
        joined = np.concatenate(list(clips), axis=1)
        self.items: Iterator[dict[str, NDArray[np.float32]]] = iter(
            [{"x": clip[np.newaxis]} for clip in [*clips, joined]]
        )

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """The next input, or None after the last."""
        return next(self.items, None)


def quantize(source: Path, target: Path, clips: NDArray[np.float32]) -> None:
    """Quantize with onnxruntime: plain QDQ, int8 asymmetric activations, int8 weights per channel."""
    prepared = source.with_suffix(".prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(target),
        ClipReader(clips),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
    proto = onnx.load(target)
    tidy(proto)
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, target)


def session(path: Path) -> ort.InferenceSession:
    """An onnxruntime session on the CPU."""
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def accuracy(run: ort.InferenceSession, x: NDArray[np.float32], y: NDArray[np.int64]) -> dict[str, float]:
    """Percentages: clips right by the mean of their logits, and output frames right with and without the warm-up."""
    logits = np.stack([run.run(None, {"x": clip[np.newaxis]})[0][0] for clip in x])
    right = logits.argmax(axis=1) == y[:, np.newaxis]
    return {
        "clips": 100 * float((logits.mean(axis=2).argmax(axis=1) == y).mean()),
        "frames after warm-up": 100 * float(right[:, WARM_UP:].mean()),
        "all frames": 100 * float(right.mean()),
    }


def check_lengths(run: ort.InferenceSession, stream: NDArray[np.float32]) -> float:
    """Run prefixes of several lengths: the largest change of a logit against the whole stream (causal: about 0)."""
    whole = run.run(None, {"x": stream})[0]
    largest = 0.0
    for length in (2, 3, 4, 37, 38, 100, 256, stream.shape[2]):
        part = run.run(None, {"x": stream[:, :, :length]})[0]
        if part.shape != (1, len(CLASSES), length // POOL):
            raise ValueError(f"length {length} gave logits of shape {part.shape}")
        largest = max(largest, float(np.abs(part - whole[:, :, : length // POOL]).max()))
    return largest


def describe(path: Path) -> None:
    """Print the nodes in order, with the pads of the convolutions."""
    graph = onnx.load(path).graph
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        shown = {k: v for k, v in attributes.items() if k in ("pads", "dilations", "kernel_shape", "strides", "axis")}
        print(f"  {node.op_type} {shown if shown else ''}")
    print(dict(Counter(node.op_type for node in graph.node)))


def main() -> int:
    """Run the steps in the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder with the two BasicMotions .ts files (default: see data.py)")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE / "imu_tcn_int8.onnx")
    parser.add_argument("--build", type=Path, default=HERE / "build", help="folder for the float model")
    options = parser.parse_args()

    random.seed(options.seed)
    np.random.seed(options.seed)
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    print(f"seed {options.seed}, torch {torch.__version__}, onnx {onnx.__version__}, onnxruntime {ort.__version__}")

    train_x, train_y = load_train(options.data)
    model = train(train_x, train_y, options.epochs, options.seed)
    unfolded = model.eval()(torch.from_numpy(train_x)).detach()
    model.fold()
    folded = model(torch.from_numpy(train_x)).detach()
    print(f"largest change of a logit by folding: {(unfolded - folded).abs().max().item():.2e}")

    options.build.mkdir(parents=True, exist_ok=True)
    float_path = options.build / "imu_tcn_float.onnx"
    export(model, float_path)
    quantize(float_path, options.out, train_x)
    describe(options.out)
    print(f"float {float_path.stat().st_size} bytes, int8 {options.out.stat().st_size} bytes")

    test_x, test_y = load_test(options.data)
    stream, stream_labels = load_stream_and_labels(options.data)
    frames = np.repeat(stream_labels, CLIP_FRAMES // POOL)
    for name, path in (("float", float_path), ("int8", options.out)):
        run = session(path)
        print(f"{name:5s} prefixes of 8 lengths: largest change of a logit {check_lengths(run, stream):.1e}")
        for split, x, y in (("training", train_x, train_y), ("held-out", test_x, test_y)):
            figures = ", ".join(f"{key} {value:.2f} %" for key, value in accuracy(run, x, y).items())
            print(f"{name:5s} {split}: {figures}")
        right = run.run(None, {"x": stream})[0][0].argmax(axis=0) == frames
        print(f"{name:5s} joined stream: all frames {100 * right.mean():.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
