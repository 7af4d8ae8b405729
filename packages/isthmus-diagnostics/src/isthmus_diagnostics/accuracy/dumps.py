"""Read the dump of a job: of this package, or of msprobe."""

from pathlib import Path

from isthmus_diagnostics.accuracy import msprobe
from isthmus_diagnostics.accuracy.errors import AccuracyError
from isthmus_diagnostics.accuracy.reading import Rank
from isthmus_diagnostics.accuracy.writer import INDEX


def read(folder: Path) -> list[Rank]:
    """Read a dump, of all ranks in order; also one in the layout of msprobe.

    Raises:
        AccuracyError: it is no dump, or cannot be read.
    """
    if not folder.is_dir():
        raise AccuracyError(f"{folder}: no such folder; write a dump with isthmus run --dump statistics")
    if (theirs := msprobe.folders(folder)) and not list(folder.glob("rank-*")):
        return [msprobe.load(path, number) for number, path in enumerate(theirs)]
    found = sorted((path for path in folder.glob("rank-*") if path.is_dir()), key=_number)
    if not found:
        raise AccuracyError(f"{folder}: contains no dump (rank-0/{INDEX}); write one with isthmus run --dump")
    return [Rank.load(path) for path in found]


def _number(path: Path) -> int:
    return int(path.name.removeprefix("rank-")) if path.name[5:].isdigit() else -1
