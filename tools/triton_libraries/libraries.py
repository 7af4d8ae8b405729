"""The libraries, and how their tests are started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.repository import ROOT


@dataclass(frozen=True, eq=False)
class Library:
    """A library of Triton kernels and its tests.

    Args:
        name: as its authors write it.
        repository: ``owner/name``.
        revision: a commit.
        parts: folders and files that the tests need.
        tests: patterns of files of tests.
        without: words in the names of files that are left out.
        packages: the folder of its packages.
        options: of pytest.
        settings: environment variables.
        every: one test in so many of each function runs; a negative number counts from the last.
        group: files in one process.
        endings: of the files that are needed.
    """

    name: str
    repository: str
    revision: str
    parts: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    packages: str = "."
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    every: int = 1
    group: int = 1
    endings: tuple[str, ...] = (".py", ".toml", ".yaml", ".json")

    @property
    def page(self) -> Path:
        """The page of its results."""
        return ROOT / f"docs/results/{self.name.lower()}.md"

    def files(self, place: Path) -> list[str]:
        """Return the files of tests, relative to the library's folder."""
        found = (each for pattern in self.tests for each in sorted(place.glob(pattern)))
        names = (str(each.relative_to(place)) for each in found)
        return [name for name in names if not any(word in name for word in self.without)]


LIBRARIES = (
    Library(
        "Liger-Kernel",
        "linkedin/Liger-Kernel",
        "ead96b61",
        ("src", "test"),
        ("test/transformers/test_*.py",),
        without=("cutedsl", "cutile", "cute_moe"),  # other languages than Triton
        packages="src",
        every=-64,  # the last are in float32, and small
        group=8,
    ),
    Library(
        "flash-linear-attention",
        "fla-org/flash-linear-attention",
        "bc3b101d",
        ("fla", "tests"),
        ("tests/modules/test_*.py", "tests/ops/test_*.py"),
        without=("tilelang",),
        every=64,
        group=8,
    ),
    Library(
        "FlagGems",
        "flagos-ai/FlagGems",
        "ed2508bc",
        ("src", "tests", "conf"),
        ("tests/test_*.py",),
        packages="src",
        options=("--quick", "--ref", "cpu"),
        settings={"GEMS_VENDOR": "nvidia", "ISTHMUS_HOST_RNG": "philox"},
        every=3,
        group=12,
    ),
)
