"""The prover on generated layers, against brute force and the compiled C; certificates against alterations."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import Kernels
from layers import CLASSES, Layer, critical, generate
from paths import ROOT

from codegen.numerics import reference
from codegen.numerics.certificate import certificate, digest
from codegen.numerics.exact import NumericsError
from codegen.numerics.prover import COST, Proof, prove_layer
from codegen.numerics.recheck import Refuted, recheck_entry, recheck_report

LAYERS = 200
PER_CLASS = 1_000_000


def prove(layer: Layer, target: str = "m4") -> Proof:
    return prove_layer(
        layer.scale, layer.acc_lo, layer.acc_hi, layer.zero_point, lo=layer.lo, hi=layer.hi, target=target
    )


@pytest.fixture(scope="module")
def proofs() -> list[tuple[Layer, Proof]]:
    return [(layer, prove(layer)) for layer in map(generate, range(LAYERS))]


def test_every_layer_is_proved_and_rechecked(proofs: list[tuple[Layer, Proof]]) -> None:
    for layer, proof in proofs:
        assert recheck_entry(certificate(proof)) == int(proof.thresholds.sum()), layer.kind


def test_every_form_occurs(proofs: list[tuple[Layer, Proof]]) -> None:
    shares = Counter(proof.params.form for _, proof in proofs)
    assert set(shares) == {"A", "B", "F", "E"}
    slow = {layer.kind for layer, proof in proofs if proof.params.form == "E"}
    assert slow == {"int32 limit"}  # |acc * S| up to 2^39 in one layer: no 32-bit fixed point holds it


def test_constant_channels_are_stored_as_constants(proofs: list[tuple[Layer, Proof]]) -> None:
    seen = 0
    for layer, proof in proofs:
        ends = [
            reference.requantize(acc, layer.scale, layer.zero_point, layer.lo, layer.hi)
            for acc in (layer.acc_lo, layer.acc_hi)
        ]
        constant = ends[0] == ends[1]
        assert np.array_equal(proof.constant, constant)
        assert not proof.params.multiplier[constant].any()
        seen += int(constant.sum())
    assert seen > 100


@pytest.mark.parametrize("kind", CLASSES)
def test_c_equals_reference_around_thresholds(kind: str, kernels: Kernels, proofs: list[tuple[Layer, Proof]]) -> None:
    rng = np.random.default_rng(CLASSES.index(kind))
    chosen = [(layer, proof) for layer, proof in proofs if layer.kind == kind]
    work = [(layer, proof, channel) for layer, proof in chosen for channel in range(len(layer.scale))]
    count = PER_CLASS // len(work) + 1
    for layer, proof, channel in work:
        acc = critical(layer, channel, rng, count)
        want = reference.requantize(acc, layer.scale[channel], layer.zero_point, layer.lo, layer.hi)
        got = kernels.requantize(acc, kernels.requant_struct(proof.params), channel)
        assert np.array_equal(got, want), (layer.kind, proof.params.form, channel)


def one_channel(proof: Proof, channel: int) -> Any:
    names = ("multiplier", "rounding", "left_shift", "parity", "scale_bits")
    part = slice(channel, channel + 1)
    return replace(proof.params, **{name: getattr(proof.params, name)[part] for name in names})


@pytest.mark.parametrize("kind", ["ordinary", "powers of two", "depthwise", "relu"])
def test_numpy_twin_equals_reference_on_every_accumulator(kind: str) -> None:
    """Brute force over whole intervals of up to 2^21 accumulators."""
    for index in range(CLASSES.index(kind), 40, len(CLASSES)):
        layer = generate(index)
        layer = replace(layer, acc_lo=np.maximum(layer.acc_lo, -(2**18)), acc_hi=np.minimum(layer.acc_hi, 2**18))
        proof = prove(layer)
        channel = index % len(layer.scale)
        acc = np.arange(layer.acc_lo[channel], layer.acc_hi[channel] + 1)
        want = reference.requantize(acc, layer.scale[channel], layer.zero_point, layer.lo, layer.hi)
        assert np.array_equal(one_channel(proof, channel).apply(acc[:, None])[:, 0], want)


def test_a_wrong_number_is_wrong_somewhere() -> None:
    """The proof is sharp: R one above its interval fails in the recheck (digest renewed)."""
    layer = generate(3)
    proof = prove(layer)
    entry = certificate(proof)
    row = int(np.flatnonzero(~proof.constant)[0])
    entry["channels"]["rounding"][row] += 1 << (entry["right_shift"] - 2)
    entry["sha256"] = digest(entry)
    with pytest.raises(Refuted, match="channel"):
        recheck_entry(entry)


def numbers(entry: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Paths of all numbers: scalars, and the first two and the last of each column."""
    paths: list[tuple[Any, ...]] = [(key,) for key, value in entry.items() if isinstance(value, int)]
    for name, column in entry["channels"].items():
        paths += [("channels", name, at) for at in sorted({0, min(1, len(column) - 1), len(column) - 1})]
    return paths


@pytest.mark.parametrize("index", range(0, 40))
def test_altering_any_number_fails(index: int, proofs: list[tuple[Layer, Proof]]) -> None:
    entry = certificate(proofs[index][1])
    recheck_entry(entry)
    for path in numbers(entry):
        for change in (1, -1):
            altered = copy.deepcopy(entry)
            parent = altered
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] += change
            with pytest.raises(Refuted):
                recheck_entry(altered)


def test_altered_numbers_fail_by_proof_too(proofs: list[tuple[Layer, Proof]]) -> None:
    """With a forged digest, every alteration of scale, code bounds, shifts and constants is still refuted."""
    entry = certificate(proofs[0][1])
    changes = [(("zero_point",), 1), (("right_shift",), 1), (("right_shift",), -1)]
    changes += [(("channels", "left_shift", 0), 1), (("channels", "thresholds", 0), 1)]
    changes += [(("channels", "scale_bits", 0), 1 << 12), (("channels", "multiplier", 0), 1 << 20)]
    for path, change in changes:
        altered = copy.deepcopy(entry)
        parent = altered
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] += change
        altered["sha256"] = digest(altered)
        with pytest.raises(Refuted):
            recheck_entry(altered)


def test_recheck_command(tmp_path: Path, proofs: list[tuple[Layer, Proof]]) -> None:
    report = {"nodes": [{"name": "pool"}, {"name": "conv", "requantize": certificate(proofs[1][1])}]}
    path = tmp_path / "report.json"

    def run() -> subprocess.CompletedProcess[str]:
        path.write_text(json.dumps(report))
        command = [sys.executable, "-m", "codegen.numerics.recheck", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 0, done.stderr
    assert "1 of 1 layers proved" in done.stdout
    report["nodes"][1]["requantize"]["channels"]["acc_hi"][0] += 1  # type: ignore[index]
    done = run()
    assert done.returncode == 1
    assert "FAIL node 1 conv" in done.stdout
    assert recheck_report({"nodes": []}) == []
    path.write_text("{")
    assert subprocess.run([sys.executable, "-m", "codegen.numerics.recheck", str(path)], check=False).returncode == 1


def test_recheck_is_independent_of_the_prover() -> None:
    source = (Path(reference.__file__).parent / "recheck.py").read_text()
    assert "from codegen" not in source
    assert "import codegen" not in source


def test_targets_and_refusals() -> None:
    layer = generate(0)
    for target, cost in COST.items():
        assert prove(layer, target).target == target
        assert cost["A"] <= cost["B"] <= cost["E"]
    one = np.ones(1, np.float32)
    limit = np.array([2**31])
    with pytest.raises(NumericsError, match="int32"):
        prove_layer(one, -limit, limit, 0)
    with pytest.raises(NumericsError, match="empty"):
        prove_layer(one, limit - 1, -limit, 0)
    with pytest.raises(NumericsError, match="finite"):
        prove_layer(one * np.float32("nan"), -limit // 2, limit // 2, 0)
    with pytest.raises(NumericsError, match="target"):
        prove_layer(one, -limit // 2, limit // 2, 0, target="m99")


def test_same_numbers_without_vector_extensions(tmp_path: Path) -> None:
    """A processor feature set without vectors gives the same certificate, byte for byte."""
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]);"
        "from layers import generate; from codegen.numerics.prover import prove_layer;"
        "from codegen.numerics.certificate import certificate;"
        "layers = [generate(i) for i in range(24)];"
        "print(json.dumps([certificate(prove_layer(l.scale, l.acc_lo, l.acc_hi, l.zero_point, lo=l.lo, hi=l.hi))"
        " for l in layers]))"
    )
    outputs = []
    for disable in ("", "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_ICL"):
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": disable}
        command = [sys.executable, "-W", "ignore", "-c", code, str(ROOT / "tests/support")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
