"""Replay of a trace with allocators: reserved memory and time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.memory.trace import ALLOC, Trace, TraceError
from isthmus_common import units

NO_LIMIT = 1 << 40  # bytes of a device that never runs out of memory
_MOST = 1 << 60  # bytes of a device; the core counts in int64


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The replay of one trace with one allocator.

    Attributes:
        trace: name of the trace.
        allocator: the policy, with its configuration if any.
        steps: steps of the trace.
        live_peak_first: peak of allocated bytes in the first step.
        live_peak: peak of allocated bytes from the second step on.
        reserved_peak_first: peak of bytes reserved from the driver in the first step.
        reserved_peak: peak of bytes reserved from the driver from the second step on.
        nanoseconds: time per event, one for each round.
        growths: driver calls that allocated memory.
        releases: driver calls that freed memory.
        out_of_memory: index of the event that ran out of memory, or -1.
    """

    trace: str
    allocator: str
    steps: int
    live_peak_first: int
    live_peak: int
    reserved_peak_first: int
    reserved_peak: int
    nanoseconds: tuple[float, ...]
    growths: int
    releases: int
    out_of_memory: int

    @property
    def ratio_first(self) -> float:
        """Reserved over live peak in the first step; NaN if nothing is live or memory ran out."""
        return self._ratio(self.reserved_peak_first, self.live_peak_first)

    @property
    def ratio(self) -> float:
        """Reserved over live peak from the second step on, at best 1; NaN as :attr:`ratio_first`."""
        return self._ratio(self.reserved_peak, self.live_peak)

    @property
    def fragmentation(self) -> float:
        """Unused part of the reserved peak, 1 - live / reserved, from the second step on; NaN as :attr:`ratio`."""
        return 1 - 1 / self.ratio

    @property
    def best(self) -> float:
        """Nanoseconds per event in the fastest round."""
        return min(self.nanoseconds)

    def _ratio(self, reserved: int, live: int) -> float:
        is_known = self.out_of_memory < 0 and reserved > 0 and live > 0
        return reserved / live if is_known else float("nan")

    def row(self) -> dict[str, Any]:
        """Return the values for JSON; NaN becomes None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["nanoseconds"] = self.best
        for name in ("ratio_first", "ratio", "fragmentation"):
            value = getattr(self, name)
            values[name] = None if np.isnan(value) else round(value, 6)
        return values


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Blocks and segments of a replay, for a picture.

    Attributes:
        allocator: the policy, with its configuration if any.
        blocks: int64 [n, 5]: first and last event, address, bytes, id.
        segments: int64 [m, 4]: first and last event, address, bytes.
    """

    allocator: str
    blocks: np.ndarray[Any, np.dtype[np.int64]]
    segments: np.ndarray[Any, np.dtype[np.int64]]


def replay(
    trace: Trace, allocators: Sequence[str], conf: str = "", capacity: int = NO_LIMIT, rounds: int = 5
) -> list[Outcome]:
    """Replay a trace with allocators, in turn within every round.

    Args:
        trace: a trace of at least one step.
        allocators: policies by name (:func:`policies`), each with its own options after a slash, as in
            ``torch/expandable_segments:True``.
        conf: options of all allocators, as in PYTORCH_ALLOC_CONF.
        capacity: bytes of the device.
        rounds: number of timing rounds.

    Raises:
        TraceError: unknown policy or option, or a trace without a step or an allocation.
    """
    if not (trace.kind == ALLOC).any():
        raise TraceError(f"{trace.name}: contains no allocation; record a run that uses the chip")
    if trace.steps == 0:
        raise TraceError(f"{trace.name}: contains no complete optimizer step; record a run with at least one")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in allocators}
    for _ in range(rounds):
        for name in allocators:
            results[name].append(_run(trace, name, conf, capacity, snapshots=0))
    return [_outcome(trace, name, runs) for name, runs in results.items()]


def spans(trace: Trace, allocator: str, conf: str = "", capacity: int = NO_LIMIT) -> Spans:
    """Return where an allocator places the blocks of a trace. Arguments and errors as :func:`replay`."""
    found = _run(trace, allocator, conf, capacity, snapshots=1)
    return Spans(allocator=allocator, blocks=found["blocks"], segments=found["segments"])


def policies() -> list[str]:
    """Return the names of the allocators, the default first. Raises TraceError if the core is not built."""
    return list(_core().allocators())


def parse_size(text: str) -> int:
    """Parse a size such as "80GiB", "1.5TiB" or "4096" to bytes. Raises TraceError."""
    size = units.parse_size(text.replace(" ", ""))
    if not size:
        raise TraceError(f"{text}: not a size; give bytes or a number with KiB, MiB, GiB, TiB, such as 80GiB")
    if not 1 <= size <= _MOST:
        raise TraceError(f"{text}: out of range; give a size from 1 byte to {_MOST >> 40} TiB, such as 80GiB")
    return size


def _core() -> Any:
    """Import the compiled core; replay needs no driver."""
    import torch  # noqa: F401  the core links its libraries

    try:
        from isthmus import _C
    except ImportError as error:
        raise TraceError(f"the core is not built ({error}); see `isthmus doctor`") from None
    return _C


def _run(trace: Trace, allocator: str, conf: str, capacity: int, snapshots: int) -> dict[str, Any]:
    policy, _, own = allocator.partition("/")
    text = ",".join(part for part in (conf, own) if part)
    columns = (trace.kind, trace.id, trace.size, trace.stream)
    try:
        result: dict[str, Any] = _core().replay(policy, text, capacity, *columns, snapshots)
    except ValueError as error:
        raise TraceError(f"{allocator} over {trace.name}: {str(error).splitlines()[0]}") from None
    return result


def _outcome(trace: Trace, allocator: str, runs: list[dict[str, Any]]) -> Outcome:
    counts = {
        name: int(runs[0][name])
        for name in (
            "live_peak_first",
            "live_peak",
            "reserved_peak_first",
            "reserved_peak",
            "growths",
            "releases",
            "out_of_memory",
        )
    }
    times = tuple(float(run["ns_per_event"]) for run in runs)
    return Outcome(trace=trace.name, allocator=allocator, steps=trace.steps, nanoseconds=times, **counts)
