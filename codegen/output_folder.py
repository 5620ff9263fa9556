"""Writing the generated folder: all or nothing, and never over files that the tool did not write."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from codegen.errors import input_error

STAGE = "output"


def check(folder: Path) -> None:
    """Refuse a folder that cannot be written, or that holds anything but an earlier result of this tool."""
    if folder.exists() and not folder.is_dir():
        raise input_error(STAGE, str(folder), "this is a file", "a folder", "Name another folder with -o")
    foreign = _foreign(folder) if folder.is_dir() else []
    if foreign:
        shown = ", ".join(foreign[:4]) + (", ..." if len(foreign) > 4 else "")
        found = f"it holds files that this tool did not write ({shown})"
        raise input_error(STAGE, str(folder), found, "an empty or new folder", "Name another folder with -o")
    parent = folder if folder.is_dir() else _existing_parent(folder)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise input_error(STAGE, str(folder), "the folder cannot be written", hint="Check its permissions")


def _existing_parent(folder: Path) -> Path:
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent


def _known(folder: Path) -> set[str]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return {str(name) for name in manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _foreign(folder: Path) -> list[str]:
    known = _known(folder)
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() and path.relative_to(folder).as_posix() not in known
    )


def write_file(path: Path, text: str) -> None:
    """Write one file that the user named, over one that is there."""
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        text = f"writing failed ({error.strerror})"
        raise input_error(STAGE, str(path), text, hint="Name a file in a folder that exists") from error


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by their names below `folder`, in UTF-8 with plain newlines."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write into a temporary folder beside the target and swap it in: a failure leaves what was there."""
    check(folder)
    target = folder.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            write_files(staging, files)
            staging.chmod(0o755)
            if target.is_dir():
                shutil.rmtree(target)
            staging.rename(target)
        finally:
            if staging.exists():
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise input_error(
            STAGE, str(folder), f"writing failed ({error.strerror})", hint="Check its permissions"
        ) from error
