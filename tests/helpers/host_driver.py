"""The host chip's driver for its own tests: the package's :class:`Driver`, with a few helpers more."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isthmus.drivers import driver, interface
from tools.repository import CORE, ROOT

LIBRARY = Path(
    os.environ.get(
        "ISTHMUS_TEST_HOST_LIBRARY", CORE / "src" / "isthmus" / "drivers" / "host" / "libisthmus_host.so"
    )
)

OK, NOT_READY, INVALID_ARGUMENT, OUT_OF_MEMORY, NO_DEVICE, UNSUPPORTED = range(6)
DEVICE_ERROR, INTERNAL = 9, 10
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
MEMORY_UNKNOWN, MEMORY_DEVICE, MEMORY_PINNED = range(3)
DELEGATE_NONE, DELEGATE_CPU = 0, 1
EVENT_TIMING = 1
MIB = 1 << 20
VERSION = (1 << 16) | 3

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Table = interface.structure("driver")
Properties = interface.structure("device_properties")
Attributes = interface.structure("pointer_attributes")
Window = interface.structure("host_window")
Telemetry = interface.structure("telemetry")
DriverError = driver.DriverCallError
FUNCTIONS = [name for name, type_ in Table._fields_ if hasattr(type_, "_argtypes_")]


class Driver(driver.Driver):
    """Calls of the table raise DriverError with the status and last_error(), unless they return OK."""

    def __init__(self, library: Path = LIBRARY) -> None:
        super().__init__(str(library))
        self._host_functions: list[Any] = []

    def result_of(self, function: str, *arguments: Any) -> int:
        handle = super().result_of(function, *arguments)
        assert handle
        return handle

    def allocate(self, size: int, device: int = 0) -> int:
        self.device_set(device)
        return self.result_of("memory_allocate", size)

    def memory(self, device: int = 0) -> tuple[int, int]:
        """(free, total) bytes."""
        self.device_set(device)
        return super().memory()

    def window(self, device: int = 0) -> Any:
        window = Window()
        self.host_window(device, ctypes.byref(window))
        return window

    def enqueue(self, stream: int | None, body: Callable[[], object]) -> None:
        """Enqueue body as a host function; this object keeps its C entry alive."""
        entry = HostFunction(lambda _: body())
        self._host_functions.append(entry)
        self.stream_host_function(stream, ctypes.cast(entry, ctypes.c_void_p), None)


@contextmanager
def open_driver(folder: Path, **environment: str) -> Iterator[Driver]:
    """Two devices of 64 MiB. A copy of the library has separate state in this process."""
    folder.chmod(0o700)
    library = Path(shutil.copy(LIBRARY, folder / "lib.so"))
    settings = {"XDG_RUNTIME_DIR": str(folder), "ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "64MiB"}
    unset = {"ISTHMUS_HOST_STRICT": "", "ISTHMUS_HOST_DELEGATE": ""}
    from unittest import mock

    with mock.patch.dict(os.environ, unset | settings | environment):
        driver = Driver(library)
        driver.initialize()
        driver.memory(0)
        driver.memory(1)
    yield driver
    driver.finalize()


@contextmanager
def of_this_process() -> Iterator[Driver]:
    """The driver that PyTorch tests in this process use, too: the current device is restored."""
    driver = Driver()
    driver.initialize()
    before = ctypes.c_int32()
    driver.device_get(ctypes.byref(before))
    yield driver
    driver.device_set(before)


def check_refused(driver: Driver, status: int, words: str, function: str, *arguments: object) -> None:
    """Check that a call fails with a status and a message."""
    import pytest

    with pytest.raises(DriverError, match=words) as caught:
        getattr(driver, function)(*arguments)
    assert caught.value.status == status


def start_script(code: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process that runs code, in which ``from tests.helpers.host_driver import *`` works."""
    clean = {name: value for name, value in os.environ.items() if name != "LOCAL_WORLD_SIZE"}
    clean |= {"PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} | environment
    return subprocess.Popen(
        [sys.executable, "-c", "from tests.helpers.host_driver import *\n" + code],
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_script(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code to its end; a hang fails the test."""
    process = start_script(code, **environment)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
