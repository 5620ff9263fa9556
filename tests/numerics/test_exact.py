"""rt_requantize_exact and its numpy twin against float32 arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import Kernels

from codegen.numerics import exact, reference

INT32 = (-(2**31), 2**31 - 1)


def float_reference(acc: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """rint(f32(f32(acc) * S)) saturated to int32."""
    with np.errstate(over="ignore"):
        value = np.rint(acc.astype(np.float32) * scale).astype(np.float64)
    return np.clip(value, *INT32).astype(np.int64)


def accumulators(rng: np.random.Generator, scale: np.ndarray) -> np.ndarray:
    """Random sizes, powers of two and neighbours, the int32 ends, and the surroundings of half codes for each scale."""
    n = len(scale)
    near = np.rint((rng.integers(-300, 300, n) + 0.5) / scale.astype(np.float64))
    near = np.clip(near, *INT32).astype(np.int64) + rng.integers(-3, 4, n)
    powers = (np.int64(1) << rng.integers(0, 32, n)) * rng.choice([-1, 1], n) + rng.integers(-2, 3, n)
    random = rng.integers(*INT32, n) >> rng.integers(0, 31, n)
    ends = rng.choice([INT32[0], INT32[0] + 1, INT32[1], INT32[1] - 1, 0, 1, -1], n)
    return np.clip(np.choose(rng.integers(0, 8, n), [near] * 5 + [powers, random, ends]), *INT32)


def scales(rng: np.random.Generator, n: int) -> np.ndarray:
    """Typical, extreme and power-of-two scales: 1e-38 to 1e38."""
    typical = np.exp(rng.uniform(np.log(1e-8), np.log(300), n)).astype(np.float32)
    extreme = np.exp(rng.uniform(np.log(1.2e-38), np.log(1e38), n)).astype(np.float32)
    power = np.ldexp(np.float32(1), rng.integers(-126, 127, n)).astype(np.float32)
    return np.choose(rng.integers(0, 6, n), [typical] * 4 + [extreme, power]).astype(np.float32)


def test_c_equals_float_on_two_million_accumulators(kernels: Kernels) -> None:
    rng = np.random.default_rng(1)
    scale = scales(rng, 2_000_000)
    acc = accumulators(rng, scale)
    want = float_reference(acc, scale)
    assert np.array_equal(kernels.exact(acc, scale.view(np.uint32)), want)


def test_twin_equals_float() -> None:
    rng = np.random.default_rng(2)
    scale = scales(rng, 500_000)
    acc = accumulators(rng, scale)
    assert np.array_equal(exact.requantize_exact(acc, scale.view(np.uint32)), float_reference(acc, scale))


def test_exact_ties_go_to_even(kernels: Kernels) -> None:
    acc = np.arange(-2000, 2001)
    for shift in (1, 2, 5):
        bits = np.full(acc.size, np.float32(2.0**-shift).view(np.uint32))
        assert np.array_equal(kernels.exact(acc, bits), np.rint(acc / 2**shift).astype(np.int64))


def test_worked_values() -> None:
    codes = reference.requantize(np.array([-2, 4, 6, -8]), np.float32(0.5), 0)
    assert codes.tolist() == [-1, 2, 3, -4]
    assert np.maximum(codes, 0).tolist() == [0, 2, 3, 0]


def test_multiplier_is_the_scale() -> None:
    for value in (1.0, 0.1, 3.3e-7, 256.0, 1.2e-38, 3e38):
        scale = np.float32(value)
        mantissa, shift = exact.multiplier(scale)
        assert 2**23 <= mantissa < 2**24
        assert exact.fraction(scale) * 2**150 == mantissa * 2 ** (150 - shift)


@pytest.mark.parametrize("value", [0.0, -0.5, float("nan"), float("inf"), 1e-40, 0.1])
def test_bad_scales_are_refused(value: float) -> None:
    with pytest.raises(exact.NumericsError):
        exact.multiplier(value)


def test_a_denormal_product_rounds_every_accumulator_to_the_zero_point() -> None:
    """S below the normal numbers is replaced by the smallest of them: no int32 accumulator tells them apart."""
    scale = reference.scale_product(np.float32(1e-20), np.float32(1e-20), np.float32(1.0))
    assert scale == np.finfo(np.float32).tiny
    acc = np.asarray([-(2**31), -1, 0, 1, 2**31 - 1])
    for s in (scale, np.float32(1e-40), np.float32(0)):
        assert (np.rint(acc.astype(np.float32) * s) == 0).all()
    assert (reference.requantize(acc[:, None], np.atleast_1d(scale), 7, -128, 127) == 7).all()


def test_multiply_high_twins(kernels: Kernels) -> None:
    rng = np.random.default_rng(3)
    n = 300_000
    corner = np.array([0, 1, -1, 65535, 65536, -65536, 2**31 - 1, -(2**31), 0x7FFF0000, 0xFFFF, -0x7FFF8000])
    a = np.concatenate([rng.integers(*INT32, n), np.repeat(corner, len(corner))])
    m = np.concatenate([rng.integers(0, INT32[1], n), np.abs(np.tile(corner, len(corner))).clip(0, INT32[1])])
    product = (a * m) >> 32
    total = rng.integers(-(2**29), 2**29, len(a))
    assert np.array_equal(kernels.add_mulhi(total, a, m), total + product)
