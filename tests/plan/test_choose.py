"""Which plan is taken: RAM against the largest push, budgets, and what is shown of the choice."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import onnx
import pytest
from checks import Run, Workshop
from models import Net, image_clip, shrinking_clip

from codegen import importing
from codegen.kernels import KERNELS
from codegen.options import PREFERENCES, Options
from codegen.passes.hybrid import hybrids
from codegen.pipeline import compile_model
from codegen.plan import streaming
from codegen.plan.choose import WORTH, PlanRow, Point, balance
from codegen.plan.hops import macs_per_push
from codegen.plan.kernels import PORTABLE, choose
from codegen.plan.layout import layout


def image(seed: int, channels: tuple[int, ...]) -> onnx.ModelProto:
    """Rows of an image: late layers are cheap to keep whole, and dear to run at once."""
    net = Net(seed=seed)
    x = net.input([1, 3, 32, 32])
    for i, count in enumerate(channels):
        stride = 1 if i % 2 else 2
        x = net.conv(x, count, [3, 3], pads=[1, 1, 1, 1], strides=[stride, stride])
    net.output(net.gemm(net.code_op("Flatten", net.real_op("GlobalAveragePool", [x]), axis=1), 3))
    return net.model()


MODELS = {
    "three": lambda: image(1, (4, 8, 8, 16, 16, 32)),
    "two": lambda: image(2, (8, 8, 16, 16, 32, 32, 64)),
    "shrinking": shrinking_clip,
    "one": image_clip,
}


@pytest.fixture(scope="module", params=MODELS)
def model(shop: Workshop, request: pytest.FixtureRequest) -> Path:
    return shop.save(MODELS[request.param]())


def row(path: Path, options: Options) -> PlanRow:
    plan = compile_model(path, options).report.plan
    assert plan is not None
    return plan


def chosen(plan: PlanRow) -> Point:
    return next(point for point in plan.tried if point.cut == plan.cut and point.ram_bytes is not None)


def test_the_rule_by_hand() -> None:
    """Twice the largest push is worth a saving of the stated share, and not a byte less."""
    ram = 10_000
    enough = int(ram * (1 - WORTH))
    assert balance(enough - 1, 2000) < balance(ram, 1000) < balance(enough + 1, 2000)
    assert balance(int(enough * (1 - WORTH)) - 1, 4000) < balance(ram, 1000)
    assert balance(ram - 1, 1000) < balance(ram, 1000), "a byte that costs nothing is saved"


def test_the_front_is_not_beaten(model: Path) -> None:
    """No plan that was placed beats one of the front in both; each end is one that is asked for."""
    plan = row(model, Options())
    placed = [p for p in plan.tried if p.ram_bytes is not None]
    for point, other in itertools.product(plan.front, placed):
        assert not (other.ram_bytes < point.ram_bytes and other.push_macs <= point.push_macs)
        assert not (other.ram_bytes <= point.ram_bytes and other.push_macs < point.push_macs)
    ends = {preference: chosen(row(model, Options(plan_for=preference))) for preference in PREFERENCES}
    assert ends["latency"] == plan.front[0] and ends["ram"] == plan.front[-1]
    assert ends["balanced"] == min(plan.front, key=lambda p: balance(p.ram_bytes or 0, p.push_macs))


def test_the_front_is_complete(model: Path) -> None:
    """Every plan that was left out for a bound is placed after all: none of them belongs to the front."""
    plan, options = row(model, Options()), Options()
    source = importing.read(model, options)
    for name, cut in hybrids(source.graph, source.whole or source.graph):
        schedule = streaming.plan(cut.time_graph())
        push = macs_per_push(cut, schedule)
        memory = layout(cut, schedule, choose(cut, PORTABLE, (), KERNELS))
        assert any(p.push_macs <= push and (p.ram_bytes or 0) <= memory.ram_bytes for p in plan.front), name


def test_some_model_has_a_choice(shop: Workshop) -> None:
    fronts = [len(row(shop.save(make()), Options()).front) for make in MODELS.values()]
    assert max(fronts) >= 3, fronts


def test_a_budget_takes_the_least_latency_that_fits(model: Path) -> None:
    plan = row(model, Options())
    for point in plan.front:
        assert chosen(row(model, Options(ram_budget=point.ram_bytes))) == point
        assert chosen(row(model, Options(ram_budget=(point.ram_bytes or 0) - 1, plan_for="ram"))) == plan.front[-1]
    generous = row(model, Options(ram_budget=1 << 20))
    assert chosen(generous) == plan.front[0]


def test_it_is_shown(shop: Workshop, run: Run, tmp_path: Path) -> None:
    path = shop.save(MODELS["three"]())
    plan = row(path, Options())
    assert len(plan.front) > 1
    code, out, _ = run("analyze", path)
    assert code == 0
    for point in plan.front:
        assert any(str(point.ram_bytes) in line and str(point.push_macs) in line for line in out.splitlines())
    assert sum("chosen" in line for line in out.splitlines()) == 1
    (tmp_path / "codegen.toml").write_text('plan_for = "ram"\n')
    _, out, _ = run("analyze", path, "--json")
    found = json.loads(out)["plan"]
    assert found["plan_for"] == "ram" and found["front"][-1]["chosen"]
    assert run("analyze", path, "--plan-for", "speed")[0] == 2
    (tmp_path / "codegen.toml").write_text('plan_for = "speed"\n')
    code, _, err = run("analyze", path)
    assert code == 2 and "one of balanced, ram, latency" in err
