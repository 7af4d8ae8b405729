"""Memory of a device over time, from the allocator's events in a trace."""

from dataclasses import dataclass

from isthmus_diagnostics.profile.host import Host
from isthmus_diagnostics.profile.trace import Memory, Trace


@dataclass
class Peak:
    """Most memory of one device, in bytes, and where the user's code was then."""

    device: str
    allocated: int
    reserved: int
    time: float
    where: str


def peaks(trace: Trace, host: Host) -> list[Peak]:
    """Return the peak of each device; none unless profiled with ``profile_memory=True``."""
    highest: dict[str, Memory] = {}
    for memory in trace.memory:
        if memory.device not in highest or memory.allocated > highest[memory.device].allocated:
            highest[memory.device] = memory
    found = []
    for device, memory in sorted(highest.items()):
        index = host.at(memory.time)
        place = None if index is None else host.place(index)
        name = "" if index is None else host.events[host.operator(index)].name
        where = f"{place}, {name}" if place else name
        found.append(Peak(device, memory.allocated, memory.reserved, memory.time, where))
    return found


def timeline(trace: Trace, device: str, points: int = 400) -> list[tuple[float, float]]:
    """Return (time, allocated) of a device, the highest of each of at most ``points`` equal periods."""
    start, end = trace.window()
    period = (end - start) / points
    found: dict[int, tuple[float, float]] = {}
    for memory in trace.memory:
        if memory.device == device:
            slot = int((memory.time - start) / period)
            if slot not in found or memory.allocated > found[slot][1]:
                found[slot] = (memory.time, float(memory.allocated))
    return [found[slot] for slot in sorted(found)]
