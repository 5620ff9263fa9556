"""The proof of a layer as plain JSON: report.json["nodes"][i]["requantize"], re-proved by `codegen.numerics.recheck`.

{
  "formula": "clamp(rint(f32(f32(acc) * S)), lo - zero_point, hi - zero_point) + zero_point",
  "form": "A" | "B" | "F" | "E",      what the C does, runtime_c/rt_requantize.h
  "target": "m4" | "m0" | "generic",  class that the choice was made for
  "zero_point": int, "lo": int, "hi": int,
  "right_shift": s, "window": mask of F, "flip": 0 | -1,
  "channels": {                       columns, one number per output channel
    "scale_bits": [uint32],           float32 pattern of S
    "acc_lo": [int32], "acc_hi": [int32],   accumulators that can occur
    "multiplier": [..], "rounding": [..], "left_shift": [..], "parity": [..],   as in rt_requant_t
    "thresholds": [..],               code changes on the interval, each one checked; 0: a constant channel
  },
  "sha256": digest of all of the above: an altered number that happens to keep the proof valid is caught, too
}
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.numerics.prover import Proof

FORMULA = "clamp(rint(f32(f32(acc) * S)), lo - zero_point, hi - zero_point) + zero_point"


def digest(entry: dict[str, Any]) -> str:
    """SHA-256 of the entry without its own digest, keys sorted, no spaces."""
    body = {key: value for key, value in entry.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def certificate(proof: Proof) -> dict[str, Any]:
    """The JSON entry (ints, strings, lists) of a proved layer."""
    params = proof.params
    columns: dict[str, NDArray[Any]] = {
        "scale_bits": proof.scale.view(np.uint32),
        "acc_lo": proof.acc_lo,
        "acc_hi": proof.acc_hi,
        "multiplier": params.multiplier,
        "rounding": params.rounding,
        "left_shift": params.left_shift,
        "parity": params.parity,
        "thresholds": proof.thresholds,
    }
    entry: dict[str, Any] = {
        "formula": FORMULA,
        "form": params.form,
        "target": proof.target,
        "zero_point": params.zero_point,
        "lo": params.lo,
        "hi": params.hi,
        "right_shift": params.right_shift,
        "window": params.window,
        "flip": params.flip,
        "channels": {name: [int(number) for number in column] for name, column in columns.items()},
    }
    entry["sha256"] = digest(entry)
    return entry
