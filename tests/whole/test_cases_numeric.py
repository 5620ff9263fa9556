"""The adversarial cases R* beside the repository (rounding and ranges): exact values inside their slack."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from checks import Workshop
from paths import SHARED

CASES = SHARED / "cases" / "public"
RANGES = sorted(CASES.glob("R*")) if CASES.is_dir() else []
pytestmark = pytest.mark.skipif(not RANGES, reason="../shared/cases is not there")


@pytest.mark.parametrize("case", RANGES, ids=lambda p: p.name)
def test_rounding_and_ranges(shop: Workshop, case: Path) -> None:
    meta = json.loads((case / "meta.json").read_text())
    assert meta["expect"] == "exact"
    g = shop.build(case / "model.onnx")
    host = shop.host(g)
    for file in sorted(case.glob("input_*.npz")):
        inputs, wanted = np.load(file), np.load(case / file.name.replace("input", "expected"))
        feed = {p.name: inputs[p.name] for p in host.inputs}
        for chunks in (None, (1,), (2, 3)):
            got = host.run(feed, chunks)
            for port in host.outputs:
                want, slack = wanted[port.name], wanted[f"{port.name}__slack"]
                assert got[port.name].shape == want.shape and got[port.name].dtype == want.dtype
                away = np.abs(got[port.name].astype(np.float64) - want.astype(np.float64))
                assert (away <= slack).all(), f"{case.name} {port.name}: {int((away > slack).sum())} beyond the slack"
