"""`make demo`: what it prints with the recording, without it, and where something differs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

DEMO = ROOT / "examples" / "imu" / "demo.py"
CLOSING = re.compile(r"^OK: (\d+) values, 0 mismatches$")


def run_demo(arguments: list[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if folder is not None:
        environment["BASICMOTIONS_DIR"] = str(folder)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=DEMO.parent, env=environment, capture_output=True, text=True, check=False)


def test_with_the_recording() -> None:
    """Fetched, found, or (offline) replaced: the comparison holds, and the output says which data it was."""
    result = run_demo([str(DEMO)], None)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    closing = CLOSING.match(lines[-1])
    assert closing is not None
    assert int(closing[1]) > 9000
    assert "lookahead 1 frames = 100 ms" in result.stdout
    assert re.search(r"state \d+ B, scratch \d+ B, weights \d+ B", result.stdout)
    assert ("recorded data: 6 held-out clips" in result.stdout) != ("RANDOM DATA" in result.stdout)
    if "recorded data" in result.stdout:
        shares = [int(s) for s in re.findall(r"(\d+)%", result.stdout)]
        assert len(shares) == 6
        assert min(shares) >= 80


def test_without_the_recording(tmp_path: Path) -> None:
    result = run_demo([str(DEMO)], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "RANDOM DATA is streamed instead" in result.stdout
    assert "label " not in result.stdout
    assert CLOSING.match(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("side", ["c", "runtime"])
def test_a_mismatch_ends_with_1(tmp_path: Path, side: str) -> None:
    code = f"""
import sys, demo
from codegen.verify import Comparison
honest = demo.verify
def verify(*args):
    result = honest(*args)
    result.{side}.append(Comparison("planted", "logits", 10, 3, 1.0, "first at (0, 1, 2): 5, expected 6"))
    return result
demo.verify = verify
sys.exit(demo.main())
"""
    result = run_demo(["-c", code], tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "logits: planted: 3 of 10 differ" in result.stdout
    assert re.match(r"MISMATCH: \d+ values, 3 mismatches$", result.stdout.splitlines()[-1])
