"""State of the NPUs, asked of the reference runtime."""

import ctypes
import os
import time
from typing import Any, NamedTuple

from isthmus_ascend.environment import LIBRARIES, NotBuilt
from isthmus_ascend.products import SERIES
from isthmus_common.chip_accounts import accounts
from isthmus_common.processes import command_name

SAMPLE_SECONDS = 0.1  # over which utilization is measured
_CHIPS_OF_AN_NPU = {"910_93": 2}  # others have one


class Process(NamedTuple):
    """A process that holds memory of an NPU; memory in bytes."""

    pid: int
    name: str
    memory: int


class Npu(NamedTuple):
    """State of one device, which is a chip of an NPU.

    Attributes:
        device: from 0.
        name: product, without the prefix Ascend.
        series: of the product, as in :mod:`isthmus_ascend.products`.
        cores: AI cores.
        utilization: busy share of the machine's processors, percent.
        used: memory held by all processes, bytes.
        total: memory, bytes.
        processes: those of this user.
    """

    device: int
    name: str
    series: str
    cores: int
    utilization: int
    used: int
    total: int
    processes: tuple[Process, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """Number of the NPU, and of the chip in it."""
        return divmod(self.device, _CHIPS_OF_AN_NPU.get(self.series, 1))


class _Utilization(ctypes.Structure):
    _fields_ = (
        ("cube", ctypes.c_int32),
        ("vector", ctypes.c_int32),
        ("ai_cpu", ctypes.c_int32),
        ("memory", ctypes.c_int32),
        ("extension", ctypes.c_void_p),
    )


def npus() -> list[Npu]:
    """Return the state of every NPU, of those too that ASCEND_RT_VISIBLE_DEVICES hides.

    Raises:
        NotBuilt: the libraries are absent.
        RuntimeError: the runtime reports an error.
    """
    os.environ.pop("ASCEND_RT_VISIBLE_DEVICES", None)
    try:
        runtime = ctypes.CDLL(str(LIBRARIES / "libascendcl.so"))
    except OSError as error:
        raise NotBuilt(f"{error}; build it with `make build`") from None
    runtime.aclrtGetSocName.restype = runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
    count = ctypes.c_uint32()
    _call(runtime, "aclrtGetDeviceCount", ctypes.byref(count))
    if count.value:
        _utilization(runtime, 0)
        time.sleep(SAMPLE_SECONDS)
    busy = _utilization(runtime, 0) if count.value else 0  # the NPUs share the machine's processors
    return [_npu(runtime, index, busy) for index in range(count.value)]


def _npu(runtime: Any, index: int, busy: int) -> Npu:
    free, total, cores = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_int64()
    _call(runtime, "aclrtSetDevice", index)
    _call(runtime, "aclrtGetMemInfo", 1, ctypes.byref(free), ctypes.byref(total))
    _call(runtime, "aclGetDeviceCapability", index, 0, ctypes.byref(cores))
    product = runtime.aclrtGetSocName().decode()
    return Npu(
        index,
        product.removeprefix("Ascend"),
        next(series for series, products in SERIES.items() if product in products),
        cores.value,
        busy,
        total.value - free.value,
        total.value,
        _processes(index, total.value),
    )


def _processes(device: int, capacity: int) -> tuple[Process, ...]:
    """Return the processes of a device; this one, which only asks, is not among them."""
    holders = [
        holder
        for account in accounts()
        if (account.device, account.capacity) == (device, capacity)
        for holder in account.holders
    ]
    return tuple(Process(pid, command_name(pid), memory) for pid, memory in holders if pid != os.getpid())


def _utilization(runtime: Any, index: int) -> int:
    found = _Utilization()
    _call(runtime, "aclrtSetDevice", index)
    _call(runtime, "aclrtGetDeviceUtilizationRate", index, ctypes.byref(found))
    return found.cube


def _call(runtime: Any, name: str, *arguments: Any) -> None:
    if getattr(runtime, name)(*arguments) != 0:
        raise RuntimeError((runtime.aclGetRecentErrMsg() or b"").decode())
