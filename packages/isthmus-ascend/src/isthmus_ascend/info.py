"""The table of NPUs that npu-smi prints, filled from the reference runtime."""

import ctypes
import time
from typing import Any, NamedTuple

from isthmus_ascend.environment import LIBRARIES, NotBuilt

MIB = 1 << 20
SAMPLE_SECONDS = 0.1  # over which utilization is measured

_RULE = "+---------------------------+---------------+----------------------------------------------------+"
_DOUBLE = _RULE.replace("-", "=")
_WIDTH = len(_RULE) - 4


class Npu(NamedTuple):
    """State of one NPU.

    Attributes:
        number: from 0.
        name: product, without the prefix Ascend.
        utilization: busy share of the machine's processors, percent.
        used: memory held by all processes, bytes.
        total: memory, bytes.
    """

    number: int
    name: str
    utilization: int
    used: int
    total: int


class _Utilization(ctypes.Structure):
    _fields_ = (
        ("cube", ctypes.c_int32),
        ("vector", ctypes.c_int32),
        ("ai_cpu", ctypes.c_int32),
        ("memory", ctypes.c_int32),
        ("extension", ctypes.c_void_p),
    )


def npus() -> list[Npu]:
    """Return the state of every NPU that this process sees.

    Raises:
        NotBuilt: the libraries are absent.
        RuntimeError: the runtime reports an error.
    """
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
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call(runtime, "aclrtSetDevice", index)
    _call(runtime, "aclrtGetMemInfo", 1, ctypes.byref(free), ctypes.byref(total))
    name = runtime.aclrtGetSocName().decode().removeprefix("Ascend")
    return Npu(index, name, busy, total.value - free.value, total.value)


def _utilization(runtime: Any, index: int) -> int:
    found = _Utilization()
    _call(runtime, "aclrtSetDevice", index)
    _call(runtime, "aclrtGetDeviceUtilizationRate", index, ctypes.byref(found))
    return found.cube


def _call(runtime: Any, name: str, *arguments: Any) -> None:
    if getattr(runtime, name)(*arguments) != 0:
        raise RuntimeError((runtime.aclGetRecentErrMsg() or b"").decode())


def table(npus: list[Npu], version: str) -> str:
    """Return the table as text, in npu-smi's layout; what the host chip does not measure is a dash."""
    lines = [
        f"+{'-' * (_WIDTH + 2)}+",
        f"| {f'npu-smi (isthmus {version})'.ljust(33)}{f'Version: isthmus {version}'.ljust(_WIDTH - 33)} |",
        _RULE,
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        _DOUBLE,
    ]
    for npu in npus:
        hbm = f"{npu.used // MIB:<5}/ {npu.total // MIB:<5}"
        lines += [
            _row(f"{npu.number:<6}{npu.name}", "OK", "-", "-", "0    / 0"),
            _row("0", "-", str(npu.utilization), "0    / 0", hbm),
            _DOUBLE,
        ]
    return "\n".join(lines)


def _row(chip: str, state: str, first: str, second: str, third: str) -> str:
    return f"| {chip:<26}| {state:<14}| {first:<12}{second:<18}{third:<21}|"
