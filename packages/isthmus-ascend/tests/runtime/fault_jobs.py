"""Jobs for the tests of injected faults, each in a process of its own with ISTHMUS_ASCEND_FAULT set."""

import ctypes
import time

from tests.runtime.runtime import (
    DEVICE_TO_DEVICE,
    HBM_ECC,
    STREAM_TIMEOUT,
    Function,
    acl,
    download,
    fails,
    hccl,
    upload,
)

NOTHING = Function(lambda _: None)  # called by streams
HEARTBEAT, AICORE_TIMEOUT, LINK_DOWN = 507010, 507014, 13


def ecc() -> None:
    """The second synchronization fails, and no other."""
    acl.aclrtSetDevice(0)
    acl.aclrtSynchronizeDevice()
    with fails(HBM_ECC):
        acl.aclrtSynchronizeStream(0)
    acl.aclrtSynchronizeStream(0)


def lost() -> None:
    """The third call and all later ones fail."""
    acl.aclrtSetDevice(0)
    acl.aclrtSynchronizeDevice()
    for _ in range(2):
        with fails(HEARTBEAT, "aclrtSynchronizeDevice: the device is lost"):
            acl.aclrtSynchronizeDevice()
    with fails(HEARTBEAT):
        acl.aclrtSetDevice(1)


def hang() -> None:
    """All streams of the device stop, until the limit of an operator's time or a reset of the device."""
    acl.aclrtSetDevice(0)
    address = upload(b"0123")
    stream, event = acl.result_of("aclrtCreateStream"), acl.result_of("aclrtCreateEventExWithFlag", 8)
    assert acl.told("aclrtSetOpExecuteTimeOutV2", 1_000_000, kind=ctypes.c_uint64) == 1_000_000
    acl.isthmus_ascend_enqueue(stream, NOTHING, NOTHING, None)
    start = time.monotonic()
    for call, *arguments in (("Stream", stream), ("Stream", None), ("Device",)):
        with fails(STREAM_TIMEOUT, "did not finish its work"):
            getattr(acl, f"aclrtSynchronize{call}WithTimeout")(*arguments, 20)
    acl.aclrtMemcpyAsync(address, 2, address + 2, 2, DEVICE_TO_DEVICE, stream)
    acl.aclrtRecordEvent(event, stream)
    with fails(AICORE_TIMEOUT, "an operator did not end within 1000 ms"):
        acl.aclrtSynchronizeEvent(event)
    assert time.monotonic() - start > 0.9
    acl.aclrtSynchronizeDevice()
    assert download(address, 4) == b"2323"


def hang_until_reset() -> None:
    """A reset of the device does not wait for streams that hang."""
    acl.aclrtSetDevice(0)
    acl.isthmus_ascend_enqueue(None, NOTHING, NOTHING, None)
    with fails(STREAM_TIMEOUT):
        acl.aclrtSynchronizeStreamWithTimeout(None, 20)
    acl.aclrtResetDevice(0)


def link() -> None:
    """Collectives fail with HcclResult 13."""
    acl.aclrtSetDevice(0)
    for _ in range(2):
        with fails(LINK_DOWN, "error 13 in HcclGetRootInfo: a link is down"):
            hccl.HcclGetRootInfo(None)
