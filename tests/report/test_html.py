"""report.html: well-formed, self-contained, the same bytes each time, and no name from the model becomes markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import models
import onnx.parser
import pytest
from checks import Workshop
from models import Net
from paths import ROOT

from codegen import Options, analyze, cli
from codegen.pipeline import compile_model, render
from codegen.report import html

IMU = ROOT / "examples" / "imu" / "imu_tcn_int8.onnx"
VOID = {"meta", "link", "rect", "line", "polyline", "br"}
SECTIONS = ("latency", "windows", "memory", "histories", "nodes", "proof", "removed", "notes")
FLOAT_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
float_softmax (float[1,1,T] x) => (float[1,1,T] z)
<float[1,1,3] w = {1, 2, 3}> { y = Conv<pads = [1, 1]>(x, w) z = Softmax<axis = 2>(y) }"""


class Page(HTMLParser):
    """Elements, attributes and visible text; fails on tags that don't match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.code: dict[str, str] = {"style": "", "script": ""}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag}: an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> inside {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.code:
            self.code[self.open[-1]] += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def check(text: str) -> Page:
    """What holds for every report."""
    page = Page(text)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(set(ids)) == len(ids) and set(SECTIONS) <= set(ids)
    targets = [str(a["href"]) for a in page.all("a")]
    assert targets and all(t.startswith("#") and t[1:] in ids for t in targets)
    assert [a["href"] for a in page.all("link")] == ["data:,"]
    assert not [tag for tag, a in page.tags if {"src", "srcset", "action", "data"} & set(a) or tag in ("img", "iframe")]
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert "url(" not in page.code["style"] and "@import" not in page.code["style"]
    assert not re.search(r"https?:|//|fetch|import|XMLHttp|innerHTML", page.code["script"] + page.code["style"])
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert "prefers-color-scheme: dark" in page.code["style"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    return page


def page_of(model: onnx.ModelProto | str, folder: Path, options: Options | None = None) -> str:
    path = folder / "model.onnx"
    proto = onnx.parser.parse_model(model) if isinstance(model, str) else model
    path.write_bytes(proto.SerializeToString())
    return html.page(analyze(path, options), path.name)


def test_numbers_of_the_example() -> None:
    report = analyze(IMU, Options(rate=10.0))
    page = check(html.page(report, IMU.name))
    text = " ".join(page.text.split())
    for number in (report.state_bytes, report.constant_bytes, report.macs_mean, report.macs_peak):
        assert f"{number:,}" in text
    assert "34 frames = 3400 ms 1 frame = 100 ms 0 frames = 0 ms" in text
    why = "after 16 input frames 16 exist, and its next one, 16, reads from frame 12 on: 16 - 12 = 4"
    assert f"node_conv1d_2 (Conv): {why}" in text
    assert "Result 48 bytes, lower bound 48 bytes" in text
    assert "84 channels of 6 layers" in text and "21,420" in text
    drawn = [a for a in page.all("rect") if "class" not in a]
    assert report.arena is not None and len(drawn) == len(report.arena.placement.buffers)


def test_rectangles_never_overlap(tmp_path: Path) -> None:
    """Neither those of the scratch nor those of a clip's state: what the picture shows is the plan."""
    report = analyze(IMU)
    rects = [a for a in Page(html.page(report, "x")).all("rect") if "class" not in a]
    boxes = [tuple(float(str(a[k])) for k in ("x", "y", "width", "height")) for a in rects]
    assert boxes
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:i]:
            apart = 0.25  # coordinates are rounded to a tenth
            assert x + w <= x2 + apart or x2 + w2 <= x + apart or y + h <= y2 + apart or y2 + h2 <= y + apart


@pytest.mark.parametrize("name", models.DIVERSE)
def test_every_model(name: str, tmp_path: Path) -> None:
    check(page_of(models.DIVERSE[name](), tmp_path))


def test_model_that_is_only_analyzed(tmp_path: Path) -> None:
    page = check(page_of(FLOAT_MODEL, tmp_path))
    assert "This model cannot be built" in page.text
    assert "There is no memory plan" in page.text
    assert "whole sequence: " in page.text
    assert "Softmax" in page.text and not page.all("polyline")


@pytest.mark.parametrize(
    "stem",
    [
        "</script><script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "<!-- &lt; &amp;#0; ]]>",
        "</title></style></svg></table>",
        "{{ 7 * 191 }}{% raw %}",
        "nul\x00bell\x07escape\x1b[31m\u202eright to left",
        "http://example.com/?a=b&c",
        "x" * 3000,
        "größe_活性化_🎤",
    ],
)
def test_hostile_names(stem: str, tmp_path: Path) -> None:
    net = Net("int8", seed=1, wrap=lambda name: f"{stem}{name}")
    x = net.input([1, 3, "T"], name="x")
    y = net.conv(x, 4, [3], pads=[2, 0])
    net.output(net.add(y, net.conv(y, 4, [2], pads=[0, 1])))
    text = page_of(net.model(), tmp_path)
    page = check(text)
    shown = html.clean(stem)[:20]
    assert shown in page.text or any(shown in str(a.get("title", "")) for _, a in page.tags)
    assert "\u202e" not in text and "1337" not in text


def test_hostile_file_name(tmp_path: Path) -> None:
    page = check(html.page(analyze(IMU), "</title><script>alert(1)</script>.onnx"))
    assert "</title><script>alert(1)</script>.onnx: streaming report" in page.text


def test_same_bytes_and_part_of_the_build(shop: Workshop) -> None:
    first, second = (render(compile_model(IMU, Options(hop=2))) for _ in range(2))
    assert first["report.html"] == second["report.html"]
    manifest = json.loads(first["manifest.json"])
    assert {*manifest["files"], "manifest.json"} == set(first)
    assert str(ROOT) not in first["report.html"]
    check(first["report.html"])


def test_analyze_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    target.write_text("something else")
    assert cli.main(["analyze", str(IMU), "--html", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arena"]["lower_bound"] == 48
    assert target.read_text(encoding="utf-8") == html.page(analyze(IMU), IMU.name)
    assert cli.main(["analyze", str(IMU), "--html", str(tmp_path / "none" / "report.html")]) == 2
    assert "none" in capsys.readouterr().err


def test_plans_and_tiles_are_shown(tmp_path: Path) -> None:
    """A hybrid's cut, every plan that was looked at, and the decision behind each layer's tiles."""
    path = tmp_path / "model.onnx"
    path.write_bytes(models.shrinking_clip().SerializeToString())
    report = analyze(path, Options(fast_memory=400, plan="hybrid"))
    page = check(html.page(report, path.name))
    text = " ".join(page.text.split())
    assert report.plan is not None and f"All frames of {report.plan.cut} are kept" in text
    for point in report.plan.tried:
        size = "not less than" if point.ram_bytes is None else f"{point.ram_bytes:,}"
        assert (point.cut or "the end") in text and size in text and f"{point.push_macs:,}" in text
    for row in report.tiles:
        assert row.name in text and all(attempt.reason in text for attempt in row.plan.attempts)
