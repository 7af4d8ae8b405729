"""Names of ``torch.cuda`` and ``torch.accelerator`` that the chip does not support, with reasons.

``torch.chip`` lacks them, so that ``hasattr`` is False; the AttributeError states the reason.
"""

_STATUS = "the driver has its own status codes; failures are raised as torch.AcceleratorError"
_ALLOCATOR = "the driver supplies the memory, and the allocator is chosen at process start"
_CUDA_GRAPH = "reads the nodes of a CUDA graph"
_ALWAYS_ON = "the caching allocator is always on"

# Name in torch.chip -> reason for its absence.
NAMES = {
    "CUDAGraph": "torch.chip.Graph is the class of graphs",
    "CUDAPluggableAllocator": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "caching_allocator_enable": _ALWAYS_ON,
    "caching_allocator_disabled": _ALWAYS_ON,
    "CudaError": _STATUS,
    "cudaStatus": _STATUS,
    "check_error": _STATUS,
    "cudart": "CUDA's runtime library; torch.chip.driver() describes the chip's driver",
    "DeferredCudaCallError": "calls before the first use of the chip are not deferred",
    "GreenContext": "green contexts partition NVIDIA's multiprocessors",
    "current_blas_handle": "a handle of cuBLAS",
    "current_solver_handle": "a handle of cuSOLVER",
    "get_gencode_flags": "flags of NVIDIA's compiler",
    "has_magma": "MAGMA is a library for CUDA",
    "export_dot": _CUDA_GRAPH,
    "export_graph_data": _CUDA_GRAPH,
    "list_gpu_processes": "the driver interface reports memory of all processes together; see mem_get_info",
}

# Submodule -> reason for its absence.
MODULES = {
    "gds": "GPUDirect Storage is specific to NVIDIA",
    "graph_annotations": "names the kernels of a CUDA graph for CUDA's profiler; torch.chip.nvtx names ranges",
    "green_contexts": NAMES["GreenContext"],
    "jiterator": "compiles CUDA C++; write the operator in Python with torch.compile, or in an operator library",
    "nccl": "use torch.distributed for collectives",
    "sparse": "tensor types of an old interface; torch.sparse makes the chip's sparse tensors",
    "tunable": "the operator libraries choose among their own kernels; ISTHMUS_ROUTE chooses among libraries",
}

# Names missing from submodules that exist.
_HOOK = "for profilers of CUDA graphs; a replay on the chip is one region of torch.profiler"
IN_MODULES = {
    "amp.amp_definitely_not_available": "autocast is always available on the chip",
    "graphs.register_graph_capture_end_hook": _HOOK,
    "graphs.register_graph_capture_start_hook": _HOOK,
    "graphs.register_graph_destroy_hook": _HOOK,
    "graphs.register_graph_instantiate_hook": _HOOK,
    "graphs.register_graph_replay_end_hook": _HOOK,
    "graphs.register_graph_replay_start_hook": _HOOK,
}

# Names of torch.accelerator that the chip does not support.
ACCELERATOR: dict[str, str] = {}


def reason(name: str) -> str:
    """Return why ``torch.chip.<name>`` does not exist; "" for unknown names."""
    return (
        NAMES.get(name)
        or MODULES.get(name)
        or IN_MODULES.get(name)
        or MODULES.get(name.partition(".")[0], "")
    )
