"""Unary tables, softmax and log-softmax."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernels import Kernels

from codegen.numerics import reference
from codegen.numerics.exact import NumericsError
from codegen.numerics.softmax import fit_log_softmax, fit_softmax


def f32(value: float) -> float:
    return float(np.float32(value))


def test_table_is_dequantize_f_quantize() -> None:
    qx, qy = (f32(0.03), -5), (f32(1 / 128), 7)
    table = reference.unary_table(math.tanh, qx, qy)
    for code in range(-128, 128):
        x = np.float32(code + 5) * np.float32(0.03)
        y = np.float32(np.float32(math.tanh(float(x))) / np.float32(1 / 128))
        assert table[code + 128] == min(max(int(np.rint(y)) + 7, -128), 127)


def test_copy_relu_and_overflow() -> None:
    q = (f32(0.1), 3)
    assert reference.unary_table(float, q, q).tolist() == list(range(-128, 128))
    relu = reference.unary_table(lambda x: max(x, 0.0), q, q)
    assert relu.tolist() == [max(code, 3) for code in range(-128, 128)]
    assert reference.unary_table(math.exp, (f32(50.0), 0), q)[-1] == 127
    with pytest.raises(NumericsError, match="no value"):
        reference.unary_table(math.log, q, q)
    with pytest.raises(NumericsError, match="NaN"):
        reference.unary_table(lambda x: math.nan, q, q)


def test_chain_rounds_to_float32_in_between() -> None:
    function = reference.chain(lambda x: x / 3.0, lambda x: x * 3.0)
    assert function(1.0) == float(np.float32(float(np.float32(1 / 3)) * 3.0))


def test_lookup(kernels: Kernels) -> None:
    rng = np.random.default_rng(0)
    table, x = rng.integers(-128, 128, 256).astype(np.int8), np.arange(-128, 128, dtype=np.int8)
    assert np.array_equal(kernels.lut(x, table), table)


def rows(rng: np.random.Generator, length: int) -> np.ndarray:
    """Random, nearly constant, extreme and sorted rows."""
    x = rng.integers(-128, 128, (40, length))
    x[:10] = rng.integers(-3, 4, (10, length)) + rng.integers(-100, 100, (10, 1))
    x[10] = -128
    x[11] = 127
    x[12, :] = -128
    x[12, 0] = 127
    return x.astype(np.int8)


CASES = [
    (length, x_scale, y_scale, zero)
    for length in (1, 2, 10, 1000)
    for x_scale in (0.002, 0.05, 0.5)
    for y_scale, zero in ((1 / 256, -128), (1 / 255, -128), (0.01, -100), (1.0, 0))
]


@pytest.mark.parametrize(("length", "x_scale", "y_scale", "zero"), CASES)
def test_softmax(length: int, x_scale: float, y_scale: float, zero: int, kernels: Kernels) -> None:
    x = rows(np.random.default_rng(length), length)
    params = fit_softmax((f32(x_scale), 9), (f32(y_scale), zero), length)
    codes = kernels.softmax(x, params)
    assert np.array_equal(codes, params.apply(x))
    e = np.exp((x.astype(np.float64) - x.max(axis=1, keepdims=True)) * f32(x_scale))
    real = np.clip(e / e.sum(axis=1, keepdims=True) / f32(y_scale) + zero, -128.4, 127.4)
    assert np.abs(codes - real).max() <= 0.5 + params.error_codes
    assert np.abs(codes - np.rint(real)).max() <= 1
    assert params.error_codes < 0.6


@pytest.mark.parametrize(
    ("length", "x_scale", "y_scale", "zero"),
    [
        (length, x_scale, y_scale, zero)
        for length in (1, 2, 10, 1000)
        for x_scale in (0.002, 0.05, 0.5)
        for y_scale, zero in ((0.01, 127), (0.06, 127), (0.5, 100), (2.0, 127), (0.001, 127))
    ],
)
def test_log_softmax(length: int, x_scale: float, y_scale: float, zero: int, kernels: Kernels) -> None:
    x = rows(np.random.default_rng(length), length)
    params = fit_log_softmax((f32(x_scale), 9), (f32(y_scale), zero), length)
    codes = kernels.log_softmax(x, params)
    assert np.array_equal(codes, params.apply(x))
    d = (x.astype(np.float64) - x.max(axis=1, keepdims=True)) * f32(x_scale)
    real = np.clip((d - np.log(np.exp(d).sum(axis=1, keepdims=True))) / f32(y_scale) + zero, -128.4, 127.4)
    assert np.abs(codes - real).max() <= 0.5 + params.error_codes
    assert np.abs(codes - np.rint(real)).max() <= 1


def test_softmax_refusals() -> None:
    q = (f32(0.05), 0)
    for length, scale in ((10, 1e-7), (10, 1.5), (10**6, 1 / 256), (0, 1 / 256)):
        with pytest.raises(NumericsError):
            fit_softmax(q, (f32(scale), -128), length)
    with pytest.raises(NumericsError):
        fit_log_softmax(q, (f32(1e-9), 0), 10)
