"""Addresses of bytes and arrays, and threads: the functions ``acl.util.*``."""

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acl._library import INVALID_PARAMETER, SUCCESS, refuse, unknown

if TYPE_CHECKING:
    import numpy as np

_threads: dict[int, threading.Thread] = {}


def bytes_to_ptr(data: bytes) -> int:
    """Return the address of a bytes object, which the caller keeps alive."""
    if not isinstance(data, bytes):
        raise TypeError(f"bytes_to_ptr needs bytes, not {type(data).__name__}")
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def ptr_to_bytes(pointer: int, size: int) -> bytes:
    """Return a copy of so many bytes of host memory."""
    return ctypes.string_at(pointer, size)


def numpy_to_ptr(array: "np.ndarray") -> int:
    """Return the address of an array's data, which the caller keeps alive."""
    return int(array.__array_interface__["data"][0])


def numpy_contiguous_to_ptr(array: "np.ndarray") -> tuple[int, "np.ndarray"]:
    """Return the address of the data of a contiguous array, and that array: the given one or a copy."""
    import numpy as np

    contiguous = np.ascontiguousarray(array)
    return numpy_to_ptr(contiguous), contiguous


def ptr_to_numpy(pointer: int, shape: tuple[int, ...], dtype: int) -> "np.ndarray":
    """Return an array over host memory, which the caller keeps alive.

    Args:
        pointer: address of host memory.
        shape: sizes.
        dtype: number of a dtype of NumPy, such as 11 for float32.
    """
    import numpy as np

    types = {np.dtype(code).num: np.dtype(code) for code in np.typecodes["All"]}
    if dtype not in types:
        raise ValueError(f"{dtype} is not the number of a dtype of NumPy")
    size = int(np.prod(shape, dtype=np.int64)) * types[dtype].itemsize
    memory = memoryview((ctypes.c_char * size).from_address(pointer))
    return np.frombuffer(memory, types[dtype]).reshape(shape)


def start_thread(function: Callable[[list[Any]], Any], arguments: list[Any]) -> tuple[int, int]:
    """Return the number of a new thread that calls a function with the list, and 0.

    acl.rt.subscribe_report() takes the number.
    """
    thread = threading.Thread(target=function, args=(arguments,), daemon=True)
    thread.start()
    number = thread.ident or 0
    _threads[number] = thread
    return number, SUCCESS


def stop_thread(number: int) -> int:
    """Wait for the end of a thread of start_thread(); its function must return."""
    thread = _threads.pop(number, None)
    if thread is None:
        return refuse("util.stop_thread", INVALID_PARAMETER, f"no thread {number} of acl.util.start_thread()")
    thread.join()
    return SUCCESS


__getattr__ = unknown("acl.util")
