"""What ``torch.cuda`` answers under the shim where the accelerator's own answer is not what a script expects."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import torch

from isthmus.shim import rules
from isthmus.shim.accelerator import Accelerator


def called_by_pytorch(depth: int = 2) -> bool:
    """Whether the caller of the caller is a module of PyTorch itself, which must hear the truth about CUDA."""
    name: str = sys._getframe(depth).f_globals.get("__name__", "")
    return (name == "torch" or name.startswith("torch.")) and name not in rules.PYTORCH_FOR_USERS


def nvtx(*args: Any, **kwargs: Any) -> int:
    """Do nothing."""
    return 0


def profiler(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def nccl_version() -> tuple[int, int, int]:
    """A version that has every feature scripts ask for; collectives are the accelerator's."""
    return rules.NCCL_VERSION


class DeviceProperties(SimpleNamespace):
    """Fields of ``torch.cuda.get_device_properties()``; those that have no meaning elsewhere are NVIDIA's usual."""


class _Cudart:
    """``torch.cuda.cudart()``: the profiler switches do nothing, everything else raises by name."""

    def __init__(self, device_type: str) -> None:
        self._type = device_type

    def cudaProfilerStart(self) -> int:
        """Do nothing."""
        return 0

    cudaProfilerStop = cudaProfilerStart

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"torch.cuda.cudart().{name} is not available on {self._type}")


class _Answers:
    """The documented answers; the public methods are the names of ``torch.cuda``."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._module: Any = accelerator.module

    def is_available(self) -> bool:
        """True to scripts and libraries, the truth to PyTorch itself."""
        return not called_by_pytorch()

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Whether the accelerator computes in bfloat16."""
        asked = getattr(self._module, "is_bf16_supported", None)
        return True if asked is None else bool(asked(including_emulation))

    def is_tf32_supported(self) -> bool:
        """False: TF32 is a format of NVIDIA's."""
        return False

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """(8, 0), or (7, 0) without bfloat16: what scripts test before they use a feature."""
        supported = self.is_bf16_supported()
        return rules.CAPABILITY_WITH_BFLOAT16 if supported else rules.CAPABILITY_WITHOUT

    def get_device_properties(self, device: Any = None) -> DeviceProperties:
        """The accelerator's name and memory under CUDA's field names, with the capability above."""
        theirs = self._module.get_device_properties(self._accelerator.device(device))
        major, minor = self.get_device_capability()
        return DeviceProperties(
            name=getattr(theirs, "name", self._accelerator.type),
            major=major,
            minor=minor,
            total_memory=getattr(theirs, "total_memory", 0),
            multi_processor_count=getattr(theirs, "multi_processor_count", 1),
            uuid=getattr(theirs, "uuid", ""),
            is_integrated=int(getattr(theirs, "is_integrated", False)),
            is_multi_gpu_board=0,
            gcnArchName="",
            warp_size=32,
            max_threads_per_multi_processor=2048,
            max_threads_per_block=1024,
            regs_per_multiprocessor=65536,
            shared_memory_per_block=49152,
            shared_memory_per_block_optin=101376,
            shared_memory_per_multiprocessor=102400,
            L2_cache_size=0,
        )

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes of the device, all processes together."""
        asked = getattr(self._module, "mem_get_info", torch.accelerator.get_memory_info)
        return asked(self._accelerator.device(device))

    def memory_stats_as_nested_dict(self, device: Any = None) -> dict[str, Any]:
        """The accelerator's memory_stats, with a level of dict for each dot of a key."""
        nested: dict[str, Any] = {}
        for key, value in self._module.memory_stats(self._accelerator.device(device)).items():
            *levels, last = key.split(".")
            inner = nested
            for level in levels:
                inner = inner.setdefault(level, {})
            inner[last] = value
        return nested

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        """1.0: a process may fill the device."""
        return 1.0

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Ignored with a warning: a process may fill the device."""
        warnings.warn(
            f"the memory fraction {fraction} is not enforced on {self._accelerator.type}", stacklevel=2
        )

    def get_arch_list(self) -> list[str]:
        """The architecture of the capability above."""
        major, minor = self.get_device_capability()
        return [f"sm_{major}{minor}"]

    def get_gencode_flags(self) -> str:
        """Empty: nothing is compiled for CUDA."""
        return ""

    def get_allocator_backend(self) -> str:
        """native."""
        return "native"

    def get_sync_debug_mode(self) -> int:
        """0: synchronisations are not watched."""
        return 0

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """Accepted and ignored: synchronisations are not watched."""

    def is_current_stream_capturing(self) -> bool:
        """False: nothing is ever captured."""
        return False

    def cudart(self) -> _Cudart:
        """An object whose profiler switches do nothing."""
        return _Cudart(self._accelerator.type)

    def check_error(self, res: int) -> None:
        """Nothing: there are no CUDA error codes."""

    def ipc_collect(self) -> None:
        """Nothing: CUDA's shared memory is not used."""


# Answers for accelerators that have no function of that name.
_STAND_INS = (
    "mem_get_info memory_stats_as_nested_dict get_per_process_memory_fraction set_per_process_memory_fraction "
    "get_sync_debug_mode set_sync_debug_mode is_current_stream_capturing ipc_collect"
).split()


def answers(accelerator: Accelerator) -> dict[str, Any]:
    """Name in ``torch.cuda`` -> what stands there under the shim."""
    methods = _Answers(accelerator)
    found = {
        name: getattr(methods, name)
        for name in vars(_Answers)
        if not name.startswith("_") and not (name in _STAND_INS and hasattr(accelerator.module, name))
    }
    found["has_half"] = True
    found["has_magma"] = False
    return found
