"""Cases of export and import: this process exports memory and an event, a second one imports them."""

import ctypes
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    MIB,
    Bytes,
    Cases,
    allocated,
    event_of,
    gate,
    pattern,
    require,
    require_bytes,
    require_status,
    stream_of,
)
from isthmus.drivers import interface
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import Status

CASES = Cases()
SHARED = 2  # ISTHMUS_EVENT_SHARED
NBYTES = 3 * MIB + 5


class Peer:
    """The second process, which uses the device too."""

    def __init__(self, device: Device) -> None:
        command = [sys.executable, "-m", __name__, device.driver.path, device.name, str(device.index)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        require(self._receive() == "ready", "the second process could not open the driver")

    def ask(self, step: str, **arguments: str) -> str:
        """Run a step (see :func:`main`) and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"step": step, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._receive()
        require(not answer.startswith("error:"), f"{step}() in the second process: {answer}")
        return answer

    def _receive(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        require(bool(line), "the second process ended")
        return line

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def peer_of(device: Device) -> Iterator[Peer]:
    """Start the second process for a block."""
    peer = Peer(device)
    try:
        yield peer
    finally:
        peer.close()


def export_handle(device: Device, function: str, what: int) -> str:
    """Return the handle of memory or of an event."""
    handle = interface.structure("ipc_handle")()
    getattr(device.driver, function)(what, ctypes.byref(handle))
    return bytes(handle).hex()


def digest(data: Bytes | bytes) -> str:
    """Return a digest of bytes."""
    return hashlib.sha256(bytes(data)).hexdigest()


@CASES.case("memory_export", "memory_import", "memory_close")
def memory(device: Device) -> None:
    """Imported memory is the exporter's: each process sees what the other writes, and closing it frees nothing."""
    with peer_of(device) as peer, allocated(device, NBYTES) as first, allocated(device, NBYTES) as address:
        device.write(first, np.zeros(NBYTES, np.uint8))
        device.write(address, pattern(NBYTES, 1))
        seen = peer.ask(
            "memory_import", handle=export_handle(device, "memory_export", address), nbytes=str(NBYTES)
        )
        require(seen == digest(pattern(NBYTES, 1)), "the importer does not see what the exporter wrote")
        device.write(address, pattern(NBYTES, 2))
        require(peer.ask("read") == digest(pattern(NBYTES, 2)), "the importer does not see a later write")
        peer.ask("write", seed="3")
        require_bytes(device.read(address, NBYTES), pattern(NBYTES, 3), "what the importer wrote")
        peer.ask("memory_close")
        require_bytes(device.read(address, NBYTES), pattern(NBYTES, 3), "after the importer closed it")
        require_bytes(device.read(first, NBYTES), 0, "memory that was not exported")


@CASES.case("event_export", "event_import", HOST_FUNCTIONS)
def event(device: Device) -> None:
    """An imported event is done when the exporter's work is, and a stream of the importer can wait for it."""
    driver = device.driver
    with (
        peer_of(device) as peer,
        allocated(device, NBYTES) as address,
        stream_of(device) as stream,
        event_of(device, SHARED) as shared,
    ):
        device.write(address, np.zeros(NBYTES, np.uint8))
        handle = export_handle(device, "memory_export", address)
        peer.ask("memory_import", handle=handle, nbytes=str(NBYTES))
        with gate(driver, stream) as open_gate:
            driver.set_async(address, 6, NBYTES, stream)
            driver.event_record(shared, stream)
            found = peer.ask("event_import", handle=export_handle(device, "event_export", shared))
            require(
                found == Status.NOT_READY.name, f"before the work was done event_query() returned {found}"
            )
            peer.ask("wait")
            open_gate()
            expected = digest(np.full(NBYTES, 6, np.uint8))
            require(
                peer.ask("read_after_wait") == expected, "a stream of the importer did not wait for the event"
            )


@CASES.case("event_export")
def event_without_flag(device: Device) -> None:
    """An event without ISTHMUS_EVENT_SHARED cannot be exported."""
    handle = interface.structure("ipc_handle")()
    with event_of(device) as plain:
        found = device.driver.status("event_export", plain, ctypes.byref(handle))
        require(found != Status.OK, "event_export() returned OK")


@CASES.case("memory_export")
def export_foreign(device: Device) -> None:
    """Only the address of an allocation of memory_allocate() can be exported."""
    handle = interface.structure("ipc_handle")()
    ordinary = np.zeros(64, np.uint8)
    address = ordinary.ctypes.data
    require_status(device.driver, Status.INVALID_ARGUMENT, "memory_export", address, ctypes.byref(handle))


class _Importer:
    """The steps of the second process; each returns its answer."""

    def __init__(self, path: str, name: str, index: int) -> None:
        self._device = Device(Driver(path, name), index)
        self._stream = self._device.new_stream()
        self._address = self._nbytes = self._event = 0

    def memory_import(self, handle: str, nbytes: str) -> str:
        self._address, self._nbytes = self._imported("memory_import", handle), int(nbytes)
        return self.read()

    def read(self) -> str:
        return digest(self._device.read(self._address, self._nbytes))

    def write(self, seed: str) -> str:
        self._device.write(self._address, pattern(self._nbytes, int(seed)))
        return "written"

    def memory_close(self) -> str:
        self._device.driver.memory_close(self._address)
        return "closed"

    def event_import(self, handle: str) -> str:
        self._event = self._imported("event_import", handle)
        return self._device.driver.status("event_query", self._event).name

    def wait(self) -> str:
        self._device.driver.stream_wait_event(self._stream, self._event)
        return "waits"

    def read_after_wait(self) -> str:
        self._device.synchronize(self._stream)
        return self.read()

    def _imported(self, function: str, handle: str) -> int:
        made = interface.structure("ipc_handle").from_buffer_copy(bytes.fromhex(handle))
        return self._device.driver.result_of(function, ctypes.byref(made))


def main() -> None:
    """Import what the first process exports: one step of _Importer per line of standard input."""
    path, name, index = sys.argv[1:]
    importer = _Importer(path, name, int(index))
    print("ready", flush=True)
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        try:
            answer = getattr(importer, message.pop("step"))(**message)
        except Exception as error:
            answer = f"error: {' '.join(str(error).split())}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
