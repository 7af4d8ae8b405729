"""The library of c/debug.c, which runs checked kernels."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from pathlib import Path

from isthmus_triton import build

_lock = threading.Lock()
LookUp = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))


class RawFault(ctypes.Structure):
    """``struct fault`` of c/debug.c."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("kind", "access", "program", "other_access", "other_program")),
        *((name, ctypes.c_uint32) for name in ("allocation", "inside", "size")),
        *((name, ctypes.c_uint64) for name in ("address", "count")),
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Compile and load it; kernels find its functions by name."""
    binary = build.library((Path(__file__).parent.parent / "c" / "debug.c").read_text(), fuses=False)
    found = build.load(binary, ctypes.RTLD_GLOBAL)
    found.debug_faults.restype = ctypes.POINTER(RawFault)
    found.debug_writer.restype, found.debug_writer.argtypes = ctypes.c_int64, [ctypes.c_uint64]
    found.debug_fill.restype, found.debug_fill.argtypes = None, [ctypes.c_uint64, ctypes.c_uint64]
    return found


def run(
    kernel: int, call: bytes, allocations: list[tuple[int, int, int]], allowed: list[int],
    look_up: Callable[[int], tuple[int, int] | None], seed: int,
) -> list[RawFault]:  # fmt: skip
    """Run all programs of a launch.

    Args:
        kernel: the address of its function ``run``.
        call: its argument.
        allocations: start, bytes, and logarithm of the bytes of an element.
        allowed: by access, a bit for each allocation that it may touch; bit 63 for all others.
        look_up: start and bytes of another allocation around an address.
        seed: of the order of programs.

    Raises:
        MemoryError: there is no room for the addresses of what is noted.
    """

    def answer(address: int, out: ctypes._Pointer[ctypes.c_uint64]) -> int:
        found = look_up(address)
        if found is not None:
            out[0], out[1] = found
        return found is not None

    flat = [number for each in allocations for number in each]
    with _lock:
        count = library().debug_run(
            ctypes.c_void_p(kernel), ctypes.c_char_p(call), (ctypes.c_uint64 * len(flat))(*flat), len(allocations),
            (ctypes.c_uint64 * len(allowed))(*allowed), len(allowed), LookUp(answer), ctypes.c_uint64(seed),
        )  # fmt: skip
        if count < 0:
            raise MemoryError(
                "checks of Triton kernels need 264 GiB of addresses; raise the limit (ulimit -v)"
            )
        faults = library().debug_faults()
        return [RawFault.from_buffer_copy(faults[each]) for each in range(count)]
