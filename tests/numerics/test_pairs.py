"""Add, Sub, Mul on all 65,536 pairs and AveragePool on its sums: reference, numpy form and C are equal."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import Kernels

from codegen.numerics import linear, pairs, reference
from codegen.numerics.exact import NumericsError

A, B = np.arange(-128, 128)[:, None], np.arange(-128, 128)[None, :]
ZERO_POINTS = (-128, -3, 0, 127)


def f32(value: float) -> float:
    return float(np.float32(value))


def quants(rng: np.random.Generator, kind: str) -> tuple[reference.Quant, reference.Quant, reference.Quant]:
    """(a, b, y) scales of one class with zero points at and between the ends."""
    z = [int(rng.choice([*ZERO_POINTS, int(rng.integers(-128, 128))])) for _ in range(3)]
    if kind == "ordinary":
        s = np.exp(rng.uniform(-7, -2, 3))
    elif kind == "powers of two":
        s = 2.0 ** -rng.integers(0, 12, 3)
    elif kind == "decimal":
        s = rng.choice([0.01, 0.02, 0.05, 0.1, 0.25, 1.0], 3)
    elif kind == "ties":
        s = np.exp(rng.uniform(-7, -2)) * np.array([1, 1, 2])
    elif kind == "unequal":
        s = np.exp(rng.uniform(-15, 15, 3))
    elif kind == "huge":
        s = np.array([1e12 * (1 + rng.integers(0, 3) * 2.0**-20), 1e12, 1.0])
    else:
        s = np.exp(rng.uniform(-60, 60, 3))
    return tuple((f32(scale), zero) for scale, zero in zip(s, z, strict=True))  # type: ignore[return-value]


KINDS = ("ordinary", "powers of two", "decimal", "ties", "unequal", "huge", "absurd")


@pytest.mark.parametrize("kind", KINDS)
def test_add_and_sub(kind: str, kernels: Kernels) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for turn in range(6):
        qa, qb, qy = quants(rng, kind)
        sign, (lo, hi) = (1, -1)[turn % 2], ((-128, 127), (min(qy[1], 99), 100))[turn // 2 % 2]
        params = pairs.fit_add(qa, qb, qy, lo, hi, sign_b=sign)
        want = reference.add(A, B, qa, qb, qy, lo=lo, hi=hi, sign_b=sign)
        assert np.array_equal(params.apply(A, B), want)
        assert np.array_equal(kernels.add(A, B, params), want)


@pytest.mark.parametrize("kind", KINDS)
def test_mul(kind: str, kernels: Kernels) -> None:
    rng = np.random.default_rng(10 + KINDS.index(kind))
    for turn in range(6):
        qa, qb, qy = quants(rng, kind)
        lo, hi = ((-128, 127), (min(qy[1], 99), 100))[turn % 2]
        params = pairs.fit_mul(qa, qb, qy, lo, hi)
        want = reference.mul(A, B, qa, qb, qy, lo=lo, hi=hi)
        assert np.array_equal(params.apply(A, B), want)
        assert np.array_equal(kernels.mul(A, B, params), want)


@pytest.mark.parametrize("kind", ["ordinary", "powers of two", "decimal", "unequal"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 49, 64, 1000])
def test_average(kind: str, count: int, kernels: Kernels) -> None:
    rng = np.random.default_rng(count)
    for same in (True, False):
        qx, _, qy = quants(rng, kind)
        qy = qx if same else qy
        params = linear.fit_average(qx, qy, count)
        sums = np.arange(count * (-128 - qx[1]), count * (127 - qx[1]) + 1)
        want = reference.average(sums, count, qx, qy)
        assert np.array_equal(params.apply(sums), want)
        assert np.array_equal(kernels.linear(sums, params), want)


def test_average_of_equal_scales_is_half_to_even() -> None:
    sums = np.arange(-510, 511)
    codes = reference.average(sums, 2, (f32(0.1), 0), (f32(0.1), 0))
    assert np.array_equal(codes, np.clip(np.rint(sums / 2), -128, 127))


def test_add_reference_is_the_exact_sum() -> None:
    rng = np.random.default_rng(5)
    for kind, _ in itertools.product(KINDS, range(2)):
        qa, qb, qy = quants(rng, kind)
        codes = reference.add(A, B, qa, qb, qy)
        for a, b in rng.integers(-128, 128, (200, 2)):
            real = (int(a) - qa[1]) * Fraction(qa[0]) + (int(b) - qb[1]) * Fraction(qb[0])
            assert codes[a + 128, b + 128] == min(max(round(real / Fraction(qy[0])) + qy[1], -128), 127)


def test_mul_reference_is_the_exact_product() -> None:
    rng = np.random.default_rng(6)
    for kind in KINDS:
        qa, qb, qy = quants(rng, kind)
        codes = reference.mul(A, B, qa, qb, qy)
        for a, b in rng.integers(-128, 128, (200, 2)):
            real = (int(a) - qa[1]) * Fraction(qa[0]) * (int(b) - qb[1]) * Fraction(qb[0])
            assert codes[a + 128, b + 128] == min(max(round(real / Fraction(qy[0])) + qy[1], -128), 127)


def test_a_forced_exception_is_found(kernels: Kernels) -> None:
    """The exception lists work in C too: wrong constants become exceptions."""
    qa, qb, qy = (f32(0.0513), 3), (f32(0.0307), -7), (f32(0.0719), 5)
    good = pairs.fit_add(qa, qb, qy)
    table = pairs._tabulate(qa, qb, qy, lo=-128, hi=127, sign_b=1, total=False)
    bad = pairs._add_exceptions(pairs.replace(good, constant=good.constant + (1 << good.shift) // 20), table)
    assert bad.exceptions
    assert np.array_equal(kernels.add(A, B, bad), reference.add(A, B, qa, qb, qy))
    mul = pairs.fit_mul(qa, qb, qy)
    changed = linear.replace(mul.linear, rounding=mul.linear.rounding + (1 << mul.linear.right_shift) // 10)
    ratio = reference.mul_ratio(qa, qb, qy)
    listed = linear.replace(mul, linear=linear._with_exceptions(changed, ratio, -40000, 40000, 5, 0))
    assert listed.linear.exceptions
    assert np.array_equal(kernels.mul(A, B, listed), reference.mul(A, B, qa, qb, qy))


scale_values = st.floats(2.0**-60, 2.0**60, width=32)
codes = st.integers(-128, 127)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(scale_values, codes),
    st.tuples(scale_values, codes),
    st.tuples(scale_values, codes),
    st.sampled_from([1, -1]),
)
def test_any_scales_fit(qa: reference.Quant, qb: reference.Quant, qy: reference.Quant, sign: int) -> None:
    want = reference.add(A, B, qa, qb, qy, sign_b=sign)
    assert np.array_equal(pairs.fit_add(qa, qb, qy, sign_b=sign).apply(A, B), want)
    assert np.array_equal(pairs.fit_mul(qa, qb, qy).apply(A, B), reference.mul(A, B, qa, qb, qy))


@pytest.mark.parametrize("bad", [(0.0, 0), (0.1, 0), (f32(0.1), 128), (float("inf"), 0), (-1.0, 0), (1e-45, 0)])
def test_refusals(bad: reference.Quant) -> None:
    good = (0.5, 0)
    for triple in ((bad, good, good), (good, bad, good), (good, good, bad)):
        with pytest.raises(NumericsError):
            pairs.fit_add(*triple)
        with pytest.raises(NumericsError):
            pairs.fit_mul(*triple)
    with pytest.raises(NumericsError):
        pairs.fit_add(good, good, good, 5, 4)


@pytest.mark.parametrize("zeros", [(0, 0, 0), (1, 2, 3), (3, -5, 7), (0, 0, -1), (-128, 127, 127)])
@pytest.mark.parametrize("scales", [(0.5, 0.25, 1.0), (0.5, 0.5, 1.0), (0.25, 0.125, 0.5), (0.013, 0.0271, 0.031)])
def test_the_zero_point_before_the_rounding(
    kernels: Kernels, zeros: tuple[int, int, int], scales: tuple[float, float, float]
) -> None:
    """`total`: fractions for every fifth code, in the fitted forms and in C for all; odd ones tie otherwise."""
    qa, qb, qy = ((float(np.float32(s)), z) for s, z in zip(scales, zeros, strict=True))
    exact = [Fraction(q[0]) for q in (qa, qb, qy)]
    for kind in ("add", "sub", "mul"):
        sign = -1 if kind == "sub" else 1
        some = range(-128, 128, 5)
        want = np.empty((len(some), len(some)), np.int64)
        for (i, a), (j, b) in itertools.product(enumerate(some), repeat=2):
            left, right = (a - zeros[0]) * exact[0], (b - zeros[1]) * exact[1]
            real = (left * right if kind == "mul" else left + sign * right) / exact[2]
            want[i, j] = min(max(round(real + zeros[2]), -128), 127)
        if kind == "mul":
            got, params = reference.mul(A, B, qa, qb, qy, total=True), pairs.fit_mul(qa, qb, qy, total=True)
            run = kernels.mul(A, B, params)
        else:
            got = reference.add(A, B, qa, qb, qy, sign_b=sign, total=True)
            params = pairs.fit_add(qa, qb, qy, sign_b=sign, total=True)
            run = kernels.add(A, B, params)
        assert np.array_equal(np.asarray(got).reshape(256, 256)[::5, ::5], want), kind
        assert np.array_equal(params.apply(A, B), got) and np.array_equal(run, got), kind
