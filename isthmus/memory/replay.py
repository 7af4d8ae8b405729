"""Allocators over a trace: what they would have reserved, and how long they take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.memory.trace import ALLOC, Trace, TraceError

NO_LIMIT = 1 << 40  # bytes of a device on which nothing runs out
_MOST = 1 << 60  # bytes of a device that the core can count with room to spare

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One allocator over one trace.

    Attributes:
        trace: its name.
        allocator: the policy, and its configuration if there is one.
        steps: of the trace.
        live_peak_first: most bytes in use at a time, in the first step.
        live_peak: the same, from the second step on.
        reserved_peak_first: most bytes held of the driver's memory, in the first step.
        reserved_peak: the same, from the second step on.
        nanoseconds: for one event, of every round.
        growths: calls that asked the driver for memory.
        releases: calls that gave it back.
        out_of_memory: the event that could not be served, or -1.
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
        """Reserved over live peak in the first step; NaN where nothing lives, or after running out of memory."""
        return self._ratio(self.reserved_peak_first, self.live_peak_first)

    @property
    def ratio(self) -> float:
        """Reserved over live peak from the second step on, at best 1; NaN as :attr:`ratio_first`."""
        return self._ratio(self.reserved_peak, self.live_peak)

    @property
    def fragmentation(self) -> float:
        """Part of the reserved peak that is no use: 1 - live / reserved, from the second step on; NaN with ratio."""
        return 1 - 1 / self.ratio

    @property
    def best(self) -> float:
        """Nanoseconds for one event, in the fastest round."""
        return min(self.nanoseconds)

    def _ratio(self, reserved: int, live: int) -> float:
        is_known = self.out_of_memory < 0 and reserved > 0 and live > 0
        return reserved / live if is_known else float("nan")

    def row(self) -> dict[str, Any]:
        """What JSON shows; NaN is null there."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["nanoseconds"] = self.best
        for name in ("ratio_first", "ratio", "fragmentation"):
            value = getattr(self, name)
            values[name] = None if np.isnan(value) else round(value, 6)
        return values


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Where blocks and segments were, for a picture.

    Attributes:
        allocator: the policy, and its configuration if there is one.
        blocks: int64 [n, 5]: first and last event, address, bytes, id.
        segments: int64 [m, 4]: first and last event, address, bytes.
    """

    allocator: str
    blocks: np.ndarray[Any, np.dtype[np.int64]]
    segments: np.ndarray[Any, np.dtype[np.int64]]


def replay(
    trace: Trace, allocators: Sequence[str], conf: str = "", capacity: int = NO_LIMIT, rounds: int = 5
) -> list[Outcome]:
    """Run allocators over a trace, in turn within every round.

    Args:
        trace: at least one step.
        allocators: policies by name (:func:`policies`), each with options of its own if it has any behind a
            slash, as in ``torch/expandable_segments:True``.
        conf: options of all, as in PYTORCH_ALLOC_CONF.
        capacity: bytes of the device.
        rounds: how often; times are of every round, all else is the same in each.

    Raises:
        TraceError: no such policy or option, or a trace without a step or an allocation.
    """
    if not (trace.kind == ALLOC).any():
        raise TraceError(f"{trace.name}: it has no allocation; record a run that uses the chip")
    if trace.steps == 0:
        raise TraceError(f"{trace.name}: no step ends in it; a replay compares steps")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in allocators}
    for _ in range(rounds):
        for name in allocators:
            results[name].append(_run(trace, name, conf, capacity, snapshots=0))
    return [_outcome(trace, name, runs) for name, runs in results.items()]


def spans(trace: Trace, allocator: str, conf: str = "", capacity: int = NO_LIMIT) -> Spans:
    """Where an allocator puts the blocks of a trace. Arguments and errors as :func:`replay`."""
    found = _run(trace, allocator, conf, capacity, snapshots=1)
    return Spans(allocator=allocator, blocks=found["blocks"], segments=found["segments"])


def policies() -> list[str]:
    """Names of the allocators, the default first. Raises TraceError where the core is not built."""
    return list(_core().allocators())


def parse_size(text: str) -> int:
    """Bytes of "80GiB" or "1.5TiB" or "4096". Raises TraceError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]iB|B)?", text.strip())
    if not found or float(found[1]) == 0:
        raise TraceError(f"{text}: not a size; give bytes or a number with KiB, MiB, GiB, TiB, such as 80GiB")
    size = float(found[1]) * _UNITS[found[2] or ""]
    if not 1 <= size <= _MOST:
        raise TraceError(
            f"{text}: no memory has this size; give from 1 byte to {_MOST >> 40} TiB, such as 80GiB"
        )
    return int(size)


def _core() -> Any:
    """The compiled core; replay needs no driver."""
    import torch  # noqa: F401  its libraries are those of the core

    try:
        from isthmus import _C
    except ImportError as error:
        raise TraceError(f"the core is not built ({error}); `isthmus doctor` says how") from None
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
