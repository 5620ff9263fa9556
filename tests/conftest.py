"""Shared fixtures: the workshop that builds and compiles models, `--slow`, and the seed in the header."""

from __future__ import annotations

import os

import pytest
from checks import Workshop

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
