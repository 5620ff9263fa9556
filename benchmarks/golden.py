"""Fingerprints of generated folders: a change that should not change the C leaves them equal.

    python benchmarks/golden.py [MODEL.onnx ...]

Prints name and SHA-256 over paths and contents of all files, for the bundled example and every model given.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from codegen.pipeline import build  # noqa: E402


def fingerprint(model: Path) -> str:
    digest = hashlib.sha256()
    for path, text in sorted(build(model).items()):
        digest.update(f"{path}\0{text}\0".encode())
    return digest.hexdigest()


def main() -> None:
    for model in [*sorted((ROOT / "examples").rglob("*.onnx")), *map(Path, sys.argv[1:])]:
        print(fingerprint(model), model.name)


if __name__ == "__main__":
    main()
