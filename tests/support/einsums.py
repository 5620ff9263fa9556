"""Random Einsum nodes between DequantizeLinear and QuantizeLinear, and their answer from numpy on exact integers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from codegen.frontend.onnx.einsum import parse
from codegen.frontend.onnx.labelled import cheapest_order
from codegen.numerics import reference as numeric

Array = npt.NDArray[Any]
LABELS = "abXcdY"


@dataclass(frozen=True)
class Operand:
    """Codes of one operand; `constant`: 'codes' (int8), 'float' (reals) or None (a graph input, stored as `perm`)."""

    codes: Array
    scale: float
    zero: int
    constant: str | None
    perm: tuple[int, ...]

    @property
    def exact(self) -> Array:
        return self.codes.astype(np.int64) - self.zero

    @property
    def real(self) -> Array:
        return (self.exact * np.float64(np.float32(self.scale))).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An equation with operands, and the parameters of its result."""

    equation: str
    operands: tuple[Operand, ...]
    y_scale: float
    y_zero: int

    def __repr__(self) -> str:
        parts = [f"{list(o.codes.shape)}{o.constant or ''}{list(o.perm)}" for o in self.operands]
        return f"'{self.equation}' of {', '.join(parts)}"


def random_case(r: random.Random, most: int = 3) -> Case:
    """1 to `most` operands, up to 6 labels of 1 to 4 steps, ellipsis, diagonals, broadcast, constants, permutations."""
    count = r.choice([n for n in (1, 2, 2, 2, 3) if n <= most])
    sizes = {label: r.choice([1, 2, 2, 3, 3, 4]) for label in LABELS}
    pool = r.sample(LABELS, r.randint(1, 6))
    dots = r.random() < 0.3
    lead = [r.randint(1, 3) for _ in range(r.randint(0, 2))] if dots else []
    terms, shapes = [], []
    for _ in range(count):
        labels = [r.choice(pool) for _ in range(r.randint(0, 4))]
        shape = [sizes[label] for label in labels]
        for i, label in enumerate(labels):
            if labels.count(label) == 1 and r.random() < 0.1:
                shape[i] = 1
        term = "".join(labels)
        if dots and r.random() < 0.8:
            at = r.randint(0, len(labels))
            mine = lead[r.randint(0, len(lead)) :]
            mine = [n if r.random() < 0.9 else 1 for n in mine]
            term = f"{term[:at]}...{term[at:]}"
            shape = [*shape[:at], *mine, *shape[at:]]
        terms.append(term)
        shapes.append(tuple(shape))
    equation = ("," if r.random() < 0.7 else " , ").join(terms)
    if r.random() < 0.75:
        seen = sorted({c for term in terms for c in term if c != "."})
        out = r.sample(seen, r.randint(0, len(seen)))
        if any("..." in term for term in terms):
            out.insert(r.randint(0, len(out)), "...")
        equation += f" -> {''.join(out)}" if r.random() < 0.3 else f"->{''.join(out)}"
    rng = np.random.default_rng(r.getrandbits(32))
    live = r.randrange(count)
    operands = []
    for i, shape in enumerate(shapes):
        constant = None if i == live or r.random() < 0.6 else r.choice(["codes", "float"])
        zero = 0 if constant else r.choice([0, -128, 127, 3, -77])
        codes = rng.integers(-128, 128, shape).astype(np.int8)
        perm = list(range(len(shape)))
        if r.random() < 0.4:
            r.shuffle(perm)
        operands.append(Operand(codes, float(np.float32(rng.uniform(0.01, 0.1))), zero, constant, tuple(perm)))
    real = np.einsum(equation.replace(" ", ""), *(o.real.astype(np.float64) for o in operands))
    y_scale = float(np.float32(max(float(np.abs(real).max(initial=0.0)), 1e-3) / r.choice([60, 100, 127, 200])))
    return Case(equation, tuple(operands), y_scale, r.choice([0, -5, 17, -128]))


def model_of(case: Case, opset: int = 17) -> onnx.ModelProto:
    """DequantizeLinear (Transpose) of every operand -> Einsum -> QuantizeLinear. Inputs x0, x1, ... and output y."""
    nodes: list[onnx.NodeProto] = []
    constants = []
    inputs = []
    names = []

    def const(name: str, value: Array) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    for i, o in enumerate(case.operands):
        stored = o.codes.transpose(o.perm)
        parameters = [const(f"s{i}", np.float32(o.scale)), const(f"z{i}", np.int8(o.zero))]
        if o.constant == "float":
            names.append(const(f"w{i}", o.real))
            continue
        if o.constant:
            const(f"x{i}", o.codes)
        else:
            inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.INT8, stored.shape))
        nodes.append(helper.make_node("DequantizeLinear", [f"x{i}", *parameters], [f"d{i}"]))
        names.append(f"d{i}")
        if not o.constant and o.perm != tuple(range(len(o.perm))):
            back = [int(k) for k in np.argsort(o.perm)]
            nodes.append(helper.make_node("Transpose", [f"d{i}"], [f"t{i}"], perm=back))
            names[-1] = f"t{i}"
    nodes.append(helper.make_node("Einsum", names, ["e"], equation=case.equation))
    last = [const("ys", np.float32(case.y_scale)), const("yz", np.int8(case.y_zero))]
    nodes.append(helper.make_node("QuantizeLinear", ["e", *last], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.INT8, None)
    graph = helper.make_graph(nodes, "einsum", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def feed_of(case: Case) -> dict[str, Array]:
    return {f"x{i}": o.codes.transpose(o.perm) for i, o in enumerate(case.operands) if o.constant is None}


def quantized(real: Array, axis: int | None) -> tuple[Array, Array]:
    """The written rule for float constants: symmetric int8 per index of `axis`; (codes, float32 scales)."""
    others = tuple(i for i in range(real.ndim) if i != axis)
    largest = np.abs(real.astype(np.float64)).max(axis=others if axis is not None else None, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    return np.clip(np.rint(real.astype(np.float64) / scale.astype(np.float64)), -127, 127).astype(np.int64), scale


def expected(case: Case) -> Array:
    """The codes by the written rules: exact integers from numpy.einsum, then one documented rounding."""
    e = parse(case.equation, [o.codes.shape for o in case.operands], "test")
    operands = [(_squeezed(o, labels)) for o, labels in zip(case.operands, e.operands, strict=True)]
    shape = tuple(e.sizes[label] for label in e.out)
    views = [i for i, o in enumerate(case.operands) if o.constant is None]
    y = (case.y_scale, case.y_zero)
    if len(operands) == 1:
        only = case.operands[0]
        x = (only.scale, only.zero)
        total = _sum([operands[0]], e.out)
        if set(operands[0][1]) <= set(e.out):
            codes = numeric.quantize(numeric.dequantize(total + only.zero, x), y)
        else:
            codes = numeric.average(total, 1, x, y)
        return np.broadcast_to(codes.reshape(_kept_shape(operands, e.out, shape)), shape)
    if len(views) == 1:
        return _with_constants(case, operands, views[0], e.out, shape)
    if len(operands) == 2:
        acc = _sum(operands, e.out)
        scales = [np.float32(o.scale) for o in case.operands]
        scale = numeric.scale_product(scales[0], np.asarray([scales[1]]), case.y_scale)
        return numeric.requantize(acc, scale, case.y_zero).reshape(shape)
    return _chained(case, operands, views, e.out, shape)


def _squeezed(o: Operand, labels: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Exact values without axes of one step."""
    kept = [i for i, n in enumerate(o.codes.shape) if n > 1]
    return o.exact.reshape([o.codes.shape[i] for i in kept]), tuple(labels[i] for i in kept)


def _sum(operands: list[tuple[Array, tuple[str, ...]]], out: tuple[str, ...]) -> Array:
    """numpy.einsum over labels; output labels that no operand has (one step) are left with size 1."""
    names = sorted({label for _, labels in operands for label in labels})
    parts: list[Any] = []
    for values, labels in operands:
        parts += [values, [names.index(label) for label in labels]]
    kept = [label for label in out if label in names]
    result = np.einsum(*parts, [names.index(label) for label in kept])
    sizes = iter(result.shape)
    return np.asarray(result).reshape([next(sizes) if label in kept else 1 for label in out])


def _kept_shape(
    operands: list[tuple[Array, tuple[str, ...]]], out: tuple[str, ...], shape: tuple[int, ...]
) -> list[int]:
    names = {label for _, labels in operands for label in labels}
    return [n if label in names else 1 for label, n in zip(out, shape, strict=True)]


def _with_constants(
    case: Case, operands: list[tuple[Array, tuple[str, ...]]], live: int, out: tuple[str, ...], shape: tuple[int, ...]
) -> Array:
    """One activation: several constants are one real constant; a float one has a scale per output row."""
    others = [i for i in range(len(operands)) if i != live]
    x_labels = set(operands[live][1])
    one = case.operands[others[0]]
    if len(others) == 1 and one.constant == "codes":
        values, labels = operands[others[0]]
        scale: Array = np.full([1] * len(out), np.float32(one.scale))
        acc = _sum([operands[live], (values, labels)], out)
    else:
        reals = []
        for i in others:
            o, (_, labels) = case.operands[i], operands[i]
            real = o.real.reshape([n for n in o.real.shape if n > 1])
            reals.append((real.astype(np.float64) if len(others) > 1 else real, labels))
        names = list(dict.fromkeys(label for _, labels in reals for label in labels))
        kept = tuple(label for label in names if label in x_labels or label in out)
        if len(others) > 1:
            joined = np.asarray(_sum(reals, kept), np.float32)
        else:
            joined = _sum(reals, kept)  # the diagonal, if any
            if any(label not in kept for label in names):
                joined, kept = _sum(reals, tuple(names)), tuple(names)
        rows = tuple(i for i, label in enumerate(kept) if label in out)
        others_axes = tuple(i for i in range(joined.ndim) if i not in rows)
        largest = np.abs(joined.astype(np.float64)).max(axis=others_axes, keepdims=True, initial=0.0)
        scale = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
        codes = np.clip(np.rint(joined.astype(np.float64) / scale.astype(np.float64)), -127, 127).astype(np.int64)
        acc = _sum([operands[live], (codes, kept)], out)
        row_labels = tuple(kept[i] for i in rows)
        scale = _sum([(scale.reshape([scale.shape[i] for i in rows]), row_labels)], out)
    x_scale = np.float32(case.operands[live].scale)
    product = np.broadcast_to((x_scale * scale).astype(np.float32) / np.float32(case.y_scale), shape)
    return numeric.requantize(np.broadcast_to(acc, shape), product.astype(np.float32), case.y_zero)


def _chained(
    case: Case,
    operands: list[tuple[Array, tuple[str, ...]]],
    views: list[int],
    out: tuple[str, ...],
    shape: tuple[int, ...],
) -> Array:
    """Three operands, two of them activations: cheapest pair, int16 between, see codegen.ops.einsum.EinsumS8."""
    order = [*views, *(i for i in range(len(operands)) if i not in views)]
    values, scales, ranges = [], [], []
    for i in order:
        o, (exact, labels) = case.operands[i], operands[i]
        scale = float(np.float32(o.scale))
        unique = tuple(dict.fromkeys(labels))
        if o.constant == "float":
            exact, per_tensor = quantized(_sum([(o.real.reshape(exact.shape), labels)], unique), None)
            values.append((exact, unique))
            scale = float(per_tensor.ravel()[0])
        else:
            values.append((_sum([(exact, labels)], unique), unique))
        scales.append(scale)
        low, high = -128 - o.zero, 127 - o.zero
        if o.constant:
            # The range of the constant, its off-diagonal values left out.
            low, high = int(values[-1][0].min(initial=0)), int(values[-1][0].max(initial=0))
        ranges.append((low, high))
    sizes = {label: n for v, labels in values for label, n in zip(labels, v.shape, strict=True)}
    (i, j), _ = cheapest_order([labels for _, labels in values], out, sizes)
    k = ({0, 1, 2} - {i, j}).pop()
    between = tuple(label for label in dict.fromkeys((*values[i][1], *values[j][1])) if label in (*out, *values[k][1]))
    acc = _sum([values[i], values[j]], between)
    terms = [int(np.prod([sizes[n] for n in {*values[i][1], *values[j][1]} - set(between)]))]
    terms.append(int(np.prod([sizes[n] for n in {*between, *values[k][1]} - set(out)])))
    corners = [terms[0] * a * b for a in ranges[i] for b in ranges[j]]
    limit = min(32767, ((1 << 31) - 1) // (terms[1] * max(-ranges[k][0], ranges[k][1], 1)))
    shift = 0
    while max(-(min(*corners, 0) + (1 << shift) // 2 >> shift), max(*corners, 0) + (1 << shift) // 2 >> shift) > limit:
        shift += 1
    middle = (acc + (1 << shift) // 2) >> shift
    total = _sum([(middle, between), values[k]], out)
    # The stated bound: half a unit of 2^shift per term.
    exact = _sum([values[i], values[j], values[k]], out)
    bound = _sum([(np.ones_like(middle), between), (np.abs(values[k][0]), values[k][1])], out) * (1 << shift) / 2
    assert shift == 0 or np.all(np.abs(total * (1 << shift) - exact) <= bound)
    scale = np.float32(scales[0] * scales[1] * scales[2] * 2.0**shift / float(np.float32(case.y_scale)))
    return np.broadcast_to(numeric.requantize(total, scale, case.y_zero), shape)
