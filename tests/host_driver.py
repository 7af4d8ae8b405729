"""The host chip's driver through ctypes: the table is read from csrc/driver.h, so it is written once."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "csrc" / "driver.h"
LIBRARY = Path(
    os.environ.get("ISTHMUS_TEST_HOST_LIBRARY", ROOT / "isthmus" / "drivers" / "host" / "libisthmus_host.so")
)

OK, NOT_READY, INVALID_ARGUMENT, OUT_OF_MEMORY, NO_DEVICE, UNSUPPORTED = range(6)
DEVICE_ERROR, INTERNAL = 9, 10
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
MEMORY_UNKNOWN, MEMORY_DEVICE, MEMORY_PINNED = range(3)
DELEGATE_NONE, DELEGATE_CPU = 0, 1
EVENT_TIMING = 1
MIB = 1 << 20
VERSION_1_0 = 1 << 16

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_SCALARS: dict[str, Any] = {
    "size_t": ctypes.c_size_t,
    "uint8_t": ctypes.c_uint8,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "isthmus_copy_kind": ctypes.c_int,
    "isthmus_dtype": ctypes.c_int,
    "isthmus_reduce_op": ctypes.c_int,
}


class Properties(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 128),
        ("uuid", ctypes.c_char * 64),
        ("total_memory", ctypes.c_uint64),
        ("capability_major", ctypes.c_int32),
        ("capability_minor", ctypes.c_int32),
        ("multi_processor_count", ctypes.c_int32),
        ("pci", ctypes.c_int32 * 3),
        ("numa_node", ctypes.c_int32),
        ("memory_alignment", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    ]


class Attributes(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("device", ctypes.c_int32)]


class Window(ctypes.Structure):
    _fields_ = [("device_base", ctypes.c_void_p), ("host_base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Telemetry(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("temperature_c", ctypes.c_double),
        ("power_w", ctypes.c_double),
        ("clock_mhz", ctypes.c_double),
        ("compute_utilization", ctypes.c_double),
        ("memory_utilization", ctypes.c_double),
        ("link_errors", ctypes.c_double),
        ("ecc_corrected", ctypes.c_double),
        ("ecc_uncorrected", ctypes.c_double),
        ("health", ctypes.c_int32),
    ]


def _prototypes() -> list[tuple[str, Any]]:
    """Name and ctypes type of each function of the table, in its order."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    table = text[text.index("typedef struct isthmus_driver {") : text.index("} isthmus_driver;")]
    found = []
    for result, name, parameters in re.findall(r"([\w ]+\*?) \(\*(\w+)\)\(([^)]*)\);", table):
        types = [_parameter_type(p) for p in parameters.split(",") if p.strip() != "void"]
        restype = ctypes.c_char_p if "char" in result else ctypes.c_int
        found.append((name, ctypes.CFUNCTYPE(restype, *types)))
    return found


def _parameter_type(declaration: str) -> Any:
    if "*" in declaration:
        return ctypes.c_void_p
    return _SCALARS.get(declaration.split(maxsplit=1)[0], ctypes.c_void_p)  # handles are pointers


PROTOTYPES = _prototypes()


class Table(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("delegate", ctypes.c_int),
        ("dlpack_device", ctypes.c_int32),
        *PROTOTYPES,
    ]


class DriverError(RuntimeError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Driver:
    """Calls of the table raise DriverError with the status and last_error(), unless they return OK."""

    def __init__(self, library: Path = LIBRARY) -> None:
        get = ctypes.CDLL(str(library)).isthmus_driver_get
        get.restype = ctypes.POINTER(Table)
        self.table: Table = get(VERSION_1_0).contents
        self._host_functions: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self.table, name)

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status != OK:
                raise DriverError(status, self.table.last_error().decode())

        return call

    def made(self, function: str, *arguments: Any) -> int:
        """The handle or address that a function writes to its last parameter."""
        handle = ctypes.c_void_p()
        getattr(self, function)(*arguments, ctypes.byref(handle))
        assert handle.value is not None
        return handle.value

    def allocate(self, size: int, device: int = 0) -> int:
        self.device_set(device)
        return self.made("memory_allocate", size)

    def memory(self, device: int = 0) -> tuple[int, int]:
        """(free, total) bytes."""
        self.device_set(device)
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        self.device_memory(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def window(self, device: int = 0) -> Window:
        window = Window()
        self.host_window(device, ctypes.byref(window))
        return window

    def attributes(self, address: int) -> tuple[int, int]:
        found = Attributes()
        self.pointer_attributes(address, ctypes.byref(found))
        return found.kind, found.device

    def write(self, address: int, data: bytes) -> None:
        self.copy(address, data, len(data), HOST_TO_DEVICE)

    def read(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.copy(data, address, size, DEVICE_TO_HOST)
        return data.raw

    def enqueue(self, stream: int | None, body: Callable[[], object]) -> None:
        """Enqueues body as a host function; its C entry lives as long as this object."""
        entry = HostFunction(lambda _: body())
        self._host_functions.append(entry)
        self.stream_host_function(stream, ctypes.cast(entry, ctypes.c_void_p), None)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds."""
        milliseconds = ctypes.c_double()
        self.event_elapsed(start, end, ctypes.byref(milliseconds))
        return milliseconds.value


def start_script(code: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process that runs code, in which ``from host_driver import *`` works."""
    clean = {name: value for name, value in os.environ.items() if name != "LOCAL_WORLD_SIZE"}
    clean |= {"PYTHONPATH": str(Path(__file__).parent), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} | environment
    return subprocess.Popen(
        [sys.executable, "-c", "from host_driver import *\n" + code],
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_script(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code to its end; a hang fails the test."""
    process = start_script(code, **environment)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
