"""Cache of golden data: a folder in the user's cache per version of the opset, with the operators of past runs."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from isthmus.conformance.generate import digest
from isthmus.conformance.golden import MANIFEST, GoldenError, Reader, remedy
from isthmus.doctor import has_torch
from isthmus_common.files import lock_file, make_folder, user_cache
from isthmus_common.text import count

_KEPT = 2  # sets; older ones are of former versions of the opset
Opener: TypeAlias = Callable[[Collection[str]], Reader]  # of at least these operators


def folder(thorough: bool = False) -> Path:
    """Return the folder for the current opset: ``$XDG_CACHE_HOME/isthmus/golden/<digest>[-thorough]``."""
    return user_cache() / "golden" / (digest()[:16] + ("-thorough" if thorough else ""))


def golden(asked: Path | None, say: Callable[[str], None], thorough: bool = False) -> Reader | Opener:
    """Open golden data of a folder, or return a function that opens the cache and makes the data that it lacks.

    Args:
        asked: the folder; None is the cache.
        say: called with a line to print before data is made.
        thorough: use data with a case for every pair of values.

    Raises:
        GoldenError: the data is invalid, or of another opset than the installed one.
    """
    return partial(_open_cache, say, thorough) if asked is None else _of_this_opset(Reader(asked))


def _open_cache(say: Callable[[str], None], thorough: bool, names: Collection[str]) -> Reader:
    here = folder(thorough)
    if _lacking(here, names):
        make_folder(here.parent)
        with _waiting_for(here.parent, say):
            if lacking := _lacking(here, names):
                _make(here, lacking, say, thorough)
                prune(here.parent)
    with suppress(OSError):  # the cache may be read-only
        os.utime(here)
    return _open_locked(here)


def _lacking(here: Path, names: Collection[str]) -> list[str]:
    """Return the operators without valid data."""
    held: set[str] = set()
    with suppress(GoldenError):
        held = set(Reader(here).operators)
    return sorted(set(names) - held)


@contextmanager
def _waiting_for(root: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process makes golden data."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process, which makes golden data in {root}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def holds_golden(here: Path) -> bool:
    """Return whether a folder holds golden data, complete or not."""
    return (here / MANIFEST).is_file() or any(here.glob("*.safetensors.xz"))


def prune(root: Path) -> None:
    """Remove all sets of golden data below root except the newest and those that a process has open."""
    sets = [each for each in root.iterdir() if (each / MANIFEST).is_file()]
    sets.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for each in sets[_KEPT:]:
        with suppress(OSError), lock_file(each) as locked:
            if locked:
                shutil.rmtree(each, ignore_errors=True)


def _open_locked(here: Path) -> Reader:
    """Read a set that must not be pruned until this process ends."""
    with suppress(OSError):  # removed meanwhile, or on a file system without locks
        fcntl.flock(os.open(here, os.O_RDONLY), fcntl.LOCK_SH)
    return Reader(here)


def _of_this_opset(reader: Reader) -> Reader:
    found, ours = str(reader.manifest.get("opset", "")), digest()
    if found != ours:
        raise GoldenError(
            f"{reader.folder / MANIFEST}: made for opset {found[:12]}, installed is {ours[:12]}; "
            f"{remedy(reader.folder)}"
        )
    return reader


def _make(here: Path, names: Sequence[str], say: Callable[[str], None], thorough: bool) -> None:
    if not has_torch():
        raise GoldenError(
            f"{here}: no golden data for this opset, and PyTorch is not installed to make it; run `isthmus conform "
            "generate --output DIR` on a machine with PyTorch, copy DIR here and pass --golden DIR"
        )
    say(f"making golden data of {count(len(names), 'operator')} in {here} (once per version of the opset)")
    command = [sys.executable, "-m", "isthmus", "conform", "generate", "--output", str(here)]
    command += ["--operators", ",".join(names), *(["--thorough"] if thorough else [])]
    # Standard output belongs to the run.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        if not (here / MANIFEST).is_file():
            shutil.rmtree(here, ignore_errors=True)
        raise GoldenError(f"{here}: failed to make golden data, see the error above")
