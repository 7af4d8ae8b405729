"""Jobs for the tests of captured models, each in a process of its own with two NPUs of 64 MiB."""

import ctypes
import threading

from tests.runtime.runtime import (
    DEVICE_TO_DEVICE,
    HANDLE,
    PARAMETER,
    UNSUPPORTED,
    Function,
    acl,
    download,
    fails,
    upload,
)


def models() -> None:
    """Captured work runs at each execution of its model only, work of a second stream in its order."""
    acl.aclrtSetDevice(0)
    first, second = (acl.result_of("aclrtCreateStream") for _ in range(2))
    fork, join = (acl.result_of("aclrtCreateEventExWithFlag", 8) for _ in range(2))
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
    first, second = (acl.result_of("aclrtCreateStream") for _ in range(2))
    order: list[int] = []
    notes = [Function(lambda _, i=i: order.append(i)) for i in range(6)]
    address, target = upload(b"ab"), upload(b"..")
    with fails(PARAMETER, "not captured"):
        acl.aclmdlRICaptureTaskGrpBegin(first)
    acl.aclmdlRICaptureBegin(first, 0)
    captured = ctypes.c_void_p()
    acl.aclmdlRICaptureGetInfo(first, ctypes.byref(ctypes.c_int()), ctypes.byref(captured))
    with fails(PARAMETER, "is being captured; call aclmdlRICaptureEnd() first"):
        acl.aclmdlRIDestroy(captured)
    acl.aclrtLaunchHostFunc(first, notes[0], None)
    acl.aclmdlRICaptureTaskGrpBegin(first)
    with fails(PARAMETER, "open task group"):
        acl.aclmdlRICaptureTaskGrpBegin(first)
    acl.aclrtLaunchHostFunc(first, notes[1], None)
    acl.aclrtMemcpyAsync(target, 2, address, 2, DEVICE_TO_DEVICE, first)
    acl.aclrtLaunchHostFunc(first, notes[2], None)
    group = acl.told("aclmdlRICaptureTaskGrpEnd", first, kind=ctypes.c_void_p)
    acl.raw.aclCreateTensorDesc.restype = ctypes.c_void_p
    assert acl.raw.aclCreateTensorDesc(0, 0, None, 2) != group, "handles of two kinds are the same"
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
        lambda: acl.aclrtRecordEvent(acl.result_of("aclrtCreateEvent"), second),
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


def _captured(stream: int, function: object) -> int:
    acl.aclmdlRICaptureBegin(stream, 0)
    acl.aclrtLaunchHostFunc(stream, function, None)
    return stream
