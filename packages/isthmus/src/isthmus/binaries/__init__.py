"""The core and the kernels, compiled once per minor version of PyTorch, and the choice of those that fit.

``torch_2_13/`` holds the core for each Python and the kernels, compiled against some PyTorch 2.13, and their record,
``build.json``. The build reads these names here, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

RECORD = "build.json"
KERNELS = "libisthmus_kernels.so"


class Binaries(NamedTuple):
    """Libraries compiled for one minor version of PyTorch.

    Attributes:
        torch: version of the PyTorch whose headers were used.
        kernels: the instruction set of the kernels, as ``torch.backends.cpu.get_cpu_capability`` names it.
        folder: where the libraries are.
    """

    torch: str
    kernels: str
    folder: Path


class NotBuilt(Exception):
    """There are no binaries for a version of PyTorch.

    Attributes:
        versions: the minor versions that there are binaries for.
    """

    def __init__(self, found: str, versions: list[str]) -> None:
        *first, last = versions or [""]
        listed = f"{', '.join(first)} and {last}" if first else last
        super().__init__(
            f"built for PyTorch {listed}; found {found}" if versions else "the C++ core is not built"
        )
        self.versions = versions


def minor_version(version: str) -> str:
    """Return major and minor version: "2.13" of "2.13.0+cpu" and of "2.13.0a0+git1234"."""
    return ".".join(version.split(".")[:2])


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


def versions() -> list[str]:
    """Return the minor versions of PyTorch that there are binaries for, oldest first."""
    return versions_in(Path(__file__).parent.glob(f"torch_*/{RECORD}"))


def versions_in(files: Iterable[Path]) -> list[str]:
    """Return the minor versions that files in folders of :func:`folder_name` are for, oldest first."""
    numbers = sorted(tuple(map(int, path.parent.name.split("_")[1:])) for path in files)
    return [".".join(map(str, number)) for number in numbers]


def find(version: str) -> Binaries:
    """Return the binaries for a version of PyTorch.

    Raises:
        NotBuilt: there are none.
    """
    folder = Path(__file__).parent / folder_name(version)
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotBuilt(version, versions()) from None
    return Binaries(record["torch"], record["kernels"], folder)
