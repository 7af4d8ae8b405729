"""Time limits on machines where processes wait long for a CPU, or are stopped for the sake of measurements."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

NANOSECONDS = 1_000_000_000


class Stopwatch:
    """Seconds in which processes could run: not those of waiting for a CPU, nor those in which this one was stopped.

    Attributes:
        seconds: the sum, as of the last tick.
    """

    LONGEST = 1.0  # between two ticks, of which seconds are counted

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = time.monotonic()
        self._waits: dict[Path, int] = {}

    def tick(self, processes: Iterable[int] = ()) -> float:
        """Return the seconds, those since the last tick included.

        Args:
            processes: ids of those that are timed; the wait of the thread that waited longest does not count.
        """
        now = time.monotonic()
        waits = _waits(processes)
        waited = max((wait - self._waits.get(thread, 0) for thread, wait in waits.items()), default=0)
        self.seconds += min(now - self._last, self.LONGEST) - waited / NANOSECONDS
        self._last, self._waits = now, waits
        return self.seconds


def _waits(processes: Iterable[int]) -> dict[Path, int]:
    """Return for how many nanoseconds each thread has waited for a CPU; of none where Linux does not say."""
    found = {}
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(OSError, IndexError):
                    found[thread] = int((thread / "schedstat").read_text().split()[1])
    return found


def session(leader: int) -> list[int]:
    """Return the ids of the processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found
