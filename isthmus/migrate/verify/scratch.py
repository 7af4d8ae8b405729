"""Copies of a program's folder in which it runs, so that neither side meets what the other writes."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from isthmus._support.files import make_folder
from isthmus.migrate.source import files as sources
from isthmus.migrate.source.files import Kind, Source
from isthmus.migrate.source.findings import Finding, Severity

if TYPE_CHECKING:
    from isthmus.migrate.convert import project

_COPIED = 10 << 20  # bytes; larger files are linked
_MOST = 20_000  # files
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
_CODES = ("IM1", "IM2")  # the findings that are references to CUDA


class ScratchError(ValueError):
    """The folder cannot be copied; the message is one line."""


class Converted(NamedTuple):
    """What became of those of a program's sources that were used.

    Attributes:
        files: that were changed.
        changes: in all of them.
        left: what could not be converted, in a line each.
    """

    files: int
    changes: int
    left: list[str]

    @classmethod
    def of(cls, results: Collection[project.Converted]) -> Converted:
        """The sum of what became of each source."""
        changes = [len(result.changes) for result in results if result.changes]
        left = [f"{each.path}:{each.line}: {each.message}" for result in results for each in result.findings]
        return cls(len(changes), sum(changes), left)


def root_of(script: Path, folder: Path | None = None) -> Path:
    """The folder that is copied: the one that was given, or the current one if the script is in it, or the script's.

    Raises:
        ScratchError: the script is not in the folder that was given.
    """
    place = script.resolve()
    if folder is None:
        here = Path.cwd()
        return here if place.is_relative_to(here) else place.parent
    if not place.is_relative_to(folder.resolve()):
        raise ScratchError(f"--folder {folder}: {script} is not in it")
    return folder.resolve()


def copy(root: Path, to: Path) -> None:
    """Copy a program's folder; large files become links, hidden folders and environments are left out.

    Raises:
        ScratchError: there are too many files.
    """
    for number, (path, kept) in enumerate(_files(root)):
        if number == _MOST:
            raise ScratchError(
                f"{root} has more than {_MOST} files; verify from the folder of the program alone"
            )
        target = to / kept
        if path.is_dir():  # also an empty one, for what the program writes
            make_folder(target)
        elif path.stat().st_size > _COPIED:
            target.symlink_to(path.resolve())
        else:
            shutil.copyfile(path, target)
            target.chmod(0o750 if os.access(path, os.X_OK) else 0o640)


def _files(root: Path) -> Iterator[tuple[Path, Path]]:
    """Every folder, then its files: the path, and the path within the root."""
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(name for name in names if not _is_left_out(here / name))
        paths = (here, *(here / name for name in files if (here / name).is_file()))
        yield from ((path, path.relative_to(root)) for path in paths)


def _is_left_out(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _LEFT_OUT or (folder / "pyvenv.cfg").exists()


def convert(root: Path, target: str, options: Collection[str] = ()) -> dict[str, project.Converted]:
    """Convert every source of a copy in its place.

    Args:
        root: of the copy.
        target: device type to pin; "" for whatever accelerator is there.
        options: of the conversion, ``"ddp"``.

    Returns:
        File -> what became of it, of those with a change or something that was left.
    """
    from isthmus.migrate.convert import project

    results = {}
    for result in project.convert(root, project.Request(target, options=options)):
        results[str(result.path)] = result
        if result.changes:
            result.path.write_bytes(result.after)
    return results


def references(root: Path) -> dict[str, dict[int, str]]:
    """File -> line -> the names from CUDA that are used there, by the analysis of the sources."""
    from isthmus.migrate.analyse.engine import examine
    from isthmus.migrate.analyse.parse import parse

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
