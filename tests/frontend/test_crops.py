"""Skips cropped to another tensor's length: U-Nets of many strides and kernels, every length, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from checks import Array, Generated, Workshop, assert_same, runtime_run
from models import Act, Net
from random_graphs import conv_transpose

from codegen import CodegenError
from codegen.cli import main
from codegen.ir.lengths import lengths_with_faults
from codegen.ops.move import Truncate
from codegen.options import Options
from codegen.pipeline import load_int8
from codegen.plan.outputs import is_legal, legal_lengths
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

LONGEST = 75


def length_of(net: Net, tensor: str, form: str) -> str:
    """The length of a tensor as exporters write it: a slice of Shape, or Shape -> Gather -> arithmetic -> Reshape."""
    if form == "shape":
        return net.node("Shape", [tensor], start=2, end=3)
    shape = net.node("Shape", [tensor])
    length = net.node("Gather", [shape, net.const(np.asarray(2))], axis=0)
    less = net.node("Sub", [length, net.const(np.asarray(5))])
    more = net.node("Add", [less, net.const(np.asarray(5))])
    return net.node("Reshape", [more, net.const(np.asarray([1]))])


def sliced(net: Net, x: Act, start: str, end: str, values: Array) -> Act:
    out = net.node("Slice", [net.dequantize(x), start, end, net.const(np.asarray([2]))], "crop")
    return net.quantize(out, values, like=x)


def cropped(net: Net, skip: Act, y: Act, crop: str, form: str) -> Act:
    """`skip` cropped to the length of y: from the start, from frame 1 on, in the centre, or at the end."""
    n, have = y.real.shape[2], skip.real.shape[2]
    length, zero = length_of(net, y.name, form), net.const(np.asarray([0]))
    if crop == "first":
        return sliced(net, skip, zero, length, skip.real[..., :n])
    if crop == "second":
        one = net.const(np.asarray([1]))
        return sliced(net, skip, one, net.node("Add", [length, one]), skip.real[..., 1 : 1 + n])
    gap = net.node("Sub", [length_of(net, skip.name, form), length])
    first = (have - n) // 2 if crop == "centre" else have - n
    if crop == "centre":
        gap = net.node("Div", [gap, net.const(np.asarray([2]))])
    return sliced(net, skip, gap, net.node("Add", [gap, length]), skip.real[..., first : first + n])


def unet(
    strides: tuple[int, ...],
    kernels: tuple[int, int],
    crop: str = "first",
    *,
    form: str = "shape",
    join: str = "Add",
    dtype: str = "int8",
    valid: int = 1,
    frames: int | str = "T",
    pooled: bool = False,
) -> onnx.ModelProto:
    """Convolutions down (kernel k), transposed ones up (kernel u), each skip cropped to what comes up beside it."""
    net = Net(dtype, seed=sum(strides) + kernels[0])
    down, up = kernels

    def level(x: Act, rest: tuple[int, ...]) -> Act:
        skip = net.conv(x, 4, [valid])
        if not rest:
            return skip
        y = level(net.conv(skip, 4, [down], strides=[rest[0]]), rest[1:])
        y = conv_transpose(net, y, 4, [up], strides=[rest[0]])
        a, b = cropped(net, skip, y, crop, form), y
        return net.real_op("Concat", [a, b], axis=1) if join == "Concat" else net.add(a, b)

    y = net.conv(level(net.input([1, 2, frames], length=95), strides), 2, [1])
    net.output(net.real_op("GlobalMaxPool", [y], same=True) if pooled else y, name="y")
    return net.model()


def accepted(g: Generated, total: int) -> tuple[dict[str, Array], Array | None]:
    """A feed of this length, and onnxruntime's result; None where it fails."""
    feed = random_feed(g.graph, total, total)
    try:
        return feed, runtime_run(g.path, feed)["y"]
    except Exception:  # onnxruntime's own types
        return feed, None


def check_lengths(shop: Workshop, model: onnx.ModelProto, exact: bool, hop: int = 1) -> list[int]:
    """Every length: what onnxruntime runs is legal (`exact`) and gives its codes; what it refuses, finish refuses.

    Returns the legal lengths. Where a convolution has nothing to read onnxruntime fails, and a stream has no frames.
    """
    g = shop.build(model, hop=hop)
    time, host, legal = g.graph.time_graph(), shop.host(g), []
    for total in range(1, LONGEST):
        lengths, _ = lengths_with_faults(time, total)
        if min(lengths.values()) <= 1:  # empty; or a single frame, which onnxruntime's Add repeats
            continue
        feed, theirs = accepted(g, total)
        if not is_legal(time, total):
            assert theirs is None or not exact, f"T = {total}"
            with pytest.raises(CodegenError, match="differ in length where they join"):
                host.run(feed, [3])
            continue
        legal.append(total)
        want = whole_clip.run(g.graph, feed)["y"]
        assert theirs is not None, f"T = {total}"
        assert_same(want, theirs, f"reference against onnxruntime, T = {total}", 1)
        for chunks in (None, [1], [3, 1, 2], [17]):
            assert_same(host.run(feed, chunks)["y"], want, f"C against reference, T = {total}, pushes {chunks}")
    assert legal
    return legal


NETS: dict[str, Callable[[], onnx.ModelProto]] = {
    "s2_k2": lambda: unet((2,), (2, 2)),
    "s2_k3": lambda: unet((2,), (3, 2)),
    "s2_k5_up_4": lambda: unet((2,), (5, 4), join="Concat"),
    "s3_k3": lambda: unet((3,), (3, 3), form="arithmetic"),
    "s3_k4_uint8": lambda: unet((3,), (4, 3), "second", dtype="uint8"),
    "s4_k8_up_8": lambda: unet((4,), (8, 8), valid=3),
    "s4_k4_up_3": lambda: unet((4,), (4, 3), "second", form="arithmetic", join="Concat"),
    "two_levels": lambda: unet((2, 2), (3, 2), valid=2),
    "two_strides": lambda: unet((3, 2), (4, 3), form="arithmetic", join="Concat"),
    "y_longer_at_times": lambda: unet((4,), (4, 6)),
    "y_longer_below": lambda: unet((2, 3), (3, 4)),
}


@pytest.mark.parametrize("name", NETS)
def test_every_length(shop: Workshop, name: str) -> None:
    """The same lengths as onnxruntime runs, the same codes, in pushes of every kind."""
    legal = check_lengths(shop, NETS[name](), exact=True, hop=1 + list(NETS).index(name) % 3)
    assert (len(legal) < legal[-1] - legal[0] + 1) == name.startswith("y_longer")


@pytest.mark.parametrize("strides", [(2,), (3,), (4,), (2, 2), (3, 2)])
@pytest.mark.parametrize("kernel", [0, 1, 3])
def test_lengths_of_a_kind(shop: Workshop, strides: tuple[int, ...], kernel: int) -> None:
    """A skip that is never the shorter one makes every length legal, whatever strides and kernels are."""
    path = shop.save(unet(strides, (max(strides) + kernel, 2), valid=2))
    graph = load_int8(path, Options())
    assert sum(isinstance(node.op, Truncate) for node in graph.nodes) == len(strides)
    legal = legal_lengths(graph.time_graph())
    assert legal.modulus == 1 and legal.residues == (0,)


@pytest.mark.parametrize("crop", ["centre", "last"])
@pytest.mark.parametrize(("strides", "kernels"), [((2,), (3, 2)), ((3,), (4, 3)), ((4,), (8, 6))])
def test_crops_that_start_where_the_length_says(
    shop: Workshop, crop: str, strides: tuple[int, ...], kernels: tuple[int, int]
) -> None:
    """A stream can't know where such a crop starts: lengths at which it starts elsewhere are refused, others exact."""
    check_lengths(shop, unet(strides, kernels, crop), exact=False)


@pytest.mark.parametrize("plan", ["stream", "hybrid", "whole"])
@pytest.mark.parametrize("crop", ["first", "centre", "last"])
def test_clips(shop: Workshop, plan: str, crop: str) -> None:
    """Where T is fixed every crop is a constant one, in every plan."""
    g = shop.build(unet((3, 2), (4, 3), crop, frames=43, pooled=plan == "hybrid"), plan=plan)
    feed = random_feed(g.graph, 43, 1)
    want = whole_clip.run(g.graph, feed)["y"]
    assert_same(want, runtime_run(g.path, feed)["y"], "reference against onnxruntime", 1)
    assert_same(shop.host(g).run(feed, None)["y"], want, "C against reference")


def test_a_crop_that_nothing_checks(shop: Workshop) -> None:
    """Without a join nothing at run time would notice a start that moves: refused. At the end it follows y."""
    for crop, fine in (("first", True), ("last", False)):
        net = Net(seed=3)
        x = net.input([1, 2, "T"])
        y = conv_transpose(net, net.conv(x, 3, [3], strides=[3]), 3, [3], strides=[3])
        net.output(y, name="other")
        net.output(cropped(net, x, y, crop, "shape"), name="y")
        if fine:
            check_lengths(shop, net.model(), exact=True)
            continue
        with pytest.raises(CodegenError, match="where it crops depends on the length of the stream") as error:
            load_int8(shop.save(net.model()), Options())
        assert error.value.exit_code == 3


def test_verify_names_the_nearest_lengths(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify --data` with a length that gives no result, or with another shape: refused, with what would do."""
    path = shop.save(unet((3,), (4, 3), "centre"))
    data = path.with_suffix(".npz")
    time = load_int8(path, Options()).time_graph()
    bad = next(n for n in range(40, 80) if not is_legal(time, n))
    below = next(n for n in range(bad, 0, -1) if is_legal(time, n))
    above = next(n for n in range(bad, 99) if is_legal(time, n))
    np.savez(data, x=np.zeros((1, 2, bad), np.int8))
    assert main(["verify", str(path), "--data", str(data)]) == 2
    text = capsys.readouterr().err
    assert f"{bad} frames" in text and f"{below} and {above}" in text, text
    for shape in ((1, 3, bad), (bad, 2), (1, 2)):
        np.savez(data, x=np.zeros(shape, np.int8))
        assert main(["verify", str(path), "--data", str(data)]) == 2
        assert "shape" in capsys.readouterr().err
