"""Formats of checkpoints. A format is one file of this folder with ``FORMATS``; it is found without registration."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from isthmus_formats.checkpoint.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from isthmus_formats.checkpoint.formats.base import Format


@cache
def formats() -> dict[str, Format]:
    """Return the formats by name."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return {each.name: each for module in modules for each in getattr(module, "FORMATS", ())}


def find_format(name: str) -> Format:
    """Return a format.

    Raises:
        UsageError: it is unknown.
    """
    if name not in formats():
        raise UsageError(f"unknown format {name!r}; expected {', '.join(formats())}")
    return formats()[name]


def detect(folder: Path) -> Format:
    """Return the format of a checkpoint.

    Raises:
        CheckpointError: it has none, or several.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; give the folder of the checkpoint")
    found = [each for each in formats().values() if each.matches(folder)]
    if len(found) != 1:
        names = ", ".join(each.name for each in found or formats().values())
        reason = "several formats match" if found else "not a checkpoint of a known format"
        raise CheckpointError(f"{folder}: {reason}; give --from: {names}")
    return found[0]
