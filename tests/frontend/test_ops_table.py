"""`codegen ops` and docs/operators.md: one table, from the rules beside the operators: all that the importer knows."""

from __future__ import annotations

import json

import onnx
import pytest
from paths import ROOT

from codegen.cli import main
from codegen.frontend.onnx import LOWER
from codegen.frontend.onnx import table as operators

PAGE = ROOT / "docs" / "operators.md"
BEGIN, END = "<!-- codegen ops -->\n", "\n<!-- end of codegen ops -->"


def test_the_docs_have_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    found = text.split(BEGIN)[1].split(END)[0]
    assert found == operators.markdown(), "paste the output of `codegen ops` between the markers"


def test_every_operator_has_one_rule() -> None:
    rows = operators.rows()
    keys = [(row.domain, row.name) for row in rows]
    assert len(keys) == len(set(keys))
    later = {key for key in LOWER if operators.since(*key) > operators.OPSETS[-1]}
    assert set(keys) == set(LOWER) - later
    assert all(row.rule and not row.rule.endswith(".") for row in rows)


def test_first_opsets() -> None:
    found = {row.name: row.since for row in operators.rows() if not row.domain}
    assert found["Conv"] == 10 and found["Einsum"] == 12 and found["Gelu"] == 20 and found["LayerNormalization"] == 17


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    assert capsys.readouterr().out == operators.markdown() + "\n"
    assert main(["ops", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    conv = next(row for row in table["operators"] if row["name"] == "Conv")
    assert conv["domain"] == "ai.onnx" and conv["build"] and table["opsets"] == [10, 25]
    assert {row["name"] for row in table["operators"] if not row["build"]} >= {"GRU", "LSTM", "DynamicQuantizeLinear"}


def described(schema: onnx.defs.OpSchema) -> object:
    attributes = sorted((a.name, str(a.type), a.required, str(a.default_value)) for a in schema.attributes.values())
    ports = [(port.name, str(port.option)) for port in (*schema.inputs, *schema.outputs)]
    return attributes, ports


OLDER = sorted(name for domain, name in LOWER if not domain and operators.since("", name) < 24)


@pytest.mark.parametrize("name", OLDER)
def test_opsets_24_and_25_changed_nothing_but_types(name: str) -> None:
    """An operator whose newest definition differs in more than element types needs a look before it is let in."""
    old, new = (onnx.defs.get_schema(name, opset, "") for opset in (23, operators.OPSETS[-1]))
    assert described(old) == described(new)
