"""The integer form of every operator that rounds int32 accumulators, with its proof."""

from __future__ import annotations

from functools import lru_cache

from codegen.numerics.prover import Proof, prove_layer
from codegen.ops.base import KernelOp


@lru_cache(maxsize=4096)
def proof_of(op: KernelOp, forms: str = "m4") -> Proof | None:
    """The cheapest form that equals the reference for every accumulator that can occur; None where nothing is rounded.

    Operators are immutable and compared by identity: each is proved once.
    """
    r = op.rounding()
    if r is None:
        return None
    return prove_layer(r.scale, r.acc_lo, r.acc_hi, r.zero_point, lo=r.lo, hi=r.hi, target=forms)
