"""The object ``triton.runtime.driver.active`` on the host chip: what scripts and libraries ask about the device."""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from isthmus_common.patches import Scope


class HostDriver(DriverBase):  # type: ignore[misc]
    """Answers as the shim's ``torch.cuda`` does; kernels are not compiled, so it launches nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.utils = SimpleNamespace(get_device_properties=_properties)
        self.get_current_device = torch.cuda.current_device
        self.set_current_device = torch.cuda.set_device
        self.get_device_capability = torch.cuda.get_device_capability

    @classmethod
    def is_active(cls) -> bool:
        """True."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Not called: nothing is compiled."""
        raise NotImplementedError(ty)

    def get_current_target(self) -> GPUTarget:
        """CUDA, of the capability that the shim reports."""
        major, minor = torch.cuda.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_stream(self, device: int) -> int:
        """The id of the current stream."""
        return torch.accelerator.current_stream(device).stream_id

    def get_active_torch_device(self) -> torch.device:
        """The current device."""
        return torch.device("cuda", torch.cuda.current_device())

    def get_device_interface(self) -> Any:
        """The shim's ``torch.cuda``."""
        return torch.cuda

    def get_benchmarker(self) -> Any:
        """``triton.testing.do_bench``."""
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """No cache needs to be cleared between measurements."""
        return torch.empty(0, dtype=torch.int)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing."""


def _properties(device: int) -> dict[str, int]:
    """The shim's device properties, under Triton's names."""
    of: Any = torch.cuda.get_device_properties(device)
    return {
        "max_shared_mem": of.shared_memory_per_block_optin,
        "max_num_regs": of.regs_per_multiprocessor,
        "multiprocessor_count": of.multi_processor_count,
        "warpSize": of.warp_size,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }


def install(scope: Scope) -> None:
    """Make it the active driver."""
    config: Any = sys.modules["triton.runtime.driver"].driver
    reason = "Triton finds no driver for the host chip"
    for name in ("_default", "_active"):
        scope.set(config, name, HostDriver(), f"triton.runtime.driver.{name}", reason)
