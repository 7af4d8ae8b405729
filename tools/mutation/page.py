"""The page of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_page(file: Path, row: dict[str, Any], other: dict[str, Any] | None) -> None:
    """Write."""
