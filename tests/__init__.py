"""Tests of isthmus; those of the other packages are found as parts of this package, too."""

from pathlib import Path

__path__ += sorted(map(str, Path(__file__).resolve().parents[1].glob("packages/*/tests")))
