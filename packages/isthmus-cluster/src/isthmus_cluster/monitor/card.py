"""A card's measurements, and a host's report of its cards. Imports no torch, no pydantic."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from isthmus_common.text import clean_text

_LARGEST = 1e18  # largest number in a report
OK, WARNING, LOST = "OK", "Warning", "Lost"


class SourceError(RuntimeError):
    """A source of measurements does not work; the message is one line."""


@dataclass(frozen=True)
class Process:
    """A process that holds memory of a card.

    Attributes:
        pid: process id on the host.
        name: name of its command; "" if unknown.
        memory: bytes of the card; None if not measured.
    """

    pid: int
    name: str
    memory: int | None


@dataclass(frozen=True)
class Card:
    """The state of a card; None stands for what is not measured.

    Attributes:
        index: device id on its host.
        name: product.
        health: "OK", "Warning", or "Lost" if it does not work.
        reason: of another health than OK.
        power_w: watts.
        temperature_c: degrees Celsius.
        memory_used, memory_total: bytes.
        utilization: of its compute units, 0 to 1.
        processes: those that hold memory of it.
    """

    index: int
    name: str
    health: str = OK
    reason: str = ""
    power_w: float | None = None
    temperature_c: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    utilization: float | None = None
    processes: tuple[Process, ...] | None = None


@dataclass(frozen=True)
class Report:
    """The last report of a host.

    Attributes:
        host: its name.
        time: when it was received, in seconds since the epoch; 0 if there was none.
        age: seconds since then; since the start of its agent if there was none.
        cards: as last reported.
        error: why there are no current values; "" if the host answers.
    """

    host: str
    time: float
    age: float
    cards: tuple[Card, ...]
    error: str


def encode(cards: list[Card], error: str) -> str:
    """Return an agent's report as a line of JSON."""
    return json.dumps({"cards": [asdict(card) for card in cards], "error": error})


def decode(line: bytes) -> tuple[tuple[Card, ...], str] | None:
    """Return cards and error of an agent's line; None for other lines, such as the greeting of a login shell."""
    try:
        found = json.loads(line)
        return tuple(map(_card, found["cards"])), clean_text(found["error"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _card(values: dict[str, Any]) -> Card:
    processes = values.pop("processes")
    known = None if processes is None else tuple(Process(**_clean_entries(each)) for each in processes)
    if values["health"] not in (OK, WARNING, LOST):
        raise ValueError
    return Card(**_clean_entries(values), processes=known)


def _clean_entries(values: dict[str, Any]) -> dict[str, Any]:
    """Return entries of a card or a process: texts clean, numbers of the types that the classes have.

    Raises:
        ValueError, TypeError: a number has another type, or is too large.
    """
    found = dict(values)
    for name, value in values.items():
        if name in ("name", "health", "reason"):
            found[name] = clean_text(value)
        elif value is not None or name in ("index", "pid"):
            kinds = (int, float) if name in ("power_w", "temperature_c", "utilization") else (int,)
            if type(value) not in kinds or not abs(value) <= _LARGEST:
                raise ValueError
    return found
