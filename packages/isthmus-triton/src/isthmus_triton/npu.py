"""NPUs of isthmus-ascend's runtime, under torch_npu: kernels run on their streams as host functions.

Kernels and launches keep the names of triton-ascend, whose options mean nothing here.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Options of a launch that triton-ascend has and Triton has not; vLLM's plugin for Ascend passes several.
OPTIONS = frozenset(
    "multibuffer enable_auto_bind_sub_block enable_hivm_auto_cv_balance sync_solver unit_flag inject_barrier_all "
    "inject_block_all limit_auto_multi_buffer_only_for_local_buffer limit_auto_multi_buffer_of_local_buffer "
    "set_workspace_multibuffer tile_mix_vector_loop tile_mix_cube_loop disable_auto_inject_block_sync "
    "enable_linearize enable_nd2nz_on_vector enable_select_analysis optimize_epilogue parallel_mode compile_mode "
    "force_simt_only force_simt_template".split()
)


_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_FREE = ctypes.cast(_libc.free, ctypes.c_void_p).value or 0


@functools.cache
def runtime() -> ctypes.CDLL | None:
    """The runtime beneath torch_npu, if it is isthmus-ascend's: the CPU addresses its memory. A card's is not."""
    if "torch_npu" not in sys.modules:
        return None
    library = ctypes.CDLL("libascendcl.so")
    return library if hasattr(library, "isthmus_ascend_chip") else None


class Stream:
    """A stream of an NPU.

    Args:
        stream: torch_npu's.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def is_capturing(self) -> bool:
        """Captures are not supported."""
        return False

    def synchronize(self) -> None:
        """Wait for its work."""
        self._stream.synchronize()

    def launch_program(
        self, name: str, program: int, arguments: bytes, tensors: Sequence[torch.Tensor]
    ) -> None:
        """Call a C function ``void program(const void *arguments)`` once the stream's work is done.

        Args:
            name: not used.
            program: its address.
            arguments: copied.
            tensors: not used.

        Raises:
            RuntimeError: the runtime refuses.
        """
        memory = _libc.malloc(len(arguments))
        ctypes.memmove(memory, arguments, len(arguments))
        self._enqueue(program, memory)
        self._enqueue(_FREE, memory)

    def _enqueue(self, function: int, data: int) -> None:
        library = runtime()
        assert library is not None
        handle = self._stream.npu_stream  # torch_npu has handed over what it queued
        status = library.aclrtLaunchHostFunc(*map(ctypes.c_void_p, (handle, function, data)))
        if status:
            raise RuntimeError(f"aclrtLaunchHostFunc: error {status}")


def current_stream(device: torch.device) -> Stream:
    """The current stream of an NPU."""
    import torch

    return Stream(torch.npu.current_stream(device))  # type: ignore[attr-defined]


def properties(device: int) -> dict[str, int]:
    """Numbers of cores, as triton-ascend names them."""
    import torch

    found = torch.npu.get_device_properties(device)  # type: ignore[attr-defined]
    return {"num_aicore": found.cube_core_num, "num_vectorcore": found.vector_core_num}


_SOURCES = {
    "": "",
    ".libdevice": "triton.language.extra.cuda.libdevice",
    ".extension": "isthmus_triton.npu_language",
}


class _Modules(MetaPathFinder, Loader):
    """Finds the modules that triton-ascend adds to ``triton.language.extra``, where that package is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A specification, for their names."""
        parent, _, rest = name.partition(".extra.cann")
        if parent != "triton.language" or rest not in _SOURCES:
            return None
        return ModuleSpec(name, self, is_package=not rest)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with the names of another."""
        source = _SOURCES[module.__name__.partition(".extra.cann")[2]]
        if source:
            names = vars(importlib.import_module(source))
            vars(module).update({key: value for key, value in names.items() if not key.startswith("__")})


def add_modules() -> None:
    """Make ``triton.language.extra.cann`` importable in a process of torch_npu."""
    if "torch_npu" in sys.modules and not any(isinstance(each, _Modules) for each in sys.meta_path):
        sys.meta_path.append(_Modules())
