"""Open a driver and call it through ctypes, for tools and tests that run without PyTorch."""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from isthmus.drivers import interface, loader
from isthmus.drivers.interface import CopyKind, MemoryKind, Status


class DriverCallError(RuntimeError):
    """A function of a driver failed; the message is its name and ``last_error()``.

    Attributes:
        status: the returned status.
    """

    def __init__(self, function: str, status: int, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.status = status


class Window(NamedTuple):
    """Host mapping of device memory: first device address, first host address, size in bytes."""

    device_base: int
    host_base: int
    nbytes: int


class Driver:
    """The functions of a driver's table, by name.

    ``driver.copy(...)`` calls the function with ctypes arguments and raises :class:`DriverCallError` unless it
    returns ``ISTHMUS_OK``; ``driver.status("copy", ...)`` returns the status instead.

    Args:
        name: replaces the driver's own name.
        delegate: "none" or "cpu" to restrict the driver's declaration.

    Raises:
        LoaderError: the library is not a usable driver.
    """

    def __init__(self, path: str, name: str = "", delegate: str = "") -> None:
        self.path = path
        self._name = name.encode()
        self.table: Any = interface.structure("driver")()
        self._calls: dict[str, Callable[..., None]] = {}
        asked = (path.encode(), self._name, delegate.encode())
        loader.call("isthmus_open_driver", *asked, ctypes.byref(self.table))

    @property
    def name(self) -> str:
        """Short name."""
        return str(self.table.name.decode())

    def has(self, function: str) -> bool:
        """Whether the driver has an optional function."""
        return bool(getattr(self.table, function))

    def status(self, function: str, *arguments: Any) -> Status:
        """Call a function and return its status. Raises ValueError for an unknown status."""
        return Status(getattr(self.table, function)(*arguments))

    def last_error(self) -> str:
        """Return the message of the last failure on this thread."""
        return str(self.table.last_error().decode(errors="replace"))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or name == "table":
            raise AttributeError(name)
        function = getattr(self.table, name)

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status != Status.OK:
                raise DriverCallError(name, status, self.last_error())

        self.__dict__[name] = call
        return call

    def result_of(self, function: str, *arguments: Any) -> int:
        """Call a function; return the handle or address that it writes to its last parameter."""
        handle = ctypes.c_void_p()
        getattr(self, function)(*arguments, ctypes.byref(handle))
        return handle.value or 0

    def count(self) -> int:
        """Return the number of devices."""
        count = ctypes.c_int32()
        self.device_count(ctypes.byref(count))
        return count.value

    def new_id(self) -> Any:
        """Return the bytes of a new communicator's id, for ``comm_create()``."""
        size = ctypes.c_size_t(ctypes.sizeof(interface.structure("unique_id")))
        if self.has("comm_id_bytes"):
            self.comm_id_bytes(ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        self.comm_unique_id(made)
        return made

    def reduces(self, dtype: int, op: int) -> bool:
        """Whether the driver's reductions support a pair of ``isthmus_dtype`` and ``isthmus_reduce_op``."""
        return not self.has("comm_reduces") or self.status("comm_reduces", dtype, op) == Status.OK

    def properties(self, device: int) -> Any:
        """``isthmus_device_properties`` of a device."""
        found = interface.structure("device_properties")()
        self.device_properties(device, ctypes.byref(found))
        return found

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes of the current device."""
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        self.device_memory(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def attributes(self, address: int) -> tuple[MemoryKind, int]:
        """Return the kind of memory at an address, and its device (-1 unless it is device memory)."""
        found = interface.structure("pointer_attributes")()
        self.pointer_attributes(address, ctypes.byref(found))
        return MemoryKind(found.kind), found.device

    def window(self, device: int) -> Window | None:
        """Return the host window of a device, or None without one."""
        if not self.has("host_window"):
            return None
        found = interface.structure("host_window")()
        self.host_window(device, ctypes.byref(found))
        return Window(found.device_base or 0, found.host_base or 0, found.bytes)

    def write(self, address: int, data: Any) -> None:
        """Copy bytes or a contiguous array to the device and wait."""
        host = as_bytes(data)
        if host.nbytes:
            self.copy(address, host.ctypes.data, host.nbytes, CopyKind.HOST_TO_DEVICE)

    def read_into(self, host: np.ndarray[Any, Any], address: int) -> None:
        """Copy from the device into a contiguous array and wait."""
        if host.nbytes:
            self.copy(host.ctypes.data, address, host.nbytes, CopyKind.DEVICE_TO_HOST)

    def read(self, address: int, nbytes: int) -> bytes:
        """Return bytes of device memory."""
        host = np.empty(nbytes, np.uint8)
        self.read_into(host, address)
        return host.tobytes()

    def elapsed(self, start: int, end: int) -> float:
        """Return the milliseconds between two events."""
        milliseconds = ctypes.c_double()
        self.event_elapsed(start, end, ctypes.byref(milliseconds))
        return milliseconds.value


def as_bytes(data: Any) -> np.ndarray[Any, Any]:
    """View a buffer or array as bytes, shape (nbytes,); copies only non-contiguous arrays."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)
