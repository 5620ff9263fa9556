"""Shares of the requantization forms of models: python -m benchmarks.forms MODEL... (report.json or .onnx)."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FORMS = ("A", "B", "F", "E")


def report_of(path: Path) -> dict[str, Any]:
    """A report as JSON: read, or made from a model."""
    if path.suffix == ".json":
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return loaded
    from codegen.options import Options
    from codegen.pipeline import compile_model

    return compile_model(path, Options()).report.to_json()


def shares(report: dict[str, Any]) -> tuple[Counter[str], Counter[str], int, int]:
    """(layers, channels) by form, constant channels, thresholds checked."""
    layers: Counter[str] = Counter()
    channels: Counter[str] = Counter()
    constant = thresholds = 0
    for entry in filter(None, (node["requantize"] for node in report["nodes"])):
        checked = entry["channels"]["thresholds"]
        layers[entry["form"]] += 1
        channels[entry["form"]] += len(checked)
        constant += checked.count(0)
        thresholds += sum(checked)
    return layers, channels, constant, thresholds


def main(arguments: Sequence[str]) -> int:
    """One line per model."""
    if not arguments:
        print(__doc__)
        return 2
    heads = " ".join(f"{form:>10}" for form in FORMS)
    print(f"{'model (layers / channels by form)':<36} {heads} {'constant':>9} {'thresholds':>10} {'seconds':>8}")
    for name in arguments:
        start = time.perf_counter()
        layers, channels, constant, thresholds = shares(report_of(Path(name)))
        cells = " ".join(f"{f'{layers[form]} / {channels[form]}':>10}" for form in FORMS)
        seconds = time.perf_counter() - start
        print(f"{Path(name).stem:<36} {cells} {constant:>9} {thresholds:>10} {seconds:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
