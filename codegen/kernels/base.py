"""What a kernel hands over for its operator's C: template, constant structs and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codegen.kernels.structs import Array, Struct, constant_bytes
from codegen.numerics.forms import RequantParams
from codegen.ops.base import KernelOp, Table
from codegen.plan.kernels import PORTABLE, Kernel, Target
from codegen.plan.rounding import proof_of

Constants = Mapping[str, Struct | Array]


@dataclass(frozen=True)
class Site:
    """Where a kernel runs, as the plan decided it.

    `streams`: for each operand the number of its stream in C (x0, x1, ...); `frame`: elements of an output frame;
    `backwards`: from the frame's last position to its first.
    """

    streams: tuple[int, ...] = (0,)
    frame: int = 0
    backwards: bool = False
    target: Target = PORTABLE


@dataclass(frozen=True)
class Emission:
    """How one operator becomes C.

    `headers` are the runtime's files that the model includes, `units` the C files beside those of the headers' names.
    `constants` are local to the node's function, `end_constants` to the one that runs when the sequence is over.
    `padding_frames`: frames of padding are frames of a code for it; else NULL. `tiled`: the stem of the functions that
    cut it into tiles, where it is cut. `operands`: so many of the node's inputs are read (None: all).
    """

    template: str
    headers: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    constants: Constants = field(default_factory=dict)
    end_constants: Constants = field(default_factory=dict)
    padding_frames: bool = True
    tiled: str = ""
    operands: int | None = None

    @property
    def struct_bytes(self) -> int:
        """Bytes of the constant structs on a 32-bit target."""
        return sum(constant_bytes(value) for value in (*self.constants.values(), *self.end_constants.values()))


class CKernel(Kernel):
    """A kernel with C text. `tiled` is the stem of the header that cuts it into tiles, where it can be cut."""

    tiled = ""

    def fits(self, op: Any, target: Target, tile: bool) -> str:
        return "it has no form in tiles" if tile and not self.tiled else ""

    def emit(self, op: Any, site: Site) -> Emission:
        raise NotImplementedError(self.name)


class ElementwiseKernel(CKernel):
    """Writes element i after its last read of element i of any operand, in rising order."""

    def lead(self, op: Any, operand: int) -> int:
        return 0


def proved(op: KernelOp, target: Target) -> RequantParams:
    """The rounding with the proof that it is the reference's."""
    proof = proof_of(op, target.forms)
    assert proof is not None
    return proof.params
