"""Writing in place: other files stay, edits are never lost, a crash leaves the former result or the new one."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks import Run, require_tool, run_tool
from models import causal_chain

from codegen import output_folder
from codegen.errors import CodegenError

OLD = {"src/a.c": "a", "src/b.c": "b", "old/only.c": "only", "README.md": "read"}
NEW = {"src/a.c": "a", "src/b.c": "B", "src/new.c": "new", "README.md": "read me"}


def with_manifest(files: dict[str, str]) -> dict[str, str]:
    digests = {name: output_folder.digest(text.encode()) for name, text in files.items()}
    return files | {"manifest.json": json.dumps({"files": digests})}


def contents(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The former build, with a file of the user's and a build of CMake's."""
    target = tmp_path / "out"
    output_folder.write(target, with_manifest(OLD))
    (target / "build").mkdir()
    (target / "build" / "cache.txt").write_text("cmake")
    (target / "src" / "mine.c").write_text("mine")
    return target


FOREIGN = {"build/cache.txt": "cmake", "src/mine.c": "mine"}


def test_only_what_the_former_build_made_is_replaced(folder: Path) -> None:
    untouched = (folder / "src/a.c").stat().st_mtime_ns
    assert output_folder.write(folder, with_manifest(NEW)) == []
    assert contents(folder) == with_manifest(NEW) | FOREIGN
    assert (folder / "src/a.c").stat().st_mtime_ns == untouched, "an equal file is not written again"
    assert not (folder / "old").exists(), "an empty folder of the former build goes too"


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_by_another_name(folder: Path, link: bool) -> None:
    other = folder.parent / "link"
    other.symlink_to(folder, target_is_directory=True)
    output_folder.write(other if link else Path(f"{folder}/../out"), with_manifest(NEW))
    assert contents(folder) == with_manifest(NEW) | FOREIGN and other.is_symlink()


def refuse(folder: Path, *words: str) -> None:
    """The build is refused with these words, and nothing has changed."""
    before = contents(folder)
    with pytest.raises(CodegenError) as caught:
        output_folder.write(folder, with_manifest(NEW))
    assert caught.value.exit_code == 2 and all(word in str(caught.value) for word in words)
    assert contents(folder) == before


def test_what_is_refused(folder: Path) -> None:
    (folder / "src/b.c").write_text("edited")
    (folder / "src/new.c").write_text("foreign")
    refuse(folder, "src/b.c: it was edited since", "src/new.c: it is not a generated file", "Move it away")
    (folder / "src/b.c").unlink()
    (folder / "src/new.c").unlink()
    (folder / "src/new.c").mkdir()
    refuse(folder, "a folder is where a file must be")
    (folder / "src/new.c").rmdir()
    shutil.rmtree(folder / "src")
    (folder / "src").write_text("a file")
    refuse(folder, "a file is where a folder must be")


@pytest.mark.parametrize("manifest", ["{", "5", '{"files": 5}', '{"files": ["src/a.c"]}', '{"name": "of npm"}'])
def test_a_manifest_of_others(folder: Path, manifest: str) -> None:
    (folder / "manifest.json").write_text(manifest)
    refuse(folder, "manifest.json: it is no manifest of this tool")


def test_an_edited_file_that_is_no_longer_made_stays(folder: Path) -> None:
    (folder / "old/only.c").write_text("edited")
    assert output_folder.write(folder, with_manifest(NEW)) == ["old/only.c"]
    assert contents(folder) == with_manifest(NEW) | FOREIGN | {"old/only.c": "edited"}


def test_a_manifest_cannot_name_files_elsewhere(folder: Path) -> None:
    outside = folder.parent / "outside.txt"
    outside.write_text("mine")
    known = {"../outside.txt": output_folder.digest(b"mine")} | json.loads((folder / "manifest.json").read_text())[
        "files"
    ]
    (folder / "manifest.json").write_text(json.dumps({"files": known}))
    output_folder.write(folder, with_manifest(NEW))
    assert outside.read_text() == "mine"


class Killed(BaseException):
    """The process ends here."""


STEPS = ((Path, "replace"), (Path, "rename"), (Path, "unlink"), (Path, "write_text"), (Path, "mkdir"), (Path, "rmdir"),
         (shutil, "rmtree"))  # fmt: skip


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """The process is killed before or in step number `step` that changes a disk; returns the count so far."""
    count = 0

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                raise Killed
            return original(*args, **kwargs)

        return call

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, wrapped(getattr(owner, name)))
    return lambda: count


@pytest.mark.parametrize("again", ["finish", "build"])
def test_killed_at_every_step(tmp_path: Path, again: str) -> None:
    """Whatever was interrupted, the folder holds one of the two results, and everything else is as it was."""
    old, new = with_manifest(OLD) | {"mine.txt": "mine"}, with_manifest(NEW) | {"mine.txt": "mine"}
    seen = set()
    for step in range(1, 100):
        target = tmp_path / f"out{step}"
        output_folder.write(target, with_manifest(OLD))
        (target / "mine.txt").write_text("mine")
        with pytest.MonkeyPatch.context() as patch:
            count = killed_at(patch, step)
            with contextlib.suppress(Killed):
                output_folder.write(target, with_manifest(NEW))
            done = count() < step
        if again == "build":
            output_folder.write(target, with_manifest(NEW))
            assert contents(target) == new, step
        else:
            output_folder.finish(target)
            left = {n: t for n, t in contents(target).items() if not n.startswith(output_folder.STAGING)}
            assert left in (old, new), step
            seen.add(left == new)
        if done:
            break
    assert step > 10 and (again == "build" or seen == {False, True})


def test_two_builds_at_once(tmp_path: Path) -> None:
    """They wait for each other: the folder holds all files of one of them."""
    model = tmp_path / "m.onnx"
    model.write_bytes(causal_chain().SerializeToString())
    for name in ("one", "two"):
        run_tool([sys.executable, "-m", "codegen", "build", model, "-o", tmp_path / name, "--name", name])
    wanted = [contents(tmp_path / name) for name in ("one", "two")]
    for _ in range(3):
        builds = [
            subprocess.Popen([sys.executable, "-m", "codegen", "build", model, "-o", tmp_path / "out", "--name", name])
            for name in ("one", "two", "one", "two")
        ]
        assert [build.wait() for build in builds] == [0] * 4
        assert contents(tmp_path / "out") in wanted


def test_again_behind_cmake(run: Run, tmp_path: Path) -> None:
    cmake = require_tool("cmake")
    (tmp_path / "m.onnx").write_bytes(causal_chain().SerializeToString())
    assert run("build", "m.onnx", "-o", "out")[0] == 0
    run_tool([cmake, "-S", "out", "-B", "out/build"], cwd=tmp_path)
    (tmp_path / "out/notes.txt").write_text("mine")
    assert run("build", "m.onnx", "-o", "out", "--hop", "2")[0] == 0
    assert (tmp_path / "out/build/CMakeCache.txt").is_file() and (tmp_path / "out/notes.txt").read_text() == "mine"
    header = tmp_path / "out/src/m.h"
    header.write_text(header.read_text() + "/* mine */")
    code, _, err = run("build", "m.onnx", "-o", "out")
    assert code == 2 and "m.h: it was edited since it was generated" in err
    assert header.read_text().endswith("/* mine */")
