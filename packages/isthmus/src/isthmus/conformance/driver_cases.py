"""Conformance cases of the functions of driver.h."""

from isthmus.conformance.driver import (
    activity,
    collectives,
    copies,
    devices,
    events,
    figures,
    graphs,
    groups,
    lifetimes,
    limits,
    memory,
    optional,
    order,
    scheduling,
    sharing,
    streams,
    telemetry,
    transfers,
)
from isthmus.conformance.driver.case import DriverCase

__all__ = ["DriverCase", "cases"]


def cases() -> list[DriverCase]:
    """Return all cases, in the order of driver.h; names are unique."""
    basic = (
        devices,
        memory,
        limits,
        copies,
        streams,
        events,
        scheduling,
        order,
        lifetimes,
        figures,
        transfers,
    )
    optional_groups = (collectives, groups, activity, sharing, telemetry, graphs, optional)
    return [
        case._replace(name=f"{file.__name__.rpartition('.')[2]}.{case.name}")
        for file in basic + optional_groups
        for case in file.CASES.all
    ]
