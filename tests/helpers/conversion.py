"""Conversion of small sources."""

from __future__ import annotations

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.source.findings import Severity


def convert(source: str) -> Result:
    return convert_source(f"import torch\n{source}", "a.py")


def ends(source: str, code: str) -> list[Severity]:
    """Return the severities of the findings of a code, in the order of the source."""
    return [each.severity for each in convert(source).findings if each.code == code]
