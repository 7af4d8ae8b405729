"""Processes of the host chip, from its device accounts, which are only read.

``packages/isthmus/csrc/drivers/host/ledger.h`` describes an account.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isthmus_cluster.monitor.card import Card, Process, command_name
from isthmus_common.files import existing_private_folder

_SLOT = struct.Struct("Qq")  # bytes, process id
_FIRST_LOCK = (1 << 20) + 1  # a byte behind the contents for each slot, which its process has locked
_LOCK = "hhqqi0q"  # struct flock of fcntl(2): type, whence, start, length, process id
_NAME = re.compile(r"host-(\d+)-(\d+)")


def complete_cards(cards: list[Card]) -> list[Card]:
    """Return the configured host chips and those in use, with the memory that processes of this user hold.

    A device is known by index and capacity. Those with one index are one card here.
    """
    processes: dict[int, list[Process]] = defaultdict(list)
    capacity: dict[int, int] = defaultdict(int)
    folder = existing_private_folder()
    for path in sorted(folder.glob("host-*")) if folder else []:
        if (name := _NAME.fullmatch(path.name)) and (found := list(_processes(path))):
            processes[int(name[1])] += found
            capacity[int(name[1])] += int(name[2])
    known = {card.index: card for card in cards}
    shared = cards[0] if cards else Card(0, "Isthmus host chip")
    return [
        replace(
            known.get(index, replace(shared, index=index)),
            memory_used=sum(process.memory or 0 for process in processes[index]),
            memory_total=capacity[index] or shared.memory_total,
            utilization=shared.utilization,  # utilization of the machine's processors
            processes=tuple(processes[index]),
        )
        for index in sorted({*known, *capacity})
    ]


def _processes(path: Path) -> Iterator[Process]:
    """Yield the living processes of an account."""
    with path.open("rb") as account:
        data = account.read()
        for slot, (memory, pid) in enumerate(_SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size])):
            if pid and _is_locked(account.fileno(), _FIRST_LOCK + slot):
                yield Process(pid, command_name(pid), memory)


def _is_locked(descriptor: int, byte: int) -> bool:
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind: int = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK
