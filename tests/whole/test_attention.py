"""A quantized attention block as a whole graph: projections, heads, scores, softmax, context, output projection."""

from __future__ import annotations

import numpy as np
import pytest
from checks import Workshop, assert_same, check_op, runtime_run
from models import Act, Net

from codegen.ops.matmul import MatMulS8
from codegen.ops.move import Copy
from codegen.ops.softmax import SoftmaxS8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

TOKENS, WIDTH, HEADS = 6, 12, 3
PER_HEAD = WIDTH // HEADS


def heads(net: Net, x: Act, perm: tuple[int, ...]) -> Act:
    """[1, T, D] -> [1, T, H, D/H] -> permuted."""
    split = net.real_op("Reshape", [x], consts=[np.asarray([1, TOKENS, HEADS, PER_HEAD], np.int64)], same=True)
    return net.real_op("Transpose", [split], same=True, perm=list(perm))


def attention(dtype: str, seed: int) -> Net:
    """Three outputs: scores, probabilities and the block's result."""
    net = Net(dtype, seed=seed)
    x = net.input([1, TOKENS, WIDTH])
    q, k, v = (net.matmul(x, WIDTH) for _ in range(3))
    scores = net.real_op("MatMul", [heads(net, q, (0, 2, 1, 3)), heads(net, k, (0, 2, 3, 1))])
    scaled = net.real_op("Mul", [scores], consts=[np.float32(1 / np.sqrt(PER_HEAD))])
    probabilities = net.real_op("Softmax", [scaled], axis=-1, scale=(1 / 256, 0 if dtype == "uint8" else -128))
    context = net.real_op("MatMul", [probabilities, heads(net, v, (0, 2, 1, 3))])
    back = net.real_op("Transpose", [context], same=True, perm=[0, 2, 1, 3])
    joined = net.real_op("Reshape", [back], consts=[np.asarray([1, TOKENS, WIDTH], np.int64)], same=True)
    net.output(scores, name="scores")
    net.output(probabilities, name="probabilities")
    net.output(net.matmul(joined, WIDTH), name="result")
    return net


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("seed", [1, 2])
def test_attention_block(shop: Workshop, dtype: str, seed: int) -> None:
    """C equals the reference; against onnxruntime the scores are equal, the probabilities within one code (softmax)."""
    path = shop.save(attention(dtype, seed).model())
    g = check_op(shop, path, runtime="none")
    kinds = [type(node.op) for node in g.graph.nodes]
    assert kinds.count(MatMulS8) == 2
    assert kinds.count(SoftmaxS8) == 1
    assert Copy not in kinds[: kinds.index(SoftmaxS8)], "transposed heads are read where they lie"
    feed = random_feed(g.graph, seed=seed)
    ours, theirs = whole_clip.run(g.graph, feed), runtime_run(path, feed)
    assert_same(ours["scores"], theirs["scores"], "scores")
    assert_same(ours["probabilities"], theirs["probabilities"], "probabilities", within=1)
    assert_same(ours["result"], theirs["result"], "result", within=2)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmax_over_any_axis(shop: Workshop, op_type: str, axis: int) -> None:
    net = Net("int8", seed=axis)
    x = net.input([2, 3, 4, 5])
    scale = (1 / 256, -128) if op_type == "Softmax" else (1 / 16, 127)
    net.output(net.real_op(op_type, [x], axis=axis, scale=scale))
    check_op(shop, net.model(), runtime="ties")


@pytest.mark.parametrize("perm", [(0, 1), (1, 0), (2, 0, 1), (3, 1, 0, 2), (4, 2, 0, 3, 1), (5, 4, 0, 1, 3, 2)])
def test_transposes_of_any_rank(shop: Workshop, perm: tuple[int, ...]) -> None:
    """A transpose alone costs at most a relabelled output; followed by Reshape it is copied once."""
    net = Net("int8", seed=len(perm))
    x = net.input(list(range(2, 2 + len(perm))))
    y = net.real_op("Transpose", [x], same=True, perm=list(perm))
    net.output(y, name="turned")
    net.output(net.real_op("Reshape", [y], consts=[np.asarray([-1], np.int64)], same=True), name="flat")
    check_op(shop, net.model())


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_pieces_on_any_axis(shop: Workshop, axis: int) -> None:
    """Slice, Gather in any order, Split and Concat on every axis of a whole graph."""
    net = Net("int8", seed=axis + 5)
    x = net.input([4, 4, 5, 6])
    ints = [np.asarray(v, np.int64) for v in ([1], [4], [axis], [2])]
    sliced = net.real_op("Slice", [x], consts=ints, same=True)
    gathered = net.real_op("Gather", [x], consts=[np.asarray([2, 0, 3, 3], np.int64)], same=True, axis=axis)
    table = net.real_op("Gather", [x], consts=[np.asarray([[1, 0], [2, 2]], np.int64)], same=True, axis=axis)
    net.output(sliced, name="sliced")
    net.output(net.real_op("Concat", [sliced, gathered, sliced], same=True, axis=axis), name="joined")
    net.output(table, name="table")
    check_op(shop, net.model())
