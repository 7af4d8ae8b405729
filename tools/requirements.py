"""Print the requirements of projects with extras or groups, one per line, without the packages of this repository.

Usage: python -m tools.requirements pyproject.toml ... -- [EXTRA ...]
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path


def requirements(projects: list[Path], extras: list[str]) -> Iterator[str]:
    """Yield the requirements of the projects, and of their extras and groups of these names."""
    for path in projects:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        project = table.get("project", {})
        optional = project.get("optional-dependencies", {}) | table.get("dependency-groups", {})
        for line in (
            *project.get("dependencies", ()),
            *(each for name in extras for each in optional.get(name, ())),
        ):
            if not line.startswith("isthmus"):
                yield line


if __name__ == "__main__":
    split = sys.argv.index("--")
    print(
        *dict.fromkeys(requirements([Path(name) for name in sys.argv[1:split]], sys.argv[split + 1 :])),
        sep="\n",
    )
