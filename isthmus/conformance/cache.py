"""Where golden data is kept between runs: a folder of the user's cache for each state of the opset."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from isthmus._support.files import user_cache
from isthmus.conformance.generate import digest
from isthmus.conformance.golden import MANIFEST, REMEDY, GoldenError, Reader
from isthmus.doctor import has_torch

_KEPT = 3  # sets; older ones are for states of the opset that are gone
_IN_USE_SECONDS = 6 * 3600.0  # a set that was taken so lately may be read by another run


def folder() -> Path:
    """The folder for the opset as it is: ``$XDG_CACHE_HOME/isthmus/golden/<digest>``."""
    return user_cache() / "golden" / digest()[:16]


def golden(asked: Path | None, say: Callable[[str], None]) -> Reader | Callable[[], Reader]:
    """Golden data of a folder or of the cache; where it is not in the cache, a function that makes it.

    Args:
        asked: the folder; None is the cache.
        say: takes a line for people before it takes long.

    Raises:
        GoldenError: it cannot be used, or is of another opset than the one that is installed.
    """
    if asked is not None:
        return _of_this_opset(Reader(asked))
    here = folder()
    if (here / MANIFEST).is_file():
        with suppress(OSError):  # a cache that cannot be written is read
            os.utime(here)
        return Reader(here)

    def made() -> Reader:
        _make(here, say)
        prune(here.parent)
        return Reader(here)

    return made


def prune(root: Path) -> None:
    """Remove all sets of golden data below root but the newest few and those in use."""
    sets = [each for each in root.iterdir() if (each / MANIFEST).is_file()]
    sets.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for each in sets[_KEPT:]:
        if time.time() - each.stat().st_mtime > _IN_USE_SECONDS:
            shutil.rmtree(each, ignore_errors=True)


def _of_this_opset(reader: Reader) -> Reader:
    found, ours = str(reader.manifest.get("opset", "")), digest()
    if found != ours:
        raise GoldenError(
            f"{reader.folder / MANIFEST}: of another opset ({found[:12]}, installed is {ours[:12]}); {REMEDY}"
        )
    return reader


def _make(here: Path, say: Callable[[str], None]) -> None:
    if not has_torch():
        raise GoldenError(
            f"{here}: no golden data for this opset, and PyTorch is not installed to make it; run `isthmus conform "
            "generate --output DIR` where it is, copy DIR here and pass --golden DIR"
        )
    say(f"making golden data in {here} (once for each state of the opset)")
    command = [sys.executable, "-m", "isthmus", "conform", "generate", "--output", str(here)]
    # Standard output is the run's: what is made says so on standard error.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise GoldenError(f"{here}: golden data could not be made, see above")
