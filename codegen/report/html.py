from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from codegen.emit import render
from codegen.notes import Kind, kind_of
from codegen.plan.choose import WORTH
from codegen.plan.memory import ROWS, Buffer
from codegen.plan.receptive_field import Extent
from codegen.report.rows import NodeRow, OutputRow, Picture, Report, TileRow
from codegen.version import VERSION

COLORS = 8
LONGEST_NAME = 64
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 16, 40
PLOT_WIDTH, PLOT_HEIGHT = 1080, 300
STEP_WIDTH = 5
CHARACTER_WIDTH = 6.6


def page(report: Report, title: str) -> str:
    """report.html for a report; `title` is the model's file name."""
    notes = {kind: [clean(n) for n in report.notes if kind_of(n) is kind] for kind in Kind}
    context = {
        "title": clean(title),
        "kind": clean(report.kind),
        "hop": report.hop,
        "rate": None if report.rate is None else f"{report.rate:g}",
        "version": VERSION,
        "planned": report.arena is not None,
        "cards": _cards(report),
        "outputs": [_output(row, report.rate) for row in report.outputs],
        "legal": clean(report.legal),
        "timeline": _timeline(report.nodes),
        "histories": _histories(report),
        "state": f"{report.state_bytes:,}",
        "pictures": _pictures(report),
        "plans": _plans(report),
        "tiles": [_tiles(row) for row in report.tiles],
        "hops": report.hops,
        "nodes": _nodes(report),
        "proofs": _proofs(report.nodes),
        "refused": notes[Kind.REFUSED],
        "removed": notes[Kind.REMOVED],
        "notes": notes[Kind.WHOLE_CLIP] + notes[Kind.OTHER],
    }
    return render.render("report.html.j2", context)


def clean(text: str) -> str:
    """The text with a visible mark for everything that is not printable."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def name(text: str) -> dict[str, str]:
    """A name from the model: whole, and as short as a table needs it."""
    full = clean(text)
    return {"full": full, "short": shorten(full, LONGEST_NAME)}


def shorten(text: str, characters: int) -> str:
    """At most so many characters, the middle left out."""
    if len(text) <= characters:
        return text
    head = (characters - 1) // 2
    return f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (characters - 1 - head) :]}"


def _cards(report: Report) -> list[tuple[str, str, str]]:
    """(what, number, unit or remark) of the totals."""
    cards = []
    if report.arena is not None:
        cards += [
            ("State", f"{report.state_bytes:,}", "bytes per stream"),
            ("Scratch", f"{report.scratch_bytes:,}", "bytes, shared"),
            ("Constants", f"{report.constant_bytes:,}", f"bytes, {report.weight_bytes:,} of them tables"),
        ]
    cards.append(("Work", f"{report.macs_mean:,}", "MACs per input frame"))
    if report.macs_peak:
        cards.append(("Largest push", f"{report.macs_peak:,}", f"MACs, hop of {_time(report.hop, None)}"))
    if report.rate:
        cards.append(("Load", f"{report.rate * report.macs_mean:,.0f}", f"MACs per second at {report.rate:g} Hz"))
    return cards


def _time(frames: int, rate: float | None) -> str:
    ms = f" = {1000 * frames / rate:g} ms" if rate else ""
    return f"{frames:,} frame{'' if frames == 1 else 's'}{ms}"


def _output(row: OutputRow, rate: float | None) -> dict[str, Any]:
    e = row.extent
    if e.ended:
        return {"name": name(row.name), "ended": clean(e.ended)}
    return {
        "name": name(row.name),
        "ended": "",
        "extent": str(e),
        "rf": "unbounded" if e.rf is None else _time(e.rf, rate),
        "lookahead": _time(row.lookahead, rate),
        "wait": _time(row.hop_wait, rate),
        "total": _time(row.lookahead + row.hop_wait, rate),
    }


def _timeline(nodes: Sequence[NodeRow]) -> dict[str, Any]:
    """Per tensor the input frames that its frame 0 reads, on a common axis of input frames."""
    extents = [row.extent for row in nodes if row.extent is not None and not row.extent.ended]
    low = min([Fraction(0), *(e.a for e in extents if e.a is not None)])
    high = max([Fraction(0), *(e.b + e.S for e in extents if e.b is not None)]) + 1
    rows = [{"name": name("input"), "op": "", "extent": "[1, 0, 0]", "rf": "1", **_bar(_INPUT, low, high)}]
    for row in nodes:
        rf = "" if row.extent is None or row.extent.rf is None else f"{row.extent.rf:,}"
        text = "" if row.extent is None or row.extent.ended else str(row.extent)
        shown = {"name": name(row.name), "op": clean(row.op), "extent": text, "rf": rf}
        rows.append(shown | _bar(row.extent, low, high))
    return {"low": str(low), "high": str(high - 1), "now": _percent(1 - low, low, high), "rows": rows}


_INPUT = Extent(Fraction(1), Fraction(0), Fraction(0), Fraction(0))


def _percent(length: Fraction, low: Fraction, high: Fraction) -> str:
    """A length on the axis low .. high in hundredths of it."""
    return f"{float(100 * length / (high - low)):.3f}"


def _bar(extent: Extent | None, low: Fraction, high: Fraction) -> dict[str, Any]:
    """Where the bars of a tensor's frame 0 and of its frame 1 (one stride S later) lie, in hundredths of the axis."""
    if extent is None or extent.ended:
        return {"ended": clean(extent.ended) if extent else "no stream", "bar": None, "next": None, "open": False}
    a = low if extent.a is None else extent.a
    b = high - 1 if extent.b is None else extent.b
    width = _percent(b - a + 1, low, high)
    following = None
    if extent.S:
        shifted = a if extent.a is None else a + extent.S
        following = (_percent(shifted - low, low, high), _percent(b + extent.S - shifted + 1, low, high))
    bar = (_percent(a - low, low, high), width)
    return {"ended": "", "bar": bar, "next": following, "open": extent.a is None}


def _histories(report: Report) -> list[dict[str, Any]]:
    most = max([1, *(h.bytes for h in report.histories)])
    return [
        {
            "tensor": name(h.tensor),
            "keep": h.keep,
            "new": h.new,
            "ring": h.ring,
            "frame_bytes": h.frame_bytes,
            "bytes": h.bytes,
            "share": f"{100 * h.bytes / most:.1f}",
            "why": [name(text)["full"] for text in h.why],
        }
        for h in report.histories
    ]


FORMS = {
    "apart": "Histories lie in the state, new rows in the scratch",
    "joint": "Histories and new rows share one block of the state",
    "rows": "Every row of the clip has an address of its own in the state",
}

PREFERENCES = {
    "ram": "the least RAM",
    "latency": "the least work in one push",
    "balanced": f"RAM and the largest push: each doubling of it must save {round(100 * WORTH)} % of RAM",
}


def _plans(report: Report) -> dict[str, Any] | None:
    """How the model runs, in words, and every plan that was looked at."""
    if report.plan is None or report.means is None:
        return None
    row, means = report.plan, report.means
    how = f"All frames of {clean(row.cut)} are kept, and what follows runs layer by layer. " if row.cut else ""
    text = f"{how}Chosen for {PREFERENCES[row.plan_for]}. {FORMS[means.form]};"
    text += f" no placement of this order needs less than {means.lower_bound:,} bytes."
    if means.shared_bytes:
        text += f" Outputs take over {means.shared_bytes:,} bytes of operands that are still being read."
    if means.row_table_bytes:
        text += f" The table of addresses has {means.row_table_bytes:,} bytes of flash."
    tried = [
        {
            "cut": name(point.cut or "the end"),
            "bytes": 1 << 40 if point.ram_bytes is None else point.ram_bytes,
            "shown": "not less than one with no larger push" if point.ram_bytes is None else f"{point.ram_bytes:,}",
            "push": point.push_macs,
            "chosen": point.cut == row.cut,
            "best": point in row.front,
        }
        for point in row.tried
    ]
    return {"text": text, "tried": tried if len(tried) > 1 else []}


def _tiles(row: TileRow) -> dict[str, Any]:
    plan = row.plan
    return {
        "name": name(row.name),
        "stage": plan.stage,
        "block": str(plan.block) if plan.is_cut else "not cut",
        "bytes": plan.working_set_bytes,
        "tasks": plan.tasks,
        "why": [f"stage {a.stage}: {'taken' if a.chosen else 'no'}: {a.reason}" for a in plan.attempts],
    }


def _pictures(report: Report) -> list[dict[str, Any]]:
    pictures = []
    if report.arena is not None and report.arena.placement.total:
        title = f"Scratch over the steps of one tick of at most {_time(report.hop, None)}"
        pictures.append(_picture(report.arena, title, "step"))
    if report.overlay is not None:
        pictures.append(_picture(report.overlay, "State over the ticks of a clip", "tick"))
    return pictures


def _picture(picture: Picture, title: str, unit: str) -> dict[str, Any]:
    """Coordinates of an arena: x = step, y = byte offset from the bottom, one rectangle per buffer."""
    placed = picture.placement
    steps = len(picture.steps)
    width = max(PLOT_WIDTH, STEP_WIDTH * steps)
    scale_x, scale_y = width / steps, PLOT_HEIGHT / max(1, placed.total)
    buffers = [b for b in placed.buffers if b.bytes]
    live = picture.live

    def y(offset: float) -> float:
        return TOP + PLOT_HEIGHT - offset * scale_y

    rects = []
    for i, b in enumerate(buffers):
        first, last = picture.spans[b.name]
        x, wide = LEFT + first * scale_x, (last - first + 1) * scale_x
        top, high = y(placed.offsets[b.name] + b.bytes), b.bytes * scale_y
        rects.append({"color": i % COLORS, "x": f"{x:.1f}", "y": f"{top:.1f}", "w": f"{wide:.1f}", "h": f"{high:.1f}"})
        rects[-1] |= {
            "tip": _tip(b, placed.offsets[b.name], f"{unit}s {first}..{last}"),
            "labels": _labels(b, x, top, wide, high),
        }
    profile = [f"{LEFT + edge * scale_x:.1f},{y(bytes_):.1f}" for t, bytes_ in enumerate(live) for edge in (t, t + 1)]
    every = max(1, -(-steps * 22 // int(width)))
    over = placed.total - placed.lower_bound
    return {
        "title": title,
        "unit": unit,
        "bytes": f"{placed.total:,}",
        "bound": f"{placed.lower_bound:,}",
        "over": "nothing above it"
        if not over
        else f"{over:,} bytes above it ({100 * over / placed.lower_bound:.1f} %)",
        "width": f"{LEFT + width + RIGHT:g}",
        "height": TOP + PLOT_HEIGHT + BOTTOM,
        "left": LEFT,
        "right": f"{LEFT + width:g}",
        "base": TOP + PLOT_HEIGHT,
        "middle": f"{LEFT + width / 2:g}",
        "bound_y": f"{y(placed.lower_bound):.1f}",
        "rects": rects,
        "profile": " ".join(profile),
        "y_ticks": [(f"{y(v):.1f}", f"{v:,}") for v in _ticks(placed.total)],
        "x_ticks": [(f"{LEFT + (t + 0.5) * scale_x:.1f}", t) for t in range(0, steps, every)],
        "steps": [(t, clean(text), f"{live[t]:,}") for t, text in enumerate(picture.steps)],
        "buffers": [_buffer(b, picture, i % COLORS) for i, b in enumerate(buffers)],
    }


def _ticks(total: int) -> list[int]:
    """Round byte offsets for an axis up to `total`, at most eight."""
    step = 1
    while total > 8 * step:
        step *= 2
    return list(range(0, total + 1, step))


def _label(b: Buffer) -> str:
    return clean(b.name.of if b.name.kind == ROWS else str(b.name))


def _tip(b: Buffer, offset: int, when: str) -> str:
    return f"{_label(b)}: {b.bytes:,} bytes at {offset:,}..{offset + b.bytes - 1:,}, {when}"


def _labels(b: Buffer, x: float, top: float, wide: float, high: float) -> list[tuple[str, str, str]]:
    """(x, y, text) of what fits into a rectangle: name and bytes, one of both, or nothing."""
    fits = int((wide - 8) / CHARACTER_WIDTH)
    size = f"{b.bytes:,} B"
    if fits < len(size) or high < 12:
        return []
    middle, centre = f"{x + wide / 2:.1f}", top + high / 2
    room = fits - len(size) - 2
    if high >= 27 and fits >= 6:
        return [(middle, f"{centre - 3:.1f}", shorten(_label(b), fits)), (middle, f"{centre + 10:.1f}", size)]
    text = size if room < 4 else f"{shorten(_label(b), room)}, {size}"
    return [(middle, f"{centre + 4:.1f}", text)]


def _buffer(b: Buffer, picture: Picture, color: int) -> dict[str, Any]:
    first, last = picture.spans[b.name]
    offset = picture.placement.offsets[b.name]
    return {"name": name(_label(b)), "color": color, "bytes": b.bytes, "offset": offset, "first": first, "last": last}


def _nodes(report: Report) -> dict[str, Any]:
    """The table of nodes: cells are (sort key, text)."""
    most = {k: max([1, *(getattr(row, k) for row in report.nodes)]) for k in ("macs", "weight_bytes", "state_bytes")}
    return {
        "paths": any(row.path for row in report.nodes),
        "kernels": any(row.kernel for row in report.nodes),
        "rows": [
            {
                "index": row.index,
                "name": name(row.name),
                "path": name(row.path),
                "op": clean(row.op),
                "detail": clean(row.detail),
                "frame": "\N{MULTIPLICATION SIGN}".join(map(str, row.frame)),
                "elements": math.prod(row.frame),
                "form": row.requantize["form"] if row.requantize else "",
                "kernel": row.kernel,
                "reason": row.kernel_reason,
                "keep": row.keep,
                "bars": [
                    (f"{getattr(row, k):,}", getattr(row, k), f"{100 * getattr(row, k) / most[k]:.1f}") for k in most
                ],
                **_extent_cells(row.extent, report.rate),
            }
            for row in report.nodes
        ],
    }


def _extent_cells(extent: Extent | None, rate: float | None) -> dict[str, Any]:
    """S, a, b, rf and lookahead as (sort key, text); what is unbounded sorts last."""
    if extent is None or extent.ended:
        text = clean(extent.ended) if extent else ""
        return {"ended": text or "no stream", "extent": [], "lookahead": ("1e99", "at the end" if text else "")}
    infinite = "\N{INFINITY}"
    cells = [
        _number(extent.S),
        _number(extent.a) if extent.a is not None else ("-1e99", f"\N{MINUS SIGN}{infinite}"),
        _number(extent.b) if extent.b is not None else ("1e99", infinite),
        ("1e99", infinite) if extent.rf is None else (str(extent.rf), f"{extent.rf:,}"),
    ]
    ahead = extent.lookahead
    if ahead is None:
        return {"ended": "", "extent": cells, "lookahead": ("1e99", infinite)}
    ms = f" = {1000 * float(ahead) / rate:g} ms" if rate else ""
    return {"ended": "", "extent": cells, "lookahead": (f"{float(ahead):g}", f"{ahead}{ms}")}


def _number(value: Fraction) -> tuple[str, str]:
    return f"{float(value):.9g}", str(value).replace("-", "\N{MINUS SIGN}")


def _proofs(nodes: Sequence[NodeRow]) -> dict[str, Any]:
    """Per layer that rounds accumulators: the form of the C, and on how much the proof looked."""
    rows = []
    forms: dict[str, int] = {}
    for row in nodes:
        if row.requantize is None:
            continue
        proof, channels = row.requantize, row.requantize["channels"]
        forms[proof["form"]] = forms.get(proof["form"], 0) + 1
        rows.append(
            {
                "name": name(row.name),
                "form": proof["form"],
                "target": proof["target"],
                "channels": len(channels["thresholds"]),
                "constant": sum(n == 0 for n in channels["thresholds"]),
                "thresholds": sum(channels["thresholds"]),
                "low": min(channels["acc_lo"], default=0),
                "high": max(channels["acc_hi"], default=0),
                "sha256": proof["sha256"][:16],
            }
        )
    return {
        "rows": rows,
        "forms": ", ".join(
            f"{form} in {count} layer{'' if count == 1 else 's'}" for form, count in sorted(forms.items())
        ),
        "channels": f"{sum(row['channels'] for row in rows):,}",
        "thresholds": f"{sum(row['thresholds'] for row in rows):,}",
    }
