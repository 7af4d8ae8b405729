"""Cache of golden data: a folder in the user's cache per version of the opset."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from isthmus.conformance.generate import digest
from isthmus.conformance.golden import MANIFEST, GoldenError, Reader, remedy
from isthmus.doctor import has_torch
from isthmus_common.files import user_cache

_KEPT = 2  # sets, of gigabytes; older ones are of former versions of the opset
_in_use: list[IO[str]] = []  # the manifests of open sets, which hold locks until this process ends


def folder(thorough: bool = False) -> Path:
    """Return the folder for the current opset: ``$XDG_CACHE_HOME/isthmus/golden/<digest>[-thorough]``."""
    return user_cache() / "golden" / (digest()[:16] + ("-thorough" if thorough else ""))


def golden(
    asked: Path | None, say: Callable[[str], None], thorough: bool = False
) -> Reader | Callable[[], Reader]:
    """Open golden data of a folder or of the cache; if the cache has none, return a function that makes it.

    Args:
        asked: the folder; None is the cache.
        say: called with a line to print before the data is made.
        thorough: use data with a case for every pair of values.

    Raises:
        GoldenError: the data is invalid, or of another opset than the installed one.
    """
    if asked is not None:
        return _of_this_opset(Reader(asked))
    here = folder(thorough)
    if (here / MANIFEST).is_file():
        with suppress(OSError):  # the cache may be read-only
            os.utime(here)
        return _open_locked(here)

    def made() -> Reader:
        _make(here, say, thorough)
        prune(here.parent)
        return _open_locked(here)

    return made


def holds_golden(here: Path) -> bool:
    """Return whether a folder holds golden data, complete or not."""
    return (here / MANIFEST).is_file() or any(here.glob("*.safetensors"))


def prune(root: Path) -> None:
    """Remove all sets of golden data below root except the newest and those that a process has open."""
    sets = [each for each in root.iterdir() if (each / MANIFEST).is_file()]
    sets.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for each in sets[_KEPT:]:
        with suppress(OSError), (each / MANIFEST).open() as manifest:
            fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(each, ignore_errors=True)


def _open_locked(here: Path) -> Reader:
    """Read a set that must not be pruned meanwhile."""
    with suppress(OSError):  # removed meanwhile, or on a file system without locks
        _in_use.append((here / MANIFEST).open())
        fcntl.flock(_in_use[-1], fcntl.LOCK_SH)
    return Reader(here)


def _of_this_opset(reader: Reader) -> Reader:
    found, ours = str(reader.manifest.get("opset", "")), digest()
    if found != ours:
        raise GoldenError(
            f"{reader.folder / MANIFEST}: made for opset {found[:12]}, installed is {ours[:12]}; "
            f"{remedy(reader.folder)}"
        )
    return reader


def _make(here: Path, say: Callable[[str], None], thorough: bool) -> None:
    if not has_torch():
        raise GoldenError(
            f"{here}: no golden data for this opset, and PyTorch is not installed to make it; run `isthmus conform "
            "generate --output DIR` on a machine with PyTorch, copy DIR here and pass --golden DIR"
        )
    say(f"making golden data in {here} (once per version of the opset)")
    command = [sys.executable, "-m", "isthmus", "conform", "generate", "--output", str(here)]
    command += ["--thorough"] if thorough else []
    # Standard output belongs to the run.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        shutil.rmtree(here, ignore_errors=True)
        raise GoldenError(f"{here}: failed to make golden data, see the error above")
