"""Where golden data is kept between runs: a folder of the user's cache for each state of the opset."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from isthmus.conformance.generate import digest
from isthmus.conformance.golden import MANIFEST, GoldenError, Reader


def folder() -> Path:
    """The folder for the opset as it is: ``$XDG_CACHE_HOME/isthmus/golden/<digest>``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "isthmus" / "golden" / digest()[:16]


def golden(asked: Path | None, say: Callable[[str], None]) -> Reader | Callable[[], Reader]:
    """Golden data of a folder or of the cache; where it is not in the cache, a function that makes it.

    Args:
        asked: the folder; None is the cache.
        say: takes a line for people before it takes long.

    Raises:
        GoldenError: it cannot be used.
    """
    if asked is not None:
        return Reader(asked)
    here = folder()
    if (here / MANIFEST).is_file():
        return Reader(here)

    def made() -> Reader:
        _make(here, say)
        return Reader(here)

    return made


def _make(here: Path, say: Callable[[str], None]) -> None:
    if importlib.util.find_spec("torch") is None:
        raise GoldenError(
            f"{here}: no golden data for this opset, and PyTorch is not installed to make it; run `isthmus conform "
            "generate --output DIR` where it is, copy DIR here and pass --golden DIR"
        )
    say(f"making golden data in {here} (once for each state of the opset)")
    command = [sys.executable, "-m", "isthmus", "conform", "generate", "--output", str(here)]
    # Standard output is the run's: what is made says so on standard error.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise GoldenError(f"{here}: golden data could not be made, see above")
