from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from codegen.codes import INT8, SHIFT, UINT8, shift_of
from codegen.errors import CodegenError, Problem, printable
from codegen.int8.code_params import code_params
from codegen.int8.contractions import constants_of, contraction_s8
from codegen.int8.expressions import (
    MOVES,
    Chain,
    Codes,
    Pending,
    RawInput,
    Real,
    chained,
    has_integer_form,
    kind_name,
    kind_of,
    renamed,
    selects,
    side_of,
    without_form,
)
from codegen.int8.moves import average_pool, moved
from codegen.int8.operands import affine, code_bounds, two_operands, with_constant_operand
from codegen.int8.outputs import output_port
from codegen.int8.products import FLOAT_HINT, FailedError, folded, product_s8
from codegen.int8.softmax import softmax_s8
from codegen.int8.tables import compared, grid_table
from codegen.int8.unary import function_of, is_clamp, with_constant
from codegen.int8.weights import NOTE as QUANTIZED
from codegen.ir.graph import Const, Graph, Node, Port, QParams, Tensor, prune
from codegen.ir.real import (
    Affine,
    Binary,
    Composite,
    Contract,
    Conv,
    ConvTranspose,
    DenseOverTime,
    Dequantize,
    EinsumChain,
    GlobalReduce,
    Pool,
    Quantize,
    Softmax,
    Unary,
)
from codegen.ir.time import Unstreamable
from codegen.ir.view import View
from codegen.numerics import reference as numeric
from codegen.numerics.exact import NumericsError
from codegen.ops.base import KernelOp
from codegen.ops.move import PadFrames, Truncate
from codegen.ops.pair import SelectS8
from codegen.ops.reduce import ReduceS8
from codegen.ops.table import LutS8

STAGE = "quantization"
FORM_HINT = "Replace it, or end the model before it (--cut-output) and compute the rest elsewhere"
TENSOR_HINT = "Quantize that tensor too: take the operator into op_types_to_quantize, or out of nodes_to_exclude"
WHOLE_HINT = "Use a causal form (forward only, statistics fixed at export), or one along an axis inside the frame"


def to_int8(graph: Graph) -> Graph:
    """Every tensor int8 with QParams. Raises CodegenError (3) with all operators that stay float."""
    builder = Int8Builder(graph)
    for node in graph.nodes:
        builder.run(node)
    outputs = [output_port(builder, port) for port in graph.outputs]
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


@dataclass
class Int8Builder:
    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reals: dict[str, Real | None] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    quantized_inputs: dict[str, QParams] = field(default_factory=dict)
    forced: dict[tuple[Real, QParams], str] = field(default_factory=dict)
    exact: dict[Real, Codes] = field(default_factory=dict)
    floats: int = 0

    def __post_init__(self) -> None:
        self.codes = code_params(self.graph)
        ports = {port.tensor for port in self.graph.inputs}
        self.raw_params = {
            node.inputs[0]: node.op.qparams
            for node in self.graph.nodes
            if isinstance(node.op, Quantize) and node.inputs[0] in ports
        }
        for port in self.graph.inputs:
            self.tensors[port.tensor] = self.graph.tensors[port.tensor]
            if port.dtype in (INT8.name, UINT8.name):
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
            self.reals[node.output] = chained(base, op)
        elif isinstance(op, Binary):
            self.reals[node.output] = self._bias_added(node) or self._pair(node, op)
        elif isinstance(op, Truncate):
            followed = Codes(self.code(node, node.inputs[1]), QParams(1.0, 0))
            self.reals[node.output] = Pending(node, (self.real(node.inputs[0]), followed))
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
                return chained(first, with_constant(op.kind, float(values[0]), op.swapped))
        if op.constant is None and len(operands) == 2:
            sides = [side_of(operand) for operand in operands]
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
        """Movement, pools and comparisons on quantized tensors, without a DequantizeLinear around them."""
        names = [self.code(node, x) for x in node.inputs]
        q = self.codes.get(node.output)
        operands = tuple(Codes(name, q or QParams(1.0, 0)) for name in names)
        border = q.border if q else next((p.border for p in self.graph.inputs if p.border == UINT8), INT8)
        shift = shift_of(border.dtype)
        op = node.op
        if isinstance(op, PadFrames):
            op = replace(op, code=int(op.value) - shift)
        made = moved(op, operands, self.tensors) or compared(op, shift)
        if made is None:
            self.fail(node, f"{node.op_type} on quantized codes", "DequantizeLinear -> operator -> QuantizeLinear")
            raise FailedError
        self.stored[node.output] = self.emit(made, names, q, node)

    def force(self, real: Real, q: QParams, node: Node) -> str:
        """The stored tensor that holds `real` quantized with `q`, made once; `node` is the QuantizeLinear."""
        if (real, q) not in self.forced:
            self.forced[real, q] = self._force(real, q, node)
        return self.forced[real, q]

    def _force(self, real: Real, q: QParams, node: Node) -> str:
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
        if isinstance(op, MOVES) or selects(op):
            return self._force_moved(real, functions, q, node)
        if isinstance(op, Binary) and op.constant is not None:
            return with_constant_operand(self, real, functions, q, node)
        if isinstance(op, Affine):
            return affine(self, real, op, functions, q, node)
        if isinstance(op, Binary) and op.kind in ("Max", "Min") and all(is_clamp(f) for f in functions):
            return self._force_selected(real, functions, q, node)
        bounds = code_bounds(self, functions, q, node)
        if isinstance(op, Binary):
            return two_operands(self, real, q, bounds, node)
        if isinstance(op, Contract | EinsumChain):
            return self._contracted(real, op, q, bounds, node)
        made = self._single(real, q, bounds, clamped=bool(functions))
        if made is None:
            self.unsupported(real.node)
            raise FailedError
        x = self.as_codes(real.operands[0], real.node)
        return self.emit(made, [x.tensor], q, renamed(real.node, node))

    def _single(self, real: Pending, q: QParams, bounds: tuple[int, int], clamped: bool) -> KernelOp | None:
        """The int8 form of an operator with one operand that rounds once, or None if there is none."""
        op = real.node.op
        if not isinstance(op, Conv | DenseOverTime | ConvTranspose | Pool | GlobalReduce | Softmax):
            return None
        x = self.as_codes(real.operands[0], real.node)
        if isinstance(op, Conv | DenseOverTime | ConvTranspose):
            return product_s8(self, real.node, op, x.q, q, bounds)
        if isinstance(op, Pool) and op.kind == "Average":
            return average_pool(op, self.tensors[x.tensor], self.graph.clip_length, x.q, q, bounds)
        if isinstance(op, GlobalReduce) and kind_of(op) in ("Mean", "Sum"):
            return ReduceS8(kind_of(op), op.block, op.over_time, op.frames, x.q, q, bounds)
        if isinstance(op, Softmax) and op.over_time:
            found = f"{op.kind} over the stream axis: every output frame reads the whole sequence"
            self.fail(
                real.node, found, "an axis inside the frame", "Take it after the stream, or name another --stream"
            )
            raise FailedError
        if isinstance(op, Softmax) and not clamped:
            return softmax_s8(op.kind, op.size, x.q, q)
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
        return self.emit(made, [codes.tensor for codes in operands], q, renamed(real.node, node))

    def note_quantized(self, node: Node) -> None:
        """Say once that a float constant was quantized here."""
        self.notes.append(f"{node.where}: float constant {QUANTIZED}")

    def _force_selected(self, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        """Max and Min commute with rounding, which is monotone: both operands are rounded first."""
        names = []
        for i, operand in enumerate(real.operands):
            value: Real = operand
            for function in functions:
                value = chained(value, function)
            names.append(self.force(value, q, replace(node, output=real.node.inputs[i])))
        op = real.node.op
        assert isinstance(op, Binary)
        return self.emit(SelectS8(op.kind), names, q, renamed(real.node, node))

    def _force_moved(self, real: Pending, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        """Movement commutes with rounding: move the codes of the operands, requantizing before or after."""
        op = real.node.op
        if selects(op) and not all(is_clamp(f) for f in functions):
            self.fail(real.node, "a function that is not monotone follows the pool unquantized", hint=FLOAT_HINT)
            raise FailedError
        first = real.operands[0]
        if isinstance(first, Codes) and len(real.operands) == 1 and not isinstance(op, PadFrames):
            made = moved(op, [first], self.tensors)
            assert made is not None
            exact = first.q.same_codes(q) and not functions
            out = self.emit(made, [first.tensor], first.q, real.node if not exact else renamed(real.node, node))
            return out if exact else self._table(Codes(out, first.q), functions, q, node)
        operands = []
        for i, operand in enumerate(real.operands):
            if isinstance(op, Truncate) and i == 1:  # only its length counts
                assert isinstance(operand, Codes)
                operands.append(operand)
                continue
            like = replace(node, output=real.node.inputs[i])
            value: Real = operand
            for function in functions:
                value = chained(value, function)
            operands.append(Codes(self.force(value, q, like), q))
        if isinstance(op, PadFrames):
            fill = op.value
            for function in functions:
                fill = float(np.float32(function_of(function)(fill)))
            op = replace(op, code=int(numeric.quantize(np.asarray([fill], np.float32), (q.scale, q.zero_point))[0]))
        made = moved(op, operands, self.tensors)
        assert made is not None
        return self.emit(made, [c.tensor for c in operands], q, renamed(real.node, node))

    def _bind_input(self, real: RawInput, q: QParams, node: Node) -> str:
        known = self.quantized_inputs.get(real.tensor)
        if known is None:
            self.quantized_inputs[real.tensor] = q
            self._set_qparams(real.tensor, q)
        elif not known.same_codes(q):
            found = f"the input is quantized twice, with scales {known.scale:g} and {q.scale:g}"
            if known.scale == q.scale:
                zeros = f"{known.zero_point} and {q.zero_point}"
                found = f"the input is quantized twice, with zero points {zeros} as int8: at the ends of their ranges"
                found += " the codes do not determine each other"
            self.fail(node, found, f"one scale and zero point per float input (int8, or uint8 with {SHIFT} more)")
            raise FailedError
        return real.tensor

    def _table(self, x: Codes, functions: tuple[Unary, ...], q: QParams, node: Node) -> str:
        chain = numeric.chain(*(function_of(f) for f in functions)) if functions else lambda v: v
        table = numeric.unary_table(chain, (x.q.scale, x.q.zero_point), (q.scale, q.zero_point))
        like = replace(node, op_type="+".join(f.kind for f in functions) or "Requantize")
        return self.emit(LutS8(table), [x.tensor], q, like)

    def as_codes(self, real: Real, node: Node) -> Codes:
        """`real` as codes without a QuantizeLinear: only where that is exact; made once for all its readers."""
        if real not in self.exact:
            self.exact[real] = self._as_codes(real, node)
        return self.exact[real]

    def _as_codes(self, real: Real, node: Node) -> Codes:
        if isinstance(real, Codes):
            return real
        if isinstance(real, Pending) and (isinstance(real.node.op, MOVES) or selects(real.node.op)):
            read = real.operands[:1] if isinstance(real.node.op, Truncate) else real.operands
            inner = [self.as_codes(operand, node) for operand in read]
            if all(c.q.same_codes(inner[0].q) for c in inner):
                return Codes(self.force(real, inner[0].q, real.node), inner[0].q)
        if isinstance(real, Chain) and isinstance(real.base, Codes):
            x, table = real.base, grid_table(real.base.q, real.functions)
            if table is not None:
                like = replace(node, output=x.tensor) if x.tensor in self.graph.tensors else node
                named = f"{x.tensor}/{real.functions[-1].kind}"
                return Codes(self.emit(LutS8(table), [x.tensor], x.q, like, named), x.q)
        if isinstance(real, RawInput) and real.tensor in self.raw_params:
            q = self.raw_params[real.tensor]
            text = f"{node.where}: input {real.tensor} is also read unquantized; its quantized value is used"
            if text not in self.notes:
                self.notes.append(text)
            return Codes(self._bind_input(real, q, node), q)
        if isinstance(real, RawInput | Chain) and self._floats_everywhere():
            self.fail(node, "the model is float: nothing quantizes its input", "QDQ or QLinear models", FLOAT_HINT)
            raise FailedError
        if isinstance(real, RawInput):
            found = f"it reads input {printable(real.tensor)}, which has no QuantizeLinear"
            self.floats += 1
            self.fail(node, found, "a QuantizeLinear behind every float input", "Quantize the input tensor too")
            raise FailedError
        blocking = without_form(real)
        if blocking is not None:
            self.unsupported(blocking)
        elif isinstance(real, Pending):
            self.unsupported(real.node, real, node)
        else:
            self.unsupported(self._computes(real) or node, real, node)
        raise FailedError

    def _computes(self, real: Real) -> Node | None:
        """The node of the file whose result an expression is."""
        tensor = next((name for name, value in self.reals.items() if value is real), None)
        return self.graph.producer(tensor) if tensor is not None else None

    def _floats_everywhere(self) -> bool:
        return not any(isinstance(node.op, Quantize) for node in self.graph.nodes)

    def unsupported(self, node: Node, real: Real | None = None, reader: Node | None = None) -> None:
        """Report an operator that would have to run in float; or that `reader` reads its result `real` unquantized."""
        self.floats += 1
        rule = node.op.rule()
        if isinstance(rule, Unstreamable):
            found = f"{rule.reason}: every output frame reads the whole sequence"
            self.fail(node, found, "`codegen ops` lists what streams", WHOLE_HINT)
        elif self._floats_everywhere():
            self.fail(node, "the model is float", "QDQ or QLinear models", FLOAT_HINT)
        elif not has_integer_form(node.op):
            found = f"{kind_name(node)} has no integer form"
            self.fail(node, found, "`codegen ops` lists what has one", FORM_HINT)
        elif real is not None:
            read = f"{reader.where} reads it" if reader and reader is not node else "the model returns it"
            found = f"its result {self._named(real, node)} has no QuantizeLinear, and {read}"
            self.fail(node, found, "a QuantizeLinear behind every operator that computes", TENSOR_HINT)
        else:
            found = f"{kind_name(node)} has no integer form together with what stands before its QuantizeLinear"
            self.fail(node, found, "`codegen ops` lists what has one", TENSOR_HINT)

    def _named(self, real: Real, node: Node) -> str:
        """The tensor of an expression, by its name in the file."""
        tensor = next((name for name, value in self.reals.items() if value is real), node.output)
        return printable(self.graph.tensors[tensor].onnx_name or tensor) if tensor in self.graph.tensors else tensor

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

    def input(self, port: Port) -> Port:
        return replace(port, qparams=self.tensors[port.tensor].qparams)
