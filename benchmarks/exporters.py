"""What PyTorch's exporters and onnxruntime's quantizer really write, built and verified: the project's own matrix.

Every architecture x {torch dynamo, torch legacy} x {QDQ, QOperator} x {int8, uint8}: exported, calibrated on seeded
noise, quantized, built, compiled, streamed, compared with the numpy reference (must be equal) and onnxruntime. Prints
a table. Needs PyTorch, onnxscript and onnxruntime beside this package:

    python benchmarks/exporters.py [--only NAME] [--keep DIR] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from codegen import CodegenError, Options
from codegen.quantize import prepare, static
from codegen.verify.verification import verify

EXPORTERS = ("dynamo", "legacy")
FORMATS = ("QDQ", "QOperator")
TYPES = ("int8", "uint8")
CALIBRATION_CLIPS = 8
Tensor = torch.Tensor


class Causal(nn.Module):
    """A convolution padded on the left (`pad`), or on both sides and cut at the end (`chomp`)."""

    def __init__(self, i: int, o: int, k: int, d: int = 1, chomp: bool = False) -> None:
        super().__init__()
        self.room, self.chomp = d * (k - 1), chomp
        self.conv = nn.Conv1d(i, o, k, dilation=d, padding=self.room if chomp else 0)

    def forward(self, x: Tensor) -> Tensor:
        if self.chomp:
            return self.conv(x)[:, :, : -self.room]
        return self.conv(F.pad(x, (self.room, 0)))


class Tcn(nn.Module):
    """Dilated causal residual blocks."""

    def __init__(self, chomp: bool) -> None:
        super().__init__()
        self.first = Causal(6, 8, 3, chomp=chomp)
        self.blocks = nn.ModuleList([Causal(8, 8, 3, d, chomp) for d in (1, 2, 4)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(8) for _ in range(3)])
        self.head = nn.Conv1d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = F.relu(x + norm(block(x)))
        return self.head(x)


class TcResNet(nn.Module):
    """TC-ResNet: strided blocks with 1x1 skips of stride 2, mean over time, classifier (a clip)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(10, 8, 3, padding=1, bias=False)
        self.a1, self.a2 = nn.Conv1d(8, 12, 9, 2, 4, bias=False), nn.Conv1d(12, 12, 9, 1, 4, bias=False)
        self.skip, self.n1, self.n2, self.n3 = nn.Conv1d(8, 12, 1, 2, bias=False), *(nn.BatchNorm1d(12) for _ in "123")
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.n2(self.a2(F.relu(self.n1(self.a1(x)))))
        y = F.relu(y + F.relu(self.n3(self.skip(x))))
        return self.head(y.mean(dim=2))


class Wavenet(nn.Module):
    """Gated causal convolutions with skip sums."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList([Causal(6, 6, 2, d) for d in (1, 2, 4)])
        self.gates = nn.ModuleList([Causal(6, 6, 2, d) for d in (1, 2, 4)])
        self.mix = nn.ModuleList([nn.Conv1d(6, 6, 1) for _ in range(3)])
        self.head = nn.Conv1d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for f, g, m in zip(self.filters, self.gates, self.mix, strict=True):
            y = m(torch.tanh(f(x)) * torch.sigmoid(g(x)))
            x, total = x + y, total + y
        return self.head(F.relu(total))


class Unet(nn.Module):
    """Two levels down by MaxPool, up by nearest upsampling, skips by Concat."""

    def __init__(self) -> None:
        super().__init__()
        self.d1, self.d2, self.mid = nn.Conv1d(4, 6, 3, 1, 1), nn.Conv1d(6, 8, 3, 1, 1), nn.Conv1d(8, 8, 3, 1, 1)
        self.u1, self.u2, self.head = nn.Conv1d(16, 6, 3, 1, 1), nn.Conv1d(12, 6, 3, 1, 1), nn.Conv1d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.d1(x))
        b = F.relu(self.d2(F.max_pool1d(a, 2)))
        y = F.relu(self.mid(F.max_pool1d(b, 2)))
        y = F.relu(self.u1(torch.cat([F.interpolate(y, scale_factor=2.0), b], 1)))
        y = F.relu(self.u2(torch.cat([F.interpolate(y, scale_factor=2.0), a], 1)))
        return self.head(y)


class Glu(nn.Module):
    """Gated linear units: a split over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Causal(4, 12, 3), Causal(6, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.b(F.glu(self.a(x), dim=1)), dim=1)


class SqueezeExcite(nn.Module):
    """2-D: the mean over frequency gates the channels of every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.down, self.up = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(x))
        gate = torch.sigmoid(self.up(F.relu(self.down(y.mean(dim=3, keepdim=True)))))
        return y * gate


class BcResNet(nn.Module):
    """2-D depthwise over frequency, a 1-D branch over its mean, added back to every frequency."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 6, (3, 5), (1, 2), (1, 2))
        self.freq, self.norm = nn.Conv2d(6, 6, (1, 3), padding=(0, 1), groups=6), nn.BatchNorm2d(6)
        self.time, self.mix = nn.Conv2d(6, 6, (3, 1), padding=(1, 0), groups=6), nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        f = self.norm(self.freq(x))
        t = self.mix(F.silu(self.time(f.mean(dim=3, keepdim=True))))
        return F.relu(x + f + t)


class DsCnn(nn.Module):
    """Depthwise separable 2-D keyword spotting on a fixed window."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, (10, 4), (2, 2), (5, 1), bias=False)
        self.dw = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False) for _ in range(2)])
        self.pw = nn.ModuleList([nn.Conv2d(8, 8, 1, bias=False) for _ in range(2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(5)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norms[0](self.stem(x)))
        for i in range(2):
            x = F.relu(self.norms[1 + 2 * i](self.dw[i](x)))
            x = F.relu(self.norms[2 + 2 * i](self.pw[i](x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class TasNet(nn.Module):
    """Learned encoder of stride 8, masked, transposed convolution as decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, 8, 16, 8), nn.ConvTranspose1d(8, 1, 16, 8)
        self.mask, self.slope = Causal(8, 8, 3), nn.PReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.encoder(x))
        return self.decoder(y * torch.sigmoid(self.slope(self.mask(y))))


class PerFrame(nn.Module):
    """Linear layers on [batch, time, channels], residual, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(10, 12), nn.Linear(12, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.a(x))
        return self.c(x + F.relu(self.b(x)))


class Activations(nn.Module):
    """One convolution per activation function."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(4, 4, 3, padding=1) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        functions = (F.leaky_relu, F.elu, F.hardswish, F.hardsigmoid, F.relu6, F.silu)
        for conv, function in zip(self.convs, functions, strict=True):
            x = function(conv(x))  # type: ignore[operator]
        return x


class WakeWord(nn.Module):
    """Depthwise separable valid convolutions over time, dense head per frame."""

    def __init__(self) -> None:
        super().__init__()
        self.dw = nn.ModuleList([nn.Conv1d(8, 8, k, groups=8) for k in (3, 5, 10)])
        self.pw = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(3)])
        self.head = nn.Conv1d(8, 2, 15)

    def forward(self, x: Tensor) -> Tensor:
        for dw, pw in zip(self.dw, self.pw, strict=True):
            x = F.relu(pw(dw(x)))
        return torch.softmax(self.head(x), dim=1)


class Autoencoder(nn.Module):
    """Dense layers on one vector: no stream."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (20, 12, 4, 12, 20)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x) if i == 3 else F.relu(layer(x))
        return x


class Matchbox(nn.Module):
    """Separable convolutions with same padding and dilation, average pool on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(6, 6, 11, padding="same", groups=6), nn.Conv1d(6, 8, 1)
        # onnxruntime does not run the legacy exporter's auto_pad with a dilation: explicit pads there.
        self.c, self.d = nn.Conv1d(8, 8, 13, padding=12, dilation=2, groups=8), nn.Conv1d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.b(self.a(x)))
        return F.avg_pool1d(F.relu(x + self.d(self.c(x))), 2)


@dataclass(frozen=True)
class Architecture:
    """A network, the shape of its input, and which axis is free (None: none)."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    free: int | None


MATRIX: dict[str, Architecture] = {
    "tcn_pad": Architecture(lambda: Tcn(chomp=False), (1, 6, 64), 2),
    "tcn_chomp": Architecture(lambda: Tcn(chomp=True), (1, 6, 64), 2),
    "tc_resnet": Architecture(TcResNet, (1, 10, 49), None),
    "wavenet": Architecture(Wavenet, (1, 6, 64), 2),
    "unet": Architecture(Unet, (1, 4, 64), None),
    "glu": Architecture(Glu, (1, 4, 64), 2),
    "squeeze_excite": Architecture(SqueezeExcite, (1, 2, 40, 8), 2),
    "bc_resnet": Architecture(BcResNet, (1, 1, 40, 16), 2),
    "ds_cnn": Architecture(DsCnn, (1, 1, 49, 10), None),
    "tasnet": Architecture(TasNet, (1, 1, 160), 2),
    "per_frame": Architecture(PerFrame, (1, 40, 10), 1),
    "activations": Architecture(Activations, (1, 4, 64), 2),
    "wake_word": Architecture(WakeWord, (1, 8, 64), 2),
    "autoencoder": Architecture(Autoencoder, (1, 20), None),
    "matchbox": Architecture(Matchbox, (1, 6, 64), 2),
}


@dataclass(frozen=True)
class Outcome:
    """One cell of the table. `verdict`: equal, ties (some values one code off onnxruntime), or what went wrong."""

    verdict: str
    values: int = 0
    different: int = 0
    largest: float = 0.0
    detail: str = ""


def export(name: str, exporter: str, target: Path) -> None:
    """The architecture as a float ONNX file, with seeded weights and statistics."""
    arch = MATRIX[name]
    torch.manual_seed(sum(map(ord, name)))
    model = arch.make()
    x = torch.randn(*arch.shape)
    for _ in range(3):  # BatchNorm statistics
        model(torch.randn(4, *arch.shape[1:]))
    model.eval()
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            axes = None if arch.free is None else ({arch.free: torch.export.Dim("time", min=32, max=4096)},)
            torch.onnx.export(model, (x,), target, dynamo=True, external_data=False, dynamic_shapes=axes, **names)
        else:
            free = None if arch.free is None else {"x": {arch.free: "time"}, "y": {arch.free: "frames"}}
            torch.onnx.export(model, (x,), target, dynamo=False, dynamic_axes=free, opset_version=17, **names)


def run_one(source: Path, target: Path, name: str, form: str, dtype: str) -> Outcome:
    """Quantize, build, verify."""
    rng = np.random.default_rng(1)
    shape = MATRIX[name].shape
    feeds = [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(CALIBRATION_CLIPS)]
    try:
        prepared = target.with_suffix(".float.onnx")
        prepare(source, prepared)
        static(prepared, target, feeds, operators=form == "QOperator", unsigned=dtype == "uint8")
        result = verify(target, Options(name="m"))
    except CodegenError as error:
        return Outcome("refused", detail=str(error).splitlines()[0])
    except Exception as error:
        return Outcome("failed", detail=f"{type(error).__name__}: {error}"[:300])
    if not result.passed:
        return Outcome("C differs", result.values, result.mismatches)
    bad = [item for item in result.runtime if item.different]
    if not result.runtime:
        return Outcome("not compared", result.values, detail="; ".join(result.notes))
    different, largest = sum(item.different for item in bad), max((item.largest for item in bad), default=0.0)
    return Outcome("ties" if bad else "equal", sum(i.values for i in result.runtime), different, largest)


def matrix(names: list[str], folder: Path) -> dict[str, Outcome]:
    """All cells, by `architecture.exporter.format.type`; progress on standard error."""
    outcomes = {}
    for name in names:
        for exporter in EXPORTERS:
            source = folder / f"{name}.{exporter}.onnx"
            try:
                export(name, exporter, source)
            except Exception as error:
                outcomes[f"{name}.{exporter}"] = Outcome("no export", detail=f"{type(error).__name__}: {error}"[:300])
                continue
            for form in FORMATS:
                for dtype in TYPES:
                    key = f"{name}.{exporter}.{form}.{dtype}"
                    outcomes[key] = run_one(source, folder / f"{key}.onnx", name, form, dtype)
                    print(key, outcomes[key], file=sys.stderr, flush=True)
    return outcomes


def table(outcomes: dict[str, Outcome], names: list[str]) -> str:
    """Markdown: a row per architecture and exporter, a column per format and type."""
    columns = [f"{form}.{dtype}" for form in FORMATS for dtype in TYPES]
    lines = ["| architecture | exporter | " + " | ".join(c.replace(".", " ") for c in columns) + " |"]
    lines.append("| --- | --- |" + " --- |" * len(columns))
    for name in names:
        for exporter in EXPORTERS:
            cells = [outcomes.get(f"{name}.{exporter}.{c}", Outcome("no export")) for c in columns]
            text = [c.verdict + (f" {c.different}/{c.values}, {c.largest:g}" if c.different else "") for c in cells]
            lines.append(f"| {name} | {exporter} | " + " | ".join(text) + " |")
    good = sum(o.verdict in ("equal", "ties") for o in outcomes.values())
    return "\n".join([*lines, "", f"{good} of {len(outcomes)} built, C equal to the reference"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted(MATRIX), help="this architecture (repeatable)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the models here")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    names = args.only or list(MATRIX)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        outcomes = matrix(names, folder)
    print(json.dumps({k: vars(v) for k, v in outcomes.items()}, indent=1) if args.json else table(outcomes, names))
    return 0 if all(o.verdict in ("equal", "ties") for o in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
