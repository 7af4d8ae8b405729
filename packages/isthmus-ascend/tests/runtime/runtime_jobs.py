"""Jobs for the tests of the runtime, each in a process of its own with two NPUs of 64 MiB."""

import ctypes
import os
import struct
import subprocess
import sys
import threading
import time

from tests.runtime.runtime import (
    CONTEXT_NULL,
    DEFAULT,
    DEVICE,
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HANDLE,
    HOST_TO_DEVICE,
    MIB,
    OUT_OF_MEMORY,
    PARAMETER,
    REPORT_TIMEOUT,
    STREAM_TIMEOUT,
    UNSUPPORTED,
    AclError,
    Function,
    acl,
    download,
    fails,
    message,
    upload,
)

REPEAT_INITIALIZE, NO_CALLBACK_THREAD, TIMESTAMP = 100002, 107015, 107006


def devices() -> None:
    """Devices and contexts, per thread."""
    assert acl.result_of("aclrtGetDeviceCount", kind=ctypes.c_uint32) == 2
    with fails(CONTEXT_NULL, "aclrtSetDevice()"):
        acl.told("aclrtGetDevice")
    with fails(CONTEXT_NULL):
        acl.result_of("aclrtMalloc", 512, 0)
    acl.aclInit(None)
    with fails(REPEAT_INITIALIZE):
        acl.aclInit(None)
    with fails(DEVICE, "2 available", "ISTHMUS_ASCEND_DEVICES"):
        acl.aclrtSetDevice(2)
    acl.aclrtSetDevice(1)
    assert acl.told("aclrtGetDevice") == 1
    primary = acl.told("aclrtGetCurrentContext", kind=ctypes.c_void_p)
    seen: list[object] = []

    def other() -> None:
        try:
            acl.told("aclrtGetDevice")
        except AclError as error:
            seen.append(error.code)
        acl.aclrtSetCurrentContext(primary)
        seen.append(acl.told("aclrtGetDevice"))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [CONTEXT_NULL, 1]
    made = acl.result_of("aclrtCreateContext", 0)
    assert acl.told("aclrtGetDevice") == 0
    acl.aclrtDestroyContext(made)
    with fails(CONTEXT_NULL):
        acl.told("aclrtGetDevice")
    with fails(HANDLE):
        acl.aclrtSetCurrentContext(made)
    acl.aclFinalize()


def visible(expected: list[int]) -> None:
    """The selected devices have numbers from 0; their memory is that of the device of another process."""
    assert acl.result_of("aclrtGetDeviceCount", kind=ctypes.c_uint32) == len(expected)
    with fails(DEVICE, f"{len(expected)} available", "ASCEND_RT_VISIBLE_DEVICES"):
        acl.aclrtSetDevice(len(expected))
    for device, number in enumerate(expected):
        acl.aclrtSetDevice(device)
        assert acl.told("aclrtGetDevice") == device
        upload(b"x" * (number + 1) * MIB)
        stream, address = acl.result_of("aclrtCreateStream"), upload(b"01234567")
        first = acl.result_of("aclrtMalloc", 8, 0)
        acl.aclrtMemcpyAsync(first, 8, address, 8, DEFAULT, stream)
        acl.aclrtValueWrite(address, 0, 0, stream)
        acl.aclrtSynchronizeStream(stream)
        assert (download(first, 8), download(address, 8)) == (b"01234567", bytes(8))
    if not expected:
        return
    acl.aclrtSetDevice(0)
    near = upload(b"near")
    acl.aclrtSetDevice(len(expected) - 1)
    far = upload(b"far.")
    acl.aclrtMemcpy(far, 4, near, 4, DEVICE_TO_DEVICE)
    assert download(far, 4) == b"near"
    environment = {name: value for name, value in os.environ.items() if name != "ASCEND_RT_VISIBLE_DEVICES"}
    held = subprocess.run(
        [sys.executable, "-c", HELD], env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    used = [float(each) for each in held.split()]
    assert all(used[number] >= number + 1 for number in expected)  # other programs may use them too


HELD = """
import ctypes
from tests.runtime.runtime import MIB, acl
for device in range(4):
    acl.aclrtSetDevice(device)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total))
    print((total.value - free.value) / MIB)
"""


def errors() -> None:
    """The message is returned once; the code is kept until it is taken."""
    with fails(DEVICE):
        acl.aclrtSetDevice(7)
    assert message() == ""
    assert acl.raw.aclrtPeekAtLastError(0) == DEVICE
    assert acl.raw.aclrtGetLastError(0) == DEVICE
    assert acl.raw.aclrtGetLastError(0) == 0


def memory() -> None:
    """Capacity, and addresses that are not allocations."""
    acl.aclrtSetDevice(0)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total))
    assert total.value == 64 * MIB
    address = acl.result_of("aclrtMalloc", 48 * MIB, 0)
    with fails(OUT_OF_MEMORY, "32.0 MiB"):
        acl.result_of("aclrtMalloc", 32 * MIB, 0)
    acl.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total))
    assert free.value <= 16 * MIB
    acl.aclrtFree(address)
    for wrong in (address, 4096, None):
        with fails(PARAMETER):
            acl.aclrtFree(wrong)
    with fails(PARAMETER):
        acl.result_of("aclrtMalloc", 0, 0)
    address, stream = upload(b"01234567"), acl.result_of("aclrtCreateStream")
    acl.aclrtCmoAsync(address, 8, 0, stream)
    for wrong, count in ((address, 128 * MIB), (ctypes.addressof(free), 8)):
        with fails(PARAMETER, "not device memory"):
            acl.aclrtCmoAsync(wrong, count, 0, stream)
    pinned = acl.result_of("aclrtMallocHost", MIB)
    assert pinned % 4096 == 0
    ctypes.memset(pinned, 3, MIB)
    acl.aclrtFreeHost(pinned)


def registration() -> None:
    """Registered host memory: once, under its own address."""
    acl.aclrtSetDevice(0)
    buffer = ctypes.create_string_buffer(8192)
    start = ctypes.addressof(buffer)
    assert acl.told("aclrtHostRegister", start, 4096, 0, kind=ctypes.c_void_p) == start
    with fails(PARAMETER, "overlap"):
        acl.aclrtHostRegisterV2(start + 100, 100, 0)
    acl.aclrtHostRegisterV2(start + 4096, 4096, 0)
    near = upload(b"01234567")
    acl.aclrtMemcpy(start + 8190, 2, near, 2, DEVICE_TO_DEVICE)  # the device's address of it
    assert buffer.raw[-2:] == b"01"
    acl.aclrtMemcpy(near + 6, 2, start + 8190, 2, DEVICE_TO_DEVICE)
    assert download(near, 8) == b"01234501"
    acl.aclrtHostUnregister(start)
    with fails(PARAMETER, "inside an allocation"):
        acl.aclrtMemcpy(start, 8, near, 8, DEVICE_TO_DEVICE)
    with fails(PARAMETER, "not registered"):
        acl.aclrtHostUnregister(start)


def copies() -> None:
    """Copies of every kind, between devices too; sizes and addresses are checked."""
    acl.aclrtSetDevice(1)
    far = upload(b"x" * 16)
    acl.aclrtSetDevice(0)
    near = upload(b"0123456789abcdef")
    acl.aclrtMemcpy(near + 8, 8, near, 8, DEVICE_TO_DEVICE)
    assert download(near, 16) == b"0123456701234567"
    acl.aclrtMemcpy(far, 16, near, 16, DEVICE_TO_DEVICE)
    assert download(far, 16) == b"0123456701234567"
    target = ctypes.create_string_buffer(16)
    acl.aclrtMemcpy(target, 16, far, 16, DEFAULT)
    assert target.raw == b"0123456701234567"
    with fails(PARAMETER, "17 bytes"):
        acl.aclrtMemcpy(near, 16, target, 17, HOST_TO_DEVICE)
    large = ctypes.create_string_buffer(32 * MIB)
    with fails(PARAMETER, "inside an allocation"):
        acl.aclrtMemcpy(near, 64 * MIB, large, 32 * MIB, HOST_TO_DEVICE)
    with fails(PARAMETER, "kind 9"):
        acl.aclrtMemcpy(near, 16, target, 16, 9)
    acl.aclrtMemset(near, 16, 0x41, 4)
    stream = acl.result_of("aclrtCreateStream")
    acl.aclrtMemsetAsync(near + 4, 12, 0x42, 4, stream)
    acl.aclrtMemcpyAsync(far, 16, near, 16, DEVICE_TO_DEVICE, stream)
    acl.aclrtMemcpyAsync(target, 16, near, 16, DEVICE_TO_HOST, stream)
    with fails(PARAMETER, "a stream of chip 1"):
        acl.aclrtMemcpyAsync(target, 16, far, 16, DEVICE_TO_HOST, stream)
    acl.aclrtSynchronizeStream(stream)
    assert target.raw == b"AAAABBBB01234567"
    assert download(far, 16) == b"AAAABBBB01234567"


def batches() -> None:
    """Several copies in one call, up to the first that fails."""
    acl.aclrtSetDevice(0)
    near, target = upload(b"01234567"), ctypes.create_string_buffer(4)
    source = ctypes.create_string_buffer(b"ABCD", 4)
    sizes, failed = (ctypes.c_size_t * 2)(4, 4), ctypes.c_size_t()
    to = (ctypes.c_void_p * 2)(near, ctypes.addressof(target))
    sources = (ctypes.c_void_p * 2)(ctypes.addressof(source), near + 2)
    acl.aclrtMemcpyBatch(to, sizes, sources, sizes, 2, None, None, 0, ctypes.byref(failed))
    assert (download(near, 8), target.raw) == (b"ABCD4567", b"CD45")
    stream, rooms = acl.result_of("aclrtCreateStream"), (ctypes.c_size_t * 2)(4, 3)
    source.raw = b"wxyz"
    with fails(PARAMETER, "4 bytes do not fit"):
        acl.aclrtMemcpyBatchAsync(to, rooms, sources, sizes, 2, None, None, 0, ctypes.byref(failed), stream)
    acl.aclrtSynchronizeStream(stream)
    assert failed.value == 1
    assert (download(near, 8), target.raw) == (b"wxyz4567", b"CD45")


def cores() -> None:
    """Operators of a device and of its streams may use all cores."""
    acl.aclrtSetDevice(0)
    stream = acl.result_of("aclrtCreateStream")
    for kind, count in enumerate((20, 40)):
        assert acl.told("aclrtGetDeviceResLimit", 0, kind) == count
        assert acl.told("aclrtGetStreamResLimit", stream, kind) == count
    with fails(PARAMETER, "kind 2 of cores"):
        acl.told("aclrtGetStreamResLimit", stream, 2)


def streams() -> None:
    """Streams run their work in order, beside each other, and are recognised after their end."""
    acl.aclrtSetDevice(0)
    first, second = (acl.result_of("aclrtCreateStreamWithConfig", 0, 3) for _ in range(2))
    gate, order = threading.Event(), []
    wait, note, late = (
        Function(lambda _: gate.wait()),
        Function(lambda _: order.append(2)),
        Function(lambda _: gate.set()),
    )
    acl.aclrtLaunchHostFunc(first, wait, None)
    acl.aclrtLaunchHostFunc(first, note, None)
    assert acl.told("aclrtStreamQuery", first) == 1
    with fails(STREAM_TIMEOUT):
        acl.aclrtSynchronizeStreamWithTimeout(first, 20)
    with fails(STREAM_TIMEOUT):
        acl.aclrtSynchronizeDeviceWithTimeout(20)
    order.append(1)
    acl.aclrtLaunchHostFunc(second, late, None)
    acl.raw.aclrtSynchronizeStreamWithTimeout(ctypes.c_void_p(first), -1)
    acl.aclrtSynchronizeDevice()
    assert order == [1, 2]
    assert acl.told("aclrtStreamQuery", first) == 0
    assert acl.told("aclrtStreamGetId", first) != acl.told("aclrtStreamGetId", second)
    lowest, highest = ctypes.c_int32(), ctypes.c_int32()
    acl.aclrtDeviceGetStreamPriorityRange(ctypes.byref(lowest), ctypes.byref(highest))
    assert (lowest.value, highest.value) == (7, 0)
    low = acl.result_of("aclrtCreateStreamWithConfig", 7, 3)
    assert [acl.told("aclrtStreamGetPriority", stream) for stream in (low, first, None)] == [7, 0, 0]
    with fails(PARAMETER):
        acl.result_of("aclrtCreateStreamWithConfig", 8, 3)
    acl.aclrtDestroyStream(low)
    acl.aclrtDestroyStream(first)
    acl.aclrtDestroyStreamForce(second)
    for stream in (first, second, 16):
        with fails(HANDLE):
            acl.aclrtSynchronizeStream(stream)
        with fails(HANDLE):
            acl.aclrtDestroyStream(stream)


def events() -> None:
    """An event orders streams; its state, times and destruction."""
    acl.aclrtSetDevice(0)
    first, second = (acl.result_of("aclrtCreateStream") for _ in range(2))
    start, end, idle = (acl.result_of("aclrtCreateEventExWithFlag", 8) for _ in range(3))
    gate, order = threading.Event(), []
    wait, note = Function(lambda _: gate.wait()), Function(lambda _: order.append("second"))
    acl.aclrtRecordEvent(start, first)
    acl.aclrtLaunchHostFunc(first, wait, None)
    acl.aclrtRecordEvent(end, first)
    acl.aclrtStreamWaitEvent(second, end)
    acl.aclrtLaunchHostFunc(second, note, None)
    assert [acl.told("aclrtQueryEventStatus", event) for event in (start, end)] == [1, 0]
    assert acl.told("aclrtQueryEventWaitStatus", end) == 1
    time.sleep(0.02)
    order.append("first")
    gate.set()
    acl.aclrtSynchronizeEvent(end)
    acl.aclrtSynchronizeStream(second)
    assert order == ["first", "second"]
    assert acl.told("aclrtQueryEventStatus", end) == 1
    assert acl.told("aclrtQueryEventWaitStatus", end) == 0
    elapsed = acl.result_of("aclrtEventElapsedTime", start, end, kind=ctypes.c_float)
    assert elapsed >= 20
    times = [acl.told("aclrtEventGetTimestamp", event, kind=ctypes.c_uint64) for event in (start, end)]
    assert abs((times[1] - times[0]) / 1000 - elapsed) < 0.1
    assert abs(times[1] / 1e6 - time.time()) < 60
    with fails(TIMESTAMP):
        acl.result_of("aclrtEventElapsedTime", start, idle, kind=ctypes.c_float)
    acl.aclrtDestroyEvent(end)
    acl.aclrtStreamWaitEvent(second, end)  # torch_npu's thread for another device may come late
    acl.aclrtSynchronizeStream(second)
    with fails(HANDLE):
        acl.aclrtRecordEvent(end, first)
    with fails(HANDLE):
        acl.aclrtDestroyEvent(start + 8)


def values() -> None:
    """A stream waits until another writes a value."""
    acl.aclrtSetDevice(0)
    address = upload(struct.pack("<Q", 0))
    first, second = (acl.result_of("aclrtCreateStream") for _ in range(2))
    acl.aclrtValueWait(address, 5, 1, first)
    time.sleep(0.01)
    assert acl.told("aclrtStreamQuery", first) == 1
    acl.aclrtValueWrite(address, 5, 0, second)
    acl.aclrtSynchronizeStream(first)
    assert struct.unpack("<Q", download(address, 8)) == (5,)
    with fails(PARAMETER, "not device memory"):
        acl.aclrtValueWrite(ctypes.addressof(ctypes.c_uint64()), 1, 0, first)


def callbacks() -> None:
    """A thread of the application runs a stream's callbacks; the stream waits for those that block."""
    acl.aclrtSetDevice(0)
    stream, order = acl.result_of("aclrtCreateStream"), []
    callback, after = Function(lambda _: order.append("callback")), Function(lambda _: order.append("after"))
    with fails(NO_CALLBACK_THREAD):
        acl.aclrtLaunchCallback(callback, None, 1, stream)
    thread = threading.get_ident()
    acl.aclrtSubscribeReport(thread, stream)
    with fails(107011):
        acl.aclrtSubscribeReport(thread, stream)
    acl.aclrtLaunchCallback(callback, None, 1, stream)
    acl.aclrtLaunchHostFunc(stream, after, None)
    time.sleep(0.01)
    assert order == []
    acl.aclrtProcessReport(1000)
    acl.aclrtSynchronizeStream(stream)
    assert order == ["callback", "after"]
    with fails(REPORT_TIMEOUT):
        acl.aclrtProcessReport(10)
    acl.aclrtUnSubscribeReport(thread, stream)


def virtual_memory() -> None:
    """Reserved addresses get memory, are read and written, and lose it."""
    acl.aclrtReleaseMemAddress(
        acl.result_of("aclrtReserveMemAddress", 512, 0, None, 1)
    )  # a probe without a device
    acl.aclrtSetDevice(1)
    properties = struct.pack("<iiiIiiQ", 0, 0, 4, 1, 1, 0, 0)
    address = acl.result_of("aclrtReserveMemAddress", 4 * MIB, 0, None, 1)
    handle = acl.result_of("aclrtMallocPhysical", 2 * MIB, properties, 0)
    with fails(OUT_OF_MEMORY):
        acl.result_of("aclrtMallocPhysical", 128 * MIB, properties, 0)
    acl.aclrtMapMem(address + 2 * MIB, 2 * MIB, 0, handle, 0)
    acl.aclrtMemset(address + 2 * MIB, 2 * MIB, 7, 2 * MIB)
    assert download(address + 2 * MIB, 3) == b"\7\7\7"
    with fails(PARAMETER):
        download(address, 3)
    with fails(UNSUPPORTED):
        acl.aclrtMapMem(address, 2 * MIB, 512, handle, 0)
    with fails(PARAMETER):
        acl.aclrtUnmapMem(address)
    acl.aclrtUnmapMem(address + 2 * MIB)
    acl.aclrtFreePhysical(handle)
    acl.aclrtReleaseMemAddress(address)
    with fails(PARAMETER):
        acl.aclrtReleaseMemAddress(address)


READER = """
import ctypes, sys
from tests.runtime.runtime import acl, download
acl.aclrtSetDevice(0)
memory, event = (bytes.fromhex(line) for line in sys.stdin.read().split())
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
opened = ctypes.c_void_p()
assert acl.raw.aclrtIpcOpenEventHandle(Handle.from_buffer_copy(event), ctypes.byref(opened)) == 0
acl.aclrtSynchronizeEvent(opened.value)
address = acl.result_of("aclrtIpcMemImportByKey", memory, 1)
print(download(address, 5).decode())
acl.aclrtIpcMemClose(memory)
"""


def sharing() -> None:
    """Another process imports memory and an event."""
    acl.aclrtSetDevice(0)
    stream, event = acl.result_of("aclrtCreateStream"), acl.result_of("aclrtCreateEventExWithFlag", 0x40)
    address = upload(b"hello")
    acl.aclrtRecordEvent(event, stream)
    key, handle = ctypes.create_string_buffer(65), ctypes.create_string_buffer(64)
    acl.aclrtIpcMemGetExportKey(address, 5, key, 65, 0)
    acl.aclrtIpcGetEventHandle(event, handle)
    with fails(PARAMETER):
        acl.aclrtIpcMemGetExportKey(address, 5, key, 10, 0)
    told = f"{key.raw.hex()} {handle.raw.hex()}"
    reader = subprocess.run(
        [sys.executable, "-c", READER], input=told, capture_output=True, text=True, check=False, timeout=60
    )
    assert reader.stdout == "hello\n", reader.stderr


def information() -> None:
    """The product, its cores and features."""
    acl.raw.aclrtGetSocName.restype = ctypes.c_char_p
    assert acl.raw.aclrtGetSocName() == b"Ascend910B3"
    ids = [ctypes.create_string_buffer(16) for _ in range(3)]
    for device, uuid in zip((0, 1, 0), ids, strict=True):
        acl.aclrtDeviceGetUuid(device, uuid)
    assert ids[0].raw == ids[2].raw != ids[1].raw
    cores = [acl.told("aclGetDeviceCapability", 0, kind, kind=ctypes.c_int64) for kind in (0, 1)]
    assert cores == [20, 40]
    assert acl.told("aclGetCannAttribute", 1) == 1
    assert acl.result_of("aclrtDeviceCanAccessPeer", 0, 1, kind=ctypes.c_int32) == 1
    acl.aclrtSetSysParamOpt(0, 1)
    assert acl.told("aclrtGetSysParamOpt", 0, kind=ctypes.c_int64) == 1
    with fails(UNSUPPORTED, "kernels"):
        acl.rtKernelLaunch(None, 1, None, 0, None, None)


def nulls() -> None:
    """No function of the libraries crashes on nulls, before and after a device is set."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", *sys.argv[1:]], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listed.splitlines() if " T " in line}
    names = {name for name in names if name.startswith(("acl", "Hccl", "rt", "Msprof", "isthmus_ascend"))}
    assert len(names) > 130
    libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
    for _ in range(2):
        for name in sorted(names):
            function = next(getattr(library, name) for library in libraries if hasattr(library, name))
            function(*[ctypes.c_void_p()] * 14)
        acl.aclrtSetDevice(0)
