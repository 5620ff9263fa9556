"""Einsum and MatMul: equations, the worked example step by step, random equations against numpy on exact integers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from checks import Workshop, assert_same, check_op
from einsums import Case, Operand, expected, feed_of, model_of, random_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library import Library
from models import Net
from onnx import TensorProto, helper, numpy_helper

from codegen.errors import CodegenError
from codegen.frontend.onnx.einsum import parse
from codegen.frontend.onnx.labelled import cheapest_order
from codegen.frontend.read import read, require
from codegen.ir.graph import Graph
from codegen.ir.real import Contract
from codegen.ops.conv import ConvS8
from codegen.ops.einsum import EinsumS8
from codegen.ops.matmul import MatMulS8
from codegen.ops.move import Copy
from codegen.pipeline import load_int8
from codegen.reference import whole_clip

Array = npt.NDArray[Any]
WORKED = "bmchw,bnmc->bmhwn"
SHARDS = 4
CHAIN = "bcf,bgf,bgk->bck"


def copies(graph: Graph) -> int:
    """Bytes that are only moved."""
    return sum(graph.tensors[n.output].frame_bytes for n in graph.nodes if isinstance(n.op, Copy))


def case_of(
    equation: str, shapes: Sequence[tuple[int, ...]], constants: Sequence[str | None] = (), seed: int = 1
) -> Case:
    rng = np.random.default_rng(seed)
    operands = []
    for i, shape in enumerate(shapes):
        constant = constants[i] if i < len(constants) else None
        codes = rng.integers(-128, 128, shape).astype(np.int8)
        zero = 0 if constant else int(rng.integers(-128, 128))
        operands.append(Operand(codes, 0.05, zero, constant, tuple(range(len(shape)))))
    real = np.einsum(equation.replace(" ", ""), *(o.real.astype(np.float64) for o in operands))
    return Case(equation, tuple(operands), float(np.float32(np.abs(real).max() / 100)), 7)


def compare(shop: Workshop, case: Case) -> Graph:
    """Reference and C against numpy's einsum; the int8 graph."""
    g = shop.build(model_of(case))
    want = expected(case)
    assert_same(whole_clip.run(g.graph, feed_of(case))["y"], want, f"reference, {case}")
    assert_same(shop.host(g).run(feed_of(case))["y"], want, f"C, {case}")
    return g.graph


class TestWorkedExample:
    """embed [b,m,c,h,w] and guide [b,n,m,c]: -> (b, m, h*w, c) times (b, m, c, n) -> (b, m, h, w, n)."""

    EMBED, GUIDE = (1, 2, 3, 4, 5), (1, 6, 2, 3)

    def test_labels(self) -> None:
        e = parse(WORKED, [self.EMBED, self.GUIDE], "n")
        assert e.operands == (tuple("bmchw"), tuple("bnmc"))
        assert e.out == tuple("bmhwn")
        assert e.sizes == {"b": 1, "m": 2, "c": 3, "h": 4, "w": 5, "n": 6}

    def test_loops(self, shop: Workshop) -> None:
        """The permutations are steps: m, h*w as one loop of 20, n; and the sum over c. Nothing is copied."""
        graph = require(read(shop.save(model_of(case_of(WORKED, [self.EMBED, self.GUIDE])))))
        (op,) = [node.op for node in graph.nodes if isinstance(node.op, Contract)]
        assert op.out == ((2, 60, 3), (20, 1, 0), (6, 0, 6))
        assert op.summed == ((3, 20, 1),)
        assert not any(isinstance(node.op, Copy) for node in graph.nodes)

    def test_equals_the_permuted_matmul(self, shop: Workshop) -> None:
        """The lowering that the issue writes out, done by numpy, gives the accumulators of the operator."""
        case = case_of(WORKED, [self.EMBED, self.GUIDE])
        embed, guide = (o.exact for o in case.operands)
        left = embed.transpose(0, 1, 3, 4, 2).reshape(1, 2, 20, 3)
        right = guide.transpose(0, 2, 3, 1).reshape(1, 2, 3, 6)
        want = (left @ right).reshape(1, 2, 4, 5, 6)
        graph = load_int8(shop.save(model_of(case)))
        (node,) = [node for node in graph.nodes if isinstance(node.op, MatMulS8)]
        got = node.op.accumulate([o.codes.reshape(1, -1) for o in case.operands])
        assert np.array_equal(got.reshape(want.shape), want)

    def test_fixed_h(self, shop: Workshop) -> None:
        assert copies(compare(shop, case_of(WORKED, [self.EMBED, self.GUIDE]))) == 0

    @pytest.mark.parametrize("constant", ["codes", "float"])
    def test_constant_guide(self, shop: Workshop, constant: str) -> None:
        assert copies(compare(shop, case_of(WORKED, [self.EMBED, self.GUIDE], [None, constant]))) == 0

    @pytest.mark.parametrize("constant", ["codes", "float"])
    def test_streamed_h(self, shop: Workshop, constant: str) -> None:
        """Rows of h arrive one by one; the guide is a constant: a loop nest over each row."""
        check_op(shop, streamed(WORKED, [1, 2, 3, "h", 5], self.GUIDE, constant), runtime=runtime(constant))

    def test_streamed_h_in_both(self, shop: Workshop) -> None:
        """A guide for every row: h is a batch label."""
        check_op(shop, two_streams("bmchw,bnmch->bmhwn", [1, 2, 3, "h", 5], [1, 6, 2, 3, "h"]), runtime="equal")


def runtime(constant: str) -> str:
    """onnxruntime computes the float product of a float constant: not the same function."""
    return "none" if constant == "float" else "ties"


def streamed(equation: str, shape: list[int | str], weights: tuple[int, ...], constant: str) -> onnx.ModelProto:
    net = Net("int8", seed=3)
    x = net.input(shape)
    rng = np.random.default_rng(5)
    codes = rng.integers(-127, 128, weights).astype(np.int8)
    scale = np.float32(0.02)
    real = (codes * scale).astype(np.float32)
    if constant == "float":
        w = net.const(real)
    else:
        parameters = [net.const(codes), net.const(scale), net.const(np.int8(0))]
        w = net.node("DequantizeLinear", parameters, "w")
    out = net.node("Einsum", [net.dequantize(x), w], "e", equation=equation)
    net.output(net.quantize(out, np.einsum(equation, x.real, real).astype(np.float32)))
    return net.model()


def two_streams(equation: str, a: list[int | str], b: list[int | str]) -> onnx.ModelProto:
    net = Net("int8", seed=4)
    x, y = net.input(a, name="a"), net.input(b, name="b")
    out = net.node("Einsum", [net.dequantize(x), net.dequantize(y)], "e", equation=equation)
    net.output(net.quantize(out, np.einsum(equation, x.real, y.real).astype(np.float32)))
    return net.model()


@pytest.mark.parametrize(
    ("equation", "shape", "weights"),
    [
        ("bct,oc->bot", [1, 4, "t"], (6, 4)),
        ("bct,cd->bdt", [1, 4, "t"], (4, 6)),
        ("btgi,gih->btgh", [1, "t", 3, 4], (3, 4, 5)),
        ("btgi,gih->bthg", [1, "t", 3, 4], (3, 4, 5)),
        ("bctf,fk->bctk", [1, 3, "t", 8], (8, 4)),
        ("btf,fcd->btcd", [1, "t", 6], (6, 2, 3)),
        ("btd,d->bt", [1, "t", 6], (6,)),
        ("btd,->btd", [1, "t", 6], ()),
    ],
)
@pytest.mark.parametrize("constant", ["codes", "float"])
def test_streams_with_constants(
    shop: Workshop, equation: str, shape: list[int | str], weights: tuple[int, ...], constant: str
) -> None:
    check_op(shop, streamed(equation, shape, weights, constant), runtime=runtime(constant))


@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [
        ("btc,btc->bt", [1, "t", 5], [1, "t", 5]),
        ("btc,btd->btcd", [1, "t", 3], [1, "t", 4]),
        ("bthc,btgc->bthg", [1, "t", 2, 5], [1, "t", 3, 5]),
        ("bct,dct->bdt", [1, 4, "t"], [3, 4, "t"]),
    ],
)
def test_streams_of_two_activations(shop: Workshop, equation: str, a: list[int | str], b: list[int | str]) -> None:
    check_op(shop, two_streams(equation, a, b), runtime="ties")


@pytest.mark.parametrize(
    ("equation", "shapes", "text"),
    [
        ("ij,jk->iz", [(2, 3), (3, 4)], r"output label 'z' is in no operand"),
        ("ij,jk->ii", [(2, 3), (3, 4)], r"output label 'i' stands there twice"),
        ("ij,jk->ik", [(2, 3), (4, 5)], r"'ij,jk->ik': label j has size 4 in operand 1 of shape \[4, 5\], 3 before"),
        ("ij,jk", [(2, 3)], r"'ij,jk' has 2 operands, the node 1"),
        ("ijk->ik", [(2, 3)], r"operand 0 of shape \[2, 3\]: 3 labels for rank 2"),
        ("i->i", [(2, 3)], r"operand 0 of shape \[2, 3\]: 1 labels for rank 2"),
        ("i1->i", [(2, 3)], r"operand 0 of shape \[2, 3\]: unknown label '1'"),
        ("i...j...->ij", [(2, 3, 4)], r"unknown label '.'"),
        ("i...->i", [(2, 3)], "the output has no ellipsis"),
        ("...i,...i->...", [(2, 3), (4, 3)], r"label \.\.\. has size 4 in operand 1 of shape \[4, 3\], 2 before"),
    ],
)
def test_errors(equation: str, shapes: list[tuple[int, ...]], text: str) -> None:
    with pytest.raises(CodegenError, match=text) as caught:
        parse(equation, shapes, "here")
    assert equation in str(caught.value)


def test_implicit_output() -> None:
    """ONNX: the ellipsis first, then labels that stand once, sorted (upper case before lower case)."""
    assert parse("bA...,Acb", [(2, 3, 4), (3, 5, 2)], "n").out == (".0", "c")
    assert parse("ba", [(2, 3)], "n").out == ("a", "b")
    assert parse("bB", [(2, 3)], "n").out == ("B", "b")


def test_cheapest_order() -> None:
    """(ij,jk),kl costs 2*50*3 + 2*3*4 = 324 products, the other way 50*3*4 + 2*50*4 = 1000."""
    sizes = {"i": 2, "j": 50, "k": 3, "l": 4}
    terms = [("i", "j"), ("j", "k"), ("k", "l")]
    assert cheapest_order(terms, ("i", "l"), sizes) == [(0, 1), (2, 3)]
    assert cheapest_order(terms, ("i", "l"), {**sizes, "i": 50, "j": 2, "k": 9}) == [(1, 2), (0, 3)]


def test_three_operands_are_bounded(shop: Workshop) -> None:
    """The shift between the steps is the least that fits int16; the order stands in the report."""
    graph = compare(shop, case_of("ij,jk,kl->il", [(3, 8), (8, 5), (5, 4)]))
    (op,) = [node.op for node in graph.nodes if isinstance(node.op, EinsumS8)]
    assert len(op.shifts) == 1
    assert op.shifts[0] > 0
    assert any("3 operands, order" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 2), (2, 3)]), ("a,b,c,d->abcd", [(2,), (3,), (2,), (3,)])],
)
def test_four_operands(shop: Workshop, equation: str, shapes: list[tuple[int, ...]]) -> None:
    """Four operands: the C equals the reference, and both stay near the exact result."""
    case = case_of(equation, shapes)
    g = shop.build(model_of(case))
    got = whole_clip.run(g.graph, feed_of(case))["y"]
    assert_same(shop.host(g).run(feed_of(case))["y"], got, "C")
    exact = np.einsum(equation, *(o.real.astype(np.float64) for o in case.operands))
    assert np.abs(np.clip(exact / case.y_scale + case.y_zero, -128, 127) - got).max() < 1.0


def test_int32_bound(shop: Workshop) -> None:
    """70,000 products of extreme codes do not fit int32: refused, with the sums that can occur."""
    case = case_of("i,i->", [(70000,), (70000,)])
    with pytest.raises(CodegenError, match=r"sums of 70000 products can reach .*beyond int32"):
        load_int8(shop.save(model_of(case)))


@settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("shard", range(SHARDS))
@given(r=st.randoms(use_true_random=False))
@pytest.mark.search
def test_random_equations(tmp_path_factory: pytest.TempPathFactory, shard: int, r: random.Random) -> None:
    """4 shards of 500 equations: the reference gives numpy's exact integers after one documented rounding."""
    r.seed(f"{shard} {r.getrandbits(64)}")
    case = random_case(r)
    path = tmp_path_factory.getbasetemp() / f"einsum{shard}.onnx"
    path.write_bytes(model_of(case).SerializeToString())
    got = whole_clip.run(load_int8(path), feed_of(case))["y"]
    assert_same(got, expected(case), repr(case))


@pytest.mark.search
@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_equations_in_c(shop: Workshop, shard: int) -> None:
    """4 shards of 80 equations through compiled C, one library each."""
    library = Library(shop)
    cases = {}
    kinds: set[str] = set()
    for i in range(80):
        case = random_case(random.Random(f"c {shard} {i}"))
        name = f"e{i}"
        graph = library.add(shop.save(model_of(case)), name)
        kinds |= {type(node.op).__name__ for node in graph.nodes}
        cases[name] = case
    assert {"MatMulS8", "EinsumS8", "ConvS8", "ReduceS8"} <= kinds
    for name, host in library.link().items():
        case = cases[name]
        host.poison(0xA5)
        assert_same(host.run(feed_of(case))["y"], expected(case), repr(case))


MATMULS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matrices": ((3, 4), (4, 5)),
    "vectors": ((4,), (4,)),
    "vector_matrix": ((4,), (4, 5)),
    "matrix_vector": ((3, 4), (4,)),
    "batch": ((2, 3, 4), (2, 4, 5)),
    "broadcast_left": ((3, 4), (2, 4, 5)),
    "broadcast_right": ((2, 3, 4), (4, 5)),
    "broadcast_both": ((2, 1, 3, 4), (1, 5, 4, 2)),
    "vector_batch": ((4,), (2, 4, 5)),
    "batch_vector": ((2, 3, 4), (4,)),
}


def matmul_model(
    form: str, a: tuple[int, ...], b: tuple[int, ...], zeros: tuple[int, int], dtype: str
) -> onnx.ModelProto:
    """Two activations: QLinearMatMul or DequantizeLinear -> MatMul -> QuantizeLinear."""
    kind = np.dtype(dtype).type
    shift = 128 if dtype == "uint8" else 0
    constants = {
        **{f"{n}s": np.float32(s) for n, s in (("a", 0.03), ("b", 0.05), ("y", 0.9))},
        **{f"{n}z": kind(z + shift) for n, z in (("a", zeros[0]), ("b", zeros[1]), ("y", 4))},
    }
    element = TensorProto.UINT8 if dtype == "uint8" else TensorProto.INT8
    inputs = [helper.make_tensor_value_info(n, element, s) for n, s in (("a", a), ("b", b))]
    if form == "qop":
        nodes = [helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])]
    else:
        nodes = [helper.make_node("DequantizeLinear", [n, f"{n}s", f"{n}z"], [f"{n}d"]) for n in "ab"]
        nodes.append(helper.make_node("MatMul", ["ad", "bd"], ["m"]))
        nodes.append(helper.make_node("QuantizeLinear", ["m", "ys", "yz"], ["y"]))
    arrays = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    output = helper.make_tensor_value_info("y", element, (np.zeros(a) @ np.zeros(b)).shape)
    graph = helper.make_graph(nodes, "matmul", inputs, [output], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("form", ["qdq", "qop"])
@pytest.mark.parametrize("shapes", MATMULS)
def test_matmul_of_two_activations(shop: Workshop, shapes: str, form: str, dtype: str) -> None:
    """Any zero points, exact: equal to numpy's integers after one rounding."""
    a, b = MATMULS[shapes]
    zeros = {"qdq": (-128, 127), "qop": (5, -77)}[form]
    g = shop.build(matmul_model(form, a, b, zeros, dtype))
    rng = np.random.default_rng(3)
    feed = {n: rng.integers(-128, 128, s).astype(np.int8) for n, s in (("a", a), ("b", b))}
    acc = (feed["a"].astype(np.int64) - zeros[0]) @ (feed["b"].astype(np.int64) - zeros[1])
    scale = np.float32(np.float32(0.03) * np.float32(0.05)) / np.float32(0.9)
    want = np.clip(np.rint(acc.astype(np.float32) * scale) + 4, -128, 127).astype(np.int16)
    if dtype == "uint8":
        feed = {n: (x.astype(np.int16) + 128).astype(np.uint8) for n, x in feed.items()}
        want = want + 128
    assert copies(g.graph) == 0
    got = shop.host(g).run(feed)["y"]
    assert_same(got, want.astype(dtype).reshape(got.shape), f"C, {shapes}")
    assert_same(whole_clip.run(g.graph, feed)["y"], got, "reference")


def test_contraction_over_an_endless_stream_is_refused(shop: Workshop) -> None:
    path = shop.save(two_streams("bct,bdt->bcd", [1, 3, "t"], [1, 4, "t"]))
    with pytest.raises(CodegenError, match=r"it sums over the endless stream axis \(t\)"):
        load_int8(path)


def test_attention_over_an_endless_stream_is_refused(shop: Workshop) -> None:
    path = shop.save(two_streams("bct,bcs->bts", [1, 3, "t"], [1, 3, "t"]))
    with pytest.raises(CodegenError, match=r"every frame of one operand meets every frame of the other"):
        load_int8(path)


def test_contraction_over_a_clip_is_built_whole(shop: Workshop) -> None:
    """The rows of an image are summed with each other: one push is the image."""
    net = Net("int8", seed=9)
    y = net.conv(net.input([1, 2, 6, 5]), 3, [3, 3], pads=[1, 1, 1, 1])
    real = np.einsum("bchw,bdhw->bcd", y.real, y.real).astype(np.float32)
    d = net.dequantize(y)
    net.output(net.quantize(net.node("Einsum", [d, d], "e", equation="bchw,bdhw->bcd"), real))
    g = check_op(shop, net.model(), runtime="ties")
    assert g.graph.clip_length == 1


def test_constants_need_no_copies(shop: Workshop) -> None:
    """A grouped linear layer is a grouped 1-tap convolution, weights permuted at build time."""
    graph = compare(shop, case_of("btgi,gih->btgh", [(1, 7, 3, 4), (3, 4, 5)], [None, "codes"]))
    assert [type(node.op) for node in graph.nodes] == [ConvS8]


def test_float_weights_say_so(shop: Workshop) -> None:
    graph = compare(shop, case_of("bct,oc->bot", [(1, 4, 9), (6, 4)], [None, "float"]))
    assert sum("quantized at build time" in note for note in graph.notes) == 1


def test_working_memory_at_the_end_of_a_stream(shop: Workshop) -> None:
    """What a reduction over the stream leaves is contracted once, with working memory that overlaps no tensor."""
    net = Net("int8", seed=11)
    x = net.input([1, 4, 6, 9])
    top, low = (net.real_op(kind, [x], axes=[3], keepdims=0) for kind in ("ReduceMean", "ReduceMax"))
    both = net.node("Einsum", [net.dequantize(top), net.dequantize(low), net.dequantize(top)], "e", equation=CHAIN)
    y = net.quantize(both, np.einsum(CHAIN, top.real, low.real, top.real).astype(np.float32))
    net.output(net.real_op("ReduceMean", [y], axes=[1], keepdims=0), name="sums")
    net.output(net.add(top, y), name="joined")
    rows = np.random.default_rng(2).integers(-128, 128, (1, 4, 6, 1))
    feed = {"x": np.broadcast_to(rows, (1, 4, 6, 9)).astype(np.int8)}
    check_op(shop, net.model(), feed, stream="3", runtime="none")


def test_copies_are_counted(shop: Workshop) -> None:
    """A diagonal that is handed out is copied, and the report says how much."""
    graph = load_int8(shop.save(model_of(case_of("bii->bi", [(2, 5, 5)]))))
    assert copies(graph) == 10
    assert any(note.startswith("10 B a frame are only moved") for note in graph.notes)
    assert not any("only moved" in note for note in load_int8(shop.save(attention_like())).notes)


def attention_like() -> onnx.ModelProto:
    return model_of(case_of("bhtd,bhsd->bhts", [(1, 2, 5, 3), (1, 2, 4, 3)]))


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm_of_two_activations(shop: Workshop, trans_a: int, trans_b: int) -> None:
    """A' B' of two activations is the MatMul of their transposes: the same codes."""
    model = matmul_model("qdq", (3, 5), (5, 4), (4, -9), "int8")
    want = load_int8(shop.save(model))
    (node,) = [n for n in model.graph.node if n.op_type == "MatMul"]
    node.op_type = "Gemm"
    node.attribute.extend([helper.make_attribute("transA", trans_a), helper.make_attribute("transB", trans_b)])
    for port, turned in zip(model.graph.input, (trans_a, trans_b), strict=True):
        dims = port.type.tensor_type.shape.dim
        sizes = [d.dim_value for d in dims]
        for d, size in zip(dims, sizes[::-1] if turned else sizes, strict=True):
            d.dim_value = size
    rng = np.random.default_rng(1)
    feed = {name: rng.integers(-128, 128, shape).astype(np.int8) for name, shape in (("a", (3, 5)), ("b", (5, 4)))}
    turned_feed = {n: x.T if t else x for (n, x), t in zip(feed.items(), (trans_a, trans_b), strict=True)}
    got = shop.host(shop.build(model)).run(turned_feed)["y"]
    assert_same(got, whole_clip.run(want, feed)["y"], "Gemm")
