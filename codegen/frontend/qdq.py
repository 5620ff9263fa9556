"""Graph of reals between QuantizeLinear and DequantizeLinear -> graph of int8 operators.

A real tensor is kept as an expression until a QuantizeLinear asks for its codes; then the whole expression becomes one
int8 operator. Nothing else may turn a real into codes, so no float operator can slip through: what cannot be expressed
is an error that names its node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from codegen.errors import CodegenError, Problem
from codegen.frontend.load import printable
from codegen.frontend.products import FLOAT_HINT, FailedError, accumulate_s8, product_s8
from codegen.ir.graph import Const, Decoding, Graph, Node, Port, QParams, Tensor
from codegen.ir.time import Unstreamable
from codegen.ir.view import View
from codegen.numerics import reference as numeric
from codegen.numerics.exact import NumericsError
from codegen.ops import int8
from codegen.ops.base import KernelOp, Op
from codegen.ops.conv import Conv, DenseOverTime
from codegen.ops.einsum import EinsumChain, constants_of, contraction_s8
from codegen.ops.elementwise import Binary, Dequantize, Quantize, Unary
from codegen.ops.island import SelectS8, Side, island_s8
from codegen.ops.matmul import Contract
from codegen.ops.normalize import Affine, affine_tables, folded
from codegen.ops.pool import GlobalReduce, MaxPoolS8, Pool
from codegen.ops.reduce import AveragePoolS8, ReduceS8
from codegen.ops.resample import ConvTranspose, LastFrame, Resample
from codegen.ops.shape import Concat, Copy, PadFrames
from codegen.ops.softmax import Softmax
from codegen.ops.transposed import LastS8, UpsampleS8
from codegen.ops.unary import Composite, apply_pair, function_of, is_clamp, with_constant
from codegen.ops.weights import NOTE as QUANTIZED

STAGE = "quantization"
MOVES = (Copy, PadFrames, Concat, Resample, LastFrame)
WHOLE_HINT = "Use a causal form (forward only, statistics fixed at export), or one along an axis inside the frame"


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


def to_int8(graph: Graph) -> Graph:
    """Every tensor int8 with QParams. Raises CodegenError (3) with all operators that stay float."""
    builder = _Builder(graph)
    for node in graph.nodes:
        builder.run(node)
    outputs = [builder.output(port) for port in graph.outputs]
    for port, output in zip(graph.outputs, outputs, strict=True):
        if output is None and not builder.problems:
            found = "nothing on int8 codes computes it"
            builder.problems.append(Problem(f"output {printable(port.name)}", found, hint=FLOAT_HINT))
    if builder.problems:
        raise CodegenError(STAGE, builder.summary())
    inputs = [builder.input(port) for port in graph.inputs]
    taps = {
        name: View(builder.stored[view.tensor], view.axes)
        for name, view in graph.taps.items()
        if view.tensor in builder.stored
    }
    result = replace(
        graph,
        inputs=tuple(inputs),
        outputs=tuple(port for port in outputs if port),
        nodes=tuple(builder.nodes),
        tensors=builder.tensors,
        taps=taps,
        notes=(*graph.notes, *builder.notes),
    )
    return prune(result)


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


@dataclass
class _Builder:
    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reals: dict[str, Real | None] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    quantized_inputs: dict[str, QParams] = field(default_factory=dict)
    floats: int = 0

    def __post_init__(self) -> None:
        self.codes = _code_params(self.graph)
        ports = {port.tensor for port in self.graph.inputs}
        self.raw_params = {
            node.inputs[0]: node.op.qparams
            for node in self.graph.nodes
            if isinstance(node.op, Quantize) and node.inputs[0] in ports
        }
        for port in self.graph.inputs:
            self.tensors[port.tensor] = self.graph.tensors[port.tensor]
            if port.dtype in ("int8", "uint8"):
                self.stored[port.tensor] = port.tensor
                self._set_qparams(port.tensor, self.codes.get(port.tensor))
            else:
                self.reals[port.tensor] = RawInput(port.tensor)

    def _set_qparams(self, tensor: str, q: QParams | None) -> None:
        self.tensors[tensor] = replace(self.tensors[tensor], qparams=q)

    def fail(self, node: Node, found: str, allowed: str = "", hint: str = "") -> None:
        self.problems.append(Problem(node.where, found, allowed, hint))

    def run(self, node: Node) -> None:
        """One operator of the real graph."""
        try:
            self._run(node)
        except NumericsError as error:
            self.fail(node, str(error), hint="Calibrate the model again")
        except FailedError:
            self.reals[node.output] = None

    def _run(self, node: Node) -> None:
        op = node.op
        if isinstance(op, Quantize):
            self.stored[node.output] = self.force(self.real(node.inputs[0]), op.qparams, node)
        elif isinstance(op, Dequantize):
            self.reals[node.output] = Codes(self.code(node, node.inputs[0]), op.qparams)
        elif node.inputs[0] in self.stored:
            self._on_codes(node)
        elif isinstance(op, Unary):
            base = self.real(node.inputs[0])
            self.reals[node.output] = _chained(base, op)
        elif isinstance(op, Binary):
            self.reals[node.output] = self._bias_added(node) or self._pair(node, op)
        elif isinstance(op, Affine):
            self.reals[node.output] = self._normalized(node, op)
        else:
            self.reals[node.output] = Pending(node, tuple(self.real(x) for x in node.inputs))

    def _pair(self, node: Node, op: Binary) -> Real:
        """Two operands; a function of one tensor where both come from it, or where one is a single real constant."""
        operands = tuple(self.real(x) for x in node.inputs)
        first = operands[0]
        if op.constant is not None and not op.constant.is_quantized:
            values = np.unique(op.constant.array)
            if len(values) == 1:
                return _chained(first, with_constant(op.kind, float(values[0]), op.swapped))
        if op.constant is None and len(operands) == 2:
            sides = [_side(operand) for operand in operands]
            left, right = sides
            if left and right and left[0] is right[0] and (left[1] or right[1]):
                return Chain(left[0], (Composite(op.kind, (), left[1], right[1]),))
        return Pending(node, operands)

    def real(self, tensor: str) -> Real:
        value = self.reals.get(tensor)
        if value is None:
            if tensor in self.stored and tensor not in self.reals:
                found, allowed = "it holds codes, and is read as real numbers", "DequantizeLinear before its reader"
                self.problems.append(Problem(f"tensor {printable(tensor)}", found, allowed))
            raise FailedError
        return value

    def code(self, node: Node, tensor: str) -> str:
        if tensor not in self.stored:
            if self.reals.get(tensor) is None:
                raise FailedError
            self.fail(node, "it dequantizes a tensor that is not quantized", hint="Export the model again")
            raise FailedError
        return self.stored[tensor]

    def emit(self, op: KernelOp, inputs: Sequence[str], q: QParams | None, node: Node, name: str = "") -> str:
        out, count = name or node.output, 1
        while out in self.tensors:
            count += 1
            out = f"{name or node.output}#{count}"
        like = self.graph.tensors[node.output]
        self.tensors[out] = Tensor(out, like.frame_shape, like.length, q, like.onnx_name)
        self.nodes.append(Node(out, op, tuple(inputs), out, node.onnx_name, node.op_type, node.path))
        return out

    def _on_codes(self, node: Node) -> None:
        """Movement and pools on quantized tensors, without a DequantizeLinear around them."""
        names = [self.code(node, x) for x in node.inputs]
        q = self.codes.get(node.output)
        operands = tuple(Codes(name, q or QParams(1.0, 0)) for name in names)
        unsigned = q.unsigned if q else any(port.dtype == "uint8" for port in self.graph.inputs)
        op = node.op
        if isinstance(op, PadFrames):
            op = replace(op, code=int(op.value) - 128 if unsigned else int(op.value))
        moved = self._move(op, node, operands)
        if moved is None:
            self.fail(node, f"{node.op_type} on quantized codes", "DequantizeLinear -> operator -> QuantizeLinear")
            raise FailedError
        self.stored[node.output] = self.emit(moved, names, q, node)

    def _move(self, op: Op, node: Node, operands: Sequence[Codes]) -> KernelOp | None:
        """The int8 form of an operator that moves or selects codes of one scale."""
        if isinstance(op, Copy | PadFrames):
            return op
        if isinstance(op, Concat):
            return int8.ConcatS8(op.outer, op.sizes, op.inner)
        if isinstance(op, Resample):
            return UpsampleS8(op.time, op.frame_in, op.index)
        if isinstance(op, LastFrame):
            return LastS8(op.rule())
        if isinstance(op, Pool) and op.kind == "Max":
            return MaxPoolS8(op.geometry, self._channels(op, operands[0].tensor))
        if isinstance(op, GlobalReduce) and _selects(op):
            q = operands[0].q
            return ReduceS8(_kind(op), op.block, op.over_time, op.frames, q, q)
        return None

    def _channels(self, op: Pool, tensor: str) -> int:
        """Channels of a pool's frames: the last dimension of a stored frame may be another axis where there is one."""
        depth, width = op.geometry.size_in
        return self.tensors[tensor].frame_bytes // (depth * width)

    def force(self, real: Real, q: QParams, node: Node) -> str:
        """The stored tensor that holds `real` quantized with `q`; `node` is the QuantizeLinear."""
        if isinstance(real, Codes):
            return real.tensor if real.q.same_codes(q) else self._table(real, (), q, node)
        if isinstance(real, RawInput):
            return self._bind_input(real, q, node)
        if isinstance(real, Chain) and isinstance(real.base, Codes):
            return self._table(real.base, real.functions, q, node)
        functions = real.functions if isinstance(real, Chain) else ()
        base = real.base if isinstance(real, Chain) else real
        if isinstance(base, RawInput):
            self.fail(node, "it quantizes a function of the unquantized input", "the input itself is quantized")
            raise FailedError
        assert isinstance(base, Pending)
        return self._force_pending(base, functions, q, node)

    def _force_pending(self, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        op = real.node.op
        if isinstance(op, MOVES) or _selects(op):
            return self._force_moved(real, functions, q, node)
        if isinstance(op, Binary) and op.constant is not None:
            return self._with_constant(real, functions, q, node)
        if isinstance(op, Affine):
            return self._affine(real, op, functions, q, node)
        if isinstance(op, Binary) and op.kind in ("Max", "Min") and all(is_clamp(f) for f in functions):
            return self._force_selected(real, functions, q, node)
        bounds = self._bounds(functions, q, node)
        if isinstance(op, Binary):
            return self._binary(real, q, bounds, node)
        if isinstance(op, Contract | EinsumChain):
            return self._contracted(real, op, q, bounds, node)
        made = self._single(real, q, bounds, clamped=bool(functions))
        if made is None:
            self.unsupported(real.node)
            raise FailedError
        x = self.as_codes(real.operands[0], real.node)
        return self.emit(made, [x.tensor], q, _renamed(real.node, node))

    def _single(self, real: Pending, q: QParams, bounds: tuple[int, int], clamped: bool) -> KernelOp | None:
        """The int8 form of an operator with one operand that rounds once, or None if there is none."""
        op = real.node.op
        if not isinstance(op, Conv | DenseOverTime | ConvTranspose | Pool | GlobalReduce | Softmax):
            return None
        x = self.as_codes(real.operands[0], real.node)
        if isinstance(op, Conv | DenseOverTime | ConvTranspose):
            return product_s8(self, real.node, op, x.q, q, bounds)
        if isinstance(op, Pool) and op.kind == "Average":
            channels = self._channels(op, x.tensor)
            return average_pool(op, channels, self.tensors[x.tensor].length, self.graph.clip_length, x.q, q, bounds)
        if isinstance(op, GlobalReduce) and _kind(op) in ("Mean", "Sum"):
            return ReduceS8(_kind(op), op.block, op.over_time, op.frames, x.q, q, bounds)
        if isinstance(op, Softmax) and op.over_time:
            found = f"{op.kind} over the stream axis: every output frame reads the whole sequence"
            self.fail(
                real.node, found, "an axis inside the frame", "Take it after the stream, or name another --stream"
            )
            raise FailedError
        if isinstance(op, Softmax) and not clamped:
            return int8.softmax_s8(op.kind, op.size, x.q, q)
        return None

    def _contracted(
        self, real: Pending, op: Contract | EinsumChain, q: QParams, bounds: tuple[int, int], node: Node
    ) -> str:
        """MatMul and Einsum whose operands are activations (constants too): exact sums, one rounding."""
        operands = [self.as_codes(operand, real.node) for operand in real.operands]
        params = [codes.q for codes in operands]
        try:
            made = contraction_s8(op, params, q, bounds)
        except NumericsError as error:
            self.fail(real.node, str(error), hint="Sum over fewer elements, or calibrate again")
            raise FailedError from error
        if any(not constant.is_quantized for constant in constants_of(op)):
            self.note_quantized(real.node)
        return self.emit(made, [codes.tensor for codes in operands], q, _renamed(real.node, node))

    def note_quantized(self, node: Node) -> None:
        """Say once that a float constant was quantized here."""
        self.notes.append(f"{node.where}: float constant {QUANTIZED}")

    def _force_selected(self, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        """Max and Min commute with rounding, which is monotone: both operands are rounded first."""
        names = []
        for i, operand in enumerate(real.operands):
            chained = operand
            for function in functions:
                chained = _chained(chained, function)
            names.append(self.force(chained, q, replace(node, output=real.node.inputs[i])))
        op = real.node.op
        assert isinstance(op, Binary)
        return self.emit(SelectS8(op.kind), names, q, _renamed(real.node, node))

    def _force_moved(self, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        """Movement commutes with rounding: move the codes of the operands, requantizing before or after."""
        op = real.node.op
        if _selects(op) and not all(is_clamp(f) for f in functions):
            self.fail(real.node, "a function that is not monotone follows the pool unquantized", hint=FLOAT_HINT)
            raise FailedError
        first = real.operands[0]
        if isinstance(first, Codes) and len(real.operands) == 1 and not isinstance(op, PadFrames):
            moved = self._move(op, real.node, [first])
            assert moved is not None
            exact = first.q.same_codes(q) and not functions
            out = self.emit(moved, [first.tensor], first.q, real.node if not exact else _renamed(real.node, node))
            return out if exact else self._table(Codes(out, first.q), functions, q, node)
        operands = []
        for i, operand in enumerate(real.operands):
            like = replace(node, output=real.node.inputs[i])
            chained = operand
            if functions:
                for function in functions:
                    chained = _chained(chained, function)
            operands.append(Codes(self.force(chained, q, like), q))
        if isinstance(op, PadFrames):
            value = op.value
            for function in functions:
                value = float(np.float32(function_of(function)(value)))
            op = replace(op, code=int(numeric.quantize(np.asarray([value], np.float32), (q.scale, q.zero_point))[0]))
        moved = self._move(op, real.node, operands)
        assert moved is not None
        return self.emit(moved, [c.tensor for c in operands], q, _renamed(real.node, node))

    def _bind_input(self, real: RawInput, q: QParams, node: Node) -> str:
        known = self.quantized_inputs.get(real.tensor)
        if known is not None and not known.same_codes(q):
            found = f"the input is quantized twice, with scales {known.scale:g} and {q.scale:g}"
            self.fail(node, found, "one QuantizeLinear per float input")
            raise FailedError
        self.quantized_inputs[real.tensor] = q
        self._set_qparams(real.tensor, q)
        return real.tensor

    def _table(self, x: Codes, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        chain = numeric.chain(*(function_of(f) for f in functions)) if functions else lambda v: v
        table = numeric.unary_table(chain, (x.q.scale, x.q.zero_point), (q.scale, q.zero_point))
        like = replace(node, op_type="+".join(f.kind for f in functions) or "Requantize")
        return self.emit(int8.LutS8(table), [x.tensor], q, like)

    def as_codes(self, real: Real, node: Node) -> Codes:
        """`real` as codes without a QuantizeLinear: only where that is exact."""
        if isinstance(real, Codes):
            return real
        if isinstance(real, Pending) and (isinstance(real.node.op, MOVES) or _selects(real.node.op)):
            inner = [self.as_codes(operand, node) for operand in real.operands]
            if all(c.q.same_codes(inner[0].q) for c in inner):
                return Codes(self.force(real, inner[0].q, real.node), inner[0].q)
        if isinstance(real, Chain) and isinstance(real.base, Codes) and self._stays_on_grid(real):
            like = replace(node, output=real.base.tensor) if real.base.tensor in self.graph.tensors else node
            named = f"{real.base.tensor}/{real.functions[-1].kind}"
            q = real.base.q
            chain = numeric.chain(*(function_of(f) for f in real.functions))
            table = numeric.unary_table(chain, (q.scale, q.zero_point), (q.scale, q.zero_point))
            return Codes(self.emit(int8.LutS8(table), [real.base.tensor], q, like, named), q)
        if isinstance(real, RawInput) and real.tensor in self.raw_params:
            q = self.raw_params[real.tensor]
            text = f"{node.where}: input {real.tensor} is also read unquantized; its quantized value is used"
            if text not in self.notes:
                self.notes.append(text)
            return Codes(self._bind_input(real, q, node), q)
        if isinstance(real, RawInput | Chain) and self._floats_everywhere():
            self.fail(node, "the model is float: nothing quantizes its input", "QDQ or QLinear models", FLOAT_HINT)
            raise FailedError
        source = real.node if isinstance(real, Pending) else node
        self.unsupported(source)
        raise FailedError

    def _stays_on_grid(self, real: Chain) -> bool:
        assert isinstance(real.base, Codes)
        q = (real.base.q.scale, real.base.q.zero_point)
        chain = numeric.chain(*(function_of(f) for f in real.functions))
        table = numeric.unary_table(chain, q, q)
        values = numeric.dequantize(numeric.CODES, q)
        wanted = np.asarray([np.float32(chain(float(v))) for v in values], np.float32)
        return bool(np.array_equal(numeric.dequantize(table.astype(np.int64), q), wanted))

    def _floats_everywhere(self) -> bool:
        return not any(isinstance(node.op, Quantize) for node in self.graph.nodes)

    def unsupported(self, node: Node) -> None:
        """Report an operator that would have to run in float."""
        self.floats += 1
        rule = node.op.rule()
        if isinstance(rule, Unstreamable):
            found = f"{rule.reason}: every output frame reads the whole sequence"
            self.fail(node, found, "`codegen ops` lists what streams", WHOLE_HINT)
        elif self._floats_everywhere():
            self.fail(node, "the model is float", "QDQ or QLinear models", FLOAT_HINT)
        else:
            found = f"{node.op_type or type(node.op).__name__} cannot run on int8 codes here"
            self.fail(
                node, found, "`codegen ops` lists what can, between DequantizeLinear and QuantizeLinear", FLOAT_HINT
            )

    def summary(self) -> list[Problem]:
        """All problems, or one line instead of a hundred for a float model."""
        if self._floats_everywhere() and self.floats:
            return [
                Problem(self.graph.name, "the model is float: it has no QuantizeLinear", "quantized models", FLOAT_HINT)
            ]
        seen: dict[str, Problem] = {}
        for problem in self.problems:
            seen.setdefault(str(problem), problem)
        return list(seen.values())

    def _bounds(self, functions: Sequence[Unary], q: QParams, node: Node) -> tuple[int, int]:
        """Code bounds of the Relu and Clip between an operator and its QuantizeLinear (rounding is monotone)."""
        lo, hi = -128, 127
        for function in functions:
            if not is_clamp(function):
                found = f"{function.kind} between an operator and QuantizeLinear runs in float"
                hint = "Quantize its input too (QuantizeLinear and DequantizeLinear before it)"
                self.fail(node, found, "Relu and Clip may stand there", hint)
                raise FailedError
            clamp = function_of(function)
            ends = numeric.dequantize(np.asarray([lo, hi], np.int64), (q.scale, q.zero_point)).astype(np.float64)
            wide = [-np.inf if lo == -128 else ends[0], np.inf if hi == 127 else ends[1]]
            values = np.asarray([np.float32(clamp(v)) for v in wide], np.float32)
            lo, hi = (int(v) for v in numeric.quantize(values, (q.scale, q.zero_point)))
        return lo, hi

    def _bias_added(self, node: Node) -> Pending | None:
        """MatMul + Add of a constant per channel: the constant is the bias."""
        op = node.op
        if not isinstance(op, Binary) or op.kind != "Add" or op.constant is None:
            return None
        base = self.real(node.inputs[0])
        if not isinstance(base, Pending) or not isinstance(base.node.op, Conv) or base.node.op.bias is not None:
            return None
        real = op.constant.real().reshape(-1, base.node.op.weights.array.shape[0])
        if not np.array_equal(real, np.broadcast_to(real[:1], real.shape)):
            return None
        codes = op.constant
        rows = codes.array.reshape(real.shape)[0]
        scale, zero = codes.scale, codes.zero_point
        bias = Const(rows, scale, zero, 0) if scale is not None and scale.size == 1 else Const(real[0])
        return Pending(replace(base.node, op=replace(base.node.op, bias=bias)), base.operands)

    def _normalized(self, node: Node, op: Affine) -> Pending:
        """BatchNormalization: part of the product before it where there is one."""
        base = self.real(node.inputs[0])
        if isinstance(base, Pending) and isinstance(base.node.op, Conv | ConvTranspose):
            product = folded(op, base.node.op)
            if product is not None:
                return Pending(replace(base.node, op=product), base.operands)
        return Pending(node, (base,))

    def _affine(self, real: Pending, op: Affine, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        """A linear function per channel: one table of 256 codes for each."""
        operand = real.operands[0]
        before = operand.functions if isinstance(operand, Chain) else ()
        x = self.as_codes(operand.base if isinstance(operand, Chain) else operand, real.node)
        made = affine_tables(op, x.q, q, before, functions)
        if made is None:
            hint = "Fold it into the layer before it when exporting"
            self.fail(real.node, f"{len(op.scale)} different channels", "at most 256 tables", hint)
            raise FailedError
        return self.emit(made, [x.tensor], q, _renamed(real.node, node))

    def _with_constant(self, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        """A constant operand per element: one table of 256 codes for each of its values."""
        op = real.node.op
        assert isinstance(op, Binary) and op.constant is not None
        operand = real.operands[0]
        before = operand.functions if isinstance(operand, Chain) else ()
        base = operand.base if isinstance(operand, Chain) else operand
        x = self.as_codes(base, real.node)
        made = int8.constant_tables(op.kind, x.q, q, op.constant, op.swapped, before, functions)
        if made is None:
            found = f"{op.kind} with {len(np.unique(op.constant.array))} different constants"
            self.fail(real.node, found, "at most 256 different constants")
            raise FailedError
        return self.emit(made, [x.tensor], q, _renamed(real.node, node))

    def _binary(self, real: Pending, q: QParams, bounds: tuple[int, int], node: Node) -> str:
        """Add, Sub, Mul of two tensors: exact on codes, or (functions of codes) an island of two tables."""
        op = real.node.op
        assert isinstance(op, Binary)
        if op.kind not in ("Add", "Sub", "Mul", "Sum") or len(real.operands) != 2:
            self.unsupported(real.node)
            raise FailedError
        kind = "Add" if op.kind == "Sum" else op.kind
        like = _renamed(real.node, node)
        exact = [self._exact(operand) for operand in real.operands]
        if exact[0] and exact[1]:
            made: KernelOp = int8.pair_s8(kind, exact[0].q, exact[1].q, q, bounds)
            return self.emit(made, [exact[0].tensor, exact[1].tensor], q, like)
        sides = [self._side(operand, real.node) for operand in real.operands]
        size = self.graph.tensors[real.node.output].frame_bytes
        made = island_s8(kind, sides[0][1], sides[1][1], size, q, bounds)
        return self.emit(made, [tensor for tensor, _ in sides], q, like)

    def _exact(self, real: Real) -> Codes | None:
        """The operand as codes where it is a stored tensor or moved codes."""
        if isinstance(real, Codes):
            return real
        if isinstance(real, RawInput) and real.tensor in self.raw_params:
            return self.as_codes(real, self.graph.nodes[0])
        moved = isinstance(real, Pending) and (isinstance(real.node.op, MOVES) or _selects(real.node.op))
        if moved and isinstance(real, Pending) and all(self._exact(operand) for operand in real.operands):
            return self.as_codes(real, real.node)
        return None

    def _side(self, real: Real, node: Node) -> tuple[str, Side]:
        """A real operand as a function of one stored tensor."""
        constant, apply = None, None
        if isinstance(real, Pending) and isinstance(real.node.op, Binary) and real.node.op.constant is not None:
            inner = real.node.op
            constant = inner.constant
            apply = partial(_swapped if inner.swapped else apply_pair, inner.kind)
            real = real.operands[0]
        functions = real.functions if isinstance(real, Chain) else ()
        codes = self.as_codes(real.base if isinstance(real, Chain) else real, node)
        before = numeric.chain(*(function_of(f) for f in functions)) if functions else _same
        return codes.tensor, Side(codes.q, before, constant, apply)

    def output(self, port: Port) -> Port | None:
        """A graph output: codes as they are, or the dequantized value of codes."""
        if port.tensor in self.stored:
            name = self.stored[port.tensor]
            return replace(port, view=View(name, port.view.axes), qparams=self.tensors[name].qparams)
        real = self.reals.get(port.tensor)
        if real is None:
            return None
        node = self.graph.producer(port.tensor)
        try:
            made = self._float_output(port, real)
            if made is not None:
                return made
            codes = self.as_codes(real, node) if node else None
        except FailedError:
            return None
        if codes is None:
            self.problems.append(Problem(f"output {port.name}", "it is the unquantized input", hint=FLOAT_HINT))
            return None
        return replace(port, view=View(codes.tensor, port.view.axes), qparams=codes.q)

    def _float_output(self, port: Port, real: Real) -> Port | None:
        """A real output that no QuantizeLinear rounds: a table of 256 floats, or accumulators with scales."""
        if isinstance(real, Chain) and isinstance(real.base, Codes):
            q = real.base.q
            chain = numeric.chain(*(function_of(f) for f in real.functions))
            values = numeric.dequantize(numeric.CODES, (q.scale, q.zero_point))
            table = np.asarray([np.float32(chain(float(v))) for v in values], np.float32)
            view = View(real.base.tensor, port.view.axes)
            return replace(port, view=view, qparams=q, decoding=Decoding("table", table))
        if isinstance(real, Pending) and isinstance(real.node.op, Conv):
            op = real.node.op
            x = self.as_codes(real.operands[0], real.node)
            made = accumulate_s8(self, real.node, op, x.q)
            name = self.emit(made, [x.tensor], None, real.node)
            self.tensors[name] = replace(self.tensors[name], element_bytes=4)
            scales = np.resize(made.scales, made.weights.shape[0]).astype(np.float32)
            return replace(port, view=View(name, port.view.axes), decoding=Decoding("accumulator", scales))
        if isinstance(real, Pending) and isinstance(real.node.op, ConvTranspose):
            found, allowed = "its result is a float output", "float outputs after Conv, Gemm and MatMul"
            self.fail(real.node, found, allowed, "Quantize in QDQ format, which quantizes its result too")
            raise FailedError
        if isinstance(real, Pending) and isinstance(real.node.op, Softmax) and not real.node.op.over_time:
            return self._softmax_output(port, real, real.node.op)
        return None

    def _softmax_output(self, port: Port, real: Pending, op: Softmax) -> Port | None:
        """A float Softmax or LogSoftmax output: codes whose scale covers its range, within one code (declared)."""
        x = self.as_codes(real.operands[0], real.node)
        if op.kind == "Softmax":
            q = QParams(1.0 / 256.0, -128)
        else:
            q = QParams(float(np.float32((255.0 * x.q.scale + math.log(op.size)) / 255.0)), 127)
        made = int8.softmax_s8(op.kind, op.size, x.q, q)
        if made is None:
            return None
        self.notes.append(f"{real.node.where}: its float output is given as int8 codes of scale {q.scale:.6g}")
        name = self.emit(made, [x.tensor], q, real.node)
        return replace(port, view=View(name, port.view.axes), qparams=q)

    def input(self, port: Port) -> Port:
        return replace(port, qparams=self.tensors[port.tensor].qparams)


def _renamed(node: Node, quantize: Node) -> Node:
    """The operator's own name and type on the tensor that its QuantizeLinear writes."""
    return replace(node, output=quantize.output)


def _code_params(graph: Graph) -> dict[str, QParams]:
    """QParams of every code tensor: from its QuantizeLinear or DequantizeLinear, carried over operators on codes."""
    known: dict[str, QParams] = {}
    for node in graph.nodes:
        if isinstance(node.op, Quantize):
            known[node.output] = node.op.qparams
        elif isinstance(node.op, Dequantize):
            known.setdefault(node.inputs[0], node.op.qparams)
    reals = {node.output for node in graph.nodes if isinstance(node.op, Dequantize)}
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            if isinstance(node.op, Quantize | Dequantize) or node.output in reals:
                continue
            names = [*node.inputs, node.output]
            q = next((known[name] for name in names if name in known), None)
            if q is None or not _carries(node, graph, reals):
                continue
            for name in names:
                if name not in known:
                    known[name] = q
                    changed = True
    return known


def _carries(node: Node, graph: Graph, reals: set[str]) -> bool:
    """Whether the node moves codes (its inputs are not reals)."""
    return isinstance(node.op, (*MOVES, Pool)) and not any(name in reals for name in node.inputs)


def _same(x: float) -> float:
    return x


def _swapped(kind: str, x: float, value: float) -> float:
    return apply_pair(kind, value, x)


def _selects(op: Op) -> bool:
    """Max and Min pick one of their codes: they commute with every monotone function."""
    return (isinstance(op, Pool) and op.kind == "Max") or (isinstance(op, GlobalReduce) and _kind(op) in ("Max", "Min"))


def _kind(op: GlobalReduce) -> str:
    """Mean, Sum, Max, Min, ... of an ONNX reduction's name."""
    return {"GlobalAveragePool": "Mean", "GlobalMaxPool": "Max"}.get(op.kind, op.kind.removeprefix("Reduce"))


def _side(real: Real) -> tuple[Codes, tuple[Unary, ...]] | None:
    if isinstance(real, Codes):
        return real, ()
    if isinstance(real, Chain) and isinstance(real.base, Codes):
        return real.base, real.functions
    return None


def _chained(real: Real, function: Unary) -> Chain:
    if isinstance(real, Chain):
        return Chain(real.base, (*real.functions, function))
    return Chain(real, (function,))


def average_pool(
    op: Pool, channels: int, length: int, clip: int | None, x: QParams, y: QParams, bounds: tuple[int, int]
) -> KernelOp:
    """AveragePool; where one window covers a whole clip, a running sum instead of a window of all its frames."""
    g = op.geometry
    d, w = g.depth, g.width
    whole = (w.taps, d.taps, g.time.taps) == (g.size_in[1], g.size_in[0], length) and g.size_out == (1, 1)
    unpadded = all((a.left, a.right, a.dilation) == (0, 0, 1) for a in (g.time, d, w))
    if clip is not None and length > 1 and whole and unpadded:
        block = (1, g.size_in[0] * g.size_in[1], channels)
        return ReduceS8("Average", block, True, length, x, y, bounds)
    return AveragePoolS8(g, channels, op.count_include_pad, x, y, bounds)
