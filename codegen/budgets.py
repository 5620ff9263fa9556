"""Memory budgets: a build that needs more fails with what is largest and the nearest option that fits.

RAM is the state of one instance and the scratch, as `sizeof` says in C, memory for tiles included; not the caller's
buffers and not the stack. Flash is constants only, tables and the structs of the kernels' calls on a 32-bit target: the
size of the code depends on compiler and target and comes on top. Stack is the deepest chain of calls of the generated
code, measured by compiling it with gcc (`codegen.stack_usage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from codegen.emit.model import Compiled
from codegen.errors import EXIT_INPUT, CodegenError, Problem
from codegen.options import Options
from codegen.plan.layout import Layout
from codegen.stack_usage import deepest

STAGE = "budget"
ROWS = 10
Replan = Callable[[Options], Layout | None]


@dataclass(frozen=True)
class Part:
    """One contributor: `bytes` of `kind` ('state', 'scratch', 'table', 'frame of a call'), and what it is."""

    bytes: int
    kind: str
    what: str


def check(compiled: Compiled, options: Options, files: dict[str, str], replan: Replan) -> None:
    """Raise CodegenError (exit code 2) if a budget is exceeded, with all that are.

    `replan` is the memory plan under other options, or None where the model cannot be built so.
    """
    problems = []
    if options.ram_budget is not None:
        problems += _ram(compiled.layout, options, replan)
    if options.flash_budget is not None:
        problems += _flash(compiled, options.flash_budget)
    if options.stack_budget is not None:
        problems += _stack(compiled, files, options.stack_budget)
    if problems:
        raise CodegenError(STAGE, problems, EXIT_INPUT)


def _ram(layout: Layout, options: Options, replan: Replan) -> list[Problem]:
    budget, needed = options.ram_budget, layout.ram_bytes
    assert budget is not None
    if needed <= budget:
        return []
    sizes = f"state {layout.state_bytes} + scratch {layout.scratch_bytes} = {needed} B"
    found = f"{sizes}\n{table(ram_parts(layout))}\n  (parts of the scratch share memory by lifetime)"
    hint = _nearest(layout, options, replan)
    return [Problem("ram_budget", found, f"{budget} B are allowed, {needed - budget} B too many", hint)]


def ram_parts(layout: Layout) -> list[Part]:
    """Every history, accumulator and new row. What shares memory in time does not add up."""
    parts = [Part(a.bytes, "state", f"accumulators of {a.node}") for a in layout.accumulators]
    fresh = "scratch" if layout.form == "apart" else "state"
    for s in layout.storage.values():
        if s.keep:
            parts.append(Part(s.history_bytes, "state", f"{s.tensor}: {s.keep} kept frames of {s.frame_bytes} B"))
        if s.fresh in ("arena", "rows"):
            parts.append(Part(s.new * s.frame_bytes, fresh, f"{s.tensor}: {s.new} new frames of {s.frame_bytes} B"))
        if s.fresh == "carried":
            parts.append(Part(s.frame_bytes, "state", f"{s.tensor}: carried from step to step"))
        if s.fresh == "clip":
            parts.append(Part(s.frame_bytes, "state", f"{s.tensor}: all frames, for layers that run at the end"))
    tiles = f"tiles: {layout.fast_bytes} B for each of {layout.cores} cores"
    return [*parts, Part(layout.tile_bytes, "scratch", tiles)]


def _nearest(layout: Layout, options: Options, replan: Replan) -> str:
    """The first option that fits, in order of how little it changes; else the least memory that was found."""
    assert options.ram_budget is not None
    best = (layout.ram_bytes, "this one")
    for text, other in alternatives(options, layout):
        plan = replan(other)
        if plan is None:
            continue
        size = plan.ram_bytes
        if size <= options.ram_budget:
            return f"{text} fits: {size} B"
        best = min(best, (size, text), key=lambda found: found[0])
    return f"No hop, plan or tile fits; the least is {best[1]} with {best[0]} B"


def alternatives(options: Options, layout: Layout) -> Iterator[tuple[str, Options]]:
    """Smaller tiles, smaller hops, largest first, then other plans with hop 1. `auto` is the best of the first two."""
    if options.fast_memory is not None and options.ram_budget is not None:
        size = (options.ram_budget - layout.ram_bytes + layout.tile_bytes) // layout.cores // 4 * 4
        if 0 < size < layout.fast_bytes:
            yield f"--fast-memory {size}", replace(options, fast_memory=size)
        yield "no --fast-memory", replace(options, fast_memory=None)
    hop = options.hop
    smaller = sorted({1, *(n for n in (2**i for i in range(20)) if n < hop)}, reverse=True)
    for n in smaller:
        if n < hop:
            yield f"--hop {n}", replace(options, hop=n)
    for plan in ("whole",) if options.plan == "auto" else ("stream", "hybrid", "whole"):
        if plan != options.plan:
            yield f"--plan {plan}", replace(options, plan=plan, hop=1)


def flash_parts(compiled: Compiled) -> list[Part]:
    """Every constant table of the generated C, frames of padding included, and the structs of the kernels' calls."""
    tables = compiled.tables.values
    parts = [Part(t.bytes, "table", f"{key} ({t.comment})" if t.comment else key) for key, t in tables.items()]
    structs = compiled.report.constant_bytes - compiled.report.weight_bytes
    return [*parts, Part(structs, "struct", "what the calls of the kernels are told")]


def _flash(compiled: Compiled, budget: int) -> list[Problem]:
    parts = flash_parts(compiled)
    needed = sum(part.bytes for part in parts)
    if needed <= budget:
        return []
    found = f"constants {needed} B, code not counted\n{table(parts)}"
    rows = 2 * len(compiled.layout.row_table)
    if rows >= needed - budget:
        hint = f"--hop 2 fits: it needs no row addresses, {needed - rows} B"
    else:
        hint = "No option makes weights smaller: use a smaller model, or fewer channels where the table is largest"
    return [Problem("flash_budget", found, f"{budget} B are allowed, {needed - budget} B too many", hint)]


def _stack(compiled: Compiled, files: dict[str, str], budget: int) -> list[Problem]:
    usage = deepest(files, compiled.name)
    if usage.problem:
        return [Problem("stack_budget", f"the stack cannot be measured: {usage.problem}", hint="Leave the budget out")]
    if usage.bytes <= budget:
        return []
    parts = [Part(size, "call", name) for name, size in usage.chain]
    found = f"{usage.bytes} B in the deepest chain of calls ({usage.compiler}), library functions not counted"
    return [Problem("stack_budget", f"{found}\n{table(parts)}", f"{budget} B are allowed")]


def table(parts: list[Part]) -> str:
    """The largest contributors, one a line."""
    shown = sorted((p for p in parts if p.bytes), key=lambda p: (-p.bytes, p.kind, p.what))
    lines = [f"  {part.bytes:>9} B  {part.kind:<8} {part.what}" for part in shown[:ROWS]]
    rest = shown[ROWS:]
    if rest:
        lines.append(f"  {sum(p.bytes for p in rest):>9} B           {len(rest)} more")
    return "\n".join(lines)
