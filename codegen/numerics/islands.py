"""Real functions of two codes: y = Q(f(a) op g(b)) as sums or products of two small integer tables.

The literal float32 formula on all 65,536 pairs is the reference; the tables are fitted to it, and the few pairs that a
fit misses are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from codegen.numerics.exact import NumericsError
from codegen.numerics.reference import Int8Array, Int64Array, Quant, quantize

MAX_EXCEPTIONS = 256


@dataclass(frozen=True)
class IslandParams:
    """y = clamp((A[a] op B[b] + rounding) >> shift), op + or *; tables int32 (sum) or int16 (product), by code + 128.

    exceptions: ((a + 128) * 256 + b + 128, code), ascending.
    """

    product: bool
    table_a: Int64Array
    table_b: Int64Array
    rounding: int
    shift: int
    lo: int
    hi: int
    exceptions: tuple[tuple[int, int], ...] = ()

    def apply(self, a: Int64Array, b: Int64Array) -> Int8Array:
        """Codes of two code arrays; equal to rt_island_s8."""
        left, right = self.table_a[a + 128], self.table_b[b + 128]
        total = (left * right if self.product else left + right) + self.rounding
        codes = np.clip(total >> self.shift, self.lo, self.hi)
        for pair, code in self.exceptions:
            codes = np.where((a + 128) * 256 + b + 128 == pair, code, codes)
        result: Int8Array = codes.astype(np.int8)
        return result


def pair_table(kind: str, left: NDArray[np.float32], right: NDArray[np.float32], qy: Quant, lo: int, hi: int) -> Int8Array:
    """Reference codes [256, 256] of f(a) kind g(b), float32 throughout; `left`, `right` are f and g of all codes."""
    a, b = left[:, None].astype(np.float32), right[None, :].astype(np.float32)
    with np.errstate(all="ignore"):
        value = {"Add": a + b, "Sub": a - b, "Mul": a * b}[kind]
    return quantize(np.asarray(value, np.float32), qy, lo, hi)


def fit_island(
    kind: str, left: NDArray[np.float32], right: NDArray[np.float32], qy: Quant, lo: int = -128, hi: int = 127
) -> IslandParams:
    """Tables equal to `pair_table` on every pair. Raises NumericsError where more than MAX_EXCEPTIONS pairs differ."""
    wanted = pair_table(kind, left, right, qy, lo, hi)
    scale, zero = qy
    f, g = left.astype(np.float64), right.astype(np.float64) * (-1.0 if kind == "Sub" else 1.0)
    if not (np.isfinite(f).all() and np.isfinite(g).all()):
        raise NumericsError("a function that is infinite or undefined for some codes")
    best: IslandParams | None = None
    for params in _candidates(kind == "Mul", f, g, scale, zero, lo, hi):
        codes = np.arange(-128, 128)
        got = params.apply(np.repeat(codes, 256), np.tile(codes, 256)).reshape(256, 256)
        wrong = np.argwhere(got != wanted)
        found = replace(
            params, exceptions=tuple((int(i) * 256 + int(j), int(wanted[i, j])) for i, j in wrong[: MAX_EXCEPTIONS + 1])
        )
        if best is None or len(found.exceptions) < len(best.exceptions):
            best = found
        if not best.exceptions:
            break
    if best is None or len(best.exceptions) > MAX_EXCEPTIONS:
        raise NumericsError(f"no integer form of {kind} fits all pairs of codes")
    return best


def _candidates(product: bool, f: NDArray[np.float64], g: NDArray[np.float64], scale: float, zero: int, lo: int, hi: int):  # type: ignore[no-untyped-def]
    """Fits of falling precision that stay inside int32 (and int16 tables for products)."""
    if product:
        top_f, top_g = np.abs(f).max(initial=0.0) or 1.0, np.abs(g).max(initial=0.0) or 1.0
        bits_f, bits_g = int(np.floor(np.log2(32767 / top_f))), int(np.floor(np.log2(32767 / top_g)))
        factor = 2.0 ** (bits_f + bits_g) * scale
        shift = min(22, max(1, int(np.floor(np.log2(factor)))))
        # y = f g / scale = A B / (2^(bits) scale): fold what is not a power of two into A.
        gain = 2.0**shift / factor
        a = np.rint(f * 2.0**bits_f * min(gain, 1.0))
        b = np.rint(g * 2.0**bits_g)
        half = (1 << (shift - 1)) + (zero << shift)
        for nudge in (0, -1, 1):
            yield IslandParams(True, a.astype(np.int64), b.astype(np.int64), half + nudge, shift, lo, hi)
        return
    span = (np.abs(f).max(initial=0.0) + np.abs(g).max(initial=0.0)) / scale + 256.0
    most = min(22, int(np.floor(np.log2((2.0**31 - 1) / span))))
    for shift in range(most, max(most - 4, 0), -1):
        a = np.rint(np.clip(f / scale, -1e6, 1e6) * 2.0**shift)
        b = np.rint(np.clip(g / scale, -1e6, 1e6) * 2.0**shift)
        half = (1 << (shift - 1)) + (zero << shift)
        for nudge in (0, -1, 1):
            yield IslandParams(False, a.astype(np.int64), b.astype(np.int64), half + nudge, shift, lo, hi)
