"""Budgets: exact limits, the table of what is largest, the nearest option, measured stack."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checks import Workshop, require_tool, run_tool
from models import Net, shrinking_clip

from codegen import budgets, cli, pipeline, toolchain
from codegen.errors import CodegenError
from codegen.options import Options
from codegen.stack_usage import deepest, longest


def small(shop: Workshop) -> Path:
    """Two causal convolutions on an endless stream of 4 channels."""
    net = Net(seed=3)
    x = net.input([1, 4, "T"])
    for _ in range(2):
        x = net.conv(x, 8, (3,), pads=[2, 0])
    net.output(x)
    return shop.save(net.model())


@pytest.fixture(scope="module")
def model(shop: Workshop) -> Path:
    return small(shop)


def refused(path: Path, options: Options) -> str:
    with pytest.raises(CodegenError) as caught:
        pipeline.build(path, options)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_ram_limit_is_exact(model: Path) -> None:
    compiled = pipeline.compile_model(model, Options())
    needed = compiled.report.state_bytes + compiled.report.scratch_bytes
    pipeline.build(model, Options(ram_budget=needed))
    text = refused(model, Options(ram_budget=needed - 1))
    assert f"{needed - 1} B are allowed, 1 B too many" in text
    assert f"state {compiled.report.state_bytes} + scratch {compiled.report.scratch_bytes} = {needed} B" in text
    assert "kept frames of" in text


def test_a_smaller_hop_is_named_if_it_fits(model: Path) -> None:
    """The largest smaller hop that fits; and where none fits, the least memory that there is."""
    sizes = {}
    for hop in (1, 2, 4, 16):
        report = pipeline.compile_model(model, Options(hop=hop)).report
        sizes[hop] = report.state_bytes + report.scratch_bytes
    assert sizes[1] <= sizes[2] <= sizes[4] < sizes[16]
    assert f"--hop 4 fits: {sizes[4]} B" in refused(model, Options(hop=16, ram_budget=sizes[4]))
    assert f"--hop 1 fits: {sizes[1]} B" in refused(model, Options(hop=16, ram_budget=sizes[1]))
    assert f"with {sizes[1]} B" in refused(model, Options(hop=16, ram_budget=8))


def test_alternatives_in_order(model: Path) -> None:
    layout = pipeline.compile_model(model, Options(hop=6)).layout
    given = [text for text, _ in budgets.alternatives(Options(hop=6, plan="stream"), layout)]
    assert given == ["--hop 4", "--hop 2", "--hop 1", "--plan hybrid", "--plan whole"]
    given = [text for text, _ in budgets.alternatives(Options(hop=2), layout)]
    assert given == ["--hop 1", "--plan whole"], "auto is the best of stream and hybrid"


def test_a_hybrid_cut_is_named_if_it_fits(shop: Workshop) -> None:
    path = shop.save(shrinking_clip())
    sizes = {plan: pipeline.compile_model(path, Options(plan=plan)).layout.ram_bytes for plan in ("stream", "hybrid")}
    text = refused(path, Options(plan="stream", ram_budget=sizes["hybrid"]))
    assert f"--plan hybrid fits: {sizes['hybrid']} B" in text
    assert "No hop, plan or tile fits; the least is" in refused(path, Options(plan="stream", ram_budget=100))


def test_smaller_tiles_are_named_if_they_fit(shop: Workshop) -> None:
    """Memory for tiles is RAM: what the budget leaves for it, as long as every layer still has a tile."""
    path = shop.save(shrinking_clip())
    plain = pipeline.compile_model(path, Options(plan="stream", fast_memory=1 << 16)).layout
    large = pipeline.compile_model(path, Options(plan="stream", fast_memory=700)).layout
    assert large.fast_bytes > 500 and large.cores == 1
    budget = large.ram_bytes - large.fast_bytes + 240
    text = refused(path, Options(plan="stream", fast_memory=700, ram_budget=budget))
    assert "--fast-memory 240 fits" in text and "tiles: " in text
    assert plain.fast_bytes == 0
    without = plain.ram_bytes
    assert f"no --fast-memory fits: {without} B" in refused(
        path, Options(plan="stream", fast_memory=700, ram_budget=without)
    )
    text = refused(path, Options(plan="stream", fast_memory=700, ram_budget=100))
    named = re.search(r"the least is .* with (\d+) B", text)
    assert named is not None and int(named[1]) <= min(without, large.ram_bytes)


def test_flash_counts_every_table(model: Path, shop: Workshop) -> None:
    """The tables of the plan are the read-only data of the compiled weights file, and the limit is exact."""
    compiled = pipeline.compile_model(model, Options(name="m"))
    parts = budgets.flash_parts(compiled)
    needed = sum(part.bytes for part in parts)
    assert needed == compiled.report.constant_bytes
    tables = sum(part.bytes for part in parts if part.kind == "table")
    assert tables == compiled.report.weight_bytes
    pipeline.build(model, Options(flash_budget=needed))
    text = refused(model, Options(flash_budget=needed - 1))
    assert f"constants {needed} B, code not counted" in text and "1 B too many" in text
    built = shop.build(model)
    weights = next(s for s in built.sources if s.name == "m_weights.c")
    target = built.folder / "weights.o"
    run_tool([require_tool("gcc"), "-std=c99", "-Os", "-c", weights, "-o", target])
    listing = run_tool([require_tool("nm"), "-S", target]).stdout.splitlines()
    sizes = [int(line.split()[1], 16) for line in listing if len(line.split()) == 4 and line.split()[2] in "Rr"]
    assert sum(sizes) == tables


def test_flash_of_row_addresses_can_be_saved(shop: Workshop) -> None:
    path = shop.save(shrinking_clip())
    compiled = pipeline.compile_model(path, Options(plan="stream"))
    table = 2 * len(compiled.layout.row_table)
    assert table > 0
    needed = compiled.report.constant_bytes
    text = refused(path, Options(plan="stream", flash_budget=needed - table))
    assert f"--hop 2 fits: it needs no row addresses, {needed - table} B" in text
    pipeline.build(path, Options(plan="stream", hop=2, flash_budget=needed - table))
    assert "No option makes weights smaller" in refused(path, Options(plan="stream", flash_budget=needed - table - 1))


def test_all_budgets_are_reported_at_once(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["build", str(model), "-o", str(tmp_path / "out"), "--json", "--ram-budget", "8", "--flash-budget", "8"]
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["exit_code"] == 2 and result["error"] == "budget"
    assert [p["where"] for p in result["problems"]] == ["ram_budget", "flash_budget"]
    assert "B  state" in printed.err
    assert not (tmp_path / "out").exists(), "a build that fails writes nothing"


def test_budgets_in_the_options_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "codegen.toml"
    config.write_text("ram_budget = 8\n")
    assert cli.main(["build", str(model), "-o", str(tmp_path / "out"), "--config", str(config)]) == 2
    assert "8 B are allowed" in capsys.readouterr().err
    config.write_text("ram_budget = -1\n")
    assert cli.main(["build", str(model), "-o", str(tmp_path / "out"), "--config", str(config)]) == 2
    assert "a whole number of bytes" in capsys.readouterr().err


def test_stack_is_measured_and_the_limit_is_exact(model: Path) -> None:
    require_tool("gcc")
    files = pipeline.build(model, Options(name="m"))
    usage = deepest(files, "m")
    assert usage.problem == "" and usage.bytes == sum(size for _, size in usage.chain) > 0
    assert usage.chain[0][0].startswith("m_")
    pipeline.build(model, Options(name="m", stack_budget=usage.bytes))
    text = refused(model, Options(name="m", stack_budget=usage.bytes - 1))
    assert f"{usage.bytes} B in the deepest chain of calls" in text


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A PATH of compilers that are made by name and what they run: the host's gcc, or one without a C library."""
    bare, gcc, tools = tmp_path / "bin", require_tool("gcc"), os.environ["PATH"]
    bare.mkdir()

    def make(name: str, flags: str) -> None:
        (bare / name).write_text(f'#!/bin/sh\nPATH="{tools}" exec {gcc} {flags} "$@"\n')
        (bare / name).chmod(0o755)

    monkeypatch.setenv("PATH", str(bare))
    toolchain.forget()
    yield make
    toolchain.forget()


def test_stack_without_a_compiler(model: Path, compilers: Callable[[str, str], None]) -> None:
    assert "gcc is not installed" in refused(model, Options(stack_budget=1 << 20))
    compilers("arm-none-eabi-gcc", "-nostdinc")
    toolchain.forget()
    text = refused(model, Options(stack_budget=1 << 20))
    assert "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb has no C library" in text and "; gcc is not installed" in text


def test_a_cross_compiler_without_a_c_library_does_not_count(
    model: Path, compilers: Callable[[str, str], None]
) -> None:
    """The host's gcc measures instead, and the text says which compiler measured."""
    compilers("arm-none-eabi-gcc", "-nostdinc")
    compilers("gcc", "")
    files = pipeline.build(model, Options(name="m"))
    usage = deepest(files, "m")
    assert usage.problem == "" and usage.bytes > 0 and usage.compiler == "the host's gcc, -O2"
    assert "the host's gcc, -O2" in refused(model, Options(name="m", stack_budget=1))


GRAPH = """graph: {{ title: "m.c"
node: {{ title: "m_push" label: "m_push\\nm.c:1:5\\n16 bytes (static)\\n0 dynamic objects" }}
node: {{ title: "m.c:work" label: "work\\nm.c:9:5\\n{frame}\\n0 dynamic objects" }}
edge: {{ sourcename: "m_push" targetname: "m.c:work" label: "m.c:2:5" }}
edge: {{ sourcename: "m.c:work" targetname: "{target}" label: "m.c:10:5" }}
}}"""


@pytest.mark.parametrize(
    ("frame", "target", "bytes_", "problem"),
    [
        ("40 bytes (static)", "memcpy", 56, ""),
        ("40 bytes (dynamic)", "memcpy", 0, "frame of run-time size"),
        ("40 bytes (static)", "m_push", 0, "calls itself"),
        ("40 bytes (static)", "__indirect_call", 0, "through a pointer"),
    ],
)
def test_longest_chain(frame: str, target: str, bytes_: int, problem: str) -> None:
    usage = longest([GRAPH.format(frame=frame, target=target)], "m", "gcc")
    assert usage.bytes == bytes_ and problem in usage.problem and bool(usage.problem) == bool(problem)


def test_a_chain_across_files_is_found() -> None:
    """The kernel is declared in one graph and measured in another."""
    first = GRAPH.format(frame="8 bytes (static)", target="m_rt_kernel")
    second = 'node: { title: "m_rt_kernel" label: "m_rt_kernel\\nk.c:1:5\\n100 bytes (static)" }'
    assert longest([first, second], "m", "gcc").chain == (("m_push", 16), ("work", 8), ("m_rt_kernel", 100))


def test_no_budget_no_check(model: Path) -> None:
    options = Options()
    assert (options.ram_budget, options.flash_budget, options.stack_budget) == (None, None, None)
    assert pipeline.build(model, options) == pipeline.build(model, replace(options, ram_budget=1 << 30))
    assert np.all([len(text) > 0 for text in pipeline.build(model, options).values()])
