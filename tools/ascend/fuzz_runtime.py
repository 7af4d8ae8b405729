"""Wrong arguments for the functions of the runtime's libraries, and for the objects of libopapi.so."""

import ctypes
import mmap
import random
from collections.abc import Callable
from typing import Any

from isthmus_ascend.environment import LIBRARIES, operators
from tools.ascend.prototypes import Prototype

BUFFER_BYTES = 1 << 16
FOREIGN = (8, 0x10, (1 << 40) + 8, (1 << 62) + 1, (1 << 64) - 16)  # handles that no function returned
MILLISECONDS = (0, 1, 5)
INTEGERS = (
    *(0, 1, 2, 3, 4, 5, 7, 16, 64, 255, -1),
    *(1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63)),
)
WIDTHS = {"int": 32, "int32_t": 32, "uint32_t": 32, "int64_t": 64, "uint64_t": 64, "size_t": 64, "uint8_t": 8}
# Parameters that are handles, by library, as the sources call them.
HANDLES = set("stream event start end model comm context handle config attributes object executor".split())
MEMORY = {"to", "from", "pointer", "address", "buffer", "data", "expected"}
NOTHING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)


def _guarded_buffer() -> Any:
    """Return a buffer of BUFFER_BYTES before a page that cannot be accessed."""
    memory = mmap.mmap(-1, BUFFER_BYTES + mmap.PAGESIZE)
    buffer = (ctypes.c_char * BUFFER_BYTES).from_buffer(memory)
    ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(ctypes.addressof(buffer) + BUFFER_BYTES), ctypes.c_size_t(mmap.PAGESIZE), 0
    )
    return buffer


class Given:
    """Live and destroyed objects of every kind, and memory."""

    def __init__(self) -> None:
        paths = [path for folder in (LIBRARIES, operators()) for path in folder.glob("*.so")]
        self.libraries = {path.name: ctypes.CDLL(str(path)) for path in paths}
        acl, hccl = self.libraries["libascendcl.so"], self.libraries["libhccl.so"]
        acl.aclInit(None)
        acl.aclrtSetDevice(0)
        self.buffers = [_guarded_buffer() for _ in range(4)]
        self.handles: list[int] = []
        self.memory = [ctypes.addressof(buffer) for buffer in self.buffers]
        info = ctypes.create_string_buffer(4108)
        hccl.HcclGetRootInfo(info)
        makers: list[tuple[Any, Any, tuple[Any, ...]]] = [
            (acl.aclrtCreateStream, acl.aclrtDestroyStream, ()),
            (acl.aclrtCreateEvent, acl.aclrtDestroyEvent, ()),
            (acl.aclrtCreateContext, acl.aclrtDestroyContext, (0,)),
        ]
        for make, destroy, arguments in makers:
            made = [ctypes.c_void_p() for _ in range(2)]
            for handle in made:
                make(ctypes.byref(handle), *arguments)
                self.handles.append(handle.value or 0)
            destroy(made[1])
        acl.aclrtSetDevice(0)
        comm = ctypes.c_void_p()
        hccl.HcclCommInitRootInfo(1, info, 0, ctypes.byref(comm))
        self.handles.append(comm.value or 0)
        self._allocate(acl)

    def _allocate(self, acl: ctypes.CDLL) -> None:
        pointers = [ctypes.c_void_p() for _ in range(3)]
        for pointer in pointers[:2]:
            acl.aclrtMalloc(ctypes.byref(pointer), ctypes.c_size_t(BUFFER_BYTES), 0)
        acl.aclrtFree(pointers[1])
        acl.aclrtMallocHost(ctypes.byref(pointers[2]), ctypes.c_size_t(BUFFER_BYTES))
        self.memory += [pointer.value or 0 for pointer in pointers]

    def handle(self, random: random.Random) -> int:
        return random.choice([0, *FOREIGN, *self.handles, *self.handles, *self.memory])

    def argument(self, random: random.Random, kind: str, name: str, library: str) -> Any:
        """Return a C value for a parameter of this type and name."""
        if kind in WIDTHS:
            value = random.choice(MILLISECONDS if name == "milliseconds" else INTEGERS)
            return ctypes.c_uint64(value & ((1 << WIDTHS[kind]) - 1))
        if kind == "float":
            return ctypes.c_float(random.choice([0.0, -1.0, 1e38]))
        if kind == "function":
            return random.choice([None, NOTHING])
        if kind == "aclrtIpcEventHandle":
            return (type("Handle", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * 64)]}))(
                random.randbytes(63)
            )
        if kind in ("void*", "const void*") and name in MEMORY:
            return ctypes.c_void_p(random.choice([0, *self.memory]))
        is_handle = kind in ("void*", "const void*") and (
            name in HANDLES or (name == "info" and library != "libhccl.so")
        )
        if is_handle or (library == "libopapi.so" and kind.startswith("const acl") and name in HANDLES):
            return ctypes.c_void_p(self.handle(random))
        return ctypes.c_void_p(random.choice([0, *self.memory[:4]]))

    def fill(self, random: random.Random) -> None:
        """Give the host's buffers other contents: small numbers, random bytes, or handles."""
        for buffer in self.buffers:
            kind = random.randrange(3)
            if kind == 0:
                data = b"".join(random.choice(INTEGERS[:8]).to_bytes(8, "little") for _ in range(64))
            elif kind == 1:
                data = random.randbytes(512)
            else:
                data = b"".join(self.handle(random).to_bytes(8, "little") for _ in range(64))
            ctypes.memmove(buffer, data, len(data))
            ctypes.memset(ctypes.addressof(buffer) + len(data), 0, 8)


def caller(prototype: Prototype) -> Callable[[random.Random, int, Callable[[str], None]], None]:
    """Return what calls the function so many times."""

    def run(random: random.Random, calls: int, note: Callable[[str], None]) -> None:
        given = Given()
        function = getattr(given.libraries[prototype.library], prototype.name)
        function.restype = ctypes.c_void_p if "*" in prototype.result else ctypes.c_int
        pointers = "*" in prototype.result and "char" not in prototype.result
        for _ in range(calls):
            given.fill(random)
            arguments = [
                given.argument(random, *parameter, prototype.library) for parameter in prototype.parameters
            ]
            note(f"{prototype.name}({', '.join(str(getattr(a, 'value', a)) for a in arguments)})")
            made = function(*arguments)
            if pointers and made:
                given.handles.append(made)

    return run
