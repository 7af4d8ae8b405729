"""Runs a printed kernel on the first OpenCL device, for tests."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p

import torch

_COPIED = 1 | 1 << 5  # CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR


class Device:
    """The first device of the first platform.

    Raises:
        OSError: there is no OpenCL, or no device.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libOpenCL.so.1")
        platform, self._device = c_void_p(), c_void_p()
        if self._library.clGetPlatformIDs(1, byref(platform), None):
            raise OSError("no OpenCL platform")
        if self._library.clGetDeviceIDs(platform, c_uint64(0xFFFFFFFF), 1, byref(self._device), None):
            raise OSError("no OpenCL device")
        self._context = self._make("clCreateContext", None, 1, byref(self._device), None, None)
        self._queue = self._make("clCreateCommandQueue", self._context, self._device, c_uint64(0))

    def _make(self, function: str, *arguments: object) -> c_void_p:
        call, status = getattr(self._library, function), c_int32()
        call.restype = c_void_p
        made = call(*arguments, byref(status))
        assert status.value == 0, f"{function}: {status.value}"
        return c_void_p(made)

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        assert status == 0, f"{function}: {status}"

    def run(self, text: str, options: str, grid: tuple[int, int, int], arguments: list[object]) -> None:
        """Run a kernel's text; arguments are tensors of the CPU, which it changes, and scalars of C."""
        source = c_char_p(text.encode())
        program = self._make("clCreateProgramWithSource", self._context, 1, byref(source), None)
        if self._library.clBuildProgram(program, 1, byref(self._device), options.encode(), None, None):
            log = ctypes.create_string_buffer(1 << 16)
            self._call("clGetProgramBuildInfo", program, self._device, 0x1183, c_size_t(len(log)), log, None)
            raise AssertionError(log.value.decode())
        kernel = self._make("clCreateKernel", program, b"run")
        at, buffers = 0, []
        for each in arguments:
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                size, memory = c_size_t(storage.nbytes()), c_void_p(storage.data_ptr())
                buffer = self._make("clCreateBuffer", self._context, c_uint64(_COPIED), size, memory)
                buffers.append((buffer, size, memory))
                offset = c_uint64(each.storage_offset() * each.element_size())
                values: list[object] = [buffer, offset]
            else:
                values = [each]
            for value in values:
                self._call("clSetKernelArg", kernel, at, c_size_t(ctypes.sizeof(value)), byref(value))
                at += 1
        self._call(
            "clEnqueueNDRangeKernel", self._queue, kernel, 3, None, (c_size_t * 3)(*grid), (c_size_t * 3)(1, 1, 1),
            0, None, None,
        )  # fmt: skip
        for buffer, size, memory in buffers:
            self._call(
                "clEnqueueReadBuffer", self._queue, buffer, 1, c_size_t(0), size, memory, 0, None, None
            )
