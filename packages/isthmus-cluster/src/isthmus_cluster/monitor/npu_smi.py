"""The table of ``npu-smi info``: two rows for each chip, then the processes."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from isthmus_cluster.monitor.card import LOST, OK, WARNING, Card, Process

_MIB = 1 << 20
_HEALTH = {"OK": OK, "Warning": WARNING, "Alarm": WARNING}  # others, such as Critical and UNKNOWN: lost
_PAIR = r"(\d+)\s*/\s*(\d+)"
_FIRST = re.compile(
    r"(?P<npu>\d+)\s+(?P<name>[^|]*?)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|"
    rf"\s*(?P<power>[^\s|]+)\s+(?P<temperature>[^\s|]+)(\s+{_PAIR})?"
)
_SECOND = re.compile(
    r"(?P<chip>\d+)(\s+(?P<device>\d+))?\s*\|[^|]*\|\s*(?P<utilization>\S+)\s+(?P<memory>[\d\s/]+)"
)
_PROCESS = re.compile(
    r"(?P<npu>\d+)\s+(?P<chip>\d+)\s*\|\s*(?P<pid>\d+)\s*\|\s*(?P<name>.*?)\s*\|\s*(?P<memory>\S+)"
)


def parse(text: str) -> list[Card]:
    """Return the cards of a table, none if it is not one; rows that are not understood are skipped.

    A card's index is its chip's physical id (column Phy-ID or Device) where the table has one, else the number of the
    NPU; where an NPU has several chips, their position. A value such as ``NA`` is not measured.
    """
    cards: dict[tuple[int, int], Card] = {}
    processes: dict[tuple[int, int], list[Process]] = defaultdict(list)
    first: re.Match[str] | None = None
    has_device = False
    for line in text.splitlines():
        row = line.strip().strip("|").strip()
        if found := _FIRST.fullmatch(row):
            first = found
        elif first and (found := _SECOND.fullmatch(row)):
            has_device |= bool(found["device"])
            cards[int(first["npu"]), int(found["chip"])] = _card(first, found)
            first = None
        elif found := _PROCESS.fullmatch(row):
            memory = _number(found["memory"])
            process = Process(
                int(found["pid"]), found["name"], None if memory is None else int(memory) * _MIB
            )
            processes[int(found["npu"]), int(found["chip"])].append(process)
    if not has_device and any(chip for _, chip in cards):
        cards = {place: replace(card, index=index) for index, (place, card) in enumerate(cards.items())}
    if "Process id" not in text:
        return list(cards.values())
    return [replace(card, processes=tuple(processes[place])) for place, card in cards.items()]


def _card(first: re.Match[str], second: re.Match[str]) -> Card:
    pairs = re.findall(_PAIR, second["memory"])  # pairs of the host's memory, if any, then HBM
    used, total = next(
        ((int(used), int(total)) for used, total in reversed(pairs) if int(total)), (None, None)
    )
    health, utilization = _HEALTH.get(first["health"], LOST), _number(second["utilization"])
    return Card(
        int(second["device"] or first["npu"]),
        first["name"],
        health,
        "" if health == OK else f"npu-smi: {first['health']}",
        power_w=_number(first["power"]),
        temperature_c=_number(first["temperature"]),
        memory_used=None if used is None else used * _MIB,
        memory_total=None if total is None else total * _MIB,
        utilization=None if utilization is None else utilization / 100,
    )


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None
