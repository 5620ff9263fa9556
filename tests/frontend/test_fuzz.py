"""Mutated models: a build whose C compiles (a share of them compared with the reference), or a refusal with a message.

Never a traceback, exit code 4, more than 20 seconds of processor time, or more than 2 GB. See fuzzing.py.
"""

from __future__ import annotations

from pathlib import Path

import fuzzing
import pytest

pytestmark = pytest.mark.search

SHARDS = range(4)
CASES = 70
# Found in 30 minutes of fuzzing; what they were is in the tests of test_hostile.py too.
FOUND = (42, 61, 141, 1225, 1403, 2092, 2378, 2749, 3176, 11443, 11930)


def check(totals: dict[str, object]) -> None:
    faults = totals["faults"]
    assert not faults, faults


@pytest.mark.parametrize("shard", SHARDS)
def test_mutated_models(shard: int, tmp_path: Path) -> None:
    """Bounded: the same seeds every time, as many of them as one minute allows."""
    totals = fuzzing.run(shard * 1000, CASES, 60.0, tmp_path / "failing")
    check(totals)
    assert totals["built"] and totals["refused"], totals


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_failed(seed: int) -> None:
    check(fuzzing.run(seed, 1, 60.0, None))


@pytest.mark.slow
def test_many_mutated_models(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """`--slow --search-seconds N`."""
    seconds = float(pytestconfig.getoption("--search-seconds"))
    check(fuzzing.run(100_000, 1 << 30, seconds, tmp_path / "failing"))
