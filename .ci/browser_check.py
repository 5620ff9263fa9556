"""report.html in headless Chromium, driven over WebDriver: no console message, nothing fetched, not blank, tables sort,
dark where the user wants dark, no wider than a phone."""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
import onnx.parser

from codegen import Options, analyze
from codegen.report import html

ROOT = Path(__file__).resolve().parents[1]
IMU = ROOT / "examples" / "imu" / "imu_tcn_int8.onnx"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
DESKTOP, PHONE = (1280, 900), (390, 844)
FLOAT_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
float_softmax (float[1,1,T] x) => (float[1,1,T] z)
<float[1,1,3] w = {1, 2, 3}> { y = Conv<pads = [1, 1]>(x, w) z = Softmax<axis = 2>(y) }"""
CELLS = """
const [table, column] = arguments;
return [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim());
"""


@dataclass
class Browser:
    """One WebDriver session."""

    url: str

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode(errors='replace')[:500]}") from error

    def run(self, script: str, *arguments: Any) -> Any:
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the browser's debugging protocol."""
        return self.send("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def find(self, selector: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.send("POST", "/elements", {"using": "css selector", "value": selector})
        return found

    def click(self, element: dict[str, str]) -> None:
        self.send("POST", f"/element/{element[ELEMENT]}/click")

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.send("POST", "/se/log", {"type": "browser"})]

    def look(self, size: tuple[int, int], scheme: str) -> None:
        """The size of a window or phone, and light or dark."""
        mobile = size == PHONE
        self.command(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=mobile
        )
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.command("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, whole: bool = False) -> bytes:
        """PNG of what is visible, or of the whole page."""
        return base64.b64decode(
            self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
            if whole
            else self.send("GET", "/screenshot")
        )


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Chromium with a new profile, behind a chromedriver on a free port; both end with the block."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        port = next(m[1] for m in (re.search(r"started successfully on port (\d+)", s) for s in driver.stdout) if m)
        arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", f"--user-data-dir={profile}", f"--window-size={DESKTOP[0]},{DESKTOP[1]}",
        ]  # fmt: skip
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}}
        wanted["goog:chromeOptions"] = {"args": arguments}
        client = Browser(f"http://127.0.0.1:{port}/session")
        session = client.send("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        client = Browser(f"{client.url}/{session['sessionId']}")
        try:
            yield client
        finally:
            client.send("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def reports(folder: Path) -> dict[str, Path]:
    """Files to look at: a stream, a clip whose state is shared over time, names that would break HTML, no plan."""
    net = models.Net("int8", seed=1, wrap=lambda name: f"</script><img src=x onerror=console.error(1)>&{name}")
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3]))
    made: dict[str, tuple[Any, Options]] = {
        "stream": (None, Options(rate=10.0)),
        "clip": (models.shrinking_clip(), Options()),
        "tiles": (models.shrinking_clip(), Options(plan="hybrid", fast_memory=400)),
        "hostile": (net.model(), Options(hop=3)),
        "analysis": (onnx.parser.parse_model(FLOAT_MODEL), Options()),
    }
    files = {}
    for name, (model, options) in made.items():
        path = IMU
        if model is not None:
            path = folder / f"{name}.onnx"
            path.write_bytes(model.SerializeToString())
        files[name] = folder / f"{name}.html"
        files[name].write_text(html.page(analyze(path, options), path.name), encoding="utf-8")
    return files


def scanlines(png: bytes) -> int:
    """How many different lines an image has as stored: 3 at most if it is blank."""
    at, packed = 8, b""
    width = int.from_bytes(png[16:20], "big")
    channels = {2: 3, 6: 4}[png[25]]
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        if kind == b"IDAT":
            packed += png[at + 8 : at + 8 + size]
        at += 12 + size
    lines, stride = zlib.decompress(packed), width * channels + 1
    return len({lines[i : i + stride] for i in range(0, len(lines), stride)})


def check_sorting(b: Browser) -> int:
    """Clicks every sortable title twice; returns how many there were."""
    b.run("for (const d of document.querySelectorAll('details')) d.open = true;")
    count = 0
    for table in b.find("table.sort"):
        heads = b.run("return [...arguments[0].tHead.rows[0].cells].map((c) => c.dataset.kind ?? '')", table)
        for column, kind in enumerate(heads):
            if not kind:
                continue
            button = b.run("return arguments[0].tHead.querySelectorAll('button')[arguments[1]]", table, column)
            key: Callable[[str], Any] = (lambda v: float(v or 0)) if kind == "number" else str
            b.click(button)
            up = [key(v) for v in b.run(CELLS, table, column)]
            b.click(button)
            down = [key(v) for v in b.run(CELLS, table, column)]
            assert down == up[::-1], f"column {column}: the second click reverses"
            if kind == "number":
                assert up == sorted(up), f"column {column}: {up}"
            count += 1
        state = b.run("return [...arguments[0].tHead.querySelectorAll('th')].map((h) => h.ariaSort)", table)
        assert state.count("descending") == 1 and state.count("ascending") == 0, state
    return count


def brightness(b: Browser) -> float:
    color = b.run("return getComputedStyle(document.body).backgroundColor")
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 765


def check(b: Browser, name: str, path: Path, keep: Path) -> str:
    b.look(DESKTOP, "light")
    b.send("POST", "/url", {"url": path.as_uri()})
    sorted_columns = 0
    for size, scheme in ((DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")):
        b.look(size, scheme)
        label = f"{name}-{'phone' if size == PHONE else 'desktop'}-{scheme}"
        (keep / f"{label}.png").write_bytes(b.screenshot())
        (keep / f"{label}-whole.png").write_bytes(b.screenshot(whole=True))
        lines = scanlines((keep / f"{label}.png").read_bytes())
        assert lines > 100, f"{label}: {lines} different lines, the screenshot is blank"
        assert (brightness(b) > 0.5) == (scheme == "light"), f"{label}: background {brightness(b):.2f}"
        wide = b.run("return document.documentElement.scrollWidth")
        assert wide <= size[0], f"{label}: the page is {wide} pixels wide"
    b.look(DESKTOP, "light")
    sorted_columns = check_sorting(b)
    fetched = b.run("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert [f for f in fetched if not f.startswith("data:")] == [], f"{name} fetches {fetched}"
    assert b.find("img") == [] and len(b.find("script")) == 1, f"{name}: names became markup"
    messages = b.console()
    assert messages == [], f"{name}: console: {messages}"
    return f"{name}: {sorted_columns} columns sort, 4 screenshots, console empty"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder for the screenshots")
    parser.add_argument("html", nargs="*", type=Path, help="further reports to look at")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        keep = args.keep or folder / "screenshots"
        keep.mkdir(parents=True, exist_ok=True)
        files = reports(folder) | {path.stem: path.resolve() for path in args.html}
        with browser(folder / "profile") as b:
            for name, path in files.items():
                print(check(b, name, path, keep), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
