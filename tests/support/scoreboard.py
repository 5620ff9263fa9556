"""Real exports and adversarial cases beside the repository: what is built and verified, what is refused and why.

    python tests/support/scoreboard.py [SHARED]

Runs every file of SHARED/models/fixtures and, by SHARED/check/cases.sh, every case of SHARED/cases/public.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from paths import SHARED

from codegen import CodegenError, Options
from codegen.verify.verification import verify

MAY_BE_REFUSED = (
    "gru.legacy gru.tf2onnx gru_state lstm2 x_a16w8 x_w4 tcn.tf2onnx ln_gelu_gn einsum".split()  # the list
)


@dataclass(frozen=True)
class Score:
    """One file: built, equal to the reference, values that onnxruntime has otherwise; or why it is refused."""

    name: str
    built: bool
    equal: bool
    different: int
    text: str

    @property
    def good(self) -> bool:
        return self.built and self.equal if self.name not in MAY_BE_REFUSED or self.built else True


def fixture(path: Path) -> Score:
    """Build and verify one model."""
    name = path.name.removesuffix(".onnx")
    try:
        result = verify(path, Options(name="m"))
    except CodegenError as error:
        return Score(name, False, False, 0, str(error.problems[0]))
    different = sum(item.different for item in result.runtime)
    values = sum(item.values for item in result.runtime)
    largest = max((item.largest for item in result.runtime), default=0.0)
    text = f"{values} values against onnxruntime, {different} differ" + (f", at most {largest:g}" if different else "")
    return Score(name, True, result.passed, different, text if values else "; ".join(result.notes))


def fixtures(shared: Path) -> list[Score]:
    return [fixture(path) for path in sorted((shared / "models" / "fixtures").rglob("*.onnx"))]


def main() -> int:
    shared = Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED
    if not shared.is_dir():
        print(f"{shared} is not there", file=sys.stderr)
        return 2
    scores = fixtures(shared)
    for score in scores:
        verdict = ("equal" if score.equal else "DIFFERS") if score.built else "refused"
        print(f"{score.name:<28} {verdict:<8} {score.text[:150]}")
    built = sum(score.built and score.equal for score in scores)
    print(f"fixtures: {built} of {len(scores)} built and equal, {sum(not s.built for s in scores)} refused")
    command = ["bash", str(shared / "check" / "cases.sh"), str(shared / "cases" / "public"), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"cases: {done.stdout.strip()}")
    good, _, total = done.stdout.strip().splitlines()[-1].partition("/")
    return 0 if all(score.good for score in scores) and good == total else 1


if __name__ == "__main__":
    sys.exit(main())
