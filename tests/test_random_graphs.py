"""Random graphs x lengths x chunkings: streamed C under sanitizers == whole-clip reference, each clip twice.

A graph is a seed: `pytest tests/test_random_graphs.py -k "batch[3"` runs a batch again, and
`python tests/test_random_graphs.py SEED` runs one seed. The slow search stops after `--search-seconds`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from batches import FAST, Batch
from checks import Generated, Workshop, legal_length, runtime_run
from random_graphs import Census, random_graph
from streams import Session, random_session, run_reference

from codegen.ir.graph import Graph
from codegen.ops.int8 import PairS8
from codegen.ops.reduce import AveragePoolS8
from codegen.pipeline import load_int8
from codegen.reference import whole_clip
from codegen.verify import random_feed

BATCHES = 25
GRAPHS = 13  # per batch: 325 in a normal run
SANITIZE = ("-std=c99", "-O0", "-g", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CENSUS = 200  # graphs whose contents are counted
SEARCH_BATCH = 40
SHARE = 3  # every third graph is compared with onnxruntime too
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


def against_runtime(g: Generated, seed: int) -> None:
    """The reference equals onnxruntime where every operator is exact.

    Add, Sub, Mul, AveragePool and operators that onnxruntime runs in float (ConvTranspose, grouped forms) round ties
    their own way there (DESIGN.md section 6): one code at that operator, which later layers spread. So graphs that hold
    them are compared statistically: most codes equal.
    """
    feed = random_feed(g.graph, legal_length(g.graph, 60), seed)
    ours, theirs = whole_clip.run(g.graph, feed), runtime_run(g.path, feed)
    for port in g.graph.outputs:
        a, b = (np.asarray(v[port.name], np.float64) for v in (ours, theirs))
        assert a.shape == b.shape, f"seed {seed}, {port.name}: {a.shape}, onnxruntime {b.shape}"
        step = port.qparams.scale if port.qparams and ours[port.name].dtype == np.float32 else 1.0
        different = np.abs(a - b) > 1e-3 * step
        loose = any(isinstance(n.op, PairS8 | AveragePoolS8) for n in g.graph.nodes)
        allowed = 0.05 if loose else 0.02
        assert different.mean() <= allowed, f"seed {seed}, {port.name}: {different.mean():.3f} differ from onnxruntime"


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
    _, failures = run_batch(shop, seeds, ("gcc", "clang")[number % 2], SANITIZE)
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
            flags = SANITIZE if number % 4 == 0 else FAST
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
