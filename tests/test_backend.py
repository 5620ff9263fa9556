"""ONNX's backend node tests through the generated C, and codegen.backend as ONNX's own tools call it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx.backend.base
import pytest
from backend_cases import LETTERS, Score, difference, markdown, node_tests
from checks import Workshop
from library import Library
from models import causal_chain, dense_only
from onnx import TensorProto, helper
from paths import ROOT

import codegen.backend
from codegen.errors import CodegenError
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed


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


def scoreboard(shop: Workshop, letters: str) -> dict[str, Score]:
    """Node tests in the reference and, in one library, through compiled C: of operators with these letters."""
    scores: dict[str, Score] = defaultdict(Score)
    library = Library(shop)
    compiled = {}
    for index, (name, op, variants) in enumerate(node_tests(letters)):
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


def board() -> dict[str, str]:
    """The rows of docs/onnx-board.md by operator."""
    text = (ROOT / "docs" / "onnx-board.md").read_text(encoding="utf-8")
    rows = text.split("<!-- board -->\n")[1].split("<!-- end of board -->")[0].strip().splitlines()[2:]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}


HALVES = (LETTERS[:16], LETTERS[16:])


@pytest.mark.search
@pytest.mark.parametrize("letters", HALVES)
def test_node_tests(shop: Workshop, letters: str) -> None:
    """None fails, every refusal has a reason, and docs/onnx-board.md says just that."""
    scores = scoreboard(shop, letters)
    print(markdown(scores))
    assert not {name: text for score in scores.values() for name, text in score.failed.items()}
    for op, score in scores.items():
        assert all(score.refused.values()), f"{op}: a refusal without a reason"
    made = dict(zip(sorted(scores), markdown(scores).splitlines()[2:], strict=True))
    assert made == {op: row for op, row in board().items() if op[0] in letters}, "docs/onnx-board.md has other rows"


def test_the_board_adds_up() -> None:
    text = (ROOT / "docs" / "onnx-board.md").read_text(encoding="utf-8")
    run, passed, refused, failed = np.sum([list(map(int, row.split(" | ")[1:5])) for row in board().values()], axis=0)
    said = f"{run} run, {passed} passed over about {len(board()) // 10 * 10} operators, {refused} refused with a reason"
    assert said in " ".join(text.split()) and failed == 0, said
