"""Jobs for the tests of misuse, in processes of their own with two NPUs of 64 MiB: an error code, never a crash."""

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch  # noqa: F401  # libopapi.so needs its libraries

from tests.runtime.runtime import HANDLE, MIB, PARAMETER, Library, acl, fails

THREADS, FORKS = 8, 200
opapi = Library("libopapi.so")
compiler = Library("libacl_op_compiler.so")
for _library, _names in ((opapi, ("aclCreateTensor", "aclCreateTensorList")), (acl, ("aclopCreateAttr",))):
    for _name in _names:
        getattr(_library.raw, _name).restype = ctypes.c_void_p


def captures() -> None:
    """Threads enqueue work on a stream that another captures: each operator runs once, or at each execution."""
    acl.aclrtSetDevice(0)
    stream = acl.result_of("aclrtCreateStream")
    work = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    with _threads(lambda: acl.aclrtLaunchHostFunc(stream, work, None)):
        for _ in range(200):
            acl.aclmdlRICaptureBegin(stream, 0)
            model = acl.told("aclmdlRICaptureEnd", stream, kind=ctypes.c_void_p)
            for _ in range(3):
                acl.aclmdlRIExecuteAsync(model, stream)
            acl.aclmdlRIDestroy(model)


def _capturing() -> tuple[Any, ctypes.c_void_p]:
    """Return a stream whose capture has begun, and its model."""
    acl.aclrtSetDevice(0)
    stream = acl.result_of("aclrtCreateStream")
    acl.aclmdlRICaptureBegin(stream, 0)
    status, model = ctypes.c_int(), ctypes.c_void_p()
    acl.aclmdlRICaptureGetInfo(stream, ctypes.byref(status), ctypes.byref(model))
    return stream, model


def captured_streams() -> None:
    """A captured stream is not destroyed, but by force, which ends the capture; a wait for it does not hang."""
    stream, model = _capturing()
    for wait in ("aclrtSynchronizeStreamWithTimeout", "aclrtDestroyStream"):
        with fails(PARAMETER, "captured"):
            getattr(acl, wait)(stream, 100)
    acl.aclrtDestroyStreamForce(stream)
    with fails(HANDLE):
        acl.told("aclmdlRIGetId", model.value)
    acl.aclrtSynchronizeDevice()
    acl.aclrtResetDevice(0)


def lists() -> None:
    """Lengths of lists that are negative or leave the memory."""
    acl.aclrtSetDevice(0)
    attributes = acl.raw.aclopCreateAttr()
    for kind in ("Int", "Float", "Bool"):
        for length in (-1, (1 << 31) - 1):
            with fails(PARAMETER):
                getattr(acl, f"aclopSetAttrList{kind}")(
                    attributes, b"name", ctypes.c_int(length), ctypes.create_string_buffer(8)
                )
    nothing = (ctypes.c_void_p * 1)()
    for inputs, outputs in ((-1, 1), (1, -1), (-1, -1)):
        counts = ctypes.c_int(inputs), ctypes.c_int(outputs)
        with fails(100000, "negative"):
            compiler.aclopCompileAndExecute(
                b"Add", counts[0], nothing, nothing, counts[1], nothing, nothing, None, 0, 0, None, None
            )


def mappings() -> None:
    """Addresses that are still mapped cannot be released, and can be later."""
    acl.aclrtSetDevice(0)
    address = acl.result_of("aclrtReserveMemAddress", 2 * MIB, 0, None, 1)
    memory = acl.result_of("aclrtMallocPhysical", 2 * MIB, struct.pack("<iiiIiiQ", 0, 0, 4, 0, 1, 0, 0), 0)
    acl.aclrtMapMem(address, 2 * MIB, 0, memory, 0)
    with fails(PARAMETER):
        acl.aclrtReleaseMemAddress(address)
    acl.aclrtUnmapMem(address)
    acl.aclrtReleaseMemAddress(address)
    acl.aclrtFreePhysical(memory)


def objects() -> None:
    """Threads use tensors and attributes that others destroy; a list of nulls is destroyed once."""
    acl.aclrtSetDevice(0)
    memory = acl.result_of("aclrtMalloc", 64, 0)
    attributes = acl.raw.aclopCreateAttr()
    opapi.aclDestroyTensor(_tensor(memory))
    opapi.aclDestroyTensorList(opapi.raw.aclCreateTensorList((ctypes.c_void_p * 1)(), ctypes.c_uint64(1)))
    tensors = [_tensor(memory) for _ in range(4)]
    for tensor in tensors[:-1]:
        opapi.aclDestroyTensor(tensor)

    def use() -> None:
        size, executor = ctypes.c_uint64(), ctypes.c_void_p()
        results = ctypes.byref(size), ctypes.byref(executor)
        tensor = ctypes.c_void_p(tensors[-1])
        status = opapi.raw.aclnnAbsGetWorkspaceSize(tensor, tensor, *results)
        assert status in (0, 161002)
        if status == 0:
            opapi.aclDestroyAclOpExecutor(executor)
        acl.aclopSetAttrString(attributes, b"name", b"a text longer than the string itself")

    with _threads(use):
        for _ in range(2000):
            tensors.append(_tensor(memory))
            opapi.aclDestroyTensor(tensors[-2])


def forks() -> None:
    """A forked process gets an error from every call, whatever other threads were doing."""
    acl.aclrtSetDevice(0)

    def churn() -> None:
        acl.aclrtDestroyEvent(acl.result_of("aclrtCreateEvent"))
        acl.aclrtDestroyStream(acl.result_of("aclrtCreateStream"))

    with _threads(churn):
        for _ in range(FORKS):
            child = os.fork()
            if child == 0:
                created = ctypes.c_void_p()
                os._exit(0 if acl.raw.aclrtCreateEvent(ctypes.byref(created)) == 507000 else 1)
            assert os.waitpid(child, 0)[1] == 0


def _tensor(memory: int) -> int:
    one = (ctypes.c_int64 * 1)(1)
    count, offset = ctypes.c_uint64(1), ctypes.c_int64(0)
    made: int = opapi.raw.aclCreateTensor(one, count, 0, one, offset, 2, one, count, ctypes.c_void_p(memory))
    return made


@contextmanager
def _threads(function: Callable[[], None]) -> Iterator[None]:
    """Call the function again and again in threads of their own, with the caller's context, within the block."""
    context, ended = acl.result_of("aclrtGetCurrentContext"), threading.Event()

    def run() -> None:
        acl.aclrtSetCurrentContext(context)
        while not ended.is_set():
            function()

    with ThreadPoolExecutor(THREADS) as pool:
        runs = [pool.submit(run) for _ in range(THREADS)]
        try:
            yield
        finally:
            ended.set()
    for each in runs:
        each.result()
