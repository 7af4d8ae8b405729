"""Which work of streams is known to come before which: vector clocks, moved by events and by waits of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

StreamKey: TypeAlias = tuple[int, int]  # device index, stream id
Clock: TypeAlias = dict[
    StreamKey, int
]  # of each stream, the number of its last work that is known to be before


class Clocks:
    """Numbers every piece of work, and keeps for every stream, event and the host what came before it.

    Streams, events and the host may be used before this has seen them: then nothing is known to be before.
    Threads may use it at once: what is iterated over is copied in one step of the interpreter.
    """

    def __init__(self) -> None:
        self._number = 0
        self._streams: dict[StreamKey, Clock] = {}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}

    def work(self, stream: StreamKey) -> int:
        """Number of a new piece of work on a stream."""
        self._number += 1
        self._streams.setdefault(stream, {})[stream] = self._number
        return self._number

    def is_before(self, stream: StreamKey, number: int, later: StreamKey | None) -> bool:
        """Whether work is known to be done when the next work of a stream begins.

        Args:
            stream: the one that the work was on.
            number: the work's.
            later: the other stream; None: the host.
        """
        if stream == later or number <= self._host.get(stream, 0):
            return True
        return later is not None and number <= self._streams.get(later, {}).get(stream, 0)

    def record(self, event: int, stream: StreamKey) -> None:
        """The event stands for what the stream has now."""
        self._events[event] = dict(self._streams.get(stream, {}))

    def wait(self, stream: StreamKey, event: int) -> None:
        """Later work of the stream comes after what the event stands for."""
        _join(self._streams.setdefault(stream, {}), self._events.get(event, {}))

    def join(self, streams: Sequence[StreamKey]) -> None:
        """Later work of each of the streams comes after what all of them have now."""
        known: Clock = {}
        for stream in streams:
            _join(known, self._streams.get(stream, {}))
        for stream in streams:
            _join(self._streams.setdefault(stream, {}), known)

    def event_done(self, event: int) -> None:
        """The host has seen the event done."""
        _join(self._host, self._events.get(event, {}))

    def stream_done(self, stream: StreamKey) -> None:
        """The host has seen the stream idle."""
        _join(self._host, self._streams.get(stream, {}))

    def device_done(self, device: int) -> None:
        """The host has seen every stream of the device idle."""
        for stream, clock in list(self._streams.items()):
            if stream[0] == device:
                _join(self._host, clock)


def _join(clock: Clock, other: Clock) -> None:
    for stream, number in list(other.items()):
        if number > clock.get(stream, 0):
            clock[stream] = number
