"""Jobs for the tests of operators of the older interface, in a process with two NPUs of 64 MiB."""

import ctypes
import struct
from collections.abc import Sequence

from tests.runtime.runtime import UNSUPPORTED, Library, acl, download, fails, upload

compiler = Library("libacl_op_compiler.so")
INT16, INT64, ND = 6, 9, 2
INVALID = 100000
for _name in ("aclCreateTensorDesc", "aclCreateDataBuffer"):
    getattr(acl.raw, _name).restype = ctypes.c_void_p


class Operands:
    """A list of operands: their descriptions and buffers."""

    def __init__(self) -> None:
        self.descriptions: list[int] = []
        self.buffers: list[int] = []
        self.hosts: list[ctypes.Array[ctypes.c_char]] = []

    def device(self, address: int, elements: int, *sizes: int) -> "Operands":
        """Add int16 of device memory."""
        dims = (ctypes.c_int64 * len(sizes))(*sizes)
        self.descriptions.append(acl.raw.aclCreateTensorDesc(INT16, len(sizes), dims, ND))
        self.buffers.append(
            acl.raw.aclCreateDataBuffer(ctypes.c_void_p(address), ctypes.c_size_t(2 * elements))
        )
        return self

    def host(self, *values: int) -> "Operands":
        """Add int64 of host memory."""
        self.hosts.append(
            ctypes.create_string_buffer(struct.pack(f"<{len(values)}q", *values), 8 * len(values))
        )
        dims = (ctypes.c_int64 * 1)(len(values))
        self.descriptions.append(acl.raw.aclCreateTensorDesc(INT64, 1, dims, ND))
        self.buffers.append(acl.raw.aclCreateDataBuffer(self.hosts[-1], ctypes.c_size_t(8 * len(values))))
        return self

    def lists(self) -> tuple[int, ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_void_p]]:
        """Return the arguments of aclopCompileAndExecute()."""
        kind = ctypes.c_void_p * len(self.buffers)
        return len(self.buffers), kind(*self.descriptions), kind(*self.buffers)


def run(name: bytes, inputs: Operands, outputs: Operands) -> None:
    """Execute the operator on the default stream and wait for it."""
    compiler.aclopCompileAndExecute(name, *inputs.lists(), *outputs.lists(), None, 0, 0, None, None)
    acl.aclrtSynchronizeStream(None)


def read(address: int, count: int) -> list[int]:
    """Return int16 of device memory."""
    return list(struct.unpack(f"<{count}h", download(address, 2 * count)))


def views() -> None:
    """AsStrided, ViewCopy and Transpose; a view that leaves the memory is refused."""
    acl.aclrtSetDevice(0)
    start = upload(struct.pack("<12h", *range(12)))
    target = upload(bytes(24))

    def strided(sizes: Sequence[int], strides: Sequence[int], offset: int) -> None:
        inputs = Operands().device(start, 12, 12).host(*sizes).host(*strides).host(offset)
        run(b"AsStrided", inputs, Operands().device(target, 6, *sizes))

    strided((2, 3), (1, 4), 2)
    assert read(target, 6) == [2, 6, 10, 3, 7, 11]
    strided((0, 3), (1, 4), 2)
    for sizes, strides, offset in (
        ((2, 3), (1, 1 << 40), 0),
        ((2, 1 << 62), (1, 4), 0),
        ((2, 3), (-1, 1), 3),
        ((2, 3), (1, 4), -1),
        ((-2, 3), (1, 4), 0),
        ((2, 3), (1,), 0),
    ):
        with fails(INVALID, "the views to copy differ in size or leave the memory"):
            strided(sizes, strides, offset)
    many = Operands().device(target, 12, 12).host(1 << 40).host(0).host(0)
    many.device(start, 12, 12).host(1 << 40).host(0).host(0)
    with fails(INVALID, "the target overlaps itself"):
        run(b"ViewCopy", many, Operands().device(target, 12, 12))
    unreadable = Operands().device(start, 2, 2).device(8, 4, 1)
    with fails(INVALID, "Transpose: a dimension is out of range"):
        run(b"Transpose", unreadable, Operands().device(target, 2, 2))
    ends = Operands().device(target, 12, 12).host(2, 2).host(6, 2).host(1)
    ends.device(start, 12, 12).host(2, 2).host(1, 3).host(0)
    run(b"ViewCopy", ends, Operands().device(target, 12, 12))
    assert read(target, 12) == [2, 0, 10, 3, 7, 11, 0, 1, 0, 4, 0, 0]
    for order, expected in (
        ((2, 0, 1), [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]),
        ((0, 1, 2), list(range(12))),
    ):
        run(
            b"Transpose",
            Operands().device(start, 12, 2, 3, 2).host(*order),
            Operands().device(target, 12, 12),
        )
        assert read(target, 12) == expected
    with fails(INVALID, "Transpose: a dimension is out of range"):
        run(b"Transpose", Operands().device(start, 12, 2, 6).host(0, 2), Operands().device(target, 12, 12))
    with fails(UNSUPPORTED, "operator Missing of the older interface is not implemented"):
        run(b"Missing", Operands().device(start, 12, 12), Operands().device(target, 12, 12))
    with fails(INVALID, "a list is null"):
        compiler.aclopCompileAndExecute(b"Identity", 1, None, None, 1, None, None, None, 0, 0, None, None)
