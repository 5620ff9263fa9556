"""Clips in every plan and every form of memory: streamed C under sanitizers == whole-clip reference, each clip twice.

A random clip is built streamed, in hybrid form at every legal cut, and whole; in the order of the file or in another;
with new rows and histories apart, in one block, and with an address for every row; with several hops; and in tiles.
`PYTHONPATH=tests/support python tests/plan/test_plans.py SEED` runs one seed.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from batches import LANES, Batch
from checks import Generated, Workshop, split, write_generated
from random_graphs import SAMPLE, random_clip
from streams import Session

from codegen import CodegenError, importing
from codegen.kernels import KERNELS
from codegen.options import Options
from codegen.passes.hybrid import hybrids
from codegen.pipeline import compile_chosen, load_int8
from codegen.plan import streaming
from codegen.plan.choose import Chosen, PlanRow
from codegen.plan.kernels import PORTABLE, choose
from codegen.plan.layout import FORMS, form_of
from codegen.plan.memory import place
from codegen.plan.order import orders
from codegen.plan.tiling import plan_layers

pytestmark = pytest.mark.search

SANITIZE = ("-std=c99", "-O0", "-g", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BATCHES = 6
GRAPHS = 4
LENGTHS = (24, 24, 48, 72)
MOST_CUTS = 2
UNFIT = ("axes inside a frame", "all 72")


def variants(path: Path, seed: int, stream: str) -> Iterator[tuple[str, Chosen, Options]]:
    """Every way to run a clip: what it is, the plan, and the options that it stands for."""
    r = np.random.default_rng(seed)
    options = Options(stream=stream)
    graph = load_int8(path, options)
    graphs = {"stream": graph}
    try:
        whole = load_int8(path, Options(plan="whole"))
        graphs["whole"] = whole
        cuts = list(hybrids(graph, whole))
        graphs |= {f"hybrid {name}": cut for name, cut in [cuts[i] for i in r.permutation(len(cuts))[:MOST_CUTS]]}
    except CodegenError:
        pass  # three axes inside a frame, and a stream axis more
    for kind, imported in graphs.items():
        for form in FORMS:
            ordered = list(orders(imported))
            g = ordered[int(r.integers(len(ordered)))]
            hop = int(r.choice([1, 2, 3])) if form != "rows" and not kind.startswith("whole") else 1
            cores, fast = int(r.choice([1, 1, 2, 3])), None
            if r.random() < 0.4:
                smallest = max((t.working_set_bytes for t in plan_layers(g, None, 10**9).values()), default=64)
                fast = int(smallest + r.integers(0, 400))
            tiles, copied = {}, 0
            if cores > 1 or fast is not None:
                tiles = plan_layers(g, fast, cores)
                cut = [t.working_set_bytes for t in tiles.values() if t.is_cut]
                copied = max(cut, default=0) if fast is not None else 0
            plan = streaming.plan(g.time_graph(), hop)
            kernels = choose(g, PORTABLE, [name for name, t in tiles.items() if t.is_cut], KERNELS)
            memory = form_of(form, g, plan, kernels)
            if memory is None:
                continue
            memory = replace(memory, fast_bytes=copied, cores=cores)
            chosen = Chosen(g, plan, memory, kernels, PlanRow(kind.split()[0]), tiles)
            yield f"{kind}, {form}, hop {hop}, {cores} cores, fast {fast}", chosen, options


def build(shop: Workshop, seed: int) -> tuple[list[tuple[str, Generated]], Counter[str]]:
    """All variants of the clip of a seed, and how many there are of what."""
    r = np.random.default_rng(seed)
    frames = int(r.choice(LENGTHS))
    try:
        model, axis = random_clip(seed, frames, ended=seed % 3 != 0)
    except Exception:  # onnxruntime, calibrating: strides whose product does not divide the length
        model, axis = random_clip(seed, SAMPLE, ended=seed % 3 != 0)
    path = shop.save(model)
    made, census = [], Counter[str]()
    for i, (what, chosen, options) in enumerate(variants(path, seed, str(axis))):
        name = f"g{seed}_{i}"
        options = replace(options, name=name)  # noqa: PLW2901
        source = importing.read(path, options)
        compiled = compile_chosen(path, source.model.digest, chosen, options)
        made.append((what, write_generated(path.parent / name, path, compiled)))
        census.update(part.split()[0] for part in what.split(", ")[:2])
        census["tiled"] += any(t.is_cut for t in chosen.tiles.values())
        census["shared"] += sum(p.shared > 0 for p in (chosen.memory.arena, chosen.memory.overlay) if p)
    return made, census


def run(shop: Workshop, seeds: range, compiler: str) -> Counter[str]:
    """Build and run; the same codes from every variant, the reference's."""
    flags = (*SANITIZE, *(LANES if seeds[0] % 2 else ()))
    batch, built, census = Batch(shop, compiler, flags), [], Counter[str]()
    for seed in seeds:
        try:
            made, counted = build(shop, seed)
        except CodegenError as error:
            if any(text in str(error) for text in UNFIT):
                census["too short"] += 1
                continue
            raise AssertionError(f"seed {seed}: {error}") from error
        census += counted
        for what, g in made:
            batch.add(g)
            built.append((seed, what, g))
    program = batch.link()
    for seed, what, g in built:
        r = np.random.default_rng(seed)
        whole = all(port.view.time_axis is None for port in g.graph.inputs)
        total = 1 if whole else g.graph.clip_length
        session = Session(g)
        session.clip(total, seed, [split(total, r), split(total, r), [total]], [0xA5, None, 0x5A])
        try:
            session.run(program, g.manifest["name"])
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {what}: {error}") from error
        census["values"] += session.values
    return census


@pytest.mark.parametrize("number", range(BATCHES))
def test_batch(shop: Workshop, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen.plan.layout.place", partial(place, work=0))  # any placement will do
    census = run(shop, range(number * GRAPHS, (number + 1) * GRAPHS), ("gcc", "clang")[number % 2])
    print(dict(census))
    assert census["stream"] >= 2 * GRAPHS and census["rows"] >= GRAPHS and census["tiled"] >= GRAPHS


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        one = int(sys.argv[1])
        last = int(sys.argv[2]) if len(sys.argv) > 2 else one + 1
        print(run(Workshop(Path(folder), Path(folder) / "cache"), range(one, last), "gcc"))
