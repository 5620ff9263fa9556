"""A compiled model: everything that is known when C is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.emit.names import Names
from codegen.emit.tables import Tables
from codegen.ir.graph import Graph
from codegen.kernels.base import Emission
from codegen.plan.layout import Layout
from codegen.plan.receptive_field import Extent
from codegen.plan.streaming import StreamPlan
from codegen.plan.tiling import TilePlan
from codegen.report.rows import Report


@dataclass(frozen=True)
class Compiled:
    """The plan, what every node becomes, and what can be said of it. `target` is the target's name;
    `shared_runtime`: the kernels keep their own names."""

    graph: Graph
    extents: dict[str, Extent]
    plan: StreamPlan
    layout: Layout
    tiles: dict[str, TilePlan]
    emissions: Mapping[str, Emission]
    names: Names
    tables: Tables
    report: Report
    name: str
    source: str
    digest: str
    version: str
    target: str
    shared_runtime: bool = False
    trace: bool = False
