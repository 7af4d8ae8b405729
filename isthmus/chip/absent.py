"""Names of ``torch.cuda`` and ``torch.accelerator`` that have no meaning on the chip, each with the reason.

``torch.chip`` does not have them, so that a library which asks ``hasattr`` takes another way; who reads one is told
the reason.
"""

from __future__ import annotations

_GRAPHS = "the chip has no graph capture; call the function itself, or torch.compile it"
_STATUS = "the driver has status codes of its own; failures are raised as torch.AcceleratorError"
_ALLOCATOR = "the driver supplies the memory and the allocator is chosen when the process starts"
_ALWAYS_ON = "the caching allocator is always on"

# Name in torch.chip -> why it is not there.
NAMES = {
    "CUDAGraph": _GRAPHS,
    "graph": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "make_graphed_callables": _GRAPHS,
    "CUDAPluggableAllocator": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "caching_allocator_enable": _ALWAYS_ON,
    "caching_allocator_disabled": _ALWAYS_ON,
    "CudaError": _STATUS,
    "cudaStatus": _STATUS,
    "check_error": _STATUS,
    "cudart": "it is CUDA's runtime library; torch.chip.driver() describes the chip's",
    "DeferredCudaCallError": "calls before the first use of the chip are not deferred",
    "GreenContext": "green contexts partition NVIDIA's multiprocessors",
    "current_blas_handle": "it is a handle of cuBLAS",
    "current_solver_handle": "it is a handle of cuSOLVER",
    "get_gencode_flags": "they are flags of NVIDIA's compiler",
    "has_magma": "MAGMA is a library for CUDA",
    "list_gpu_processes": "the driver interface tells memory of all processes together; see mem_get_info",
}

# Submodule -> why none of it is there.
MODULES = {
    "gds": "GPUDirect Storage is NVIDIA's",
    "graphs": _GRAPHS,
    "green_contexts": NAMES["GreenContext"],
    "jiterator": "it compiles CUDA C++; write the operator in Python and torch.compile it, or in an operator library",
    "nccl": "collectives are those of torch.distributed",
    "sparse": "the chip has strided tensors only",
    "tunable": "the operator libraries choose among their own kernels; ISTHMUS_ROUTE chooses among libraries",
}

# Names of submodules that are there otherwise.
IN_MODULES = {
    "amp.amp_definitely_not_available": "autocast is always available on the chip",
}

# Names of torch.accelerator, which answers for the chip.
ACCELERATOR = {
    "Graph": _GRAPHS,
}


def reason(name: str) -> str:
    """Why ``torch.chip.<name>`` is not there; "" where nothing is known of such a name."""
    return (
        NAMES.get(name)
        or MODULES.get(name)
        or IN_MODULES.get(name)
        or MODULES.get(name.partition(".")[0], "")
    )
