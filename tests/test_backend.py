"""ONNX's backend node tests through the generated C, and codegen.backend as ONNX's own tools call it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx.backend.base
import pytest
from backend_cases import Score, difference, markdown, node_tests
from checks import Workshop
from library import Library
from models import causal_chain, dense_only
from onnx import TensorProto, helper

import codegen.backend
from codegen.errors import CodegenError
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

LEAST_PASSED, LEAST_OPERATORS = {1: 300, 4: 90}, 55


def test_backend_runs_models(shop: Workshop) -> None:
    """prepare(model).run by position and by name, and run_model, equal the reference."""
    assert issubclass(codegen.backend.CodegenBackend, onnx.backend.base.Backend)
    for model in (causal_chain(), dense_only(dtype="uint8")):
        graph = load_int8(shop.save(model))
        feed = random_feed(graph)
        want = whole_clip.run(graph, feed)
        prepared = codegen.backend.prepare(model)
        for inputs in (list(feed.values()), feed):
            for port, got in zip(graph.outputs, prepared.run(inputs), strict=True):
                assert np.array_equal(got, want[port.name])
        (first, *_) = codegen.backend.run_model(model, list(feed.values()))
        assert np.array_equal(first, want[graph.outputs[0].name])


def test_backend_runs_a_node() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    x = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    (y,) = codegen.backend.run_node(node, [x])
    assert np.array_equal(y, np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max(axis=(4, 5)))


def test_backend_says_what_it_cannot() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "float", ports[:1], ports[1:]), ir_version=10)
    model.opset_import[0].version = 21
    assert not codegen.backend.is_compatible(model)
    assert codegen.backend.is_compatible(causal_chain())
    assert not codegen.backend.supports_device("CUDA")
    with pytest.raises(CodegenError, match="float"):
        codegen.backend.prepare(model)


def scoreboard(shop: Workshop, share: int) -> dict[str, Score]:
    """Node tests in the reference and, in one library, through compiled C; one in `share` of each operator."""
    scores: dict[str, Score] = defaultdict(Score)
    library = Library(shop)
    compiled = {}
    for index, (name, op, variants) in enumerate(node_tests(share)):
        score, refusal = scores[op], "no form of it fits"
        for test in variants:
            try:
                graph = library.add(shop.save(test.model), f"n{index}")
            except CodegenError as error:
                refusal = str(error.problems[0])
                continue
            compiled[f"n{index}"] = (test, whole_clip.run(graph, test.feed))
            break
        else:
            score.refused[name] = refusal
    for prefix, host in library.link().items():
        test, reference = compiled[prefix]
        host.poison(0xA5)
        wrong = difference(test, host.run(test.feed), reference)
        if wrong:
            scores[test.op].failed[test.name] = wrong
        else:
            scores[test.op].passed.append(test.name)
    return dict(scores)


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_node_tests(shop: Workshop, tmp_path: Path, share: int) -> None:
    """The scoreboard of README (all of them with --slow): none fails, and every refusal has a reason."""
    scores = scoreboard(shop, share)
    (tmp_path / "scoreboard.md").write_text(markdown(scores) + "\n")
    print(f"{tmp_path / 'scoreboard.md'}\n{markdown(scores)}")
    assert not {name: text for score in scores.values() for name, text in score.failed.items()}
    assert sum(len(score.passed) for score in scores.values()) >= LEAST_PASSED[share]
    assert sum(bool(score.passed) for score in scores.values()) >= LEAST_OPERATORS
    for op, score in scores.items():
        assert all(score.refused.values()), f"{op}: a refusal without a reason"
