"""The C++ folders include only folders below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
# The folders that each folder may include besides itself and the headers at the top of csrc.
BELOW = {
    "options": set(),
    "loader": set(),
    "core": {"loader", "options"},
    "memory": {"core", "loader", "options"},
    "dispatch": {"memory", "core", "loader", "options"},
    "collectives": {"memory", "core", "loader", "options"},
    "kernels": {"core"},
    "drivers": {"options"},
    "ascend": {"options"},
    "bindings": {"collectives", "dispatch", "memory", "core", "loader", "options"},
}
_INCLUDE = re.compile(r'^#include "(\w+)/', re.MULTILINE)


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_includes_what_is_below_it(folder: str) -> None:
    found = {
        (path.relative_to(CSRC).as_posix(), included)
        for path in (CSRC / folder).rglob("*")
        if path.suffix in (".h", ".cpp")
        for included in _INCLUDE.findall(path.read_text())
        if included in BELOW and included != folder
    }
    assert not [row for row in sorted(found) if row[1] not in BELOW[folder]]


def test_every_folder_has_a_layer() -> None:
    assert {path.name for path in CSRC.iterdir() if path.is_dir()} == set(BELOW)
