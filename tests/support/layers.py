"""Generated layers: float32 scales, accumulator intervals, zero point, bounds of every class to be proved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CLASSES = (
    "ordinary",
    "powers of two",
    "wide",
    "depthwise",
    "huge bias",
    "int32 limit",
    "relu",
    "dead rows",
)


@dataclass(frozen=True)
class Layer:
    """Input of prove_layer."""

    kind: str
    scale: np.ndarray
    acc_lo: np.ndarray
    acc_hi: np.ndarray
    zero_point: int
    lo: int
    hi: int


def generate(index: int, channels: int = 0) -> Layer:
    """Layer number `index`, of class CLASSES[index % 8]; the same numbers on every run."""
    rng = np.random.default_rng(1000 + index)
    kind = CLASSES[index % len(CLASSES)]
    n = channels or int(rng.integers(1, 64))
    scale = np.exp(rng.uniform(np.log(1e-4), np.log(0.05)) + rng.uniform(-1.5, 1.5, n))
    if kind == "powers of two":
        scale = 2.0 ** -rng.integers(0, 18, n)
    if kind in ("wide", "int32 limit"):
        scale = np.exp(rng.uniform(np.log(1e-12), np.log(256), n))
    reach = np.exp(rng.uniform(np.log(100), np.log(4000))) * np.exp(rng.uniform(-1, 1, n))
    size = np.clip(reach / scale, 1, 2**31 - 1).astype(np.int64)
    if kind == "depthwise":
        size = rng.integers(2**10, 2**18, n)
    lo, hi = -size, size - rng.integers(0, 2, n)
    if kind == "huge bias":
        bias = rng.integers(2**30, 2**31 - 2**20, n) * rng.choice([-1, 1], n)
        lo, hi = bias - rng.integers(0, 2**20, n), bias + rng.integers(0, 2**20, n)
        scale = np.exp(rng.uniform(np.log(1e-12), np.log(1e-6), n))
    if kind == "int32 limit":
        lo, hi = np.where(rng.integers(0, 2, n), -(2**31), lo), np.where(rng.integers(0, 2, n), 2**31 - 1, hi)
    if kind == "dead rows":
        dead = rng.integers(0, 2, n).astype(bool)
        lo = np.where(dead, rng.integers(-(2**31), 2**31, n), lo)
        hi = np.where(dead, lo, hi)
    zero_point = int(rng.choice([-128, 127, 0, int(rng.integers(-128, 128))]))
    bounds = (zero_point, min(zero_point + 100, 127)) if kind == "relu" else (-128, 127)
    return Layer(kind, scale.astype(np.float32), lo, hi, zero_point, *bounds)


def critical(layer: Layer, channel: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """Accumulators of one channel: around its thresholds, at its ends, and anywhere."""
    lo, hi = int(layer.acc_lo[channel]), int(layer.acc_hi[channel])
    u = rng.integers(layer.lo - layer.zero_point, layer.hi - layer.zero_point + 1, count)
    near = np.clip((u + 0.5) / float(layer.scale[channel]), -(2.0**32), 2.0**32).astype(np.int64)
    near += rng.integers(-3, 4, count)
    anywhere = rng.integers(lo, hi + 1, count)
    ends = rng.choice([lo, hi, min(lo + 1, hi), max(hi - 1, lo)], count)
    return np.clip(np.choose(rng.integers(0, 8, count), [near] * 6 + [anywhere, ends]), lo, hi)
