"""Shared fixtures: the workshop that builds and compiles models, `--slow`, and the seed in the header."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from checks import Run, Workshop

from codegen.cli import main

SEED = 20240229


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the longer searches too")
    parser.addoption("--search-seconds", default="3600", help="when the search over random graphs stops (with --slow)")


def pytest_report_header(config: pytest.Config) -> str:
    tools = "required" if os.environ.get("CODEGEN_REQUIRE_TOOLS") == "1" else "skipped where missing"
    return f"base seed {SEED}; tools {tools}; slow tests {'on' if config.getoption('--slow') else 'off'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="a longer search: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Builds and compiles models; compiled objects are shared by all tests, and by all workers of a parallel run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Workshop(tmp_path_factory.mktemp("models"), shared / "objects")


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit code, output, errors of one command, run in a folder of its own; a traceback always fails."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: object) -> tuple[int, str, str]:
        try:
            code = main([str(a) for a in argv])
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call
