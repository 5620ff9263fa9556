"""Instructions and bytes of one generated folder on one emulated processor."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import jinja2

from benchmarks import emulate
from benchmarks.targets import BOARD, BenchmarkError, Target

MEASURED_FRAMES = 32


@dataclass(frozen=True)
class Result:
    """One row. Instructions are per inference (a clip) or per input frame in steady state (a stream)."""

    model: str
    target: str
    board: str
    optimize: str
    unit: str
    hop: int
    macs: int | None
    """As `unit`; None for a clip of several frames, of which the report gives no total."""
    instructions: float
    worst_push_instructions: float
    code_bytes: int
    """Text of the model's and the runtime's objects after --gc-sections, their tables other than weights, and libc."""
    text_bytes: int
    table_bytes: int
    library_bytes: int
    weight_bytes: int
    state_bytes: int
    scratch_bytes: int
    stack_bytes: int
    """Deepest write below the caller of init, push or finish."""
    static_ram_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Schedule:
    """Pushes to make: `push` frames each. A clip is one push and finish."""

    push: int
    warm_up: int
    measured: int
    clip: bool


def schedule(manifest: dict[str, Any], report: dict[str, Any]) -> Schedule:
    """A clip whole; a stream hop by hop: past the longest lookback, then whole periods of at least 32 frames."""
    if manifest["clip_length"] is not None:
        return Schedule(int(manifest["clip_length"]), 0, 1, True)
    windows = [node["window"] for node in report["nodes"] if node.get("window")]
    period = math.lcm(1, *(Fraction(str(w["S"])).numerator for w in windows if w.get("S") is not None))
    hop = int(manifest["hop"])
    longest = max((int(w["rf"]) for w in windows if isinstance(w.get("rf"), int)), default=1)
    whole = math.lcm(hop, period)
    measured = -(-MEASURED_FRAMES // whole) * whole
    warm_up = -(-(longest + period) // whole) * whole
    return Schedule(hop, warm_up // hop, measured // hop, False)


def write_bench(folder: Path, manifest: dict[str, Any], plan: Schedule, target: Path) -> None:
    """The measuring program of one folder's model."""
    name = manifest["name"]
    ports = {
        kind: [{"id": p["id"], "ctype": f"{p['code_dtype']}_t"} for p in manifest[kind]]
        for kind in ("inputs", "outputs")
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(BOARD),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    target.write_text(
        environment.get_template("bench.c.j2").render(
            name=name, NAME=name.upper(), single=manifest["single"], push=plan.push, warm_up=plan.warm_up,
            measured=plan.measured, **ports,
        )
    )  # fmt: skip


def build(
    folder: Path, target: Target, work: Path, flags: tuple[str, ...] = ("-O2",)
) -> tuple[emulate.Program, Schedule]:
    """The folder's model, its golden vectors and the measuring program, linked for a board of the target."""
    manifest = json.loads((folder / "manifest.json").read_text())
    report = json.loads((folder / "report.json").read_text())
    plan = schedule(manifest, report)
    work.mkdir(parents=True, exist_ok=True)
    write_bench(folder, manifest, plan, work / "bench.c")
    include = [folder / "src", folder / "test", BOARD]
    sources = [folder / source for source in manifest["sources"]]
    objects = emulate.compile_objects(target, sources, work / "model", include, flags)
    objects += emulate.compile_objects(
        target, [work / "bench.c", folder / "test" / "selftest.c"], work / "bench", include, ["-O2"]
    )
    objects += emulate.board_objects(target, work / "board")
    return emulate.link(target, objects, work / f"{manifest['name']}_{target.name}.elf"), plan


def measure(folder: Path, target: Target, optimize: str = "-O2", work: Path | None = None) -> Result:
    """Runs the golden vectors, then measures. Raises BenchmarkError if a code is wrong or a size isn't the header's."""
    emulate.require_tools(target)
    if work is None:
        with tempfile.TemporaryDirectory() as temporary:
            return measure(folder, target, optimize, Path(temporary))
    program, plan = build(folder, target, work, tuple(optimize.split()))
    return summarize(folder, program, plan, emulate.run(program), optimize)


def summarize(folder: Path, program: emulate.Program, plan: Schedule, values: dict[str, int], optimize: str) -> Result:
    """The row of a run."""
    manifest = json.loads((folder / "manifest.json").read_text())
    totals = json.loads((folder / "report.json").read_text())["totals"]
    for what in ("state", "scratch"):
        if values[what] != values[f"{what}_macro"]:
            raise BenchmarkError(f"sizeof {what} is {values[what]}, the header says {values[f'{what}_macro']}")
    clock = emulate.calibrate(values)
    total = clock.instructions(values["total"], plan.measured)
    if plan.clip:
        total += clock.instructions(values["finish"])
    sections = emulate.section_bytes(program)
    size = {name: sections.get(f".{name}", 0) for name in ("code", "tables", "library", "weights", "variables")}
    return Result(
        model=manifest["name"],
        target=program.target.name,
        board=program.machine.qemu[1],
        optimize=optimize,
        unit="inference" if plan.clip else "frame",
        hop=plan.push,
        macs=None if plan.clip and plan.push > 1 else totals["macs_per_frame"],
        instructions=round(total / (1 if plan.clip else plan.measured * plan.push), 1),
        worst_push_instructions=round(clock.instructions(values["worst"]), 1),
        code_bytes=size["code"] + size["tables"] + size["library"],
        text_bytes=size["code"],
        table_bytes=size["tables"],
        library_bytes=size["library"],
        weight_bytes=size["weights"],
        state_bytes=values["state"],
        scratch_bytes=values["scratch"],
        stack_bytes=values["stack"],
        static_ram_bytes=size["variables"],
    )
