"""Where templates/ and runtime_c/ are: inside an installed wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path


def _folder(name: str) -> Path:
    package = Path(__file__).resolve().parent
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name


def templates_folder() -> Path:
    return _folder("templates")


def runtime_folder() -> Path:
    return _folder("runtime_c")
