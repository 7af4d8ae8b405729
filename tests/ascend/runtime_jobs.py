"""What the tests of the runtime do, each in a process of its own with two NPUs of 64 MiB."""

import ctypes
import struct
import subprocess
import sys
import threading
import time

from tests.ascend.runtime import (
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
    assert acl.made("aclrtGetDeviceCount", kind=ctypes.c_uint32) == 2
    with fails(CONTEXT_NULL, "aclrtSetDevice()"):
        acl.told("aclrtGetDevice")
    with fails(CONTEXT_NULL):
        acl.made("aclrtMalloc", 512, 0)
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
    made = acl.made("aclrtCreateContext", 0)
    assert acl.told("aclrtGetDevice") == 0
    acl.aclrtDestroyContext(made)
    with fails(CONTEXT_NULL):
        acl.told("aclrtGetDevice")
    with fails(HANDLE):
        acl.aclrtSetCurrentContext(made)
    acl.aclFinalize()


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
    address = acl.made("aclrtMalloc", 48 * MIB, 0)
    with fails(OUT_OF_MEMORY, "32.0 MiB"):
        acl.made("aclrtMalloc", 32 * MIB, 0)
    acl.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total))
    assert free.value <= 16 * MIB
    acl.aclrtFree(address)
    for wrong in (address, 4096, None):
        with fails(PARAMETER):
            acl.aclrtFree(wrong)
    with fails(PARAMETER):
        acl.made("aclrtMalloc", 0, 0)
    pinned = acl.made("aclrtMallocHost", MIB)
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
    acl.aclrtHostUnregister(start)
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
    with fails(PARAMETER, "inside an allocation"):
        acl.aclrtMemcpy(near, 64 * MIB, target, 32 * MIB, HOST_TO_DEVICE)
    with fails(PARAMETER, "kind 9"):
        acl.aclrtMemcpy(near, 16, target, 16, 9)
    acl.aclrtMemset(near, 16, 0x41, 4)
    stream = acl.made("aclrtCreateStream")
    acl.aclrtMemsetAsync(near + 4, 12, 0x42, 4, stream)
    acl.aclrtMemcpyAsync(far, 16, near, 16, DEVICE_TO_DEVICE, stream)
    acl.aclrtMemcpyAsync(target, 16, near, 16, DEVICE_TO_HOST, stream)
    with fails(PARAMETER, "a stream of chip 1"):
        acl.aclrtMemcpyAsync(target, 16, far, 16, DEVICE_TO_HOST, stream)
    acl.aclrtSynchronizeStream(stream)
    assert target.raw == b"AAAABBBB01234567"
    assert download(far, 16) == b"AAAABBBB01234567"


def streams() -> None:
    """Streams run their work in order, beside each other, and are recognised after their end."""
    acl.aclrtSetDevice(0)
    first, second = (acl.made("aclrtCreateStreamWithConfig", 0, 3) for _ in range(2))
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
    acl.aclrtDestroyStream(first)
    acl.aclrtDestroyStreamForce(second)
    for stream in (first, second, 16):
        with fails(HANDLE):
            acl.aclrtSynchronizeStream(stream)
        with fails(HANDLE):
            acl.aclrtDestroyStream(stream)


def models() -> None:
    """Captured work runs at each execution of its model only, work of a second stream in its order."""
    acl.aclrtSetDevice(0)
    first, second = (acl.made("aclrtCreateStream") for _ in range(2))
    fork, join = (acl.made("aclrtCreateEventExWithFlag", 8) for _ in range(2))
    order: list[int] = []
    notes = [Function(lambda _, i=i: order.append(i)) for i in range(3)]
    status, model = ctypes.c_int(), ctypes.c_void_p()
    acl.aclmdlRICaptureBegin(first, 2)
    acl.aclrtLaunchHostFunc(first, notes[0], None)
    acl.aclrtRecordEvent(fork, first)
    acl.aclrtStreamWaitEvent(second, fork)
    acl.aclrtLaunchHostFunc(second, notes[1], None)
    acl.aclrtRecordEvent(join, second)
    acl.aclrtStreamWaitEvent(first, join)
    acl.aclrtLaunchHostFunc(first, notes[2], None)
    for stream in (first, second):
        acl.aclmdlRICaptureGetInfo(stream, ctypes.byref(status), ctypes.byref(model))
        assert status.value == 1 and model.value
        with fails(PARAMETER):
            acl.aclrtSynchronizeStream(stream)
    with fails(PARAMETER):
        acl.aclmdlRIExecuteAsync(model.value, first)
    forked = acl.told("aclmdlRICaptureEnd", first, kind=ctypes.c_void_p)
    assert forked == model.value
    acl.aclmdlRICaptureGetInfo(second, ctypes.byref(status), ctypes.byref(model))
    assert status.value == 0 and not model.value
    model = acl.told("aclmdlRICaptureEnd", _captured(first, notes[0]), kind=ctypes.c_void_p)
    acl.aclrtSynchronizeDevice()
    assert order == []
    for _ in range(2):
        acl.aclmdlRIExecuteAsync(model, second)
    acl.aclmdlRIDestroy(model)
    acl.aclrtSynchronizeStream(second)
    assert order == [0, 0]
    acl.aclmdlRIExecuteAsync(forked, first)
    acl.aclrtSynchronizeStream(first)
    assert order == [0, 0, 0, 1, 2]
    for call in ("aclmdlRIDestroy", "aclmdlRIDebugPrint"):
        with fails(HANDLE):
            getattr(acl, call)(model)
    with fails(PARAMETER):
        acl.told("aclmdlRICaptureEnd", first, kind=ctypes.c_void_p)


def task_groups() -> None:
    """An update replaces the operators of a task group, in the updating stream's order."""
    acl.aclrtSetDevice(0)
    first, second = (acl.made("aclrtCreateStream") for _ in range(2))
    order: list[int] = []
    notes = [Function(lambda _, i=i: order.append(i)) for i in range(6)]
    address, target = upload(b"ab"), upload(b"..")
    with fails(PARAMETER, "not captured"):
        acl.aclmdlRICaptureTaskGrpBegin(first)
    acl.aclmdlRICaptureBegin(first, 0)
    acl.aclrtLaunchHostFunc(first, notes[0], None)
    acl.aclmdlRICaptureTaskGrpBegin(first)
    with fails(PARAMETER, "open task group"):
        acl.aclmdlRICaptureTaskGrpBegin(first)
    acl.aclrtLaunchHostFunc(first, notes[1], None)
    acl.aclrtMemcpyAsync(target, 2, address, 2, DEVICE_TO_DEVICE, first)
    acl.aclrtLaunchHostFunc(first, notes[2], None)
    group = acl.told("aclmdlRICaptureTaskGrpEnd", first, kind=ctypes.c_void_p)
    with fails(PARAMETER, "no open task group"):
        acl.told("aclmdlRICaptureTaskGrpEnd", first, kind=ctypes.c_void_p)
    with fails(PARAMETER, "is captured"):
        acl.aclmdlRICaptureTaskUpdateBegin(first, group)
    acl.aclrtLaunchHostFunc(first, notes[3], None)
    model = acl.told("aclmdlRICaptureEnd", first, kind=ctypes.c_void_p)

    acl.aclmdlRICaptureTaskUpdateBegin(second, group)
    with fails(PARAMETER, "already"):
        acl.aclmdlRICaptureTaskUpdateBegin(second, group)
    acl.aclrtLaunchHostFunc(second, notes[4], None)
    for wrong in (
        lambda: acl.aclrtMemcpyAsync(target, 2, address, 2, DEVICE_TO_DEVICE, second),
        lambda: acl.aclrtMemsetAsync(target, 2, 0, 2, second),
        lambda: acl.aclrtRecordEvent(acl.made("aclrtCreateEvent"), second),
    ):
        with fails(UNSUPPORTED, "only operators"):
            wrong()
    with fails(PARAMETER, "1 operators", "group of 2"):
        acl.aclmdlRICaptureTaskUpdateEnd(second)
    with fails(PARAMETER, "updates no task group"):
        acl.aclmdlRICaptureTaskUpdateEnd(second)
    acl.aclmdlRIExecuteAsync(model, first)
    acl.aclrtSynchronizeStream(first)
    assert order == [0, 1, 2, 3]
    assert download(target, 2) == b"ab"

    gate = threading.Event()
    wait = Function(lambda _: gate.wait())
    acl.aclrtLaunchHostFunc(second, wait, None)
    acl.aclmdlRICaptureTaskUpdateBegin(second, group)
    for note in notes[4:]:
        acl.aclrtLaunchHostFunc(second, note, None)
    acl.aclmdlRICaptureTaskUpdateEnd(second)
    acl.aclmdlRIExecuteAsync(model, first)
    acl.aclrtSynchronizeStream(first)
    assert order[4:] == [0, 1, 2, 3]
    gate.set()
    acl.aclrtSynchronizeStream(second)
    acl.aclmdlRIExecuteAsync(model, first)
    acl.aclrtSynchronizeStream(first)
    assert order[8:] == [0, 4, 5, 3]
    acl.aclmdlRIDestroy(model)
    with fails(HANDLE, "task group"):
        acl.aclmdlRICaptureTaskUpdateBegin(second, group)


class Branch(ctypes.Structure):
    """aclmdlRICondTaskParams of a branch."""

    _fields_ = (
        ("condition", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("count", ctypes.c_uint32),
        ("models", ctypes.POINTER(ctypes.c_void_p)),
    )


def branches() -> None:
    """A branch runs where its condition, which captured work writes, is not zero."""
    acl.aclrtSetDevice(0)
    parent, child = (acl.made("aclrtCreateStream") for _ in range(2))
    order: list[int] = []
    notes = [Function(lambda _, i=i: order.append(i)) for i in range(3)]
    source = upload(struct.pack("<Q", 0))
    acl.aclmdlRICaptureBegin(parent, 0)
    status, model = ctypes.c_int(), ctypes.c_void_p()
    acl.aclmdlRICaptureGetInfo(parent, ctypes.byref(status), ctypes.byref(model))
    acl.aclrtLaunchHostFunc(parent, notes[0], None)
    captured: list[int] = []
    for initial, written in ((0, True), (1, False)):
        condition = acl.told("aclmdlRICondHandleCreate", model.value, initial, 1, kind=ctypes.c_void_p)
        address = acl.told("aclmdlRICondHandleGetCondPtr", condition, kind=ctypes.c_void_p)
        if written:
            acl.aclrtMemcpyAsync(address, 8, source, 8, DEVICE_TO_DEVICE, parent)
        made = ctypes.c_void_p()
        with fails(UNSUPPORTED, "type 9"):
            acl.aclmdlRIAddCondTask(Branch(condition, 9, 1, ctypes.pointer(made)), parent, 0)
        acl.aclmdlRIAddCondTask(Branch(condition, 0, 1, ctypes.pointer(made)), parent, 0)
        captured.append(made.value or 0)
        numbers = [acl.told("aclmdlRIGetId", handle) for handle in (model.value, made.value)]
        assert numbers[0] != numbers[1]
        acl.aclmdlRICaptureToModelRIBegin(child, made.value, 0)
        acl.aclrtLaunchHostFunc(child, notes[1], None)
        acl.aclrtMemsetAsync(address, 8, 0, 8, child)  # until the model is executed again
        assert acl.told("aclmdlRICaptureEnd", child, kind=ctypes.c_void_p) == made.value
        with fails(PARAMETER, "captured already"):
            acl.aclmdlRICaptureToModelRIBegin(child, made.value, 0)
    acl.aclrtLaunchHostFunc(parent, notes[2], None)
    acl.told("aclmdlRICaptureEnd", parent, kind=ctypes.c_void_p)
    for value, expected in ((0, [0, 1, 2]), (1, [0, 1, 1, 2]), (0, [0, 1, 2])):
        order.clear()
        acl.aclrtMemcpy(source, 8, struct.pack("<Q", value), 8, HOST_TO_DEVICE)
        acl.aclmdlRIExecuteAsync(model.value, parent)
        acl.aclrtSynchronizeStream(parent)
        assert order == expected
    acl.aclmdlRIDestroy(model.value)
    with fails(HANDLE):
        acl.told("aclmdlRIGetId", captured[0])


def _captured(stream: int, function: object) -> int:
    acl.aclmdlRICaptureBegin(stream, 0)
    acl.aclrtLaunchHostFunc(stream, function, None)
    return stream


def events() -> None:
    """An event orders streams; its state, times and destruction."""
    acl.aclrtSetDevice(0)
    first, second = (acl.made("aclrtCreateStream") for _ in range(2))
    start, end, idle = (acl.made("aclrtCreateEventExWithFlag", 8) for _ in range(3))
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
    elapsed = acl.made("aclrtEventElapsedTime", start, end, kind=ctypes.c_float)
    assert elapsed >= 20
    times = [acl.told("aclrtEventGetTimestamp", event, kind=ctypes.c_uint64) for event in (start, end)]
    assert abs((times[1] - times[0]) / 1000 - elapsed) < 0.1
    assert abs(times[1] / 1e6 - time.time()) < 60
    with fails(TIMESTAMP):
        acl.made("aclrtEventElapsedTime", start, idle, kind=ctypes.c_float)
    acl.aclrtDestroyEvent(end)
    with fails(HANDLE):
        acl.aclrtRecordEvent(end, first)
    with fails(HANDLE):
        acl.aclrtDestroyEvent(start + 8)


def values() -> None:
    """A stream waits until another writes a value."""
    acl.aclrtSetDevice(0)
    address = upload(struct.pack("<Q", 0))
    first, second = (acl.made("aclrtCreateStream") for _ in range(2))
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
    stream, order = acl.made("aclrtCreateStream"), []
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
        acl.made("aclrtReserveMemAddress", 512, 0, None, 1)
    )  # as a probe, without a device
    acl.aclrtSetDevice(1)
    properties = struct.pack("<iiiIiiQ", 0, 0, 4, 1, 1, 0, 0)
    address = acl.made("aclrtReserveMemAddress", 4 * MIB, 0, None, 1)
    handle = acl.made("aclrtMallocPhysical", 2 * MIB, properties, 0)
    with fails(OUT_OF_MEMORY):
        acl.made("aclrtMallocPhysical", 128 * MIB, properties, 0)
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
from tests.ascend.runtime import acl, download
acl.aclrtSetDevice(0)
memory, event = (bytes.fromhex(line) for line in sys.stdin.read().split())
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
opened = ctypes.c_void_p()
assert acl.raw.aclrtIpcOpenEventHandle(Handle.from_buffer_copy(event), ctypes.byref(opened)) == 0
acl.aclrtSynchronizeEvent(opened.value)
address = acl.made("aclrtIpcMemImportByKey", memory, 1)
print(download(address, 5).decode())
acl.aclrtIpcMemClose(memory)
"""


def sharing() -> None:
    """Another process imports memory and an event."""
    acl.aclrtSetDevice(0)
    stream, event = acl.made("aclrtCreateStream"), acl.made("aclrtCreateEventExWithFlag", 0x40)
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
    cores = [acl.told("aclGetDeviceCapability", 0, kind, kind=ctypes.c_int64) for kind in (0, 1)]
    assert cores == [20, 40]
    assert acl.told("aclGetCannAttribute", 1) == 1
    assert acl.made("aclrtDeviceCanAccessPeer", 0, 1, kind=ctypes.c_int32) == 1
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
