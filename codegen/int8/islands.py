"""Pairs of functions of codes that no single product expresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Const, QParams
from codegen.numerics import reference as numeric
from codegen.numerics.islands import fit_island
from codegen.ops.pair import IslandS8, Reals
from codegen.ops.table import repetition

Function = Callable[[float], float]
MAX_PAIRS = 256  # `island_of` holds numbers of 8 bits


@dataclass(frozen=True)
class Side:
    """One operand: codes with QParams, a function, and possibly a constant per element in the middle."""

    q: QParams
    before: Function
    constant: Const | None
    apply: Callable[[float, float], float] | None

    def reals(self, value: float) -> Reals:
        """float32 values of all codes, with the element's constant."""
        codes = numeric.dequantize(numeric.CODES, (self.q.scale, self.q.zero_point))
        results = []
        for code in codes:
            inner = float(np.float32(self.before(float(code))))
            results.append(np.float32(self.apply(inner, value)) if self.apply else np.float32(inner))
        return np.asarray(results, np.float32)

    def values(self, size: int) -> npt.NDArray[np.float64]:
        """The constant of every element of a frame of `size`."""
        if self.constant is None:
            return np.zeros(size)
        return self.constant.real().astype(np.float64).reshape(-1)


def island_s8(kind: str, left: Side, right: Side, size: int, y: QParams, bounds: tuple[int, int]) -> IslandS8 | None:
    """Fit the tables of every distinct pair of functions in a frame of `size` elements; None beyond MAX_PAIRS of them.

    Raises NumericsError where a pair has no integer form.
    """
    pairs = np.stack([left.values(size), right.values(size)], axis=1)
    unique, index = np.unique(pairs, axis=0, return_inverse=True)
    if len(unique) > MAX_PAIRS:
        return None
    index = index.reshape(-1)
    reals = tuple((left.reals(float(a)), right.reals(float(b))) for a, b in unique)
    qy = (y.scale, y.zero_point)
    params = tuple(fit_island(kind, f, g, qy, *bounds) for f, g in reals)
    return IslandS8(kind, reals, params, index[: repetition(index)].astype(np.uint8), y, bounds)
