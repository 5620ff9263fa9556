"""`Model` -> `Graph`: ONNX nodes become operators on frames; layout operators vanish into views.

Shapes are inferred here, with a concrete clip length, by each operator's own rule; shapes stored in the file are never
read. A model whose stream axis has no fixed length is lowered for two lengths, and the two graphs must agree: that is
how constants computed from the length (Slice ends, Reshape targets, pads) are known to mean the same for every length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen.codes import INT8, UINT8
from codegen.errors import IMPORT, CodegenError, Problem, printable, unsupported
from codegen.frontend import schema
from codegen.frontend.constants import fold
from codegen.frontend.crops import Lowered, Poison, TimedCrop, follow_lengths
from codegen.frontend.load import Model, OnnxNode, Value
from codegen.frontend.stream_axis import PinnedInput
from codegen.ir.graph import Const, Graph, Node, Port, Tensor
from codegen.ir.op import Op
from codegen.ir.real import Dequantize, Quantize
from codegen.ir.view import Axis, Piece, View, compact
from codegen.ops.move import Copy

# Beyond these a build takes minutes and gigabytes; what runs on a microcontroller is far below.
MAX_FRAME_ELEMENTS = 1 << 21
MAX_CLIP_ELEMENTS = 1 << 24
MAX_CLIP_FRAMES = 1 << 19
MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
LowerFunction = Callable[[OnnxNode, Sequence["View | Const | None"], "Lowering"], "Sequence[View | Const]"]


@dataclass
class Lowering:
    """What the per-operator functions work with: they read values and emit nodes."""

    model: Model
    endless: bool
    values: dict[str, Lowered] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timed: dict[str, OnnxNode] = field(default_factory=dict)
    crops: list[TimedCrop] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def is_read(self, name: str) -> bool:
        """Whether a node or an output of the model reads this value."""
        readers = [*(node.inputs for node in self.model.nodes), [value.name for value in self.model.outputs]]
        return bool(name) and any(name in names for names in readers)

    def tensor(self, view: View) -> Tensor:
        return self.tensors[view.tensor]

    def code_type(self, view: View) -> str | None:
        """'int8' or 'uint8' of codes, from their QuantizeLinear or graph input; None if the view holds reals."""

        producers = {node.output: node for node in self.nodes}
        name = view.tensor
        while name in producers:
            op = producers[name].op
            if isinstance(op, Quantize):
                return op.qparams.border.name
            if isinstance(op, Dequantize):
                return None
            name = producers[name].inputs[0]
        return next((v.dtype for v in self.model.inputs if v.name == name and v.dtype in (INT8.name, UINT8.name)), None)

    def new_tensor(self, name: str, frame_shape: Sequence[int], length: int) -> str:
        unique, count = name, 1
        while unique in self.tensors:
            count += 1
            unique = f"{name}#{count}"
        tensor = Tensor(unique, tuple(int(n) for n in frame_shape), int(length), onnx_name=name)
        _check_size(tensor, self.endless)
        self.tensors[unique] = tensor
        return unique

    def emit(
        self, op: Op, inputs: Sequence[str], frame_shape: Sequence[int], length: int, node: OnnxNode, name: str = ""
    ) -> str:
        """Append an operator; returns the tensor it writes."""
        if 0 in frame_shape:
            raise _empty(node, f"a frame of shape {list(frame_shape)}")
        out = self.new_tensor(name or node.outputs[0], frame_shape, length)
        title = node.name or node.outputs[0]
        self.nodes.append(Node(out, op, tuple(inputs), out, title, node.op_type, node.path))
        return out

    def arrange(self, view: View, order: Sequence[int], node: OnnxNode) -> View:
        """The view with its frame row-major over the ONNX axes `order`; a copy node is added where it isn't."""

        if view.is_compact(order) and self._covers(view):
            return view
        sizes = [int(np.prod([p.size for p in view.axes[i] if not p.is_time], dtype=np.int64)) for i in order]
        op = Copy(tuple(view.frame_pieces(order)))
        source = self.tensor(view)
        name = self.emit(op, [view.tensor], sizes, source.length, node, f"{node.outputs[0]}/copy")
        axes = list(view.axes)
        for i, axis in zip(order, compact(sizes), strict=True):
            time = [piece for piece in view.axes[i] if piece.is_time]
            axes[i] = (*time, *axis) if time else axis
        return View(name, tuple(axes))

    def _covers(self, view: View) -> bool:
        count = int(np.prod([p.size for axis in view.axes for p in axis if not p.is_time], dtype=np.int64))
        return count == self.tensor(view).frame_elements

    def elementwise(self, view: View, op: Op, node: OnnxNode) -> View:
        """Apply a pointwise operator; the result lies in memory as its input does."""
        source = self.tensor(view)
        return View(self.emit(op, [view.tensor], source.frame_shape, source.length, node), view.axes)


def check_one_stream(node: OnnxNode, views: Sequence[View]) -> None:
    """Refuse operands of which one is a stream along an axis that another holds whole in one frame, or not at all."""
    axes = sorted({view.time_axis for view in views if view.time_axis is not None})
    hint = "Name the stream axis of every input: --stream AXIS instead of INPUT:AXIS"
    if len(axes) > 1:
        found = f"its operands are streams along axes {', '.join(map(str, axes))}"
        raise unsupported(IMPORT, node.title, found, "one stream axis", hint)
    for view in views:
        if axes and view.time_axis is None and view.shape[axes[0]] > 1:
            found = f"one operand is a stream along axis {axes[0]}, another has all {view.shape[axes[0]]} steps at once"
            raise unsupported(IMPORT, node.title, found, "operands of one stream", hint)


def _check_size(tensor: Tensor, endless: bool) -> None:
    where, hint = f"tensor {printable(tensor.onnx_name)}", "Name another axis with --stream, or process smaller pieces"
    size = tensor.frame_elements
    if size > MAX_CLIP_ELEMENTS:
        raise unsupported(IMPORT, where, f"{size} elements in one frame", f"at most {MAX_FRAME_ELEMENTS}", hint)
    if not endless and tensor.length > MAX_CLIP_FRAMES:
        raise unsupported(IMPORT, where, f"a clip of {tensor.length} frames", f"at most {MAX_CLIP_FRAMES}", hint)
    if not endless and size * tensor.length > MAX_CLIP_ELEMENTS:
        found = f"{size * tensor.length} elements in a clip"
        raise unsupported(IMPORT, where, found, f"at most {MAX_CLIP_ELEMENTS}", hint)


def lower(
    model: Model, pinned: Sequence[PinnedInput], functions: dict[tuple[str, str], LowerFunction]
) -> tuple[Graph, list[Problem]]:
    """The model as a graph of real-valued and code operators, with all problems found on the way."""
    ctx = Lowering(model, endless=any(p.endless for p in pinned))
    for name, array in model.constants.items():
        ctx.values[name] = Const(array, origin=f"{name} {list(array.shape)}")
    inputs = [_input(ctx, p) for p in pinned]
    for node in model.nodes:
        _lower_node(ctx, node, functions)
    outputs = _outputs(ctx)
    clip = next((p.length for p in pinned if p.stream_axis is not None), 1)
    taps = {name: value for name, value in ctx.values.items() if isinstance(value, View)}
    graph = Graph(
        model.name,
        tuple(inputs),
        tuple(outputs),
        ctx.tensors,
        tuple(ctx.nodes),
        None if ctx.endless else clip,
        tuple(ctx.notes),
        taps,
    )
    if ctx.crops and not ctx.problems:
        return follow_lengths(graph, ctx.crops, ctx.values)
    return graph, ctx.problems


def _input(ctx: Lowering, pinned: PinnedInput) -> Port:
    shape, axis = pinned.shape, pinned.stream_axis
    order = pinned.frame_order or tuple(i for i in range(len(shape)) if i != axis)
    frame = [shape[i] for i in order]
    name = ctx.new_tensor(pinned.name, frame or [1], 1 if axis is None else shape[axis])
    axes: list[Axis] = [() for _ in shape]
    for i, pieces in zip(order, compact(frame), strict=True):
        axes[i] = pieces
    if axis is not None:
        axes[axis] = (Piece(shape[axis], None),)
    view = View(name, tuple(axes))
    ctx.values[pinned.name] = view
    return Port(pinned.name, view, pinned.dtype, pinned.declared)


def _lower_node(ctx: Lowering, node: OnnxNode, functions: dict[tuple[str, str], LowerFunction]) -> None:
    args = [ctx.values.get(name) if name else None for name in node.inputs]
    results: Sequence[Lowered] = []
    try:
        if any(isinstance(arg, Poison) for arg in args):
            pass
        else:
            results = _results(ctx, node, [arg for arg in args if not isinstance(arg, Poison)], functions)
    except CodegenError as error:
        ctx.problems.extend(error.problems)
    for i, name in enumerate(node.outputs):
        if name:
            ctx.values[name] = results[i] if i < len(results) else Poison()
            if ctx.endless and isinstance(ctx.values[name], Const) and _depends_on_length(ctx, node):
                ctx.timed[name] = node


def _depends_on_length(ctx: Lowering, node: OnnxNode) -> bool:
    """Whether a constant is computed from a shape of the stream."""
    return any(name in ctx.timed or isinstance(ctx.values.get(name), View) for name in node.inputs)


def _results(
    ctx: Lowering,
    node: OnnxNode,
    args: Sequence[View | Const | None],
    functions: dict[tuple[str, str], LowerFunction],
) -> Sequence[Lowered]:
    """What the node computes; where a contradictory file makes the operator's function stumble, an error."""
    try:
        folded = fold(node, args, ctx.model.opset)
        return folded if folded is not None else _call(ctx, node, args, functions)
    except MISFITS as error:
        text = str(error) or "an operand is missing, or constant where it must be computed"
        found = f"its inputs or attributes do not fit the operator ({type(error).__name__}: {printable(text[:300])})"
        raise unsupported(IMPORT, node.title, found, hint="Check the file with onnx.checker") from error


def _call(
    ctx: Lowering,
    node: OnnxNode,
    args: Sequence[View | Const | None],
    functions: dict[tuple[str, str], LowerFunction],
) -> Sequence[View | Const]:
    if "subgraph" in node.attrs.values():
        found = f"control flow: {node.op_type} holds a subgraph"
        hint = "Export without control flow, or build a part without it (--cut-input, --cut-output)"
        raise unsupported(IMPORT, node.title, found, "one graph without branches", hint)
    function = functions.get((node.domain, node.op_type))
    if function is None:
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        known = any(op == node.op_type for _, op in functions)
        found = f"operator {printable(name)} is not known" + (" in this domain" if known else "")
        hint = "Replace it, or build a part without it (--cut-input, --cut-output)"
        hint = "Use the standard operator" if known else hint
        raise unsupported(IMPORT, node.title, found, "`codegen ops` lists the supported operators", hint)
    schema.check(node, ctx.model.opset)
    results = function(node, args, ctx)
    empty = next((r.shape for r in results if isinstance(r, View) and 0 in r.shape), None)
    if empty is not None:
        raise _empty(node, f"its result of shape {list(empty)}")
    return results


def merged_axis(node: OnnxNode) -> CodegenError:
    """An operator that needs the stream axis by itself."""
    hint = "Keep it apart in the Reshape or Flatten before this node, or name another axis with --stream"
    return unsupported(
        IMPORT, node.title, "the stream axis is merged with another axis here", "an axis of its own", hint
    )


def summed_scales(node: OnnxNode) -> CodegenError:
    """A product whose weights have a scale per row: no integer sum over them exists."""
    hint = "Quantize per tensor, or with the output columns as the axis of the scales"
    return unsupported(IMPORT, node.title, "weight scales along the summed axis", "one scale per output column", hint)


def _empty(node: OnnxNode, what: str) -> CodegenError:
    return unsupported(IMPORT, node.title, f"{what} has a dimension of zero", "sizes of 1 and more", "Remove the layer")


def _contradiction(ctx: Lowering, value: Value, made: View) -> tuple[str, str] | None:
    """(declared, computed) where the file declares an output as something else than what the graph computes.

    A number for the endless axis is one length of many, as traced models have it.
    """
    dtype = ctx.code_type(made) or "float32"
    if value.dtype != dtype:
        return f"declared as {value.dtype}", f"the graph computes {dtype}"
    shape: list[int | str] = list(made.shape)
    if ctx.endless and made.time_axis is not None:
        shape[made.time_axis] = "T"
    if value.shape is None or (len(shape) == len(value.shape) and all(map(_agree, value.shape, shape))):
        return None
    return f"declared shape [{_dims(value.shape)}]", f"the graph computes [{_dims(shape)}]"


def _agree(declared: int | str, computed: int | str) -> bool:
    return isinstance(declared, str) or isinstance(computed, str) or declared == computed


def _dims(shape: Sequence[int | str]) -> str:
    return ", ".join(map(str, shape))


def _outputs(ctx: Lowering) -> list[Port]:
    ports = []
    for value in ctx.model.outputs:
        lowered = ctx.values.get(value.name)
        if isinstance(lowered, Const):
            found = "it is a constant, independent of the input"
            ctx.problems.append(Problem(f"output {printable(value.name)}", found, hint="Remove the output"))
        elif lowered is None:
            ctx.problems.append(Problem(f"output {printable(value.name)}", "no node computes it"))
        elif isinstance(lowered, View):
            contradiction = _contradiction(ctx, value, lowered)
            if contradiction:
                where, hint = f"output {printable(value.name)}", "Infer the shapes again, or remove the declared one"
                ctx.problems.append(Problem(where, *contradiction, hint))
            declared = value.shape or lowered.shape
            ports.append(Port(value.name, lowered, value.dtype, declared))
    return ports
