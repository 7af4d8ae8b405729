"""The core and the kernels, compiled once per minor version of PyTorch, and the choice of those that fit.

``torch_2_13/`` holds the core for each Python and the kernels, compiled against some PyTorch 2.13, and their record,
``build.json``. The build reads these names here, too.
"""

from __future__ import annotations

import json
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import isthmus
from isthmus_common.pytorch import folder_name, versions_in

RECORD = "build.json"
MADE_BY = "isthmus"  # its entry for the version of an Isthmus whose `isthmus build` made it; none in a wheel
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
    """There are no binaries for a version of PyTorch; the message has the problem and the remedy.

    Attributes:
        problem: the minor versions that there are binaries for, and the one found.
        remedy: what to do.
        versions: those minor versions.
    """

    remedy = "run `isthmus build`"

    def __init__(self, found: str, versions: list[str]) -> None:
        *first, last = versions or [""]
        listed = f"{', '.join(first)} and {last}" if first else last
        absent = (
            f"the C++ core is not built in {Path(__file__).parents[1]}"  # another one than meant, perhaps
        )
        self.problem = f"built for PyTorch {listed}; found {found}" if versions else absent
        self.versions = versions
        super().__init__(f"{self.problem}; {self.remedy}")


class Damaged(NotBuilt):
    """The binaries for a version of PyTorch cannot be used; the message names the file."""

    remedy = "run `isthmus build`, or install isthmus again"

    def __init__(self, path: Path, what: str) -> None:
        self.problem = f"{path}: {what}"
        self.versions = versions()
        Exception.__init__(self, f"{self.problem}; {self.remedy}")


def versions() -> list[str]:
    """Return the minor versions of PyTorch that there are binaries for, oldest first."""
    return versions_in(Path(__file__).parent.glob(f"torch_*/{RECORD}"))


def find(version: str) -> Binaries:
    """Return the binaries for a version of PyTorch.

    Raises:
        NotBuilt: there are none.
        Damaged: a file of them is unreadable or cut off, which would end the process where it is mapped; or
            `isthmus build` of another version of Isthmus made them.
    """
    folder = Path(__file__).parent / folder_name(version)
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        found = Binaries(record["torch"], record["kernels"], folder)
        made_by = record.get(MADE_BY)
    except FileNotFoundError:
        raise NotBuilt(version, versions()) from None
    except OSError as error:
        raise Damaged(folder / RECORD, error.strerror or str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise Damaged(folder / RECORD, "not a record of a build") from None
    if made_by and made_by != isthmus.__version__:
        raise Damaged(folder, f"built by Isthmus {made_by}; this is {isthmus.__version__}")
    for library in (folder / f"_C{EXTENSION_SUFFIXES[0]}", folder / KERNELS):
        _check_whole(library)
    return found


def _check_whole(library: Path) -> None:
    """Raise Damaged if a library is shorter than its ELF header says: the table of sections is its end."""
    try:
        with library.open("rb") as file:
            header = file.read(64)
            size = file.seek(0, 2)
    except FileNotFoundError:
        return  # the core of another Python is there, or none: what opens it says so
    except OSError as error:
        raise Damaged(library, error.strerror or str(error)) from None
    table, entry, entries = (int.from_bytes(header[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62)))
    if header[:4] != b"\x7fELF" or size < table + entry * entries:
        raise Damaged(library, "cut off")
