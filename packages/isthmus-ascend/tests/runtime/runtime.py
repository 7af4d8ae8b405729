"""libascendcl.so and libhccl.so from Python, through their C interfaces."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from isthmus_ascend.environment import LIBRARIES, operators

MIB = 1 << 20

# Values of aclError.
PARAMETER, DEVICE, CONTEXT_NULL, HANDLE = 107000, 107001, 107002, 107017
HBM_ECC = 507054
UNSUPPORTED, OUT_OF_MEMORY, STREAM_TIMEOUT, REPORT_TIMEOUT = 207000, 207001, 507046, 107020
# Values of aclrtMemcpyKind.
HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)

Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class AclError(Exception):
    """A function returned an error: its code, and the text of aclGetRecentErrMsg()."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Library:
    """A library whose functions raise AclError; an int argument of 64 bits is passed as a pointer is."""

    def __init__(self, name: str) -> None:
        self.raw = ctypes.CDLL(str((operators() if name == "libopapi.so" else LIBRARIES) / name))

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self.raw, name)

        def call(*arguments: Any) -> None:
            code = function(*(ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments))
            if code != 0:
                raise AclError(code, message())

        return call

    def result_of(self, name: str, *arguments: Any, kind: Any = ctypes.c_void_p) -> Any:
        """Return what the function writes to its first parameter."""
        made = kind()
        getattr(self, name)(ctypes.byref(made), *arguments)
        return made.value

    def told(self, name: str, *arguments: Any, kind: Any = ctypes.c_int32) -> Any:
        """Return what the function writes to its last parameter."""
        told = kind()
        getattr(self, name)(*arguments, ctypes.byref(told))
        return told.value


acl = Library("libascendcl.so")
hccl = Library("libhccl.so")
acl.raw.aclGetRecentErrMsg.restype = ctypes.c_char_p


def message() -> str:
    """Return the text of the thread's last failure and forget it."""
    return (acl.raw.aclGetRecentErrMsg() or b"").decode()


@contextmanager
def fails(code: int, *texts: str) -> Iterator[None]:
    """Fail unless the block raises this error, with these texts in its message."""
    with pytest.raises(AclError) as caught:
        yield
    assert caught.value.code == code, str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def upload(values: bytes) -> int:
    """Return the address of new memory of the device that holds the values."""
    address: int = acl.result_of("aclrtMalloc", len(values), 0)
    acl.aclrtMemcpy(address, len(values), values, len(values), HOST_TO_DEVICE)
    return address


def download(address: int, count: int) -> bytes:
    """Return so many bytes of device memory."""
    values = ctypes.create_string_buffer(count)
    acl.aclrtMemcpy(values, count, address, count, DEVICE_TO_HOST)
    return values.raw
