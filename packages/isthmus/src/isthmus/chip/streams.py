"""Streams and events."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index
from isthmus.chip.fork import refuse_fork
from isthmus_common import tools


class Stream(torch.Stream):
    """An in-order queue of work on one device.

    Args:
        device: device or index; the current device by default.
        priority: lower numbers run first, if the driver supports priorities (:func:`stream_priority_range`); clamped
            to the range.

    As a context manager it makes the stream current.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **triple: int) -> Stream:
        """A new stream, or the existing stream (stream_id, device_index, device_type)."""
        if not triple:
            triple = _as_triple(_C.new_stream(_index_or_current(device), priority))
        return super().__new__(cls, **triple)

    @property
    def priority(self) -> int:
        """The clamped priority; 0 for a default or external stream."""
        return _C.stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(lowest, highest) priority number."""
        return _C.stream_priority_range()

    def wait_event(self, event: torch.Event | SharedEvent) -> None:
        """Make later work of this stream wait for the event."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make later work of this stream wait for the current work of stream."""
        self.wait_event(stream.record_event())

    def launch_host_function(self, function: int, data: int) -> None:
        """Call a C function ``void function(void *data)`` in a thread of the host once this stream's work is done.

        Later work of the stream waits for it.

        Args:
            function: its address.
            data: passed on.

        Raises:
            NotImplementedError: the driver has no such function.
        """
        _C.launch_host_function(self.stream_id, self.device_index, function, data)

    def launch_program(
        self, name: str, program: int, arguments: bytes, tensors: Sequence[torch.Tensor]
    ) -> None:
        """Call a C function ``const char *program(const void *arguments)`` as a kernel of this stream.

        It runs in a thread of the host once the stream's work is done. Statistics and profiles have it by its name,
        and a graph that captures the stream replays it with the same arguments. A text that it returns is an error:
        the next wait for this stream or its device raises it.

        Args:
            name: with a namespace, such as ``triton::add_kernel``.
            program: its address.
            arguments: copied.
            tensors: of this device, which it reads or writes.

        Raises:
            NotImplementedError: the driver cannot call functions of the host.
        """
        _C.launch_program(name, self.stream_id, self.device_index, program, arguments, tensors)

    def record_event(self, event: Any = None) -> Any:
        """Record event, or a new one, on this stream and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """The driver's handle, for ctypes."""
        return ctypes.c_void_p(self.native_handle)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<torch.chip.Stream device={self.device} id={self.stream_id:#x}>"


class ExternalStream(Stream):
    """A stream owned by another library.

    Args:
        stream_ptr: the driver's native handle, as an integer.
        device: its device; the current device by default.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None, **triple: int) -> ExternalStream:
        """The stream with this handle."""
        if not triple:
            triple = _as_triple(_C.external_stream(stream_ptr, _index_or_current(device)))
        stream: ExternalStream = super().__new__(cls, **triple)  # type: ignore[assignment]
        return stream


class _OwnEvent:
    """Base of the events of the core that are not PyTorch's."""

    _event: _C.SharedEvent | _C.ExternalEvent

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record the current work of the stream; the current stream by default."""
        stream = current_stream() if stream is None else stream
        self._event.record(stream.stream_id, stream.device_index)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Make later work of the stream (default: the current one) wait for the recorded work."""
        stream = current_stream() if stream is None else stream
        self._event.wait(stream.stream_id, stream.device_index)

    def query(self) -> bool:
        """Whether the recorded work is complete; True before the first record."""
        return self._event.query()

    def synchronize(self) -> None:
        """Wait for the recorded work, of any process."""
        self._event.synchronize()


class SharedEvent(_OwnEvent):
    """An event that other processes can wait for and record; created by ``Event(interprocess=True)``.

    It has no timing. Another process opens it with :meth:`Event.from_ipc_handle` from its :meth:`ipc_handle`, while
    this process still holds the event.
    """

    _event: _C.SharedEvent

    def __init__(self, event: _C.SharedEvent | None = None) -> None:
        self._event = _C.SharedEvent() if event is None else event

    @property
    def device(self) -> torch.device:
        """The device; without index before the first record or export."""
        index = self._event.device
        return torch.device("chip", index) if index >= 0 else torch.device("chip")

    @property
    def event_id(self) -> int:
        """The driver's handle; 0 before the first record or export."""
        return self._event.native_handle

    def elapsed_time(self, end_event: object) -> float:
        """Raise ValueError: not supported."""
        raise ValueError(
            "an event with interprocess=True has no timing; use a second event with enable_timing=True"
        )

    def ipc_handle(self) -> bytes:
        """Handle for another process. Before the first record, binds the event to the current device."""
        return self._event.ipc_handle()

    def __repr__(self) -> str:
        return f"<torch.chip.Event interprocess device={self.device}>"


class ExternalEvent(_OwnEvent):
    """An event that a graph records, or waits for, at each replay; created by ``Event(external=True)``.

    Args:
        enable_timing: enable :meth:`elapsed_time`.
    """

    _event: _C.ExternalEvent

    def __init__(self, enable_timing: bool = False) -> None:
        self._event = _C.ExternalEvent(enable_timing)

    def elapsed_time(self, end_event: ExternalEvent) -> float:
        """Milliseconds from this event to another external one; both recorded with enable_timing and done."""
        return self._event.elapsed_ms(end_event._event)


class _EventMeta(type):
    """Makes ``isinstance(e, torch.chip.Event)`` True for events of the chip."""

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, SharedEvent | ExternalEvent):
            return True
        return isinstance(instance, torch.Event) and instance.device.type == "chip"


class Event(torch.Event, metaclass=_EventMeta):
    """An event on a stream, for synchronization and timing.

    Args:
        enable_timing: enable :meth:`elapsed_time` (milliseconds).
        blocking: ignored; host waits always block.
        interprocess: usable by other processes (:class:`SharedEvent`).
        external: recorded and waited for by graphs (:class:`ExternalEvent`).

    Raises:
        ValueError: both enable_timing and interprocess are True.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        """A ``torch.Event``; PyTorch's elapsed_time and record_event do not accept a subclass."""
        if external and not interprocess:
            return ExternalEvent(enable_timing)
        if not interprocess:
            return torch.Event("chip", enable_timing=enable_timing, blocking=blocking)
        if enable_timing:
            raise ValueError("an event with interprocess=True has no timing; omit enable_timing=True")
        return SharedEvent()

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, handle: bytes) -> Any:
        """Open an event of another process.

        Args:
            device: the device of the event.
            handle: result of its :meth:`~SharedEvent.ipc_handle`.

        Raises:
            RuntimeError: the process has exited or released the event, or the driver cannot share events.
        """
        return SharedEvent(_C.SharedEvent(_index(device), bytes(handle)))


class StreamContext:
    """Context manager that makes a stream and its device current and restores the previous ones. None is a no-op.

    It is reentrant.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._former: list[list[Stream]] = []  # per active entry; the stream of the previous device last

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
    """Return this thread's current stream of the device.

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
        ValueError: a stream of another device type.
    """
    if stream is not None:
        if stream.device.type != "chip":
            raise ValueError(f"expected a stream of the chip, got one of {str(stream.device)!r}")
        _set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    _C.set_stream(stream_id, device_index, device_type)
    _C.exchange_device(device_index)


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> ExternalStream:
    """The stream of a native handle of another library."""
    return ExternalStream(data_ptr, device)


def stream_priority_range() -> tuple[int, int]:
    """(lowest, highest) priority; both 0 if the driver has no priorities."""
    return _C.stream_priority_range()


def set_stream_check(check: bool | Literal["warn"]) -> None:
    """Detect data races between streams in operators of this thread (ISTHMUS_STREAM_CHECK).

    An operator that accesses memory which an operator on another stream may still be writing, or writes memory that
    one may still be using, raises ``isthmus_diagnostics.debug.streams.StreamOrderError`` before it runs. The error
    names both operators and both lines of the program. For debugging: all operators become slower.

    Args:
        check: True raises, "warn" warns once per pair of lines, False disables the check.

    Raises:
        ValueError: another value.
        isthmus_common.tools.Missing: isthmus-diagnostics, which has the check, is not installed.
    """
    if not isinstance(check, bool) and check != "warn":
        raise ValueError(f"set_stream_check: expected True, 'warn' or False, got {check!r}")
    tools.find("stream_check", "isthmus-diagnostics")(bool(check), raises=check != "warn")


def _index_or_current(device: DeviceLike) -> int:
    return _C.current_device() if isinstance(device, int) and device < 0 else _index(device)


def _as_triple(stream: tuple[int, int, int]) -> dict[str, Any]:
    stream_id, device_index, device_type = stream
    return {"stream_id": stream_id, "device_index": device_index, "device_type": device_type}
