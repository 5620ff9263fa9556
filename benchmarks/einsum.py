"""Copies of Einsum: bytes that a lowering to Transpose, Reshape and MatMul materialises, and what is left here.

    python -m benchmarks.einsum

"before" counts what the textbook lowering (the one that runtimes and converters use) writes before and after its
MatMul: every permutation of an activation that is not the order of the tensor in memory. "after" are the Copy
operators in the generated C. Constants are permuted at build time in both.
"""

from __future__ import annotations

import tempfile
from math import prod
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from codegen.frontend.onnx.einsum import parse
from codegen.ops.move import Copy
from codegen.pipeline import load_int8

Shape = tuple[int, ...]
# (equation, shapes, operands that are constants)
CASES: tuple[tuple[str, tuple[Shape, ...], tuple[int, ...]], ...] = (
    ("bmchw,bnmc->bmhwn", ((1, 2, 16, 24, 32), (1, 8, 2, 16)), ()),
    ("bct,oc->bot", ((1, 32, 100), (64, 32)), (1,)),
    ("btgi,gih->btgh", ((1, 100, 8, 16), (8, 16, 16)), (1,)),
    ("bhtd,bhsd->bhts", ((1, 4, 50, 16), (1, 4, 50, 16)), ()),
    ("ij,jk->ik", ((64, 48), (48, 32)), ()),
)


def textbook_copies(equation: str, shapes: tuple[Shape, ...], constants: tuple[int, ...]) -> int:
    """Bytes of transposes to [batch, rows, K] x [batch, K, columns] and from the product to the output."""
    e = parse(equation, shapes, equation)
    a, b = e.operands
    batch = [n for n in a if n in b and n in e.out]
    summed = [n for n in a if n in b and n not in e.out]
    rows = [n for n in a if n not in b]
    columns = [n for n in b if n not in a]
    moved = 0
    for i, (labels, wanted) in enumerate(((a, [*batch, *rows, *summed]), (b, [*batch, *summed, *columns]))):
        if i not in constants and _order(labels, e.sizes) != _order(wanted, e.sizes):
            moved += prod(shapes[i])
    if _order(e.out, e.sizes) != _order([*batch, *rows, *columns], e.sizes):
        moved += prod(e.sizes[n] for n in e.out)
    return moved


def _order(labels: list[str] | tuple[str, ...], sizes: dict[str, int]) -> list[str]:
    """Labels that matter in memory."""
    return [n for n in labels if sizes[n] > 1]


def model(equation: str, shapes: tuple[Shape, ...], constants: tuple[int, ...]) -> ModelProto:
    rng = np.random.default_rng(0)
    arrays = [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.int8(3), "z")]
    arrays.append(numpy_helper.from_array(np.int8(0), "zero"))
    nodes, inputs = [], []
    for i, shape in enumerate(shapes):
        if i in constants:
            arrays.append(numpy_helper.from_array(rng.integers(-127, 128, shape).astype(np.int8), f"x{i}"))
        else:
            inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.INT8, shape))
        zero = "zero" if i in constants else "z"
        nodes.append(helper.make_node("DequantizeLinear", [f"x{i}", "s", zero], [f"d{i}"]))
    nodes.append(helper.make_node("Einsum", [f"d{i}" for i in range(len(shapes))], ["e"], equation=equation))
    nodes.append(helper.make_node("QuantizeLinear", ["e", "s", "z"], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.INT8, None)
    graph = helper.make_graph(nodes, "einsum", inputs, [output], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def rows() -> list[tuple[str, int, int, int, str]]:
    """(equation, bytes of operands and result, copied before, copied after, kernels)."""
    result = []
    for equation, shapes, constants in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "einsum.onnx"
            path.write_bytes(model(equation, shapes, constants).SerializeToString())
            graph = load_int8(path)
        after = sum(
            graph.tensors[n.output].frame_bytes * graph.tensors[n.output].length
            for n in graph.nodes
            if isinstance(n.op, Copy)
        )
        live = [tensor.frame_bytes * tensor.length for tensor in graph.tensors.values()]
        kinds = " ".join(type(node.op).__name__ for node in graph.nodes)
        result.append((equation, sum(live), textbook_copies(equation, shapes, constants), after, kinds))
    return result


def main() -> None:
    print("| equation | activation bytes | copied: Transpose + MatMul | copied: here | operators |")
    print("|---|---:|---:|---:|---|")
    for equation, total, before, after, kinds in rows():
        print(f"| `{equation}` | {total} | {before} | {after} | {kinds} |")


if __name__ == "__main__":
    main()
