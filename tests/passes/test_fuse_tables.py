"""A change of scale in front of a Concat moves into it; the codes stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from models import Net

from codegen.ops.move import ConcatS8
from codegen.ops.table import LutS8
from codegen.options import Options
from codegen.pipeline import load_int8
from codegen.reference.whole_clip import run_codes
from codegen.verify.verification import random_feed, verify


def joined(path: Path) -> Path:
    net = Net("int8", seed=11)
    x = net.input([1, 3, "T"])
    a = net.conv(x, 4, [3], pads=[1, 1])
    b = net.conv(x, 2, [1])
    net.output(net.real_op("Concat", [a, b], axis=1))
    path.write_bytes(net.model().SerializeToString())
    return path


def test_no_table_of_its_own_remains(tmp_path: Path) -> None:
    graph = load_int8(joined(tmp_path / "joined.onnx"))
    concat = next(node.op for node in graph.nodes if isinstance(node.op, ConcatS8))
    assert sum(table is not None for table in concat.tables) >= 1
    assert not any(isinstance(node.op, LutS8) for node in graph.nodes)
    codes = np.random.default_rng(1).integers(-128, 128, (9, 3)).astype(np.int8)
    assert run_codes(graph, {graph.inputs[0].tensor: codes})[graph.outputs[0].tensor].shape[0] == 9


def test_c_and_onnxruntime_agree(tmp_path: Path) -> None:
    path = joined(tmp_path / "joined.onnx")
    result = verify(path, Options())
    assert result.passed and result.values > 0
    assert random_feed(load_int8(path))
