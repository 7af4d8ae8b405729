"""A PyTorch by its folder, which is not imported: its version, and what a build against it needs.

The builds of isthmus and of isthmus-ascend import this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


def minor_version(version: str) -> str:
    """Return major and minor version: "2.13" of "2.13.0+cpu", of "2.13rc1" and of "2.13.0a0+git1234"."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def folder_name(version: str) -> str:
    """Return the name of the folder for a version of PyTorch: "torch_2_13"."""
    return f"torch_{minor_version(version).replace('.', '_')}"


def version_of(folder: Path) -> str:
    """Return the version of the PyTorch in a folder ``torch``, which is not imported.

    Raises:
        OSError: there is none.
        ValueError: its version.py has no version.
    """
    text = (folder / "version.py").read_text(encoding="utf-8")
    if found := re.search(r"^__version__ = ['\"](.+?)['\"]", text, flags=re.MULTILINE):
        return found[1]
    raise ValueError(f"{folder / 'version.py'}: no version")


def versions_in(files: Iterable[Path]) -> list[str]:
    """Return the minor versions that files in folders of :func:`folder_name` are for, oldest first."""
    names = [re.fullmatch(r"torch_(\d+)_(\d+)", path.parent.name) for path in files]
    numbers = sorted(tuple(map(int, name.groups())) for name in names if name)
    return [".".join(map(str, number)) for number in numbers]


class Target(NamedTuple):
    """A PyTorch to compile against, by its folder; it need not be importable."""

    folder: Path

    @property
    def version(self) -> str:
        """Version with its local part: 2.13.0+cpu."""
        return version_of(self.folder)

    @property
    def package(self) -> str:
        """Folder for the binaries of its minor version: torch_2_13."""
        return folder_name(self.version)

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
