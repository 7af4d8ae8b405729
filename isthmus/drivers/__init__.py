"""Finding a driver: by folder (``isthmus/drivers/<name>/libisthmus_<name>.so``), by entry point, or by path.

Nothing is opened here. A package outside Isthmus adds a driver with an entry point of the group
``isthmus.drivers`` whose name is the driver's and whose value is a function that returns the library's path.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
EMBEDDED = "host"  # always there, so every other driver comes before it


class Candidate(NamedTuple):
    """A driver library that may be opened: name, path of the library, where it was found."""

    name: str
    path: str
    origin: str


class Search(NamedTuple):
    """Candidates in the order in which they are tried, the places that were looked at, and why there are none."""

    candidates: tuple[Candidate, ...]
    searched: tuple[str, ...]
    problem: str = ""


@cache
def _entry_points() -> Any:
    return entry_points()  # read once: it takes milliseconds of `import torch`


def installed(group: str) -> list[EntryPoint]:
    """Entry points of a group, of every installed package."""
    return list(_entry_points().select(group=group))


def find(asked: str = "") -> Search:
    """Drivers to try.

    Args:
        asked: name of a driver, path of a library, or "" for whatever is there.
    """
    if os.sep in asked or asked.endswith(".so"):
        return _at_path(asked)
    searched: list[str] = []
    shipped = _shipped(searched)
    if asked and any(candidate.name == asked for candidate in shipped):
        return Search(tuple(c for c in shipped if c.name == asked), tuple(searched))
    candidates = [*_from_entry_points(searched, asked), *shipped]
    candidates.sort(key=lambda candidate: candidate.name == EMBEDDED)
    if asked:
        names = ", ".join(sorted({c.name for c in candidates})) or "none"
        candidates = [c for c in candidates if c.name == asked]
        problem = f"there is no driver named {asked!r}; there are: {names}. A path to a library is taken too"
    else:
        problem = f"no driver library is in {FOLDER}; do `pip install --no-build-isolation .`"
    return Search(tuple(candidates), tuple(searched), "" if candidates else problem)


def _at_path(asked: str) -> Search:
    path = Path(asked).expanduser().absolute()
    if not path.is_file():
        return Search((), (str(path),), f"{path} is not a file; name a driver or the path of its library")
    name = path.stem.removeprefix("libisthmus_")
    return Search((Candidate(name, str(path), "path"),), (str(path),))


def _shipped(searched: list[str]) -> list[Candidate]:
    found = []
    for library in sorted(FOLDER.glob("*/libisthmus_*.so")):
        found.append(Candidate(library.parent.name, str(library), "folder"))
    searched.append(f"{FOLDER}/*/libisthmus_*.so: {len(found)} found")
    return found


def _from_entry_points(searched: list[str], asked: str) -> list[Candidate]:
    found = []
    for entry in installed("isthmus.drivers"):
        if asked and entry.name != asked:
            continue
        place = f"entry point isthmus.drivers {entry.name} = {entry.value}"
        try:
            path = str(entry.load()())
        except Exception as error:  # a stranger's package; the search goes on
            searched.append(f"{place}: {type(error).__name__}: {error}")
            continue
        searched.append(f"{place}: {path}")
        found.append(Candidate(entry.name, path, "entry point"))
    if not found:
        searched.append("entry points of the group isthmus.drivers: none usable")
    return found
