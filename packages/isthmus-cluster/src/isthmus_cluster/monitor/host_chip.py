"""Processes of the host chip, from its device accounts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from isthmus_cluster.monitor.card import Card, Process
from isthmus_common.chip_accounts import accounts
from isthmus_common.processes import command_name


def complete_cards(cards: list[Card]) -> list[Card]:
    """Return the configured host chips and those in use, with the memory that processes of this user hold.

    A device is known by index and capacity. Those with one index are one card here.
    """
    processes: dict[int, list[Process]] = defaultdict(list)
    capacity: dict[int, int] = defaultdict(int)
    for account in accounts():
        processes[account.device] += [
            Process(pid, command_name(pid), memory) for pid, memory in account.holders
        ]
        capacity[account.device] += account.capacity
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
