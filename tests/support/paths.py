"""Where the repository lies, and what may lie beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
MODELS = SHARED / "models"
MLPERF_TINY = MODELS / "mlperf_tiny"
