"""Functions of ``torch.cuda`` whose result under the shim differs from the accelerator's own function."""

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import torch

from isthmus.shim import rules
from isthmus.shim.accelerator import Accelerator


def called_by_pytorch(depth: int = 2) -> bool:
    """Whether the caller's caller is PyTorch itself, which needs the true state of CUDA."""
    name: str = sys._getframe(depth).f_globals.get("__name__", "")
    return (name == "torch" or name.startswith("torch.")) and name not in rules.PYTORCH_FOR_USERS


def nvtx(*args: Any, **kwargs: Any) -> int:
    """Do nothing."""
    return 0


def profiler(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def nccl_version() -> tuple[int, int, int]:
    """A version with every feature that scripts check for."""
    return rules.NCCL_VERSION


def stream_bindings(module: Any) -> dict[str, Any]:
    """The functions of ``torch._C`` for current streams, of an accelerator's module."""

    def triple(stream: torch.Stream) -> tuple[int, int, int]:
        return stream.stream_id, stream.device_index, stream.device_type

    def current_raw(device: int) -> int:
        """Handle of the current stream."""
        handle: int = module.current_stream(device).native_handle
        return handle

    def current(device: int) -> tuple[int, int, int]:
        """Number, device and type of the current stream."""
        return triple(module.current_stream(device))

    def default(device: int) -> tuple[int, int, int]:
        """Number, device and type of the default stream."""
        return triple(module.default_stream(device))

    def set_current(stream_id: int, device_index: int, device_type: int) -> None:
        """Make a stream current, and its device."""
        stream = module.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        module.set_device(device_index)
        module.set_stream(stream)

    return {
        "_cuda_getCurrentRawStream": current_raw,
        "_cuda_getCurrentStream": current,
        "_cuda_getDefaultStream": default,
        "_cuda_setStream": set_current,
    }


class DeviceProperties(SimpleNamespace):
    """Result of ``torch.cuda.get_device_properties()``; CUDA-only fields have common NVIDIA values."""


class _Cudart:
    """``torch.cuda.cudart()``: profiler switches are no-ops, other names raise NotImplementedError."""

    def __init__(self, device_type: str) -> None:
        self._type = device_type

    def cudaProfilerStart(self) -> int:
        """Do nothing."""
        return 0

    cudaProfilerStop = cudaProfilerStart

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"torch.cuda.cudart().{name} is not available on {self._type}")


class _Answers:
    """Documented replacements; public methods have the names of ``torch.cuda``."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._module: Any = accelerator.module

    def is_available(self) -> bool:
        """Whether there is a device, for scripts and libraries; the true state of CUDA for PyTorch itself."""
        return not called_by_pytorch() and self._module.device_count() > 0

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Whether the accelerator computes in bfloat16."""
        asked = getattr(self._module, "is_bf16_supported", None)
        return True if asked is None else bool(asked(including_emulation))

    def is_tf32_supported(self) -> bool:
        """False: TF32 is specific to NVIDIA."""
        return False

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """(8, 0), or (7, 0) without bfloat16; scripts check it before they use a feature."""
        supported = self.is_bf16_supported()
        return rules.CAPABILITY_WITH_BFLOAT16 if supported else rules.CAPABILITY_WITHOUT

    def get_device_properties(self, device: Any = None) -> DeviceProperties:
        """Name and memory of the accelerator, with CUDA's field names and the capability above."""
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
        """(free, total) bytes of the device, over all processes."""
        asked = getattr(self._module, "mem_get_info", torch.accelerator.get_memory_info)
        return asked(self._accelerator.device(device))

    def memory_stats_as_nested_dict(self, device: Any = None) -> dict[str, Any]:
        """``memory_stats`` with one level of dict per dot of a key."""
        nested: dict[str, Any] = {}
        for key, value in self._module.memory_stats(self._accelerator.device(device)).items():
            *levels, last = key.split(".")
            inner = nested
            for level in levels:
                inner = inner.setdefault(level, {})
            inner[last] = value
        return nested

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        """1.0: the fraction is not limited."""
        return 1.0

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Warn that the fraction is not enforced."""
        warnings.warn(
            f"the memory fraction {fraction} is not enforced on {self._accelerator.type}", stacklevel=2
        )

    def get_arch_list(self) -> list[str]:
        """The architecture of the capability above."""
        major, minor = self.get_device_capability()
        return [f"sm_{major}{minor}"]

    def get_gencode_flags(self) -> str:
        """Empty: no code is compiled for CUDA."""
        return ""

    def get_allocator_backend(self) -> str:
        """``native``."""
        return "native"

    def get_sync_debug_mode(self) -> int:
        """0: synchronizations are not detected."""
        return 0

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """Ignored: synchronizations are not detected."""

    def is_current_stream_capturing(self) -> bool:
        """False: graphs are not captured."""
        return False

    def cudart(self) -> _Cudart:
        """Object with no-op profiler switches."""
        return _Cudart(self._accelerator.type)

    def check_error(self, res: int) -> None:
        """No-op: there are no CUDA error codes."""

    def ipc_collect(self) -> None:
        """No-op: CUDA IPC is not used."""


# Used only if the accelerator has no function of this name.
_DEFAULTS = (
    "mem_get_info memory_stats_as_nested_dict get_per_process_memory_fraction set_per_process_memory_fraction "
    "get_sync_debug_mode set_sync_debug_mode is_current_stream_capturing ipc_collect"
).split()


def answers(accelerator: Accelerator) -> dict[str, Any]:
    """Replacements by their name in ``torch.cuda``."""
    methods = _Answers(accelerator)
    found = {
        name: getattr(methods, name)
        for name in vars(_Answers)
        if not name.startswith("_") and not (name in _DEFAULTS and hasattr(accelerator.module, name))
    }
    found["has_half"] = True
    found["has_magma"] = False
    return found
