"""Softmax on codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen.numerics.softmax import LogSoftmaxParams, SoftmaxParams
from codegen.ops.base import Codes, KernelOp


@dataclass(frozen=True, eq=False)
class SoftmaxS8(KernelOp):
    """Softmax or LogSoftmax over the innermost `size` codes, in integers: within one code of the real result.

    A declared deviation: `params.error_codes` bounds it.
    """

    kind: str
    size: int
    params: SoftmaxParams | LogSoftmaxParams

    def reference(self, xs: Sequence[Codes]) -> Codes:
        rows = xs[0].reshape(-1, self.size).astype(np.int64)
        return self.params.apply(rows).reshape(xs[0].shape)

    def describe(self) -> str:
        return f"over {self.size}, within {self.params.error_codes:.2g} codes before rounding"
