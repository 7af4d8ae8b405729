"""A device without PyTorch: memory, copies and streams for the conformance suite."""

from typing import Any, Self

import numpy as np

from isthmus.drivers import Candidate
from isthmus.drivers.driver import Driver
from isthmus.opset.library import memory_at


class Device:
    """A device of a driver; its methods may be called from any thread.

    Attributes:
        driver: the opened driver.
        index: index of the device.
        name: name of the driver.
        dlpack_device: DLPack device of its tensors, (DLDeviceType, index).
        host_offset: difference between the CPU's address and the device address of a byte; 0 if the CPU cannot access
            the memory (see :attr:`host_addressable`).
        host_addressable: whether the driver has a host window.
        alignment: alignment of allocations in bytes.
        batch_invariant: whether the driver declares that rows do not depend on their batch.
    """

    def __init__(self, driver: Driver, index: int = 0, batch_invariant: bool = False) -> None:
        self.driver, self.index, self.batch_invariant = driver, index, batch_invariant
        self.name = driver.name
        driver.initialize()
        count = driver.count()
        if not 0 <= index < count:
            raise ValueError(
                f"driver {driver.name}: invalid device {index}; it has {count} devices, numbered from 0"
            )
        self._make_current()
        self.dlpack_device = (int(driver.table.dlpack_device), index)
        window = driver.window(index)
        self.host_addressable = window is not None
        self.host_offset = window.host_base - window.device_base if window else 0
        self.alignment = int(driver.properties(index).memory_alignment)
        self._allocations: set[int] = set()
        self._streams: set[int] = set()

    @classmethod
    def open(cls, candidate: Candidate, index: int = 0) -> Self:
        """Open a driver and one of its devices.

        Raises:
            LoaderError: the driver cannot be loaded.
            DriverCallError: the driver cannot be initialized.
            ValueError: invalid device index.
        """
        driver = Driver(candidate.path, candidate.name, candidate.delegate)
        return cls(driver, index, candidate.batch_invariant)

    @property
    def table(self) -> Any:
        """The driver's functions, as ctypes members by name."""
        return self.driver.table

    def _make_current(self) -> None:
        self.driver.device_set(self.index)

    def allocate(self, nbytes: int) -> int:
        """Allocate nbytes > 0 bytes. Raises DriverCallError, with OUT_OF_MEMORY if memory ran out."""
        self._make_current()
        address = self.driver.result_of("memory_allocate", nbytes)
        self._allocations.add(address)
        return address

    def free(self, address: int) -> None:
        """Free an allocation that no work uses."""
        self.driver.memory_free(address)
        self._allocations.discard(address)

    def write(self, address: int, buffer: Any) -> None:
        """Copy a buffer or array to the device, synchronously."""
        self._make_current()
        self.driver.write(address, buffer)

    def read(self, address: int, nbytes: int) -> bytes:
        """Read bytes of the device."""
        self._make_current()
        return self.driver.read(address, nbytes)

    def read_into(self, host: np.ndarray[Any, Any], address: int) -> None:
        """Copy from the device into a contiguous array, synchronously."""
        self._make_current()
        self.driver.read_into(host, address)

    def fill(self, address: int, value: int, nbytes: int, stream: int = 0) -> None:
        """Enqueue a fill of nbytes bytes with value."""
        self._make_current()
        self.driver.set_async(address, value, nbytes, stream)

    def new_stream(self) -> int:
        """Create a stream and return its handle."""
        self._make_current()
        stream = self.driver.result_of("stream_create", 0)
        self._streams.add(stream)
        return stream

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream of :meth:`new_stream`."""
        self.driver.stream_destroy(stream)
        self._streams.discard(stream)

    def synchronize(self, stream: int = 0) -> None:
        """Wait for a stream; 0 is the default stream. Raises DriverCallError if its work failed."""
        self._make_current()
        self.driver.stream_synchronize(stream)

    def synchronize_all(self) -> None:
        """Wait for all streams of the device."""
        self._make_current()
        self.driver.device_synchronize()

    def host_view(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        """Return device memory as an array, if host-addressable. Valid until it is freed."""
        return np.frombuffer(memory_at(address + self.host_offset, nbytes), np.uint8)

    def close(self) -> None:
        """Wait for all work, then destroy the remaining streams and free the remaining memory."""
        self.synchronize_all()
        for stream in sorted(self._streams):
            self.destroy_stream(stream)
        for address in sorted(self._allocations):
            self.free(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
