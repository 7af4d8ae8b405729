"""Conformance cases of the functions of driver.h."""

from isthmus.conformance.driver import copies, devices, events, memory, optional, order, streams
from isthmus.conformance.driver.case import DriverCase

__all__ = ["DriverCase", "cases"]


def cases() -> list[DriverCase]:
    """Return all cases, in the order of driver.h; names are unique."""
    files = (devices, memory, copies, streams, events, order, optional)
    return [
        case._replace(name=f"{file.__name__.rpartition('.')[2]}.{case.name}")
        for file in files
        for case in file.CASES.all
    ]
