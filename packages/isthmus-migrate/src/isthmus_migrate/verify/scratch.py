"""Copies of a program's folder, so that the two runs do not see each other's files."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from isthmus_common.files import make_folder
from isthmus_migrate.source import files as sources
from isthmus_migrate.source.files import Kind, Source
from isthmus_migrate.source.findings import LEFT, Finding, Severity

if TYPE_CHECKING:
    from isthmus_migrate.convert import project

_COPIED = 10 << 20  # bytes; larger files are linked
_MOST = 20_000  # files
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
_CODES = ("IM1", "IM2")  # the findings that are references to CUDA


class ScratchError(ValueError):
    """The folder cannot be copied; the message is one line."""


class Converted(NamedTuple):
    """The conversion of the executed sources of a program.

    Attributes:
        files: number of changed files.
        changes: number of changes.
        left: places that could not be converted, one line each.
    """

    files: int
    changes: int
    left: list[str]

    @classmethod
    def of(cls, results: Collection[project.Converted]) -> Converted:
        """Sum up the conversions of sources."""
        changes = [len(result.changes) for result in results if result.changes]
        left = [
            f"{each.path}:{each.line}: {each.message}"
            for result in results
            for each in result.findings
            if each.severity in LEFT
        ]
        return cls(len(changes), sum(changes), left)


def root_of(script: Path, folder: Path | None = None) -> Path:
    """Return the folder to copy: the given one, else the current one if it contains the script, else the script's.

    Raises:
        ScratchError: the script is not in the given folder.
    """
    place = script.resolve()
    if folder is None:
        here = Path.cwd()
        return here if place.is_relative_to(here) else place.parent
    if not place.is_relative_to(folder.resolve()):
        raise ScratchError(f"--folder {folder}: does not contain {script}")
    return folder.resolve()


def copy(root: Path, to: Path) -> None:
    """Copy a program's folder; large files are linked, hidden folders and virtual environments are skipped.

    Raises:
        ScratchError: too many files.
    """
    for number, (path, kept) in enumerate(_files(root)):
        if number == _MOST:
            raise ScratchError(
                f"{root}: contains more than {_MOST} files; give the folder of the program with --folder"
            )
        target = to / kept
        if path.is_dir():  # empty ones too: the program may write there
            make_folder(target)
        elif path.stat().st_size > _COPIED:
            target.symlink_to(path.resolve())
        else:
            shutil.copyfile(path, target)
            target.chmod(0o750 if os.access(path, os.X_OK) else 0o640)


def _files(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield every folder, then its files: the path, and the path within the root."""
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(name for name in names if not _is_left_out(here / name))
        paths = (here, *(here / name for name in files if (here / name).is_file()))
        yield from ((path, path.relative_to(root)) for path in paths)


def written_since(time: int, root: Path) -> Iterator[str]:
    """Yield the files of a copy that were written after a time in ns, relative to it."""
    for path, kept in _files(root):
        if path.is_file() and not path.is_symlink() and path.stat().st_mtime_ns > time:
            yield kept.as_posix()


def _is_left_out(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _LEFT_OUT or (folder / "pyvenv.cfg").exists()


def convert(root: Path, target: str, options: Collection[str] = ()) -> dict[str, project.Converted]:
    """Convert all sources of a copy in place.

    Args:
        root: folder of the copy.
        target: device type to pin; "" for any accelerator.
        options: options of the conversion: ``"ddp"``.

    Returns:
        File -> result, for files with changes or findings.
    """
    from isthmus_migrate.convert import project

    results = {}
    for result in project.convert(root, project.Request(target, options=options)):
        results[str(result.path)] = result
        if result.changes:
            result.path.write_bytes(result.after)
    return results


def references(root: Path) -> dict[str, dict[int, str]]:
    """Return file -> line -> names of CUDA used there, found by analysis."""
    from isthmus_migrate.analyse.engine import examine
    from isthmus_migrate.source.parse import parse

    found: dict[str, dict[int, str]] = defaultdict(dict)
    for source in _python(root):
        module, _ = parse(source, "")
        for finding in examine(module) if module else ():
            if finding.code.startswith(_CODES) and finding.severity is not Severity.ADVICE:
                names = found[str(source.path)]
                for line in range(finding.line, finding.end_line + 1):
                    names[line] = ", ".join(filter(None, (names.get(line), finding.subject)))
    return found


def _python(root: Path) -> Iterator[Source]:
    for source in sources.walk(root):
        if not isinstance(source, Finding) and source.kind is Kind.PYTHON:
            yield source
