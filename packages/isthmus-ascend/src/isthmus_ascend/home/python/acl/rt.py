"""Devices, contexts, streams, events and memory: the functions ``aclrt*``."""

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

from acl._library import FLOAT, INT32, LIBRARY, POINTER, SIZE, UINT32, UINT64, Out, convert, function, unknown

set_device = function("aclrtSetDevice", INT32)
reset_device = function("aclrtResetDevice", INT32)
get_device = function("aclrtGetDevice", Out(INT32))
get_device_count = function("aclrtGetDeviceCount", Out(UINT32))
get_run_mode = function("aclrtGetRunMode", Out(INT32))
synchronize_device = function("aclrtSynchronizeDevice")
synchronize_device_with_timeout = function("aclrtSynchronizeDeviceWithTimeout", INT32)
device_can_access_peer = function("aclrtDeviceCanAccessPeer", Out(INT32), INT32, INT32)
device_enable_peer_access = function("aclrtDeviceEnablePeerAccess", INT32, UINT32)
device_get_stream_priority_range = function("aclrtDeviceGetStreamPriorityRange", Out(INT32), Out(INT32))
get_device_res_limit = function("aclrtGetDeviceResLimit", INT32, INT32, Out(UINT32))
get_stream_res_limit = function("aclrtGetStreamResLimit", POINTER, INT32, Out(UINT32))

create_context = function("aclrtCreateContext", Out(POINTER), INT32)
destroy_context = function("aclrtDestroyContext", POINTER)
set_context = function("aclrtSetCurrentContext", POINTER)
get_context = function("aclrtGetCurrentContext", Out(POINTER))

create_stream = function("aclrtCreateStream", Out(POINTER))
create_stream_with_config = function("aclrtCreateStreamWithConfig", Out(POINTER), UINT32, UINT32)
destroy_stream = function("aclrtDestroyStream", POINTER)
destroy_stream_force = function("aclrtDestroyStreamForce", POINTER)
synchronize_stream = function("aclrtSynchronizeStream", POINTER)
synchronize_stream_with_timeout = function("aclrtSynchronizeStreamWithTimeout", POINTER, INT32)
stream_query = function("aclrtStreamQuery", POINTER, Out(INT32))
stream_get_id = function("aclrtStreamGetId", POINTER, Out(INT32))
stream_wait_event = function("aclrtStreamWaitEvent", POINTER, POINTER)
set_stream_failure_mode = function("aclrtSetStreamFailureMode", POINTER, UINT64)

create_event = function("aclrtCreateEvent", Out(POINTER))
create_event_with_flag = function("aclrtCreateEventWithFlag", Out(POINTER), UINT32)
create_event_ex_with_flag = function("aclrtCreateEventExWithFlag", Out(POINTER), UINT32)
destroy_event = function("aclrtDestroyEvent", POINTER)
record_event = function("aclrtRecordEvent", POINTER, POINTER)
reset_event = function("aclrtResetEvent", POINTER, POINTER)
query_event_status = function("aclrtQueryEventStatus", POINTER, Out(INT32))
query_event_wait_status = function("aclrtQueryEventWaitStatus", POINTER, Out(INT32))
synchronize_event = function("aclrtSynchronizeEvent", POINTER)
event_elapsed_time = function("aclrtEventElapsedTime", Out(FLOAT), POINTER, POINTER)

malloc = function("aclrtMalloc", Out(POINTER), SIZE, INT32)
malloc_align32 = function("aclrtMallocAlign32", Out(POINTER), SIZE, INT32)
free = function("aclrtFree", POINTER)
malloc_host = function("aclrtMallocHost", Out(POINTER), SIZE)
free_host = function("aclrtFreeHost", POINTER)
memset = function("aclrtMemset", POINTER, SIZE, INT32, SIZE)
memset_async = function("aclrtMemsetAsync", POINTER, SIZE, INT32, SIZE, POINTER)
memcpy = function("aclrtMemcpy", POINTER, SIZE, POINTER, SIZE, INT32)
memcpy_async = function("aclrtMemcpyAsync", POINTER, SIZE, POINTER, SIZE, INT32, POINTER)
get_mem_info = function("aclrtGetMemInfo", INT32, Out(SIZE), Out(SIZE))

set_op_wait_timeout = function("aclrtSetOpWaitTimeout", UINT32)
set_op_execute_time_out = function("aclrtSetOpExecuteTimeOut", UINT32)
get_last_error = function("aclrtGetLastError", INT32)
peek_at_last_error = function("aclrtPeekAtLastError", INT32)

subscribe_report = function("aclrtSubscribeReport", UINT64, POINTER)
unsubscribe_report = function("aclrtUnSubscribeReport", UINT64, POINTER)
process_report = function("aclrtProcessReport", INT32)


class _Utilization(ctypes.Structure):
    _fields_ = (
        ("cube_utilization", ctypes.c_int32),
        ("vector_utilization", ctypes.c_int32),
        ("aicpu_utilization", ctypes.c_int32),
        ("memory_utilization", ctypes.c_int32),
        ("utilization_extend", ctypes.c_void_p),
    )


def get_device_utilization_rate(device: int) -> tuple[dict[str, int], int]:
    """Return the percentages of use of a device by their names, and the aclError."""
    found = _Utilization()
    status = LIBRARY.aclrtGetDeviceUtilizationRate(convert(device, INT32), ctypes.byref(found))
    return {name: getattr(found, name) or 0 for name, _ in _Utilization._fields_}, status


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Callbacks:
    """Functions that streams have not called yet, by the number that the C function gets as its data."""

    def __init__(self) -> None:
        self.pending: dict[int, tuple[Callable[[Any], Any], Any]] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.run = _Callback(self._run)

    def add(self, function: Callable[[Any], Any], data: Any) -> int:
        """Return the number of a new function."""
        with self.lock:
            number = next(self.numbers)
            self.pending[number] = function, data
        return number

    def _run(self, number: int) -> None:
        with self.lock:
            function, data = self.pending.pop(number)
        function(data)


_callbacks = _Callbacks()


def launch_callback(function: Callable[[Any], Any], data: Any, block: int, stream: int) -> int:
    """Enqueue a function, which process_report() of the subscribed thread calls.

    Args:
        function: called with the data.
        data: any object.
        block: 1 if the stream waits for the function, otherwise 0.
        stream: its handle.
    """
    number = _callbacks.add(function, data)
    status: int = LIBRARY.aclrtLaunchCallback(
        _callbacks.run, ctypes.c_void_p(number), convert(block, INT32), convert(stream, POINTER)
    )
    if status:
        _callbacks.pending.pop(number, None)
    return status


__getattr__ = unknown("acl.rt")
