"""The values that flow through the compiler: tensors, nodes, graphs. All frozen; passes return new ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, UINT8, CodeType
from codegen.ir.time import TimeGraph, TimeNode
from codegen.ir.view import View

if TYPE_CHECKING:
    from codegen.ir.op import Op

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class QParams:
    """real = scale * (code - zero_point). `scale` is a float32 value; codes and zero point are of `type`.

    Tensors that are uint8 in the model have codes and zero point less SHIFT; `unsigned` says so to the border.
    """

    scale: float
    zero_point: int
    unsigned: bool = False
    type: CodeType = INT8

    @property
    def border(self) -> CodeType:
        """The type of its codes in the model."""
        return UINT8 if self.unsigned else self.type

    def same_codes(self, other: QParams) -> bool:
        """Whether equal codes mean equal reals."""
        return self.scale == other.scale and self.zero_point == other.zero_point


@dataclass(frozen=True, eq=False)
class Const:
    """A constant. With `scale` set it is DequantizeLinear of `array` (integer codes); `axis` as in ONNX.

    `origin` is its name and shape in the file, for people.
    """

    array: Array
    scale: Array | None = None
    zero_point: Array | None = None
    axis: int = 0
    origin: str = ""

    @property
    def is_quantized(self) -> bool:
        return self.scale is not None

    def real(self) -> Array:
        """The real values, float32 as DequantizeLinear computes them (or the array itself)."""
        if self.scale is None:
            return self.array
        scale, zero = self.per_axis(self.scale), self.per_axis(self.zero())
        codes = self.array.astype(np.int64) - zero.astype(np.int64)
        return np.asarray(codes.astype(np.float32) * scale.astype(np.float32))

    def zero(self) -> Array:
        assert self.scale is not None
        return np.zeros(self.scale.shape, np.int32) if self.zero_point is None else self.zero_point

    def per_axis(self, values: Array) -> Array:
        """`values` (scalar or one per index of `axis`) shaped to broadcast against the array."""
        if values.size == 1:
            return values.reshape(())
        shape = [1] * self.array.ndim
        shape[self.axis] = values.size
        return values.reshape(shape)


@dataclass(frozen=True)
class Tensor:
    """A stored stream: `length` frames (for the traced clip length) of `frame_shape`, C order.

    An element is a code, or an int32 accumulator that goes straight to the caller.
    """

    name: str
    frame_shape: tuple[int, ...]
    length: int
    qparams: QParams | None = None
    onnx_name: str = ""
    type: CodeType = INT8

    @property
    def frame_elements(self) -> int:
        return prod(self.frame_shape)

    @property
    def frame_bytes(self) -> int:
        return self.frame_elements * self.type.bytes


@dataclass(frozen=True)
class Node:
    """One operation: inputs and output are tensor names; `onnx_name` and `path` say where it came from."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    output: str
    onnx_name: str = ""
    op_type: str = ""
    path: str = ""

    @property
    def works_on(self) -> str:
        """The tensor whose frames pace its work: its input where it accumulates over them, else its output."""
        return self.output if self.op.accumulator() is None else self.inputs[0]

    @property
    def where(self) -> str:
        """How messages and reports call the node: ONNX name, type, and the user's module path where the file has it."""
        text = f"{self.onnx_name or self.output} ({self.op_type or type(self.op).__name__})"
        return f"{text} at {self.path}" if self.path else text


@dataclass(frozen=True, eq=False)
class Decoding:
    """How a float output without QuantizeLinear is read from what the C writes.

    'table': values [256] by code + 128. 'accumulator': real = float32(acc) * values[channel], channels innermost.
    """

    kind: str
    values: Array


@dataclass(frozen=True)
class Port:
    """A graph input or output: its ONNX name, type and how its axes lie in the tensor's frames."""

    name: str
    view: View
    dtype: str
    shape: tuple[int | str, ...]
    qparams: QParams | None = None
    decoding: Decoding | None = None

    @property
    def tensor(self) -> str:
        return self.view.tensor

    @property
    def unsigned(self) -> bool:
        """Whether the codes at the border are uint8, also where nothing says what they mean."""
        return self.border == UINT8

    @property
    def border(self) -> CodeType:
        """The type of the codes that callers pass or get, also where nothing says what they mean."""
        return UINT8 if self.dtype == UINT8.name else self.qparams.border if self.qparams else INT8


@dataclass(frozen=True, eq=False)
class Carried:
    """A state tensor: input tensor `tensor` of a step is `source` of the step before, through `table` if scales differ.

    The first step reads frames of code `initial`.
    """

    name: str
    tensor: str
    source: str
    initial: int
    table: npt.NDArray[np.int8] | None = None


@dataclass(frozen=True)
class Graph:
    """A model as frames on a stream axis. `clip_length` is T where the model fixes it, None for an endless stream."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: dict[str, Tensor]
    nodes: tuple[Node, ...]
    clip_length: int | None
    notes: tuple[str, ...] = ()
    taps: dict[str, View] = field(default_factory=dict)
    carried: tuple[Carried, ...] = ()

    def sources(self) -> tuple[str, ...]:
        """Tensors that no node writes: inputs and carried state."""
        return tuple(port.tensor for port in self.inputs) + tuple(c.tensor for c in self.carried)

    def producer(self, tensor: str) -> Node | None:
        return next((node for node in self.nodes if node.output == tensor), None)

    def readers(self, tensor: str) -> list[Node]:
        return [node for node in self.nodes if tensor in node.inputs]

    def time_graph(self) -> TimeGraph:
        """The graph reduced to what happens on the stream axis."""
        nodes = tuple(
            TimeNode(n.name, n.op.rule(), tuple(dict.fromkeys(n.inputs)), n.output, n.op.running() is not None)
            for n in self.nodes
        )
        return TimeGraph(
            self.sources(),
            nodes,
            tuple(dict.fromkeys([p.tensor for p in self.outputs] + [c.source for c in self.carried])),
        )

    def with_nodes(self, nodes: Sequence[Node], tensors: dict[str, Tensor] | None = None) -> Graph:
        return replace(self, nodes=tuple(nodes), tensors=self.tensors if tensors is None else tensors)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


def prune(graph: Graph) -> Graph:
    """Drop operators and tensors that no output needs."""
    needed = {port.tensor for port in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(node.inputs)
    alive = needed | {port.tensor for port in graph.inputs}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in alive}
    taps = {name: view for name, view in graph.taps.items() if view.tensor in alive}
    return replace(graph, nodes=tuple(kept[::-1]), tensors=tensors, taps=taps)
