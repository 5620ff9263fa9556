"""Rounding parameters as constants: rt_requant_t, rt_linear_t and lists of exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.kernels.literals import typed
from codegen.kernels.structs import Array, Ref, Struct
from codegen.numerics.forms import RequantParams
from codegen.numerics.linear import LinearParams
from codegen.ops.base import Table

REQUANT_TABLES = {
    "multiplier": "M of p = ((acc << k) * M >> 32) + R",
    "rounding": "R of p, or the zero point",
    "left_shift": "k of p",
    "parity": "what odd boundaries differ by",
    "scale_bits": "float32 bits of S = x_scale * w_scale / y_scale",
}


def requantize(params: RequantParams) -> tuple[Struct, dict[str, Table]]:
    """rt_requant_t, and the per-channel tables that it points to."""
    values = params.tables()
    members: dict[str, Any] = {key: Ref(key) for key in REQUANT_TABLES if key in values}
    members |= {"window": params.window, "flip": params.flip, "zero_point": params.zero_point}
    members |= {"lo": params.lo, "hi": params.hi, "right_shift": params.right_shift, "form": f"RT_FORM_{params.form}"}
    return Struct("rt_requant_t", members), {key: typed(table, REQUANT_TABLES[key]) for key, table in values.items()}


def linear(p: LinearParams, exceptions: str = "exceptions") -> Struct:
    """rt_linear_t; `exceptions` is the C name of its list, used where there are any."""
    members: dict[str, Any] = {name: getattr(p, name) for name in ("multiplier", "rounding", "parity", "flip")}
    members |= listed(p.exceptions, exceptions)
    members |= {name: getattr(p, name) for name in ("lo", "hi", "left_shift", "right_shift")}
    return Struct("rt_linear_t", members)


def listed(pairs: Sequence[tuple[int, int]], name: str) -> Mapping[str, Any]:
    """The members of a struct that point to a list of exceptions."""
    return {"exceptions": name, "exception_count": len(pairs)} if pairs else {}


def exceptions(pairs: Sequence[tuple[int, int]], name: str = "exceptions") -> dict[str, Array]:
    """The list of a linear form, or nothing."""
    items = tuple(Struct("rt_exception_t", {"input": x, "code": code}) for x, code in pairs)
    return {name: Array("rt_exception_t", items)} if items else {}


def pair_exceptions(pairs: Sequence[tuple[int, int]], name: str = "exceptions") -> dict[str, Array]:
    """The list of a form of two codes, or nothing."""
    items = tuple(Struct("rt_add_exception_t", {"pair": pair, "code": code}) for pair, code in pairs)
    return {name: Array("rt_add_exception_t", items)} if items else {}


def folded(bias: npt.NDArray[np.int64], weights: npt.NDArray[np.integer[Any]], zero: int) -> npt.NDArray[np.int32]:
    """bias - zero point * sum of weights [Co, K], modulo 2^32 as the sum itself: kernels multiply raw codes."""
    sums = weights.astype(np.int64).sum(axis=1)
    wrapped: npt.NDArray[np.int32] = ((bias - zero * sums + (1 << 31)) % (1 << 32) - (1 << 31)).astype(np.int32)
    return wrapped
