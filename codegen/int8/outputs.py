from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from codegen.codes import INT8, INT32
from codegen.errors import Problem
from codegen.int8.expressions import Builder, Chain, Codes, Pending, Real
from codegen.int8.products import FLOAT_HINT, FailedError, accumulate_s8
from codegen.int8.softmax import softmax_s8
from codegen.int8.unary import function_of
from codegen.ir.graph import Decoding, Port, QParams
from codegen.ir.real import Conv, ConvTranspose, Softmax
from codegen.ir.view import View
from codegen.numerics import reference as numeric


def output_port(b: Builder, port: Port) -> Port | None:
    """A graph output: codes as they are, or the dequantized value of codes."""
    if port.tensor in b.stored:
        name = b.stored[port.tensor]
        return replace(port, view=View(name, port.view.axes), qparams=b.tensors[name].qparams)
    real = b.reals.get(port.tensor)
    if real is None:
        return None
    node = b.graph.producer(port.tensor)
    try:
        made = _float_output(b, port, real)
        if made is not None:
            return made
        codes = b.as_codes(real, node) if node else None
    except FailedError:
        return None
    if codes is None:
        b.problems.append(Problem(f"output {port.name}", "it is the unquantized input", hint=FLOAT_HINT))
        return None
    return replace(port, view=View(codes.tensor, port.view.axes), qparams=codes.q)


def _float_output(b: Builder, port: Port, real: Real) -> Port | None:
    """A real output that no QuantizeLinear rounds: a table of floats by code, or accumulators with scales."""
    if isinstance(real, Chain) and isinstance(real.base, Codes):
        q = real.base.q
        chain = numeric.chain(*(function_of(f) for f in real.functions))
        values = numeric.dequantize(numeric.CODES, (q.scale, q.zero_point))
        table = np.asarray([np.float32(chain(float(v))) for v in values], np.float32)
        view = View(real.base.tensor, port.view.axes)
        return replace(port, view=view, qparams=q, decoding=Decoding("table", table))
    if isinstance(real, Pending) and isinstance(real.node.op, Conv | ConvTranspose):
        op = real.node.op
        x = b.as_codes(real.operands[0], real.node)
        made = accumulate_s8(b, real.node, op, x.q)
        name = b.emit(made, [x.tensor], None, real.node)
        b.tensors[name] = replace(b.tensors[name], type=INT32)
        scales = np.resize(made.scales, made.weights.shape[0]).astype(np.float32)
        return replace(port, view=View(name, port.view.axes), decoding=Decoding("accumulator", scales))
    if isinstance(real, Pending) and isinstance(real.node.op, Softmax) and not real.node.op.over_time:
        return _softmax_output(b, port, real, real.node.op)
    return None


def _softmax_output(b: Builder, port: Port, real: Pending, op: Softmax) -> Port | None:
    """A float Softmax or LogSoftmax output: codes whose scale covers its range, within one code (declared)."""
    x = b.as_codes(real.operands[0], real.node)
    steps = INT8.count - 1
    if op.kind == "Softmax":
        q = QParams(1.0 / INT8.count, INT8.low)
    else:
        q = QParams(float(np.float32((steps * x.q.scale + math.log(op.size)) / steps)), INT8.high)
    made = softmax_s8(op.kind, op.size, x.q, q)
    if made is None:
        return None
    b.notes.append(f"{real.node.where}: its float output is given as int8 codes of scale {q.scale:.6g}")
    name = b.emit(made, [x.tensor], q, real.node)
    return replace(port, view=View(name, port.view.axes), qparams=q)
