"""The C++ folders of isthmus include only folders below them; isthmus-ascend includes what isthmus installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import isthmus
from tools.repository import ASCEND, CORE

CSRC = CORE / "csrc"
# The folders that each folder may include besides itself and the headers at the top of csrc.
BELOW = {
    "loader": set(),
    "core": {"loader"},
    "memory": {"core", "loader"},
    "dispatch": {"memory", "core", "loader"},
    "collectives": {"memory", "core", "loader"},
    "kernels": {"core"},
    "drivers": set(),
    "bindings": {"collectives", "dispatch", "memory", "core", "loader"},
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


def test_the_ascend_package_includes_its_own_headers_and_installed_ones() -> None:
    folder = ASCEND / "csrc"
    installed = Path(isthmus.include_path())
    missing = [
        (path.name, name)
        for path in folder.rglob("*")
        if path.suffix in (".h", ".cpp")
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
        if not any(
            (place / name).exists() for place in (path.parent, folder, folder.parent / "build", installed)
        )
    ]
    assert not missing
