"""Every layer of every build has its proof, on whatever processor it was built."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Workshop
from models import DIVERSE
from paths import MLPERF_TINY

from codegen.numerics.recheck import recheck_report
from codegen.ops.base import KernelOp
from codegen.ops.conv import ConvS8
from codegen.ops.matmul import MatMulS8
from codegen.ops.reduce import DenseOverTimeS8
from codegen.ops.transposed import ConvTransposeS8
from codegen.options import Options
from codegen.pipeline import build, compile_model

FIVE = ["ad_autoencoder", "ic_resnet8", "kws_dscnn", "sww_streaming_dyn", "vww_mobilenet"]
ROUNDS = (ConvS8, ConvTransposeS8, DenseOverTimeS8, MatMulS8)


def check(report: dict[str, Any], ops: list[KernelOp]) -> Counter[str]:
    """No rounding layer without certificate, no channel without parameters, and all of it proves again."""
    forms: Counter[str] = Counter()
    for node, op in zip(report["nodes"], ops, strict=True):
        entry, rounding = node["requantize"], op.rounding()
        assert rounding is not None or not isinstance(op, ROUNDS), "a layer that rounds accumulators"
        if rounding is None:
            assert entry is None
            continue
        channels = {len(column) for column in entry["channels"].values()}
        assert channels == {len(rounding.acc_lo)} and entry["form"] in "ABFE"
        assert (entry["lo"], entry["hi"], entry["zero_point"]) == (rounding.lo, rounding.hi, rounding.zero_point)
        forms[entry["form"]] += 1
    lines = recheck_report(report)
    assert len(lines) == sum(forms.values()) > 0 and all(line.startswith("ok") for line in lines), lines
    return forms


@pytest.mark.skipif(not MLPERF_TINY.is_dir(), reason="../shared/models is not there")
@pytest.mark.parametrize("name", FIVE)
def test_mlperf_models(name: str, tmp_path: Path) -> None:
    """The stand-alone script proves the report again, and refuses it with any one number altered."""
    compiled = compile_model(MLPERF_TINY / f"{name}_i8io.onnx", Options())
    report = json.loads(json.dumps(compiled.report.to_json()))
    forms = check(report, [node.op for node in compiled.graph.nodes if isinstance(node.op, KernelOp)])
    assert not forms["E"], "the slow form is for nothing that occurs"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    command = [sys.executable, "-m", "codegen.numerics.recheck", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{sum(forms.values())} of {sum(forms.values())} layers proved" in done.stdout
    path.write_text(json.dumps(altered(report, random.Random(name))))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "FAIL" in done.stdout


def altered(report: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The report with one number of one certificate changed by one."""
    changed = copy.deepcopy(report)
    entry = rng.choice([node["requantize"] for node in changed["nodes"] if node["requantize"]])
    column = entry["channels"][rng.choice(sorted(entry["channels"]))]
    column[rng.randrange(len(column))] += rng.choice([-1, 1])
    return changed


@pytest.mark.parametrize("name", DIVERSE)
def test_small_models_and_altered_numbers(shop: Workshop, name: str) -> None:
    g = shop.build(DIVERSE[name]())
    report = json.loads(g.files["report.json"])
    check(report, [node.op for node in g.graph.nodes if isinstance(node.op, KernelOp)])
    rng = random.Random(name)
    for _ in range(20):
        assert any(line.startswith("FAIL") for line in recheck_report(altered(report, rng)))


def test_altered_processor_features_build_the_same_bytes(shop: Workshop) -> None:
    """numpy without its vector extensions: another process, the same text."""
    script = (
        "import json, sys\nfrom codegen.pipeline import build\nfrom codegen.options import Options\n"
        "print(json.dumps([build(p, Options(name='m')) for p in sys.argv[1:]]))"
    )
    features = supported_features()
    if not features:
        pytest.skip("numpy dispatches nothing on this processor")
    paths = [shop.save(make()) for make in DIVERSE.values()]
    if MLPERF_TINY.is_dir():
        paths.append(MLPERF_TINY / "ic_resnet8_i8io.onnx")
    environment = os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(features)}
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [build(path, Options(name="m")) for path in paths]


def supported_features() -> list[str]:
    """What numpy would dispatch to here beyond its baseline."""
    core = getattr(np, "_core", None) or np.core
    umath = core._multiarray_umath
    return [f for f in umath.__cpu_dispatch__ if umath.__cpu_features__.get(f)]
