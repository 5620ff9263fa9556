"""The models beside the repository, where they are there: recorded data, published numbers, real exporters' files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import Workshop, assert_same, runtime_run
from onnx import helper
from paths import MODELS

from codegen import CodegenError, analyze
from codegen.frontend.read import TRIAL_LENGTH
from codegen.options import Options
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import verify

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="../shared/models is not there")
SWW = "mlperf_tiny/sww_streaming_dyn_i8io.onnx"


def recorded() -> tuple[np.ndarray, np.ndarray]:
    archive = np.load(MODELS / "mlperf_tiny/sww_streaming_dyn_real.npz")
    return archive["input"], archive["output_ort"]


def border(graph: object, x: np.ndarray) -> dict[str, np.ndarray]:
    """The recording in the layout and type of the model's input."""
    (port,) = graph.inputs  # type: ignore[attr-defined]
    if x.dtype != np.int8:
        q = port.qparams
        x = np.clip(np.rint(x / np.float32(q.scale)) + q.zero_point, -128, 127).astype(np.int8)
    return {port.name: x}


@pytest.mark.parametrize("folder", ["models/real", "cases/field", "cases/public"])
def test_every_refusal_says_what_to_do(folder: str) -> None:
    """And shows no length of a trial, nor an operator that is blamed for a file that is quantized."""
    refused = 0
    for path in sorted((MODELS.parent / folder).rglob("*.onnx")):
        try:
            load_int8(path)
        except CodegenError as error:
            refused += 1
            assert error.exit_code in (2, 3) and all(problem.hint for problem in error.problems), error
            assert str(TRIAL_LENGTH) not in str(error) and f"{TRIAL_LENGTH:,}" not in str(error), error
            assert "cannot run on int8 codes" not in str(error), error
    assert refused


def test_streaming_wakeword(shop: Workshop) -> None:
    """311 recorded frames in pushes of any size give the 282 frames of the whole clip and of onnxruntime."""
    g = shop.build(MODELS / SWW)
    x, theirs = recorded()
    feed = border(g.graph, x)
    (port,) = g.graph.outputs
    want = whole_clip.run(g.graph, feed)[port.name]
    frames = [n for n in want.shape if n == 282]
    assert frames == [282]
    if theirs.dtype == np.float32:
        assert port.qparams is not None
        theirs = np.clip(np.rint(theirs / port.qparams.scale) + port.qparams.zero_point, -128, 127).astype(np.int8)
    assert_same(want.reshape(-1), theirs.reshape(-1), "reference against the recorded output of onnxruntime")
    host = shop.host(g)
    for size in (1, 2, 3, 7, 50, 311):
        host.poison(0xA5)
        assert_same(host.run(feed, [size])[port.name], want, f"pushes of {size}")


def test_streaming_wakeword_logits_equal_onnxruntime(shop: Workshop, tmp_path: Path) -> None:
    """The codes before the softmax, cut out as an output of both."""
    model = onnx.load(MODELS / SWW)
    softmax = next(n for n in model.graph.node if n.op_type == "Softmax")
    made = {n.output[0]: n for n in model.graph.node}
    codes = made[softmax.input[0]].input[0] if softmax.input[0] in made else softmax.input[0]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(codes, onnx.TensorProto.INT8, None))
    path = tmp_path / "logits.onnx"
    onnx.save(model, path)
    g = shop.build(path)
    feed = border(g.graph, recorded()[0])
    want = whole_clip.run(g.graph, feed)[codes]
    assert_same(want, runtime_run(path, feed)[codes], "logits")
    assert_same(shop.host(g).run(feed, [7])[codes], want, "logits streamed")
    whole = load_int8(MODELS / SWW)
    assert_same(whole_clip.run(whole, feed, taps=[codes])[codes], want, "logits as a tap of the whole model")


def test_streaming_wakeword_numbers() -> None:
    report = analyze(MODELS / SWW)
    assert report.outputs[0].extent.rf == 30
    assert report.macs_mean == 46_040
    assert report.state_bytes + report.scratch_bytes <= 4_300
    assert report.kind == "endless stream"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mlperf_tiny/sww_streaming_i8io.onnx", "clip of 30 frames"),
        ("mlperf_tiny/sww_streaming_dyn.onnx", "endless stream"),
        ("fixtures/strww.onnx", "clip of 30 frames"),
        ("mlperf_tiny/ad_autoencoder_i8io.onnx", "whole: one push is the whole input"),
        ("mlperf_tiny/ad_autoencoder.onnx", "whole: one push is the whole input"),
    ],
)
def test_other_models_build_and_verify(name: str, kind: str) -> None:
    path = MODELS / name
    assert analyze(path).kind == kind
    result = verify(path, Options())
    assert result.passed and result.values > 0, [c for c in result.c if not c.equal]
    assert all(item.largest <= 1 for item in result.runtime), result.runtime


@pytest.mark.parametrize("path", sorted(MODELS.rglob("*.onnx")), ids=lambda p: p.name)
def test_every_model_is_analyzed(path: Path) -> None:
    """Whatever it holds: a report, or one clear refusal; never a fault of ours."""
    from codegen import CodegenError

    try:
        report = analyze(path)
    except CodegenError as error:
        assert error.exit_code in (2, 3) and str(error)
        return
    assert report.nodes or report.notes
