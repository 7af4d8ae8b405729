"""Permissions of a job's files against the table of AscendSpeed's security statement, and their repair."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isthmus_common.finding import Finding, fail, ok
from isthmus_common.text import count

_SHOWN = 3


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: in the plural.
        most: permissions it may have at most.
        shared: the same where other users share it.
    """

    name: str
    most: int
    shared: int


FOLDER = Kind("folders", 0o750, 0o755)
DATA = Kind("data files", 0o640, 0o644)
CHECKPOINT = Kind("checkpoints", 0o640, 0o640)
PROGRAM = Kind("program files", 0o640, 0o644)  # 0440 once deployed
SCRIPT = Kind("scripts", 0o750, 0o755)
OTHER = Kind("other files", 0o640, 0o644)
_DEPLOYED = 0o440
_SUFFIXES = {
    **dict.fromkeys(".bin .idx .jsonl .json .txt .csv .parquet .arrow .npy .mindrecord".split(), DATA),
    **dict.fromkeys(".pt .pth .safetensors .ckpt .distcp .metadata".split(), CHECKPOINT),
    **dict.fromkeys(".py .so .toml .yaml .yml".split(), PROGRAM),
}
_DATA_SUFFIXES = tuple(suffix for suffix, each in _SUFFIXES.items() if each in (DATA, CHECKPOINT))


class Open(NamedTuple):
    """A file or folder with permissions above the table's.

    Attributes:
        path: where it is.
        kind: what it is.
        mode: its permissions.
        most: those that it may have.
    """

    path: Path
    kind: Kind
    mode: int
    most: int


def kind(path: Path, status: os.stat_result) -> Kind:
    """Return the kind of a file or folder by its suffix and mode."""
    if stat.S_ISDIR(status.st_mode):
        return FOLDER
    name = ".metadata" if path.name == ".metadata" else path.suffix
    if name == ".sh" or (name not in (".so", *_DATA_SUFFIXES) and status.st_mode & 0o111):
        return SCRIPT
    return _SUFFIXES.get(name, OTHER)


def open_files(root: Path, *, shared: bool, deployed: bool) -> Iterator[Open]:
    """Yield the files and folders below a path whose permissions are above the table's; links are not followed.

    Args:
        root: file or folder.
        shared: other users may read data, programs and folders.
        deployed: nobody may write program files.

    Raises:
        OSError: the path cannot be read.
    """
    for path in _paths_below(root):
        try:
            status = path.lstat()
        except FileNotFoundError:  # removed since it was listed
            continue
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            continue
        what = kind(path, status)
        most = what.shared if shared else what.most
        if what is PROGRAM and deployed:
            most &= _DEPLOYED | 0o004
        # Set-group-ID and sticky bits of folders serve sharing.
        mode = stat.S_IMODE(status.st_mode) & (0o4777 if what is FOLDER else 0o7777)
        if mode & ~most:
            yield Open(path, what, mode, most)


def _paths_below(root: Path) -> Iterator[Path]:
    root.stat()
    yield root

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=refuse) if root.is_dir() else ():
        yield from (Path(folder, name) for name in sorted(folders + files))


def findings(root: Path, found: list[Open]) -> Iterator[Finding]:
    """Yield one finding for each kind of file below a path; with examples, and the command that repairs them."""
    if not found:
        yield ok("files", f"{root}: no permissions above the table")
    groups: dict[tuple[Kind, int], list[Open]] = {}
    for each in found:
        groups.setdefault((each.kind, each.most), []).append(each)
    for (what, most), files in groups.items():
        writable = sum(bool(each.mode & 0o002) for each in files)
        examples = ", ".join(f"{each.path} ({each.mode:04o})" for each in files[:_SHOWN])
        by_all = f", {writable} writable by all" if writable else ""
        text = f"{root}: {what.name} above {most:04o}: {len(files)}{by_all}, such as {examples}"
        yield fail("files", text, "`isthmus security check --fix` removes the permissions")


def repair(each: Open) -> str:
    """Remove the permissions above the table's from a file or folder; return what was done, or why not.

    Only removes permissions; never follows a link, never changes another file that has taken its place.
    """
    try:
        descriptor = os.open(each.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return f"not changed: {each.path}: {error.strerror}"
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        kept = mode & (each.most | (0o3000 if each.kind is FOLDER else 0))
        os.fchmod(descriptor, kept)
    except OSError as error:
        return f"not changed: {each.path}: {error.strerror}; its owner or root can change it"
    finally:
        os.close(descriptor)
    return f"changed: {each.path}: {mode:04o} to {kept:04o}"


def summary(lines: list[str]) -> str:
    """Return one line for the results of :func:`repair`."""
    changed = sum(line.startswith("changed") for line in lines)
    return f"{count(changed, 'permission')} changed, {len(lines) - changed} not"
