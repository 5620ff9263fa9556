"""`--plan whole`: one push is the whole input, layer by layer, with the codes of the stream."""

from __future__ import annotations

import numpy as np
import pytest
from checks import Workshop, assert_same
from models import Net, causal_chain, image_clip
from paths import MLPERF_TINY

from codegen.errors import EXIT_INPUT, CodegenError
from codegen.options import Options
from codegen.pipeline import compile_model, load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

LAYER_BY_LAYER = {
    "ad_autoencoder": None,
    "ic_resnet8": 49152,
    "kws_dscnn": 16000,
    "sww_streaming": 6656,
    "vww_mobilenet": 55296,
}


@pytest.mark.parametrize("name", LAYER_BY_LAYER)
def test_mlperf_tiny_whole_equals_stream(shop: Workshop, name: str) -> None:
    """The same codes by rows and from one push, in reference and C; scratch is two neighbouring layers."""
    path = MLPERF_TINY / f"{name}_i8io.onnx"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    streamed, whole = load_int8(path, Options()), load_int8(path, Options(plan="whole"))
    assert all(port.view.time_axis is None for port in whole.inputs)
    feed = random_feed(whole)
    want = whole_clip.run(streamed, feed)
    g = shop.build(path, plan="whole")
    got = shop.host(g, flags=("-std=c99", "-O2", "-fwrapv", "-fPIC", "-w")).run(feed)
    reference = whole_clip.run(whole, feed)
    for port in whole.outputs:
        assert_same(reference[port.name], want[port.name], f"{name} reference, {port.name}")
        assert_same(got[port.name], want[port.name], f"{name} C, {port.name}")
    if LAYER_BY_LAYER[name] is not None:
        assert g.manifest["memory"]["scratch_bytes"] <= LAYER_BY_LAYER[name]
    assert g.manifest["memory"]["state_bytes"] == 4


def test_whole_image(shop: Workshop) -> None:
    path = shop.save(image_clip())
    feed = random_feed(load_int8(path))
    streamed, whole = shop.build(path), shop.build(path, plan="whole")
    assert streamed.graph.clip_length == 9
    assert whole.graph.clip_length == 1
    want = whole_clip.run(streamed.graph, feed)
    for g in (streamed, whole):
        got = shop.host(g).run(feed)
        for name, values in want.items():
            assert_same(got[name], values, name)


def test_whole_needs_fixed_sizes(shop: Workshop) -> None:
    with pytest.raises(CodegenError) as caught:
        compile_model(shop.save(causal_chain()), Options(plan="whole"))
    assert caught.value.exit_code == EXIT_INPUT
    assert "'T'" in str(caught.value)


def test_clip_that_cannot_stream_is_built_whole(shop: Workshop) -> None:
    """Softmax over the rows of an image: nothing streams, so one push is the image; `--plan stream` refuses."""
    net = Net(seed=4)
    y = net.conv(net.input([1, 2, 6, 5]), 3, [3, 3], pads=[1, 1, 1, 1])
    net.output(net.real_op("Softmax", [y], axis=2, scale=(1 / 256, -128)))
    path = shop.save(net.model())
    g = shop.build(path)
    assert g.graph.clip_length == 1
    assert any("one push is the whole clip" in note for note in g.graph.notes)
    feed = random_feed(g.graph)
    want = whole_clip.run(g.graph, feed)
    for name, values in shop.host(g).run(feed).items():
        assert np.array_equal(values, want[name])
    with pytest.raises(CodegenError, match="over the stream axis"):
        compile_model(path, Options(plan="stream"))
