"""Writing the generated folder in place: what others keep there stays, and a crash or a second build leaves no mixture.

All files are staged in the folder first. Renaming the finished stage to `JOURNAL` is the point of no return: from then
on, whoever finds the journal moves its files into place (the next build, or `codegen.host`). Before it, nothing that
was there has been touched. A lock on the folder makes builds wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from codegen.errors import EXIT_INPUT, CodegenError, Problem, input_error

STAGE = "output"
MANIFEST = "manifest.json"
STAGING = ".codegen-staging"
JOURNAL = ".codegen-journal"
REMOVED = ".removed.json"
"""In the journal: the files of the former build that go."""


def digest(data: bytes) -> str:
    """The fingerprint of a file in the manifest: SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def check(folder: Path) -> None:
    """Refuse a folder that cannot be written, before the model is read. Raises CodegenError (2)."""
    if folder.exists() and not folder.is_dir():
        raise input_error(STAGE, str(folder), "this is a file", "a folder", "Name another folder with -o")
    parent = folder if folder.is_dir() else _existing_parent(folder)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise input_error(STAGE, str(folder), "the folder cannot be written", hint="Check its permissions")


def _existing_parent(folder: Path) -> Path:
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent


def write(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Put the files in place; those of the former build that are no longer made go, unless they were edited.

    Returns the former files that stay because they were edited. Raises CodegenError (2), with nothing changed, where
    a file to be written is not the former build's, or was edited since.
    """
    folder = folder.resolve()
    try:
        with _locked(folder):
            _move_into_place(folder)
            former = _former(folder)
            _refuse_foreign(folder, files, former)
            gone = [name for name in former if name not in files and (folder / name).is_file()]
            edited = [name for name in gone if digest((folder / name).read_bytes()) != former[name]]
            _stage(folder, files, [name for name in gone if name not in edited])
            _move_into_place(folder)
            return edited
    except OSError as error:
        found = f"writing failed ({error.strerror})"
        raise input_error(STAGE, str(folder), found, hint="Check its permissions") from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder, made if needed and ours alone; made and left empty, it goes again."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
        if made and not any(folder.iterdir()):
            folder.rmdir()


def _former(folder: Path) -> dict[str, str]:
    """Files of the former build by name, with their fingerprints; empty where there is none that can be read."""
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {str(name): str(known[name]) for name in known if ".." not in Path(name).parts}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


def _refuse_foreign(folder: Path, files: Mapping[str, str], former: Mapping[str, str]) -> None:
    """Every file that would be written over, and is neither the former build's nor equal to the new one."""
    problems = []
    for name, text in files.items():
        path = folder / name
        above = next((p for p in path.parents if p != folder and folder in p.parents and p.is_file()), None)
        if above is not None or path.is_dir():
            found = "a file is where a folder must be" if above else "a folder is where a file must be"
            problems.append(Problem(str(above or path), found, "", "Move it away, or name another folder with -o"))
        elif path.exists() and name != MANIFEST:
            is_there = digest(path.read_bytes())
            if is_there not in (former.get(name), digest(text.encode())):
                found = "it was edited since it was generated" if name in former else "it is not a generated file"
                hint = "Move it away to have it generated again, or name another folder with -o"
                problems.append(Problem(str(path), found, "", hint))
        elif path.exists() and not former:
            found = "it is no manifest of this tool, or of an older version"
            problems.append(Problem(str(path), found, "", "Move it away, or name another folder with -o"))
    if problems:
        raise CodegenError(STAGE, problems, EXIT_INPUT)


def _stage(folder: Path, files: Mapping[str, str], removed: list[str]) -> None:
    """Write all that changes, and make it the journal."""
    staging = folder / STAGING
    if staging.exists():
        shutil.rmtree(staging)  # of a build that did not get as far as its journal
    changed = {name: text for name, text in files.items() if not _is_there(folder / name, text)}
    write_files(staging, changed)
    staging.mkdir(exist_ok=True)
    (staging / REMOVED).write_text(json.dumps(removed), encoding="utf-8")
    staging.rename(folder / JOURNAL)


def _is_there(path: Path, text: str) -> bool:
    """Whether a file has this text: then it keeps its time too, and is not compiled again."""
    return path.is_file() and path.read_bytes() == text.encode()


def finish(folder: Path) -> None:
    """Finish a build that was interrupted behind its point of no return."""
    if (folder / JOURNAL).is_dir():
        with _locked(folder):
            _move_into_place(folder)


def _move_into_place(folder: Path) -> None:
    """What the folder's journal says, if there is one; the manifest last."""
    journal = folder / JOURNAL
    if not journal.is_dir():
        return
    staged = sorted(path for path in journal.rglob("*") if path.is_file() and path.name != REMOVED)
    for path in sorted(staged, key=lambda path: path.name == MANIFEST):
        target = folder / path.relative_to(journal)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    removed = journal / REMOVED
    for name in json.loads(removed.read_text(encoding="utf-8")) if removed.exists() else ():
        path = folder / name
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files are in there
            path.parent.rmdir()
    shutil.rmtree(journal)


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
