"""Replacement of several files: all of them or none."""

import resource
import signal
from collections.abc import Iterator
from pathlib import Path, PosixPath

import pytest

from isthmus_common.files import Replacement, replace_files
from isthmus_migrate.source.files import kind_of


def _files(folder: Path) -> list[Path]:
    paths = [folder / name for name in ("a.py", "b.py")]
    for path in paths:
        path.write_bytes(b"old")
    return paths


def _contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_an_error_of_the_file_system_changes_nothing_and_names_the_file(tmp_path: Path) -> None:
    first, second = _files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match="File too large; no file was changed") as raised:
            replace_files([Replacement(first, b"new", 0o640), Replacement(second, b"x" * (1 << 17), 0o640)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(second)
    assert _contents(tmp_path) == {"a.py": b"old", "b.py": b"old"}


def test_an_interrupt_before_the_renames_changes_nothing(tmp_path: Path) -> None:
    first, second = _files(tmp_path)
    seen: list[str] = []

    def interrupted() -> Iterator[bytes]:
        seen.extend(each.name for each in tmp_path.iterdir() if each not in (first, second))
        signal.raise_signal(signal.SIGINT)
        yield b"new"

    with pytest.raises(KeyboardInterrupt):
        replace_files([Replacement(first, b"new", 0o640), Replacement(second, interrupted(), 0o640)])
    assert _contents(tmp_path) == {"a.py": b"old", "b.py": b"old"}
    assert len(seen) == 2
    assert all(name.startswith(".") and name.endswith(".isthmus-tmp") for name in seen)
    assert not any(map(kind_of, seen))  # a temporary that a kill leaves is no source


def test_an_interrupt_during_the_renames_waits_for_the_last(tmp_path: Path) -> None:
    class Interrupted(PosixPath):
        def replace(self, target: Path) -> Path:  # type: ignore[override]
            signal.raise_signal(signal.SIGINT)
            return super().replace(target)

    first, second = _files(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    files = [Replacement(Interrupted(first), b"new", 0o640), Replacement(second, b"new", 0o640)]
    assert replace_files(files)
    assert _contents(tmp_path) == {"a.py": b"new", "b.py": b"new"}
    assert signal.getsignal(signal.SIGINT) is before
