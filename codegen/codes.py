"""Types of codes: the integers that stand for reals in memory, and what C calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class CodeType:
    """Integers `low`..`high` of `bytes` each. `name` as numpy and ONNX spell it, `ctype` as C does."""

    name: str
    low: int
    high: int
    bytes: int
    ctype: str

    @property
    def count(self) -> int:
        """How many codes there are: the entries of a table over all of them, entry code - low."""
        return self.high - self.low + 1

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.name)

    def values(self) -> npt.NDArray[np.int64]:
        """All codes, ascending."""
        return np.arange(self.low, self.high + 1, dtype=np.int64)

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Codes of this type, each as likely as any other."""
        return rng.integers(self.low, self.high + 1, shape).astype(self.dtype)

    def holds(self, low: int, high: int) -> bool:
        """Whether low..high are codes of this type."""
        return self.low <= low and high <= self.high


INT8 = CodeType("int8", -128, 127, 1, "int8_t")
UINT8 = CodeType("uint8", 0, 255, 1, "uint8_t")
INT32 = CodeType("int32", -(2**31), 2**31 - 1, 4, "int32_t")

SHIFT = UINT8.low - INT8.low
"""A tensor that is uint8 in the model is stored as int8 codes: its own less SHIFT, as is its zero point."""


def shift_of(dtype: npt.DTypeLike) -> int:
    """How much less than in the model codes of a numpy type are stored."""
    return SHIFT if np.dtype(dtype) == UINT8.dtype else 0


def to_stored(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Codes as the model has them (int8 or uint8) -> as they are stored."""
    shift = shift_of(codes.dtype)
    return (codes.astype(np.int16) - shift).astype(INT8.dtype) if shift else codes


def from_stored(codes: npt.NDArray[Any], border: CodeType) -> npt.NDArray[Any]:
    """Codes as they are stored -> as a tensor of type `border` has them in the model."""
    return (codes.astype(np.int16) + SHIFT).astype(UINT8.dtype) if border == UINT8 else codes
