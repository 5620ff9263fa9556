"""Kernels that move codes: copies with up to four axes, in C or by the compiler's memcpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from codegen.ir.time import Upsample, Window
from codegen.kernels.base import CKernel, Emission, Site
from codegen.kernels.literals import typed
from codegen.kernels.structs import Array, Struct
from codegen.kernels.window import first_frame
from codegen.ops.base import Table
from codegen.ops.move import CollectS8, ConcatS8, Copy, LastS8, PadFrames, Truncate, UpsampleS8


def copied(sizes: Sequence[int], source: Sequence[int], target: Sequence[int]) -> Struct:
    """rt_copy_t of up to four axes, padded in front."""
    missing = 4 - len(sizes)
    members = {
        "sizes": (1,) * missing + tuple(sizes),
        "from_strides": (0,) * missing + tuple(source),
        "to_strides": (0,) * missing + tuple(target),
    }
    return Struct("rt_copy_t", members)


class _Copies:
    """The different copies of a node."""

    def __init__(self) -> None:
        self.items: list[Struct] = []

    def place(self, copy: Struct) -> int:
        """Where the copy stands in the array."""
        if copy not in self.items:
            self.items.append(copy)
        return self.items.index(copy)

    def constants(self) -> dict[str, Array]:
        return {"copies": Array("rt_copy_t", tuple(self.items))} if self.items else {}


class Gather(CKernel):
    name = "rt_copy_s8"

    def emit(self, op: Copy, site: Site) -> Emission:
        pieces = list(op.pieces)
        outer, inner = pieces[:-4], pieces[-4:]
        sizes = [p.size for p in inner] or [1]
        source = [p.stride or 0 for p in inner] or [0]
        target = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
        block = int(np.prod(sizes, dtype=np.int64))
        starts = [op.offset]
        for piece in outer:
            starts = [start + i * (piece.stride or 0) for start in starts for i in range(piece.size)]
        copies = _Copies()
        copy = copies.place(copied(sizes, source, target))
        return _copy([_call(0, start, i * block, which=copy) for i, start in enumerate(starts)], copies, {})


class Truncation(CKernel):
    """Frames of the first operand; the second one only says how many."""

    name = "rt_copy_s8"

    def emit(self, op: Truncate, site: Site) -> Emission:
        copies = _Copies()
        call = _call(0, 0, 0, which=copies.place(copied([op.size], [1], [1])))
        return replace(_copy([call], copies, {}), operands=1)


class Concat(CKernel):
    """Operands are copied one after another, in rising order."""

    name = "rt_copy_s8 or rt_lut_s8"

    def lead(self, op: ConcatS8, operand: int) -> int | None:
        """The output runs ahead by what the other operands add."""
        return None if op.outer > 1 else (sum(op.sizes) - op.sizes[operand]) * op.inner

    def emit(self, op: ConcatS8, site: Site) -> Emission:
        total = sum(op.sizes) * op.inner
        tables: dict[str, Table] = {}
        copies = _Copies()
        calls, at = [], 0
        for operand, size in enumerate(op.sizes):
            width, stream = size * op.inner, site.streams[operand]
            values = op.tables[operand] if op.tables else None
            if values is None:
                copy = copies.place(copied([op.outer, width], [width, 1], [total, 1]))
                calls.append(_call(stream, 0, at, which=copy))
            else:
                tables[f"lut{operand}"] = typed(values, f"operand {operand}: change of scale, by code + 128")
                lut = {"lut": f"lut{operand}", "outer": op.outer, "width": width, "total": total}
                calls.append(_call(stream, 0, at, **lut))
            at += width
        return _copy(calls, copies, tables)


def _call(stream: int, source_at: int, target_at: int, **more: Any) -> dict[str, Any]:
    """One call of rt_copy_s8 (`which` of the copies), or of rt_lut_s8."""
    return {"stream": stream, "from_offset": source_at, "to_offset": target_at, "lut": None, **more}


def _copy(calls: list[dict[str, Any]], copies: _Copies, tables: dict[str, Table]) -> Emission:
    headers = ("rt_copy_s8", *(["rt_lut_s8"] if tables else []))
    return Emission("copy", headers, (), {"calls": calls}, tables, copies.constants())


class Pad(CKernel):
    name = "rt_copy_s8"

    def emit(self, op: PadFrames, site: Site) -> Emission:
        sizes, source, target, source_at, target_at = [], [], [], 0, 0
        frame_out = op.frame_out
        for i, (size, (before, after)) in enumerate(zip(op.frame_in, op.frame, strict=True)):
            step_in = int(np.prod(op.frame_in[i + 1 :], dtype=np.int64))
            step_out = int(np.prod(frame_out[i + 1 :], dtype=np.int64))
            sizes.append(size + min(before, 0) + min(after, 0))
            source.append(step_in)
            target.append(step_out)
            source_at += max(-before, 0) * step_in
            target_at += max(before, 0) * step_out
        window = op.rule()
        assert isinstance(window, Window)
        numbers = {"code": op.code, "first": first_frame(window), "from_offset": source_at, "to_offset": target_at}
        inner = copied(sizes or [1], source or [1], target or [1])
        constants = {"inner": inner}
        return Emission("pad", (self.name,), numbers=numbers, constants=constants, padding_frames=False)


class Upsampling(CKernel):
    name = "rt_copy_s8"

    def emit(self, op: UpsampleS8, site: Site) -> Emission:
        sizes = [len(steps) for steps in op.index]
        strides_in = [int(np.prod(op.frame_in[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
        strides_out = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
        copies = _Copies()
        calls = []
        for combo in product(*map(_runs, op.index)):
            at_in = sum(run.source * s for run, s in zip(combo, strides_in, strict=True))
            at_out = sum(run.start * s for run, s in zip(combo, strides_out, strict=True))
            pairs = []
            for run, s_in, s_out in zip(combo, strides_in, strides_out, strict=True):
                pairs.append((run.steps, s_in, s_out * run.repeat))
                pairs.append((run.repeat, 0, s_out))
            pairs = [pair for pair in pairs if pair[0] > 1] or [(1, 1, 1)]
            outer, last = pairs[:-4], pairs[-4:]
            for offsets in product(*(range(n) for n, _, _ in outer)):
                more_in = sum(i * s for i, (_, s, _) in zip(offsets, outer, strict=True))
                more_out = sum(i * s for i, (_, _, s) in zip(offsets, outer, strict=True))
                copy = copies.place(copied(*([pair[i] for pair in last] for i in range(3))))
                calls.append(_call(0, at_in + more_in, at_out + more_out, which=copy))
        numbers = {"calls": calls, "source": _source(op)}
        return Emission("upsample", (self.name,), numbers=numbers, constants=copies.constants())


def _source(op: UpsampleS8) -> str:
    """C expression for the frame that output frame j repeats."""
    rule = op.time
    if not isinstance(rule, Upsample):
        return "j"
    f = rule.factor
    inner = f"j + {rule.offset}" if rule.offset else "j"
    source = f"({inner}) >> {f.bit_length() - 1}" if f & (f - 1) == 0 else f"rt_floor_div({inner}, {f})"
    return f"rt_min({source}, x0.length - 1)" if rule.offset else source


@dataclass(frozen=True)
class Run:
    """Output steps start .. start + steps*repeat - 1 read sources source, source + 1, ..., each `repeat` times."""

    start: int
    source: int
    steps: int
    repeat: int


def _runs(index: tuple[int, ...]) -> list[Run]:
    """An axis as runs of equal repetition (clamped ends repeat more often or less)."""
    groups: list[tuple[int, int]] = []
    for source in index:
        if groups and groups[-1][0] == source:
            groups[-1] = (source, groups[-1][1] + 1)
        else:
            groups.append((source, 1))
    runs: list[Run] = []
    start = 0
    for source, repeat in groups:
        last = runs[-1] if runs else None
        if last and last.repeat == repeat and last.source + last.steps == source:
            runs[-1] = replace(last, steps=last.steps + 1)
        else:
            runs.append(Run(start, source, 1, repeat))
        start += repeat
    return runs


class Last(CKernel):
    name = "memcpy"

    def emit(self, op: LastS8, site: Site) -> Emission:
        return Emission("last")


class Collect(CKernel):
    """No code (`codegen.plan.lifetimes.execution_order` leaves it out)."""

    name = "none: its operand is written where it stays"

    def emit(self, op: CollectS8, site: Site) -> Emission:
        return Emission("")


KERNELS = {
    Copy: (Gather(),),
    ConcatS8: (Concat(),),
    PadFrames: (Pad(),),
    Truncate: (Truncation(),),
    UpsampleS8: (Upsampling(),),
    LastS8: (Last(),),
    CollectS8: (Collect(),),
}
