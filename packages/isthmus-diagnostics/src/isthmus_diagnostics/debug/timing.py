"""Host time of calls, with the stream synchronized before and after each."""

import time
from typing import Any, NamedTuple

import torch

from isthmus_diagnostics.debug import intercept
from isthmus_diagnostics.debug.call import Call


class Row(NamedTuple):
    """Times of one operator, in seconds.

    Attributes:
        operator: overload.
        calls: number of calls.
        total: time of all calls, without nested intercepted calls.
        mean: mean time of a call.
        longest: longest call.
    """

    operator: str
    calls: int
    total: float
    mean: float
    longest: float


class Time:
    """A probe that counts and times calls. Synchronizing removes overlap: the sum is not the program's time."""

    name = "time"
    nearest = True  # else it would time the other tools

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}
        self._inside = [0.0]

    def around(self, call: Call, proceed: intercept.Proceed) -> Any:
        """Run and time one call."""
        self._wait()
        self._inside.append(0.0)
        start = time.perf_counter()
        try:
            return proceed()
        finally:
            self._wait()
            spent = time.perf_counter() - start
            own = spent - self._inside.pop()
            self._inside[-1] += spent
            self._times.setdefault(call.name, []).append(own)

    def _wait(self) -> None:
        with intercept.hide_calls():
            torch.accelerator.current_stream().synchronize()

    def rows(self) -> list[Row]:
        """Return one row per operator, the longest total first."""
        rows = [
            Row(name, len(times), sum(times), sum(times) / len(times), max(times))
            for name, times in list(self._times.items())
        ]
        return sorted(rows, key=lambda row: -row.total)

    def table(self, shown: int = 20) -> str:
        """Format the rows as text."""
        rows = self.rows()
        whole = sum(row.total for row in rows) or 1.0
        lines = [f"{'operator':<48} {'calls':>8} {'total ms':>10} {'mean us':>10} {'share':>6}"]
        lines += [
            f"{r.operator:<48} {r.calls:>8} {r.total * 1e3:>10.2f} {r.mean * 1e6:>10.1f} {r.total / whole:>6.1%}"
            for r in rows[:shown]
        ]
        return "\n".join(lines)
