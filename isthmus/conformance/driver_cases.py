"""The functions of driver.h as conformance cases: each a small program that a wrong driver fails."""

from __future__ import annotations

from isthmus.conformance.driver import copies, devices, events, memory, optional, order, streams
from isthmus.conformance.driver.case import DriverCase

__all__ = ["DriverCase", "cases"]


def cases() -> list[DriverCase]:
    """Every case, in the order of driver.h; their names are unique."""
    files = (devices, memory, copies, streams, events, order, optional)
    return [
        case._replace(name=f"{file.__name__.rpartition('.')[2]}.{case.name}")
        for file in files
        for case in file.CASES.all
    ]
