"""The numbers of docs/streaming.md's section on lookahead and history, from models built just as it says."""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx
import pytest
from checks import Workshop
from models import Act, Net
from paths import ROOT

from codegen import analyze
from codegen.options import Options
from codegen.pipeline import compile_model

TEXT = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
SECTION = TEXT.split("## Lookahead and history")[1].split("\n## ")[0]


def single(taps: int, pads: list[int], dilation: int = 1, stride: int = 1) -> onnx.ModelProto:
    net = Net()
    x = net.input([1, 2, "T"])
    net.output(net.conv(x, 2, [taps], pads=pads, dilations=[dilation], strides=[stride]))
    return net.model()


def chain(net: Net, x: Act, layers: int) -> Act:
    for _ in range(layers):
        x = net.conv(x, 2, [3], pads=[1, 1])
    return x


def five(skip: bool) -> onnx.ModelProto:
    net = Net()
    x = net.input([1, 2, "T"])
    y = chain(net, x, 5)
    net.output(net.add(x, y) if skip else y)
    return net.model()


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "k = 5, p = 4, 0 (causal)": lambda: single(5, [4, 0]),
    "k = 5, p = 2, 2 (the drawing)": lambda: single(5, [2, 2]),
    "k = 5, p = 0, 4": lambda: single(5, [0, 4]),
    "k = 3, d = 4, p = 4, 4": lambda: single(3, [4, 4], 4),
    "k = 5, p = 2, 2, stride 2": lambda: single(5, [2, 2], 1, 2),
    "five of k = 3, p = 1, 1": lambda: five(False),
    "the same five, and x added to the result": lambda: five(True),
}


@pytest.mark.parametrize("layer", MODELS)
def test_numbers(shop: Workshop, layer: str) -> None:
    """Lookahead, history frames of x and frames that all layers keep together, as the table says."""
    row = re.search(rf"^\| {re.escape(layer)} \| (\d+) \| (\d+) \| (\d+) \|$", SECTION, re.MULTILINE)
    assert row, layer
    path = shop.save(MODELS[layer]())
    plan = compile_model(path, Options()).plan
    lookahead = analyze(path).outputs[0].lookahead
    assert tuple(map(int, row.groups())) == (lookahead, plan.keep["x"], sum(plan.keep.values()))


def test_every_row_is_checked_and_it_is_at_most_a_page() -> None:
    assert len(re.findall(r"^\| .+ \| \d+ \| \d+ \| \d+ \|$", SECTION, re.MULTILINE)) == len(MODELS)
    assert SECTION.count("\n") <= 60
