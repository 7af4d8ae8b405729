"""Streams and events."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any, Literal

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index
from isthmus.chip.fork import refuse_fork


class Stream(torch.Stream):
    """A queue of work on one device; work on it runs in the order of its enqueueing.

    Args:
        device: device or index; the current device by default.
        priority: lower numbers run first, where the driver has priorities (:func:`stream_priority_range`); one out of
            range becomes the nearest that is in it.

    Usable as a context manager, which makes it current.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **triple: int) -> Stream:
        """A new stream, or the one that triple (stream_id, device_index, device_type) names."""
        if not triple:
            triple = _as_triple(_C.new_stream(_index_or_current(device), priority))
        return super().__new__(cls, **triple)

    @property
    def priority(self) -> int:
        """The priority that it was made with, within the range; 0 for a default or external stream."""
        return _C.stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(lowest, highest) priority number."""
        return _C.stream_priority_range()

    def wait_event(self, event: torch.Event | SharedEvent) -> None:
        """Make later work of this stream wait for the work that the event's last record captured."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make later work of this stream wait for the work that stream has now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Any:
        """Record event, or a new one, behind the work that this stream has now, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """For ctypes: the driver's handle."""
        return ctypes.c_void_p(self.native_handle)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<torch.chip.Stream device={self.device} id={self.stream_id:#x}>"


class ExternalStream(Stream):
    """A stream that another library made and will destroy.

    Args:
        stream_ptr: the driver's native handle, as a number.
        device: the device that it was made on; the current device by default.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None, **triple: int) -> ExternalStream:
        """The stream of the handle."""
        if not triple:
            triple = _as_triple(_C.external_stream(stream_ptr, _index_or_current(device)))
        stream: ExternalStream = super().__new__(cls, **triple)  # type: ignore[assignment]
        return stream


class SharedEvent:
    """An event that other processes can wait for and record: what ``Event(interprocess=True)`` gives.

    It has no timing. A process hands :meth:`ipc_handle` to another, which opens it with
    :meth:`Event.from_ipc_handle` while the first still has the event.
    """

    def __init__(self, event: _C.SharedEvent | None = None) -> None:
        self._event = _C.SharedEvent() if event is None else event

    @property
    def device(self) -> torch.device:
        """Its device; without index until it is first recorded or exported."""
        index = self._event.device
        return torch.device("chip", index) if index >= 0 else torch.device("chip")

    @property
    def event_id(self) -> int:
        """The driver's handle, 0 until it is first recorded or exported."""
        return self._event.native_handle

    def record(self, stream: torch.Stream | None = None) -> None:
        """Capture the work that the stream has now; the current one by default."""
        stream = current_stream() if stream is None else stream
        self._event.record(stream.stream_id, stream.device_index)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Make later work of the stream, the current one by default, wait for the captured work."""
        stream = current_stream() if stream is None else stream
        self._event.wait(stream.stream_id, stream.device_index)

    def query(self) -> bool:
        """Whether the captured work is done; True if nothing was recorded."""
        return self._event.query()

    def synchronize(self) -> None:
        """Wait for the captured work, of whichever process."""
        self._event.synchronize()

    def elapsed_time(self, end_event: object) -> float:
        """Refused: ValueError."""
        raise ValueError(
            "an event made with interprocess=True has no timing; time with enable_timing=True alone"
        )

    def ipc_handle(self) -> bytes:
        """What another process opens it by. An event that was not recorded yet becomes the current device's."""
        return self._event.ipc_handle()

    def __repr__(self) -> str:
        return f"<torch.chip.Event interprocess device={self.device}>"


class _EventMeta(type):
    """``isinstance(e, torch.chip.Event)``: an event of the chip."""

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, SharedEvent):
            return True
        return isinstance(instance, torch.Event) and instance.device.type == "chip"


class Event(torch.Event, metaclass=_EventMeta):
    """A mark in a stream that can be waited for and timed.

    Args:
        enable_timing: :meth:`elapsed_time` (milliseconds) may be asked.
        blocking: accepted; a wait on the host always sleeps.
        interprocess: other processes may use it (:class:`SharedEvent`).
        external: accepted; it has a meaning only in graph capture.

    Raises:
        ValueError: both enable_timing and interprocess.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        """A ``torch.Event``: elapsed_time and record_event of PyTorch take that very type and no subclass."""
        if not interprocess:
            return torch.Event("chip", enable_timing=enable_timing, blocking=blocking)
        if enable_timing:
            raise ValueError("an event with interprocess=True has no timing; leave enable_timing=True out")
        return SharedEvent()

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, handle: bytes) -> Any:
        """Another process's event.

        Args:
            device: the device that it is of.
            handle: what its :meth:`~SharedEvent.ipc_handle` gave.

        Raises:
            RuntimeError: the process has ended or let go of the event, or the driver cannot share events.
        """
        return SharedEvent(_C.SharedEvent(_index(device), bytes(handle)))


class StreamContext:
    """Makes a stream and its device current, then puts the former ones back. None changes nothing.

    One context may be entered again inside itself.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._former: list[list[Stream]] = []  # of each entry that has not ended; the device's last

    def __enter__(self) -> None:
        if self.stream is None:
            return
        here = current_stream()
        there = current_stream(self.stream.device)
        self._former.append([there, here] if there.device != here.device else [here])
        set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        for stream in self._former.pop() if self._former else ():
            set_stream(stream)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that makes stream current; a no-op for None."""
    return StreamContext(stream)


def current_stream(device: DeviceLike = None) -> Stream:
    """This thread's current stream of the device.

    Raises:
        RuntimeError: this process was forked after the first use of the chip.
    """
    refuse_fork()
    return Stream(**_as_triple(_C.current_stream(_index(device))))


def default_stream(device: DeviceLike = None) -> Stream:
    """The device's default stream."""
    refuse_fork()
    return Stream(**_as_triple(_C.default_stream(_index(device))))


def set_stream(stream: torch.Stream | None) -> None:
    """Make stream and its device current on this thread; a no-op for None.

    Raises:
        ValueError: it is a stream of another device type.
    """
    if stream is not None:
        if stream.device.type != "chip":
            raise ValueError(f"expected a stream of the chip, got one of {str(stream.device)!r}")
        _set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    _C.set_stream(stream_id, device_index, device_type)
    _C.exchange_device(device_index)


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> ExternalStream:
    """Stream of a native handle that another library made."""
    return ExternalStream(data_ptr, device)


def stream_priority_range() -> tuple[int, int]:
    """(lowest, highest) priority number; both 0 where the driver has no priorities."""
    return _C.stream_priority_range()


def is_current_stream_capturing() -> bool:
    """False: the chip has no graph capture."""
    return False


def set_stream_check(check: bool | Literal["warn"]) -> None:
    """Watch, in operators of this thread, that streams share memory in order (ISTHMUS_STREAM_CHECK).

    An operator that reads memory while one on another stream may still be writing it, or writes it while one may
    still be using it, raises ``isthmus.debug.streams.StreamOrderError`` before it runs, which names both operators
    and both lines of the program. For debugging: it makes every operator slower.

    Args:
        check: True raises, "warn" warns once for each pair of lines, False ends it, and with it all cost.

    Raises:
        ValueError: it is none of these.
    """
    if not isinstance(check, bool) and check != "warn":
        raise ValueError(f"set_stream_check: expected True, 'warn' or False, got {check!r}")
    streams = import_module("isthmus.debug.streams")  # by name: tools stand above this layer
    streams.check(bool(check), raises=check != "warn")


def _index_or_current(device: DeviceLike) -> int:
    return _C.current_device() if isinstance(device, int) and device < 0 else _index(device)


def _as_triple(stream: tuple[int, int, int]) -> dict[str, Any]:
    stream_id, device_index, device_type = stream
    return {"stream_id": stream_id, "device_index": device_index, "device_type": device_type}
