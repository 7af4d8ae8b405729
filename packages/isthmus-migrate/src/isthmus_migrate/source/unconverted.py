"""PyTorch's names that no rule converts, as data: a person ports what uses them, or they stay.

Each entry is the rule's code, the advice, the names and who has to act.
"""

from isthmus_migrate.source.findings import Severity

_REVIEW, _MANUAL, _NONE = Severity.REVIEW, Severity.MANUAL, Severity.NONE

UNCONVERTED = (
    (
        "IM405",
        "a CUDA graph: `isthmus run` serves it, except for its raw handles (raw_cuda_graph, raw_cuda_graph_exec); in "
        "the source, use torch.accelerator.Graph, or run the region eagerly or compiled",
        "torch.cuda.CUDAGraph torch.cuda.graph torch.cuda.make_graphed_callables torch.cuda.graph_pool_handle",
        _MANUAL,
    ),
    (
        "IM190",
        "a pool of CUDA's allocator: `isthmus run` serves it; in the source, use the accelerator's MemPool",
        "torch.cuda.MemPool torch.cuda.use_mem_pool",
        _MANUAL,
    ),
    (
        "IM190",
        "belongs to CUDA's allocator; the accelerator's has its own settings",
        "torch.cuda.CUDAPluggableAllocator torch.cuda.change_current_allocator torch.cuda.caching_allocator_alloc "
        "torch.cuda.caching_allocator_delete torch.cuda.caching_allocator_enable "
        "torch.cuda.get_allocator_backend",
        _MANUAL,
    ),
    (
        "IM191",
        "uses CUDA's runtime or libraries; it has no device-neutral form",
        "torch.cuda.cudart torch.cuda.current_blas_handle torch.cuda.current_solver_handle "
        "torch.cuda.list_gpu_processes torch.cuda.GreenContext torch.cuda.ExternalStream "
        "torch.cuda.get_stream_from_external torch.cuda.jiterator torch.cuda.tunable torch.cuda.nccl "
        "torch.cuda.comm torch.cuda.sparse torch.cuda.gds torch.cuda.check_error torch.cuda._sleep "
        "torch.cuda._compile_kernel torch.nn.parallel.comm",
        _MANUAL,
    ),
    (
        "IM191",
        "multiplies 8-bit floating point numbers, which few accelerators do: use bfloat16, or test for it",
        "torch._scaled_mm",
        _MANUAL,
    ),
    (
        "IM191",
        "needs symmetric memory, which few backends have: use the collectives of torch.distributed elsewhere",
        "torch.distributed._symmetric_memory torch.ops.symm_mem",
        _MANUAL,
    ),
    (
        "IM191",
        "is None in a PyTorch without CUDA; use torch.accelerator.is_available() or the device type",
        "torch.version.cuda",
        _REVIEW,
    ),
    (
        "IM191",
        "stays: every build of PyTorch has the switch, and attention works on every device with it on or off",
        "torch.backends.cuda.sdp_kernel torch.backends.cuda.enable_flash_sdp "
        "torch.backends.cuda.enable_mem_efficient_sdp torch.backends.cuda.enable_math_sdp "
        "torch.backends.cuda.enable_cudnn_sdp torch.backends.cuda.flash_sdp_enabled "
        "torch.backends.cuda.mem_efficient_sdp_enabled torch.backends.cuda.math_sdp_enabled "
        "torch.backends.cuda.cudnn_sdp_enabled",
        _NONE,
    ),
    (
        "IM191",
        "is False without CUDA; torch.nn.functional.scaled_dot_product_attention chooses a kernel on any device",
        "torch.backends.cuda.can_use_flash_attention torch.backends.cuda.can_use_efficient_attention "
        "torch.backends.cuda.can_use_cudnn_attention",
        _REVIEW,
    ),
    (
        "IM191",
        "is meaningful on CUDA only; other accelerators have no such switch",
        "torch.backends.cuda.preferred_linalg_library torch.backends.cuda.preferred_blas_library "
        "torch.backends.cuda.cufft_plan_cache torch.backends.cudnn.flags",
        _REVIEW,
    ),
)
