"""Atomic writes of files (mode 0640) and folders (mode 0750), independent of the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o640, 0o750


def make_folder(path: Path) -> None:
    """Create path and its missing parents."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        path.chmod(FOLDER_MODE)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, beside `path`; renamed to it if the block succeeds."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.chmod(FILE_MODE)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, created if missing."""
    with open(path, "a", encoding="utf-8", opener=lambda p, flags: os.open(p, flags, FILE_MODE)) as file:
        os.fchmod(file.fileno(), FILE_MODE)
        file.write(line + "\n")
