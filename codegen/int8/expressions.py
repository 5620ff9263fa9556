from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from codegen.errors import Problem
from codegen.ir.graph import Graph, Node, QParams, Tensor
from codegen.ir.op import Op
from codegen.ir.real import (
    Affine,
    Binary,
    Concat,
    Contract,
    Conv,
    ConvTranspose,
    DenseOverTime,
    EinsumChain,
    GlobalReduce,
    LastFrame,
    Pool,
    Resample,
    Softmax,
    Unary,
)
from codegen.ops.base import KernelOp
from codegen.ops.move import Copy, PadFrames, Truncate

MOVES = (Copy, PadFrames, Truncate, Concat, Resample, LastFrame)


@dataclass(frozen=True, eq=False)
class Codes:
    """Exactly (codes - zero_point) * scale of a stored tensor."""

    tensor: str
    q: QParams


@dataclass(frozen=True, eq=False)
class RawInput:
    """A float graph input that nothing has quantized yet."""

    tensor: str


@dataclass(frozen=True, eq=False)
class Pending:
    """The real result of `node` on operands: a product, pair, pool, softmax or movement, not yet rounded to codes."""

    node: Node
    operands: tuple[Real, ...]


@dataclass(frozen=True, eq=False)
class Chain:
    """Unary functions applied to `base`, first one first."""

    base: Codes | RawInput | Pending
    functions: tuple[Unary, ...]


Real = Codes | RawInput | Pending | Chain


class Builder(Protocol):
    """The int8 graph under construction, as the modules that turn expressions into operators see it."""

    graph: Graph
    tensors: dict[str, Tensor]
    problems: list[Problem]
    notes: list[str]
    reals: dict[str, Real | None]
    stored: dict[str, str]
    raw_params: dict[str, QParams]

    def fail(self, node: Node, found: str, allowed: str = "", hint: str = "") -> None: ...

    def unsupported(self, node: Node, real: Real | None = None, reader: Node | None = None) -> None: ...

    def as_codes(self, real: Real, node: Node) -> Codes: ...

    def emit(self, op: KernelOp, inputs: Sequence[str], q: QParams | None, node: Node, name: str = "") -> str: ...


def renamed(node: Node, quantize: Node) -> Node:
    """The operator's own name and type on the tensor that its QuantizeLinear writes."""
    return replace(node, output=quantize.output)


def selects(op: Op) -> bool:
    """Max and Min pick one of their codes: they commute with every monotone function."""
    return (isinstance(op, Pool) and op.kind == "Max") or (
        isinstance(op, GlobalReduce) and kind_of(op) in ("Max", "Min")
    )


def kind_of(op: GlobalReduce) -> str:
    """Mean, Sum, Max, Min, ... of an ONNX reduction's name."""
    return {"GlobalAveragePool": "Mean", "GlobalMaxPool": "Max"}.get(op.kind, op.kind.removeprefix("Reduce"))


def side_of(real: Real) -> tuple[Codes, tuple[Unary, ...]] | None:
    if isinstance(real, Codes):
        return real, ()
    if isinstance(real, Chain) and isinstance(real.base, Codes):
        return real.base, real.functions
    return None


def chained(real: Real, function: Unary) -> Chain:
    if isinstance(real, Chain):
        return Chain(real.base, (*real.functions, function))
    return Chain(real, (function,))


def has_integer_form(op: Op) -> bool:
    """Whether a real operator can become an int8 one, its neighbours permitting."""
    if isinstance(op, Binary):
        return op.constant is not None or op.kind in ("Add", "Sub", "Mul", "Sum", "Max", "Min")
    if isinstance(op, Pool):
        return op.kind in ("Max", "Average")
    if isinstance(op, GlobalReduce):
        return kind_of(op) in ("Mean", "Sum", "Max", "Min")
    if isinstance(op, Softmax):
        return op.kind != "Hardmax"
    return isinstance(op, (Affine, Contract, Conv, ConvTranspose, DenseOverTime, EinsumChain, Unary, *MOVES))


def without_form(real: Real) -> Node | None:
    """The first operator inside an expression that has no integer form, if there is one."""
    if isinstance(real, Chain):
        return without_form(real.base)
    if not isinstance(real, Pending):
        return None
    inner = (without_form(operand) for operand in real.operands)
    return next((node for node in inner if node), None) or (None if has_integer_form(real.node.op) else real.node)


def kind_name(node: Node) -> str:
    """The operator as the file calls it."""
    return node.op_type or type(node.op).__name__
