"""Tiles in C: kernels on random shapes, whole models in exactly so much fast memory, layers shared by two threads."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from checks import SANITIZE, Run, Workshop
from models import Net, shrinking_clip
from streams import Session
from window_layers import Case, Layer, kernels

from codegen import CodegenError, build
from codegen.options import Options
from codegen.pipeline import compile_model
from codegen.verify.verification import verify

SHAPES = 750  # of each of the four kernels


@pytest.mark.parametrize(
    ("kind", "lanes"), [("conv", False), ("conv", True), ("conv_acc", False), ("maxpool", False), ("avgpool", False)]
)
def test_tiles_of_random_shapes_equal_the_whole_layer(kind: str, lanes: bool) -> None:
    """In place and through copies, in fast memory of exactly the planned working set."""
    r = np.random.default_rng(20_000 + len(kind))
    stages: Counter[int] = Counter()
    for _ in range(SHAPES):
        layer = Layer(kind, r)
        plan = layer.plan()
        stages[plan.stage] += 1
        case = Case(*kernels(lanes), layer, plan)
        want = case.run(False, case.ffi.NULL)
        assert np.array_equal(case.run(True, case.ffi.NULL), want), f"in place: {plan}"
        assert np.array_equal(case.run_copied(plan.working_set_bytes), want), f"copied: {plan}"
    print(kind, dict(stages))
    least = {1, 2, 3} if "pool" in kind else {1, 3}
    assert all(stages[stage] >= 20 for stage in least)


def network(border: str = "codes") -> Net:
    """Convolutions with groups, both pools, a float output: an image by rows."""
    net = Net(seed=21)
    x = net.input([1, 3, "T", 11], border=border)
    y = net.conv(x, 8, [3, 3], pads=[1, 1, 1, 1], then=[("Relu", ())])
    y = net.conv(y, 8, [3, 3], pads=[1, 1, 1, 1], group=8)
    y = net.real_op("MaxPool", [y], same=True, kernel_shape=[2, 2], strides=[2, 2])
    y = net.conv(y, 6, [1, 1])
    y = net.real_op("AveragePool", [y], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 2], count_include_pad=1)
    net.output(net.conv(y, 5, [2, 2], pads=[1, 0, 0, 1]), border)
    return net


@pytest.fixture(scope="module")
def model(shop: Workshop) -> Path:
    return shop.save(network().model())


@pytest.mark.parametrize("options", [{"fast_memory": 700}, {"cores": 3}, {"fast_memory": 300, "cores": 2}])
@pytest.mark.parametrize("border", ["codes", "float"])
def test_models_in_tiles_are_the_reference(shop: Workshop, border: str, options: dict[str, int]) -> None:
    """Codes out, and int32 accumulators."""
    g = shop.build(network(border).model(), hop=2, **options)
    session = Session(g)
    for total in (0, 1, 9, 30):
        session.clip(total, total, [[total], [1] * total], [0xA5, None])
    session.run(shop.driver(g, "gcc"))
    report = json.loads(g.files["report.json"])
    assert f"#define M_SCRATCH_BYTES {report['totals']['scratch_bytes']}" in g.files["src/m.h"]


def test_every_stage_of_a_tiled_model_is_traced(model: Path) -> None:
    result = verify(model, Options(trace=True, fast_memory=500, cores=2))
    assert result.passed and sum(item.values for item in result.stages) > 0


OWN_MEMORY = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
extern int8_t *own_memory[{cores}];
void own_copy(void *to, const void *from, int32_t bytes);
#define M_FAST_MEMORY(scratch, core) (own_memory[core])
#define M_COPY_IN(to, from, bytes) own_copy((to), (from), (bytes))
#define M_COPY_OUT(to, from, bytes) own_copy((to), (from), (bytes))
"""
OWN_CODE = """
#include "m.h"
#include <stdlib.h>
#include <string.h>
int8_t *own_memory[{cores}];
void own_copy(void *to, const void *from, int32_t bytes) {{ memcpy(to, from, (size_t)bytes); }}
__attribute__((constructor)) static void reserve(void)
{{
    for (int i = 0; i < {cores}; ++i)
        own_memory[i] = malloc({size});
}}
"""


@pytest.mark.parametrize("size", [300, 512, 1000])
def test_fast_memory_and_copies_of_ones_own(shop: Workshop, model: Path, size: int) -> None:
    """AddressSanitizer stands behind a block of exactly the planned size; the scratch then has none."""
    g = shop.build(model, fast_memory=size, cores=2)
    most = compile_model(model, Options(fast_memory=size, cores=2)).layout.fast_bytes
    assert most <= size
    (g.folder / "own.h").write_text(OWN_MEMORY.format(cores=2))
    (g.folder / "own.c").write_text(OWN_CODE.format(cores=2, size=most))
    flags = (*SANITIZE, f"-I{g.folder}", f"-I{g.folder / 'src'}", '-DM_TILES_H="own.h"')
    own = shop.objects([g.folder / "own.c"], "gcc", flags)
    session = Session(g)
    session.clip(30, 3, [[30], [7, 23]], [0xA5, None])
    session.run(shop.driver(g, "gcc", (*flags, *map(str, own))))


THREADS_H = """
struct pool;
void share(void *st, void *sc, int layer, int tasks);
#define M_PARALLEL(st, sc, layer, tasks) share((st), (sc), (layer), (tasks))
"""
THREADS_C = """
#include "m.h"
#include <pthread.h>
#include <stdio.h>

typedef struct {{ void *st, *sc; int layer, tasks, core; }} work_t;
static int shared_layers;

static void *core(void *argument)
{{
    work_t *w = argument;
    for (int i = w->core; i < w->tasks; i += 2)
        m_run_task(w->st, w->sc, w->layer, i);
    return NULL;
}}

void share(void *st, void *sc, int layer, int tasks)
{{
    work_t both[2] = {{{{st, sc, layer, tasks, 0}}, {{st, sc, layer, tasks, 1}}}};
    pthread_t other;
    if (tasks != m_tasks(layer) || tasks < 2)
        __builtin_trap();
    ++shared_layers;
    if (pthread_create(&other, NULL, core, &both[1]) != 0)
        __builtin_trap();
    core(&both[0]);
    pthread_join(other, NULL);
}}

__attribute__((destructor)) static void told(void) {{ fprintf(stderr, "%d layers shared\\n", shared_layers); }}
"""


@pytest.mark.parametrize("fast", [None, 400])
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_two_threads_share_every_layer(shop: Workshop, model: Path, fast: int | None, sanitizer: str) -> None:
    """Equal codes, and no data race."""
    g = shop.build(model, fast_memory=fast, cores=2)
    (g.folder / "threads.h").write_text(THREADS_H)
    (g.folder / "threads.c").write_text(THREADS_C.replace("{{", "{").replace("}}", "}"))
    flags = ("-std=gnu99", "-O1", "-g", "-w", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread")
    flags = (*flags, f"-I{g.folder}", f"-I{g.folder / 'src'}", '-DM_TILES_H="threads.h"')
    own = shop.objects([g.folder / "threads.c"], "gcc", flags)
    session = Session(g)
    session.clip(20, 5, [[20], [3, 1, 16]], [0xA5, None])
    session.run(shop.driver(g, "gcc", (*flags, *map(str, own))))


def test_a_budget_that_is_too_small_names_every_layer(model: Path) -> None:
    with pytest.raises(CodegenError) as caught:
        build(model, Options(fast_memory=40))
    text = str(caught.value)
    assert caught.value.exit_code == 2 and text.count("not even one output") >= 2
    least = max(int(problem.allowed.split()[-2]) for problem in caught.value.problems)
    build(model, Options(fast_memory=least))
    with pytest.raises(CodegenError):
        build(model, Options(fast_memory=least - 1))


def test_without_the_options_nothing_of_tiles_is_generated(model: Path) -> None:
    files = build(model, Options(name="m"))
    assert not any("tile" in path for path in files)
    assert "FAST_MEMORY" not in files["src/m.h"] and "run_task" not in files["src/m.c"]
    assert build(model, Options(name="m", fast_memory=1 << 20))["src/m.c"] == files["src/m.c"]


def test_the_plan_of_tiles_is_in_the_report(model: Path) -> None:
    """Of every convolution and pool the block, and what each stage that was tried gave."""
    compiled = compile_model(model, Options(fast_memory=500, cores=2))
    rows = compiled.report.to_json()["tiles"]
    windows = [node.onnx_name for node in compiled.graph.nodes if node.op_type in ("Conv", "MaxPool", "AveragePool")]
    assert [row["name"] for row in rows] == windows
    for row in rows:
        assert row["working_set_bytes"] <= 500 and row["tasks"] >= 2
        assert [a["stage"] for a in row["attempts"]] == list(range(row["stage"] + 1))
        assert [a["chosen"] for a in row["attempts"]] == [False] * row["stage"] + [True]
        assert all(a["reason"] for a in row["attempts"])
    assert compile_model(model, Options()).report.to_json()["tiles"] == []


STRICT = "-std=c99 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror".split()


def uncut() -> Net:
    """An Add, and a convolution of one output."""
    net = Net(seed=1)
    x = net.input([1, 4, "T"])
    net.output(net.conv(net.add(x, x), 1, [3]))
    return net


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("options", [{"fast_memory": 300}, {"cores": 2}, {"fast_memory": 300, "cores": 3}])
@pytest.mark.parametrize("trace", [False, True])
def test_strict_warnings(shop: Workshop, model: Path, compiler: str, options: dict[str, int], trace: bool) -> None:
    g = shop.build(model, trace=trace, **options)
    shop.objects(g.sources, compiler, STRICT)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("lanes", [(), ("-DM_RT_TARGET_LANES",)])
def test_strict_warnings_in_other_plans(shop: Workshop, compiler: str, lanes: tuple[str, ...]) -> None:
    for plan in ("stream", "hybrid", "whole"):
        shop.objects(shop.build(shrinking_clip(), plan=plan).sources, compiler, [*STRICT, *lanes])


def test_cores_without_a_layer_to_share(shop: Workshop) -> None:
    """The tasks are there, and there are none; the codes are those of one core."""
    g = shop.build(uncut().model(), cores=2)
    for compiler in ("gcc", "clang"):
        shop.objects(g.sources, compiler, STRICT)
    session = Session(g)
    session.clip(12, 3, [[12], [5, 7]], [0xA5, None])
    session.run(shop.driver(g, "gcc"))
    assert "m_tasks(int layer)" in g.files["src/m.h"] and "#define M_CORES 2" in g.files["src/m.h"]


@pytest.mark.parametrize("options", [{"fast_memory": 300, "cores": 2}, {"cores": 3}, {"fast_memory": 500}])
def test_other_hops_count_their_tiles(model: Path, options: dict[str, int]) -> None:
    """The table of hops says what a build with that hop needs."""
    for row in compile_model(model, Options(**options)).report.hops:
        layout = compile_model(model, Options(hop=row.hop, **options)).layout
        assert (row.state_bytes, row.scratch_bytes) == (layout.state_bytes, layout.scratch_bytes), row.hop


@pytest.mark.parametrize("arguments", [["--cores", "3000000000"], ["--cores", "0"], ["--fast-memory", "-1"]])
def test_senseless_numbers_are_refused(model: Path, arguments: list[str], run: Run) -> None:
    code, _, err = run("build", model, "-o", "out", *arguments)
    assert code == 2 and "a whole number from 1 to" in err
