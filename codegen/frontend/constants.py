"""Constant folding: nodes whose inputs are all known are evaluated while the model is read.

Quantized constants stay codes: DequantizeLinear of a constant becomes a `Const` with a scale, and layout operators act
on its codes, so that weights are never rounded twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from codegen.errors import IMPORT, unsupported
from codegen.frontend.load import OnnxNode
from codegen.ir.graph import Const
from codegen.ir.view import View

MAX_FOLDED = 1 << 26
NEVER = {"QuantizeLinear", "DequantizeLinear", "RandomNormal", "RandomUniform", "Dropout"}
GROWING = {"ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Resize", "Pad", "Upsample", "Einsum", "MatMul"}

Array = npt.NDArray[np.generic]


def fold(node: OnnxNode, args: Sequence[View | Const | None], opset: int) -> list[Const] | None:
    """The node's outputs if they are known now, else None."""
    if node.op_type == "Constant" and not node.domain:
        return [Const(_constant(node))]
    if node.op_type in ("Shape", "Size") and args and isinstance(args[0], View):
        return [_shape(node, args[0].shape)]
    if node.op_type in NEVER or not all(arg is None or isinstance(arg, Const) for arg in args) or not args:
        return None
    constants = [arg for arg in args if isinstance(arg, Const) or arg is None]
    first = constants[0]
    if first is not None and first.is_quantized:
        relabelled = _relabel(node, first, constants[1:])
        if relabelled is not None:
            return [relabelled]
    if "subgraph" in node.attrs.values() or node.domain:
        return None
    return _evaluate(node, [None if c is None else c.real() for c in constants], opset)


def _shape(node: OnnxNode, shape: tuple[int, ...]) -> Const:
    if node.op_type == "Size":
        return Const(np.asarray(int(np.prod(shape, dtype=np.int64)), np.int64))
    start, end = node.attrs.get("start", 0), node.attrs.get("end", len(shape))
    return Const(np.asarray(shape[start:end], np.int64))


def _constant(node: OnnxNode) -> Array:
    for key, value in node.attrs.items():
        if key == "value":
            return np.asarray(numpy_helper.to_array(value))
        if key in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
    raise unsupported(IMPORT, node.title, f"a Constant of {list(node.attrs)}", "numbers are supported")


def _relabel(node: OnnxNode, x: Const, rest: Sequence[Const | None]) -> Const | None:
    """Layout operators on quantized codes; None where the codes cannot be kept."""
    array, axis, per_axis = x.array, x.axis, x.scale is not None and x.scale.size > 1
    if node.op_type == "Identity":
        return x
    if node.op_type == "Transpose":
        perm = list(node.attrs.get("perm") or range(array.ndim)[::-1])
        return replace(x, array=array.transpose(perm), axis=perm.index(axis) if per_axis else 0)
    shape: tuple[int, ...] | None = None
    if node.op_type == "Reshape" and rest and rest[0] is not None:
        shape = reshape_target(array.shape, rest[0].array, bool(node.attrs.get("allowzero", 0)))
    elif node.op_type in ("Squeeze", "Unsqueeze"):
        shape = squeezed(node, array.shape, rest[0] if rest else None)
    if shape is None:
        return None
    new_axis = 0
    if per_axis:
        before = int(np.prod(array.shape[:axis], dtype=np.int64))
        found = [i for i, n in enumerate(shape) if n == array.shape[axis] and np.prod(shape[:i]) == before]
        if not found:
            return None
        new_axis = found[0]
    return replace(x, array=array.reshape(shape), axis=new_axis)


def reshape_target(shape: tuple[int, ...], target: Array, allowzero: bool) -> tuple[int, ...]:
    """Resolve 0 (copy) and -1 (infer) of a Reshape target."""
    dims = [int(v) for v in np.asarray(target).ravel()]
    dims = [shape[i] if v == 0 and not allowzero and i < len(shape) else v for i, v in enumerate(dims)]
    total = int(np.prod(shape, dtype=np.int64))
    if dims.count(-1) == 1:
        known = int(np.prod([v for v in dims if v != -1], dtype=np.int64))
        if known > 0 and total % known == 0:
            dims[dims.index(-1)] = total // known
    if min(dims, default=1) < 0 or int(np.prod(dims, dtype=np.int64)) != total:
        raise ValueError(f"cannot reshape {list(shape)} to {[int(v) for v in np.asarray(target).ravel()]}")
    return tuple(dims)


def squeezed(node: OnnxNode, shape: tuple[int, ...], axes_input: Const | None) -> tuple[int, ...]:
    """Shape after Squeeze or Unsqueeze; axes are an attribute before opset 13 and an input since."""
    axes = axes_input.array.ravel().tolist() if axes_input is not None else node.attrs.get("axes")
    if node.op_type == "Squeeze":
        rank = len(shape)
        drop = {i for i, n in enumerate(shape) if n == 1} if axes is None else {int(a) % rank for a in axes}
        if any(shape[i] != 1 for i in drop):
            raise ValueError(f"Squeeze of axes {sorted(drop)} from {list(shape)}")
        return tuple(n for i, n in enumerate(shape) if i not in drop)
    if axes is None:
        raise ValueError("Unsqueeze without axes")
    rank = len(shape) + len(axes)
    insert = {int(a) % rank for a in axes}
    if len(insert) != len(axes):
        raise ValueError(f"Unsqueeze repeats an axis: {list(axes)}")
    sizes = iter(shape)
    return tuple(1 if i in insert else next(sizes) for i in range(rank))


def _evaluate(node: OnnxNode, arrays: Sequence[Array | None], opset: int) -> list[Const]:
    if node.op_type in GROWING and _result_size(node, arrays) > MAX_FOLDED:
        raise unsupported(IMPORT, node.title, "its constant result is too large", f"at most {MAX_FOLDED} elements")
    try:
        session = _session(
            node.op_type, len(arrays), tuple(a is not None for a in arrays), len(node.outputs), opset, _attr_key(node)
        )
        feed = {f"i{k}": a for k, a in enumerate(arrays) if a is not None}
        results = session.run(None, feed)
    except Exception as error:
        found = f"its constant inputs cannot be evaluated ({type(error).__name__}: {error})"
        raise unsupported(IMPORT, node.title, found, hint="Check the file with onnx.checker") from error
    return [Const(np.asarray(r)) for r in results]


def _result_size(node: OnnxNode, arrays: Sequence[Array | None]) -> float:
    known = [a for a in arrays if a is not None]
    size = float(max((a.size for a in known), default=1))
    if node.op_type in ("ConstantOfShape", "Expand", "Resize", "Upsample", "Tile"):
        dims = known[-1] if node.op_type != "ConstantOfShape" else known[0]
        factor = float(np.prod(np.abs(dims.astype(np.float64)))) if dims.size else 1.0
        return max(factor, 1.0) * (size if node.op_type in ("Tile", "Resize", "Upsample") else 1.0)
    if node.op_type == "Pad" and len(known) > 1:
        return size * float(np.prod(1.0 + np.abs(known[1].astype(np.float64))))
    if node.op_type == "Range" and len(known) == 3:
        start, limit, delta = (float(np.asarray(a).ravel()[0]) for a in known)
        return abs(limit - start) / max(abs(delta), 1e-30)
    if node.op_type in ("Einsum", "MatMul", "OneHot"):
        return float(np.prod([float(a.size) for a in known]))
    return size


def _attr_key(node: OnnxNode) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        sorted(
            (k, onnx.helper.make_attribute(k, v).SerializeToString()) for k, v in node.attrs.items() if v is not None
        )
    )


@lru_cache(maxsize=512)
def _session(
    op_type: str, inputs: int, present: tuple[bool, ...], outputs: int, opset: int, attrs: tuple[tuple[str, bytes], ...]
) -> ReferenceEvaluator:
    names = [f"i{k}" if present[k] else "" for k in range(inputs)]
    node = onnx.helper.make_node(op_type, names, [f"o{k}" for k in range(outputs)])
    for _, data in attrs:
        attr = onnx.AttributeProto()
        attr.ParseFromString(data)
        node.attribute.append(attr)
    values = [onnx.ValueInfoProto(name=name) for name in names if name]
    results = [onnx.ValueInfoProto(name=f"o{k}") for k in range(outputs)]
    graph = onnx.helper.make_graph([node], "fold", values, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model)
