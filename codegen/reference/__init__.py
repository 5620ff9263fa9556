"""The written reference, executable: what the generated C must equal for every input."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from codegen.ir.graph import Graph
from codegen.reference import whole_clip
from codegen.reference.whole_clip import Array


def run(model: str | Path | Graph, x: Mapping[str, Array], taps: Collection[str] | None = None) -> dict[str, Array]:
    """Whole-clip result of a model file (or of a graph from `codegen.pipeline.load_int8`); see `whole_clip.run`."""
    if isinstance(model, Graph):
        return whole_clip.run(model, x, taps)
    from codegen.pipeline import load_int8

    return whole_clip.run(load_int8(model), x, taps)
