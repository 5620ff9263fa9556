from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from codegen.frontend.load import OPSETS
from codegen.frontend.onnx import FAMILIES

FOLDED = (
    "Operators whose operands are all constant (Constant, ConstantOfShape, Cast, Range, ...), Shape and Size are"
    " evaluated while the model is read: shape subgraphs vanish. Model-local functions are inlined."
)


@dataclass(frozen=True)
class OperatorRow:
    """One operator: `since` is the first supported opset that has it; without `build` it is analyzed and refused."""

    name: str
    domain: str
    since: int
    build: bool
    rule: str


def rows() -> list[OperatorRow]:
    """Every operator that the importer knows, family by family."""
    result = []
    for family in FAMILIES:
        built: Mapping[str, str] = getattr(family, "RULES", {})
        analyzed: Mapping[str, str] = getattr(family, "ANALYZED", {})
        domains: dict[str, list[str]] = {}
        for domain, name in family.LOWER:
            domains.setdefault(name, []).append(domain)
        for name in (*built, *analyzed):
            for domain in domains.pop(name):
                first = since(domain, name)
                if first <= OPSETS[-1]:
                    rule = built.get(name) or analyzed[name]
                    result.append(OperatorRow(name, domain, first, name in built, rule))
        if domains:
            raise KeyError(f"{family.__name__}: no rule for {', '.join(domains)}")
    return result


def since(domain: str, name: str) -> int:
    """The first supported opset of an operator (1 outside of the standard domain)."""
    if domain:
        return 1
    versions = [s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and not s.domain]
    return max(OPSETS[0], min(versions, default=OPSETS[0]))


def to_json() -> dict[str, Any]:
    """The table as data; opsets are those of the standard domain."""
    operators = [vars(row) | {"domain": row.domain or "ai.onnx"} for row in rows()]
    return {"opsets": [OPSETS[0], OPSETS[-1]], "operators": operators, "folded": FOLDED}


def markdown() -> str:
    """The table as text: operators with one rule share a line."""
    groups: dict[tuple[str, bool, str], list[str]] = {}
    for row in rows():
        name = row.name if row.domain or row.since <= OPSETS[0] else f"{row.name} ({row.since})"
        groups.setdefault((row.domain, row.build, row.rule), []).append(name)
    lines = [
        f"Opsets {OPSETS[0]} to {OPSETS[-1]}; in brackets the first opset of an operator that came later."
        " What `build` does not take, `analyze` still reads.",
        "",
        "| operators | domain | `build` | rules |",
        "| --- | --- | --- | --- |",
    ]
    for (domain, build, rule), names in groups.items():
        lines.append(f"| {', '.join(names)} | {domain or 'ai.onnx'} | {'yes' if build else 'no'} | {rule} |")
    return "\n".join([*lines, "", FOLDED])
