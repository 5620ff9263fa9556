"""Random graphs x lengths x chunkings: streamed C under sanitizers == whole-clip reference, each clip twice.

A graph is a seed: `pytest tests/whole/test_random_graphs.py -k "batch[3"` runs a batch again, and
`PYTHONPATH=tests/support python tests/whole/test_random_graphs.py SEED` runs one seed. The slow search stops after
`--search-seconds`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from batches import FAST, LANES, Batch
from checks import Generated, Workshop, legal_length, runtime_run
from onnx import helper
from random_graphs import Census, random_graph
from streams import Session, random_session, run_reference

from codegen.ir.graph import Graph
from codegen.ir.op import Op
from codegen.ops.pool import AveragePoolS8
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify.verification import random_feed

pytestmark = pytest.mark.search

BATCHES = 25
GRAPHS = 13  # per batch: 325 in a normal run
SANITIZE = ("-std=c99", "-O0", "-g", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CENSUS = 200  # graphs whose contents are counted
SEARCH_BATCH = 40
SHARE = 3  # every third graph is compared with onnxruntime too
TIES = {"PairS8", "AveragePoolS8", "ConvTransposeS8", "LutS8", "LutChannelsS8"}  # onnxruntime computes these in float
PER_GRAPH = {"joins": 1.2, "transposed": 0.25, "upsampled": 0.15, "unsigned": 0.35, "odd_zero": 5.0}


def make(shop: Workshop, seed: int) -> Generated:
    hop = int(np.random.default_rng(seed).choice([1, 1, 1, 2, 3, 5, 7]))
    return shop.build(random_graph(seed), hop=hop, name=f"g{seed}")


def census_of(graph: Graph, seed: int) -> Census:
    """Counts of one graph, from the codes of one long random clip."""
    feed = random_feed(graph, legal_length(graph, 150), seed)
    codes = run_reference(graph, {p.tensor: whole_clip.quantize_input(feed[p.name], p) for p in graph.inputs})
    assert codes is not None
    census = Census()
    census.add(graph, codes)
    return census


def overhangs(op: Op) -> bool:
    """AveragePool with ceil_mode and count_include_pad: onnxruntime's fused kernel divides the last window by the whole
    kernel, where ONNX counts real and explicitly padded cells only (found by seed 1008255: 48 codes apart)."""
    ceil = isinstance(op, AveragePoolS8) and any(w.ceil_mode for w, _ in op.geometry.axes(0))
    return ceil and isinstance(op, AveragePoolS8) and op.count_include_pad


def against_runtime(g: Generated, seed: int) -> Counter[str]:
    """Operator by operator on onnxruntime's own codes of the operands: how many codes differ from its result, by type.

    Never by more than one code. What onnxruntime computes in float (ConvTranspose, AveragePool, functions) or rounds
    after adding the zero point (Add, Sub, Mul) decides ties its own way (docs/numbers.md); all else is equal.
    """
    model = onnx.load(g.path)
    made = {name for node in model.graph.node for name in node.output}
    names = [name for name in g.graph.taps if name in made]
    kind = onnx.TensorProto.UINT8 if any(p.unsigned for p in g.graph.inputs) else onnx.TensorProto.INT8
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(name, kind, None) for name in names)
    path = g.path.with_name("taps.onnx")
    path.write_bytes(model.SerializeToString())
    feed = random_feed(g.graph, legal_length(g.graph, 60), seed)
    theirs = {}
    for name, array in runtime_run(path, feed, names).items():
        codes = (array.astype(np.int16) - 128).astype(np.int8) if array.dtype == np.uint8 else array
        view = g.graph.taps[name]
        theirs[view.tensor] = whole_clip.to_frames(codes, view)
    values = {p.tensor: whole_clip.quantize_input(feed[p.name], p) for p in g.graph.inputs}
    different: Counter[str] = Counter()
    for node in g.graph.nodes:
        shape = g.graph.tensors[node.output].frame_shape
        operands = [values[x].reshape(-1, *g.graph.tensors[x].frame_shape) for x in node.inputs]
        ours = node.op.reference(operands).reshape(-1, *shape)
        values[node.output] = theirs.get(node.output, ours).reshape(ours.shape)
        if overhangs(node.op):
            continue
        gap = np.abs(values[node.output].astype(np.int16) - ours)
        assert gap.max(initial=0) <= 1, f"{node.where}: {gap.max()} codes away from onnxruntime"
        kind_of = type(node.op).__name__
        assert kind_of in TIES or not gap.any(), f"{node.where} differs from onnxruntime"
        different[kind_of] += int(np.count_nonzero(gap))
        different["all"] += gap.size
    return different


def run_batch(
    shop: Workshop, seeds: range, compiler: str, flags: tuple[str, ...]
) -> tuple[list[Session], dict[int, str]]:
    """Build, compile and run the graphs of some seeds in one program; what ran, and the failures by seed."""
    batch, built, sessions, failures = Batch(shop, compiler, flags), {}, [], {}
    for seed in seeds:
        try:
            g = make(shop, seed)
            batch.add(g)
            built[seed] = g
        except Exception as error:
            failures[seed] = f"{type(error).__name__}: {error}"
    program = batch.link()
    for seed, g in built.items():
        try:
            session = random_session(g, seed)
            session.run(program, g.manifest["name"])
            sessions.append(session)
            if seed % SHARE == 0:
                against_runtime(g, seed)
        except (Exception, pytest.fail.Exception) as error:
            failures[seed] = f"{type(error).__name__}: {error}"
    return sessions, failures


@pytest.mark.parametrize("number", range(BATCHES))
def test_batch(shop: Workshop, number: int) -> None:
    seeds = range(number * GRAPHS, (number + 1) * GRAPHS)
    flags = (*SANITIZE, *(LANES if number % 4 < 2 else ()))
    _, failures = run_batch(shop, seeds, ("gcc", "clang")[number % 2], flags)
    assert not failures, "\n".join(f"seed {seed}: {text[:600]}" for seed, text in failures.items())


def test_census(shop: Workshop) -> None:
    """The generator makes what it says, and its tensors are alive: 90 % of them use 64 codes or more."""
    total = Census()
    for seed in range(CENSUS):
        total += census_of(load_int8(shop.save(random_graph(seed))), seed)
    print("\n".join(total.lines()))
    assert total.wide >= 0.9 * total.tensors
    for name, least in PER_GRAPH.items():
        assert getattr(total, name) >= least * CENSUS, f"{name}: {getattr(total, name)} in {CENSUS} graphs"
    kinds = {"ConvS8", "ConvTransposeS8", "MaxPoolS8", "AveragePoolS8", "UpsampleS8", "PairS8", "ConcatS8", "PadFrames"}
    assert kinds <= set(total.operators)


@dataclass
class Search:
    """A search over many seeds: graphs run, values compared, clips refused, failures by seed."""

    graphs: int = 0
    values: int = 0
    refused: int = 0
    seconds: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.graphs} graphs, {self.values} values equal, {self.refused} clips refused on both sides"
        text += f", {len(self.failures)} failures, {self.seconds:.0f} s"
        return text + "".join(f"\n  seed {seed}: {why[:300]!r}" for seed, why in self.failures.items())


def search(first: int, graphs: int, seconds: float, report: Callable[[Search], None]) -> Search:
    """Batches of seeds from `first` on, until `graphs` or the time is used up. One batch in four under sanitizers."""
    found, start = Search(), time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        for number, at in enumerate(range(first, first + graphs, SEARCH_BATCH)):
            if found.seconds > seconds:
                break
            flags = (*(SANITIZE if number % 4 == 0 else FAST), *(LANES if number % 2 else ()))
            seeds = range(at, min(at + SEARCH_BATCH, first + graphs))
            with tempfile.TemporaryDirectory() as folder:
                sessions, failures = run_batch(Workshop(Path(folder), Path(cache)), seeds, "gcc", flags)
            found.graphs += len(seeds)
            found.values += sum(s.values for s in sessions)
            found.refused += sum(s.refused for s in sessions)
            found.failures |= failures
            found.seconds = time.monotonic() - start
            report(found)
    return found


@pytest.mark.slow
def test_search(pytestconfig: pytest.Config) -> None:
    """20,000 graphs, or as many as `--search-seconds` allows."""
    found = search(1_000_000, 20_000, float(pytestconfig.getoption("--search-seconds")), lambda _: None)
    print(found)
    assert not found.failures, str(found)


if __name__ == "__main__":
    # SEED: one graph. FIRST GRAPHS SECONDS: a search, with its state after every batch.
    numbers = [int(text) for text in sys.argv[1:]]
    if len(numbers) == 1:
        print(search(numbers[0], 1, 0.0, lambda _: None))
    else:
        search(numbers[0], numbers[1], numbers[2], lambda found: print(found, flush=True))
