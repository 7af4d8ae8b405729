"""Paths in this repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "packages" / "isthmus"
ASCEND = ROOT / "packages" / "isthmus-ascend"
