"""The PyTorch that a build compiles against; the builds of isthmus and of isthmus-ascend import this."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from isthmus import binaries


class Target(NamedTuple):
    """A PyTorch to compile against, by its folder; it need not be importable."""

    folder: Path

    @property
    def version(self) -> str:
        """Version with its local part: 2.13.0+cpu."""
        return binaries.version_of(self.folder)

    @property
    def package(self) -> str:
        """Folder for the binaries of its minor version: torch_2_13."""
        return binaries.folder_name(self.version)

    @property
    def include_flags(self) -> list[str]:
        """Flags of the compiler that find its headers."""
        include = self.folder / "include"
        return [f for path in (include, include / "torch/csrc/api/include") for f in ("-isystem", str(path))]

    @property
    def library_folder(self) -> str:
        """Folder of its libraries."""
        return str(self.folder / "lib")

    @property
    def macros(self) -> list[tuple[str, str]]:
        """The version: no list of dependencies has headers of the system, but another command compiles all."""
        return [("ISTHMUS_TORCH_VERSION", self.version)]


def installed_folder() -> Path | None:
    """Return the folder of the installed PyTorch, which is not imported; None if there is none."""
    spec = find_spec("torch")
    places = (spec and spec.submodule_search_locations) or []
    return Path(next(iter(places))) if places else None


def targets() -> list[Target]:
    """Return every PyTorch to compile against: the installed one, or those of ISTHMUS_TORCH, separated by colons."""
    installed = installed_folder()
    if installed is None:
        return []
    named = os.environ.get("ISTHMUS_TORCH") or str(installed)
    return [Target(Path(folder).resolve()) for folder in named.split(":")]
