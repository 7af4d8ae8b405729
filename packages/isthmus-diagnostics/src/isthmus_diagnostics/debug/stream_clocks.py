"""Order of the work of streams: vector clocks, advanced by events and by waits of the host."""

from collections.abc import Sequence
from typing import TypeAlias

StreamKey: TypeAlias = tuple[int, int]  # device index, stream id
Clock: TypeAlias = dict[StreamKey, int]  # stream -> number of its last work known to be before


class Clocks:
    """Vector clocks of streams, events and the host; work is numbered in the order of submission.

    For a stream or event that was not seen yet, no work is known to be before it.
    Thread-safe: dictionaries are copied in one step of the interpreter before iteration.
    """

    def __init__(self) -> None:
        self._number = 0
        self._streams: dict[StreamKey, Clock] = {}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}

    def work(self, stream: StreamKey) -> int:
        """Number new work on a stream."""
        self._number += 1
        self._streams.setdefault(stream, {})[stream] = self._number
        return self._number

    def is_before(self, stream: StreamKey, number: int, later: StreamKey | None) -> bool:
        """Return whether work is known to be completed before the next work of a stream begins.

        Args:
            stream: stream of the earlier work.
            number: number of the earlier work.
            later: stream of the next work; None is the host.
        """
        if stream == later or number <= self._host.get(stream, 0):
            return True
        return later is not None and number <= self._streams.get(later, {}).get(stream, 0)

    def record(self, event: int, stream: StreamKey) -> None:
        """Record an event after the current work of a stream."""
        self._events[event] = dict(self._streams.get(stream, {}))

    def wait(self, stream: StreamKey, event: int) -> None:
        """Order later work of a stream after an event."""
        _join(self._streams.setdefault(stream, {}), self._events.get(event, {}))

    def join(self, streams: Sequence[StreamKey]) -> None:
        """Order later work of each stream after the current work of all of them."""
        known: Clock = {}
        for stream in streams:
            _join(known, self._streams.get(stream, {}))
        for stream in streams:
            _join(self._streams.setdefault(stream, {}), known)

    def event_done(self, event: int) -> None:
        """Note that the host waited for an event."""
        _join(self._host, self._events.get(event, {}))

    def stream_done(self, stream: StreamKey) -> None:
        """Note that the host waited for a stream."""
        _join(self._host, self._streams.get(stream, {}))

    def device_done(self, device: int) -> None:
        """Note that the host waited for all streams of a device."""
        for stream, clock in list(self._streams.items()):
            if stream[0] == device:
                _join(self._host, clock)


def _join(clock: Clock, other: Clock) -> None:
    for stream, number in list(other.items()):
        if number > clock.get(stream, 0):
            clock[stream] = number
