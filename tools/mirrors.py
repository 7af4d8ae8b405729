"""Clones of public repositories: ``MIRRORS/pytorch+examples/repo`` or ``MIRRORS/pytorch/examples``."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path


def repository(mirrors: Path, name: str) -> Path:
    """Return the folder of a repository, ``"pytorch/examples"``.

    Raises:
        FileNotFoundError: the repository does not exist.
    """
    places = (mirrors / name.replace("/", "+") / "repo", mirrors / name)
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise FileNotFoundError(f"{places[0]}: no such folder; clone {name} there")
    return found


def holding(mirrors: Path, name: str, revision: str) -> Path:
    """Return the folder of a repository, or of a fork that has a commit of it.

    Raises:
        FileNotFoundError: neither exists.
    """
    with contextlib.suppress(FileNotFoundError):
        return repository(mirrors, name)
    for place in sorted(mirrors.glob("*/*")):
        with contextlib.suppress(subprocess.CalledProcessError):
            git(place, "cat-file", "-e", f"{revision}^{{commit}}")
            return place
    raise FileNotFoundError(
        f"{mirrors}: no clone of {name}, nor a fork that has commit {revision}; clone it there"
    )


def git(place: Path, *arguments: str) -> bytes:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, check=True).stdout


def extract(place: Path, revision: str, to: Path, endings: Collection[str], *parts: str) -> None:
    """Write the files of a revision whose names have one of some endings, below some folders, into a folder."""
    for name in files(place, revision, *parts):
        if name.endswith(tuple(endings)):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(git(place, "show", f"{revision}:{name}"))


def extract_once(place: Path, revision: str, to: Path, endings: Collection[str], *parts: str) -> None:
    """Extract, unless the folder holds the files of this revision already."""
    stamp = to / f".{revision}"
    if not stamp.exists():
        print(f"writing the files of {place} at {revision} into {to}", flush=True)
        extract(place, revision, to, endings, *parts)
        stamp.touch()


def compiles(source: str | bytes) -> bool:
    """Whether a converted file is valid Python."""
    try:
        compile(source, "file", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def files(place: Path, revision: str, *parts: str) -> Iterator[str]:
    """Yield the names of the files of a revision, below some folders; not those of links."""
    listed = git(place, "ls-tree", "-r", "-z", revision, "--", *parts).decode()
    for entry in filter(None, listed.split("\0")):
        details, _, name = entry.partition("\t")
        if details.startswith("100"):
            yield name
