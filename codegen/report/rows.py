"""The report's rows as values, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from codegen.plan.choose import PlanRow
from codegen.plan.derivation import History
from codegen.plan.hops import HopRow
from codegen.plan.memory import Key, Placement
from codegen.plan.receptive_field import Extent
from codegen.plan.tiling import TilePlan

SCHEMA = "onnx2stream report 1"


@dataclass(frozen=True)
class NodeRow:
    """One line of the table. macs per output frame; rows and bytes of the tensor it writes."""

    index: int
    name: str
    op: str
    path: str
    detail: str
    frame: tuple[int, ...]
    extent: Extent | None
    keep: int
    new: int
    state_bytes: int
    macs: int
    weight_bytes: int
    requantize: dict[str, Any] | None = None
    kernel: str = ""
    kernel_reason: str = ""


@dataclass(frozen=True)
class OutputRow:
    """Latency of one graph output in input frames: lookahead of the model, and waiting for a full hop."""

    name: str
    extent: Extent
    stride: Fraction | None
    lookahead: int
    hop_wait: int


@dataclass(frozen=True)
class Means:
    """What the memory plan does: its form (`codegen.plan.layout`), the least that its order and lifetimes allow, bytes
    that outputs take over from operands still being read, and bytes of row addresses in flash."""

    form: str
    lower_bound: int
    shared_bytes: int
    row_table_bytes: int


@dataclass(frozen=True)
class TileRow:
    """How the output frame of one layer is cut (`codegen.plan.tiling`)."""

    name: str
    plan: TilePlan


@dataclass(frozen=True)
class Picture:
    """Buffers that share memory over time: the steps of a tick, or the ticks of a clip.

    `steps` names the points of the time axis, `spans` gives each buffer's first and last, `live` the most bytes that
    are live at each.
    """

    steps: tuple[str, ...]
    placement: Placement
    spans: dict[Key, tuple[int, int]]
    live: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """Everything measured about one build. `arena` is None where nothing could be planned.

    `weight_bytes` are the tables of the weights file, `constant_bytes` those and the structs that tell kernels about
    them, on a 32-bit target.
    """

    kind: str
    hop: int
    rate: float | None
    nodes: tuple[NodeRow, ...]
    outputs: tuple[OutputRow, ...]
    macs_mean: int
    macs_peak: int
    weight_bytes: int
    state_bytes: int
    scratch_bytes: int
    notes: tuple[str, ...]
    legal: str
    constant_bytes: int = 0
    histories: tuple[History, ...] = ()
    arena: Picture | None = None
    overlay: Picture | None = None
    hops: tuple[HopRow, ...] = ()
    plan: PlanRow | None = None
    means: Means | None = None
    tiles: tuple[TileRow, ...] = ()

    def summary(self) -> list[str]:
        """Sentences for the head of the generated header."""
        lines = [
            f"{self.kind}; hop {self.hop}; state {self.state_bytes} B, scratch {self.scratch_bytes} B, "
            f"weights {self.weight_bytes} B, {self.macs_mean} MACs per input frame"
        ]
        lines += [
            f"output {o.name}: [S,a,b] = {o.extent}, rf {o.extent.rf}, lookahead {o.lookahead} frames"
            if not o.extent.ended
            else f"output {o.name}: once per sequence"
            for o in self.outputs
        ]
        if self.legal:
            lines.append(f"legal lengths T: {self.legal}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """report.json: the schema is documented in README.md."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "hop": self.hop,
            "totals": {
                "state_bytes": self.state_bytes,
                "scratch_bytes": self.scratch_bytes,
                "weight_bytes": self.weight_bytes,
                "constant_bytes": self.constant_bytes,
                "macs_per_frame": self.macs_mean,
                "macs_per_push": self.macs_peak,
            },
            "plan": None if self.plan is None else _plan_json(self.plan),
            "memory": None if self.means is None else vars(self.means),
            "tiles": [_tile_json(row) for row in self.tiles],
            "hops": [vars(row) for row in self.hops],
            "legal_lengths": self.legal,
            "nodes": [_row_json(row) for row in self.nodes],
            "outputs": [_output_json(row, self.rate) for row in self.outputs],
            "histories": [_history_json(row) for row in self.histories],
            "arena": _picture_json(self.arena),
            "state_overlay": _picture_json(self.overlay),
            "notes": list(self.notes),
        }


def extent_json(extent: Extent | None) -> dict[str, Any] | None:
    if extent is None:
        return None
    if extent.ended:
        return {"ended": extent.ended}

    def number(value: Fraction | None) -> str | int | None:
        return None if value is None else int(value) if value.denominator == 1 else str(value)

    return {
        "S": number(extent.S),
        "a": number(extent.a),
        "b": number(extent.b),
        "rf": extent.rf,
        "lookahead": number(extent.lookahead),
    }


def _plan_json(row: PlanRow) -> dict[str, Any]:
    tried = [{"cut": p.cut or None, "ram_bytes": p.ram_bytes, "macs_per_push": p.push_macs} for p in row.tried]
    best = {p.cut for p in row.front}
    front = [p | {"chosen": p["cut"] == (row.cut or None)} for p in tried if (p["cut"] or "") in best]
    return {"plan": row.plan, "cut": row.cut or None, "plan_for": row.plan_for, "front": front, "tried": tried}


def _tile_json(row: TileRow) -> dict[str, Any]:
    plan, block = row.plan, row.plan.block
    return {
        "name": row.name,
        "stage": plan.stage,
        "block": {"channels": block.planes, "depth": block.d, "rows": block.h, "width": block.w},
        "working_set_bytes": plan.working_set_bytes,
        "tasks": plan.tasks,
        "attempts": [vars(attempt) for attempt in plan.attempts],
    }


def _row_json(row: NodeRow) -> dict[str, Any]:
    return {
        "index": row.index,
        "name": row.name,
        "op": row.op,
        "path": row.path,
        "detail": row.detail,
        "frame": list(row.frame),
        "window": extent_json(row.extent),
        "history_frames": row.keep,
        "new_frames": row.new,
        "state_bytes": row.state_bytes,
        "macs_per_frame": row.macs,
        "weight_bytes": row.weight_bytes,
        "requantize": row.requantize,
        "kernel": row.kernel,
        "kernel_reason": row.kernel_reason,
    }


def _output_json(row: OutputRow, rate: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": row.name,
        "window": extent_json(row.extent),
        "lookahead_frames": row.lookahead,
        "hop_wait_frames": row.hop_wait,
    }
    if rate:
        result["lookahead_ms"] = 1000.0 * row.lookahead / rate
        result["hop_wait_ms"] = 1000.0 * row.hop_wait / rate
    return result


def _history_json(row: History) -> dict[str, Any]:
    return {
        "tensor": row.tensor,
        "frame_bytes": row.frame_bytes,
        "history_frames": row.keep,
        "new_frames": row.new,
        "ring_frames": row.ring,
        "why": list(row.why),
    }


def _picture_json(picture: Picture | None) -> dict[str, Any] | None:
    if picture is None:
        return None
    placed = picture.placement
    buffers = [
        {
            "name": str(b.name),
            "bytes": b.bytes,
            "offset": placed.offsets[b.name],
            "first_step": picture.spans[b.name][0],
            "last_step": picture.spans[b.name][1],
        }
        for b in placed.buffers
    ]
    return {
        "bytes": placed.total,
        "lower_bound": placed.lower_bound,
        "steps": list(picture.steps),
        "buffers": buffers,
    }
