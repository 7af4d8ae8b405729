"""The layout of a checkpoint to write, from what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.errors import UsageError
from isthmus_formats.checkpoint.formats.base import Format
from isthmus_formats.checkpoint.layout import Layout

_ROTARY = {"half": False, "interleaved": True}


def layout(
    format: Format,
    model: Model,
    sizes: Mapping[str, int],
    *,
    stages: str = "",
    names: str = "",
    rotary: str = "",
    padding: int = 1,
) -> Layout:
    """Return the layout of a checkpoint to write.

    Args:
        format: its format.
        model: its model.
        sizes: parallel sizes by name.
        stages: layers of each virtual stage, by commas; empty for as many in each.
        names: variant of the names.
        rotary: ``half``, ``interleaved``, or empty for the format's own.
        padding: the vocabulary is padded to a multiple of this times the tensor-parallel size.

    Raises:
        UsageError: the format has no such layout.
    """
    for name, size in sizes.items():
        if size > 1 and name not in format.sharded:
            possible = ", ".join(f"--{each}" for each in format.sharded) or "none"
            raise UsageError(f"--{name} {size}: {format.name} cannot be split so; possible: {possible}")
    if names not in format.names:
        possible = ", ".join(each or "the default" for each in format.names)
        raise UsageError(f"--names {names}: {format.name} has no such names; expected {possible}")
    if rotary not in {"", *_ROTARY}:
        raise UsageError(f"--rotary {rotary}: expected half or interleaved")
    if rotary == "interleaved" and not format.pairs:
        raise UsageError(f"--rotary interleaved: {format.name} has rotary halves; leave it out")
    if not all(each.strip().isdigit() for each in stages.split(",") if stages):
        raise UsageError(f"--stages {stages}: expected the layers of each stage, such as 7,8,8,7")
    changes: dict[str, Any] = {"names": names, **sizes}
    if stages:
        changes["stages"] = tuple(int(each) for each in stages.split(","))
    if rotary:
        changes["interleaved"] = _ROTARY[rotary]
    found = replace(format.default(model), **changes)
    if padding > 1 and not found.vocabulary:
        raise UsageError(f"--pad-vocabulary {padding}: {format.name} has no padded vocabulary; leave it out")
    if found.vocabulary:
        multiple = padding * found.tp
        found = replace(found, vocabulary=-(-found.vocabulary // multiple) * multiple)
    return found
