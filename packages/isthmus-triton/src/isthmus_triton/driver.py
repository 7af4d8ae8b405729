"""The driver that Triton finds: launches kernels on CPU tensors and on the host chip's.

Triton imports it, so PyTorch is imported by functions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from isthmus_triton import npu
from isthmus_triton.debug.requests import is_requested

if TYPE_CHECKING:
    import torch

    from isthmus_triton.launches import Launcher


class _Utilities:
    """Answers Triton's questions about devices, and loads libraries for it."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """The CPU's, with a GPU's names; an NPU's cores."""
        return {
            **(npu.properties(device) if _is_npu() else {}),
            "max_shared_mem": 1 << 62,
            "max_num_regs": 1 << 16,
            "multiprocessor_count": os.cpu_count() or 1,
            "warpSize": 1,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
            "sm_clock_rate": 0,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[Any, Any, int, int, int]:
        """Return library, function, registers, spills, and the most threads; scripts divide by registers."""
        from isthmus_triton.launches import Program

        program = Program(binary)
        return program, program, 1, 0, 1 << 30


class _CPU:
    """The device interface of CPU tensors, for Triton's benchmarks."""

    class Event:
        """A point in time."""

        def __init__(self, enable_timing: bool = True) -> None:
            self._time = 0.0

        def record(self) -> None:
            """Note the time."""
            self._time = time.perf_counter()

        def elapsed_time(self, end: Any) -> float:
            """Milliseconds to another event."""
            return 1e3 * float(end._time - self._time)

    @staticmethod
    def synchronize() -> None:
        """Nothing runs later."""

    @staticmethod
    def current_device() -> int:
        """0."""
        return 0


def is_in_job() -> bool:
    """Whether ``torch.cuda`` stands for the chip: the driver is not active where there is a GPU."""
    import torch

    return torch.cuda.is_available()


def _is_npu() -> bool:
    import torch

    device = torch.accelerator.current_accelerator()
    return device is not None and device.type == "npu"


class Driver(DriverBase):  # type: ignore[misc]
    """Where no GPU is: the accelerator of PyTorch if it is the host chip, else the CPU."""

    def __init__(self) -> None:
        self.utils = _Utilities()
        self._accelerator: Any = None

    def launcher_cls(self, source: Any, metadata: Any) -> Launcher:
        """The launcher of a kernel."""
        from isthmus_triton.launches import Launcher

        return Launcher(source, metadata, is_in_job())

    @staticmethod
    def is_active() -> bool:
        """Whether kernels run on the CPU: PyTorch has no GPU, and its accelerator neither a backend of its maker's
        nor memory of its own."""
        try:
            import torch
        except ImportError:
            return False
        if torch._C._has_cuda and torch._C._cuda_getDeviceCount() > 0:
            return False
        from triton.backends import backends  # which imports this module

        others = (each.driver for name, each in backends.items() if name not in ("nvidia", "amd"))
        if any(each is not Driver and each.is_active() for each in others):
            return False
        device = torch.accelerator.current_accelerator()
        if _is_npu():
            return npu.runtime() is not None
        is_addressable = getattr(device and torch.get_device_module(device), "is_host_addressable", None)
        return device is None or (is_addressable is not None and is_addressable())

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Not called: the launcher is Python."""
        raise NotImplementedError(ty)

    def get_current_target(self) -> GPUTarget:
        """The CPU; in a job, the GPU that ``torch.cuda`` states, so that libraries choose their kernels for it."""
        import torch

        if _is_npu():
            return GPUTarget("npu", torch.npu.get_device_name(), 0)  # type: ignore[attr-defined]
        if not is_in_job():
            return GPUTarget("cpu", "native", 1)

        major, minor = torch.cuda.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def _available_accelerator(self) -> Any:
        """``torch.accelerator``, or None without one; asked once it is there, since every launch asks."""
        if self._accelerator is None:
            import torch

            self._accelerator = torch.accelerator if torch.accelerator.is_available() else None
        return self._accelerator

    def get_current_device(self) -> int:
        """The current device of the accelerator; 0 of the CPU."""
        accelerator = self._available_accelerator()
        return accelerator.current_device_index() if accelerator else 0

    def set_current_device(self, device: int) -> None:
        """Make it current."""
        import torch

        if torch.accelerator.is_available():
            torch.accelerator.set_device_index(device)

    def get_current_stream(self, device: int = 0) -> int:
        """The id of the current stream; 0 of the CPU."""
        accelerator = self._available_accelerator()
        return accelerator.current_stream(device).stream_id if accelerator else 0

    def get_active_torch_device(self) -> torch.device:
        """The current device of the accelerator, else the CPU."""
        import torch

        device = torch.accelerator.current_accelerator()
        return torch.device("cpu") if device is None else torch.device(device.type, self.get_current_device())

    def get_device_interface(self) -> Any:
        """PyTorch's module of the device, with events."""
        import torch

        device = torch.accelerator.current_accelerator()
        return _CPU if device is None else torch.get_device_module(device)

    def get_benchmarker(self) -> Callable[..., Any]:
        """``triton.testing.do_bench``; under ``ISTHMUS_TRITON_DEBUG`` one run, since checks are what takes time."""
        from triton.testing import do_bench

        return _run_once if is_requested() else do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Memory as large as caches, which is overwritten between measurements."""
        import torch

        return torch.empty(1 << 25, dtype=torch.int8, device=self.get_active_torch_device())

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Overwrite it."""
        cache.zero_()


def _run_once(call: Callable[[], object], quantiles: tuple[float, ...] = (0.5,), **_: Any) -> list[float]:
    """Milliseconds of one call, for each quantile."""
    start = time.perf_counter()
    call()
    return [1e3 * (time.perf_counter() - start)] * len(quantiles)


if is_requested():
    from isthmus_triton.debug.fresh import mark_fresh_memory

    mark_fresh_memory()  # from here on, before the first launch
