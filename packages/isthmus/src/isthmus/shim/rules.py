"""The rules of the shim and of the code converter, as data: names of PyTorch that refer to CUDA."""

# ---- functions that take a device by keyword -----------------------------------------------------------------
# tests/shim/test_shim.py checks that the list has every function of torch that accepts `device`.
FACTORIES = tuple(
    "torch." + name
    for name in (
        "arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_quantized "
        "empty_strided eye frombuffer from_file full full_like hamming_window hann_window kaiser_window linspace "
        "logspace normal ones ones_like rand rand_like randint randint_like randn randn_like randperm range "
        "scalar_tensor sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor "
        "sparse_csc_tensor sparse_csr_tensor tensor tril_indices triu_indices zeros zeros_like "
        "_empty_affine_quantized _empty_per_channel_affine_quantized "
        "fft.fftfreq fft.rfftfreq nested.nested_tensor nested.as_nested_tensor"
    ).split()
)

# Methods of torch.Tensor that take a device by keyword, and those that take it first.
TENSOR_KEYWORD = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
TENSOR_FIRST = ("to", "pin_memory", "is_pinned")

# Functions whose first argument is a device or a device type; name -> its keyword.
DEVICE_FIRST = {
    "torch.amp.custom_fwd": "device_type",
    "torch.amp.custom_bwd": "device_type",
    "torch.get_autocast_dtype": "device_type",
    "torch.set_autocast_dtype": "device_type",
    "torch.amp.is_autocast_available": "device_type",
    "torch.amp.autocast_mode.is_autocast_available": "device_type",
}

# Functions whose second argument is a device; name -> its keyword.
DEVICE_SECOND = {"torch._pin_memory": "device", "torch.library.register_autocast": "device_type"}

# Functions that default to CUDA without a device type; AUTOCAST_GPU are old names.
AUTOCAST_STATE = ("torch.is_autocast_enabled", "torch.set_autocast_enabled")
AUTOCAST_GPU = {
    "torch.get_autocast_gpu_dtype": "torch.get_autocast_dtype",
    "torch.set_autocast_gpu_dtype": "torch.set_autocast_dtype",
}

# Methods whose first argument after self is a device or a device type; name -> its keyword.
METHOD_FIRST = {
    "torch.amp.autocast_mode.autocast.__init__": "device_type",
    "torch.amp.grad_scaler.GradScaler.__init__": "device",
    "torch._library.custom_ops.CustomOpDef.register_autocast": "device_type",
    "torch.UntypedStorage.to": "device",
    "torch.TypedStorage.to": "device",
}

# Types written in C whose constructor takes a device; name -> its keyword.
CONSTRUCTORS = {
    "torch.device": "type",
    "torch.Generator": "device",
    "torch.Stream": "device",
    "torch.Event": "device",
}

# Prefixes of dispatch keys; the name of the backend follows.
KEY_PREFIXES = ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")

# Functions and methods that take a torch._C.DispatchKey.
DISPATCH_KEYS = (
    "torch._C.DispatchKeySet.__init__",
    "torch._C.DispatchKeySet.has",
    "torch._C.DispatchKeySet.add",
    "torch._C.DispatchKeySet.remove",
    "torch._C._IncludeDispatchKeyGuard.__init__",
    "torch._C._SetExcludeDispatchKeyGuard.__init__",
    "torch._C._dispatch_keyset_full_after",
    "torch._C._dispatch_tls_is_dispatch_key_excluded",
    "torch._C._dispatch_tls_is_dispatch_key_included",
    "torch._C._dispatch_tls_set_dispatch_key_excluded",
    "torch._C._dispatch_tls_set_dispatch_key_included",
)

# ---- torch.cuda ----------------------------------------------------------------------------------------------
# torch.cuda.<name> becomes <name> of the accelerator's module, if it exists. These submodules re-export names.
CUDA_SUBMODULES = ("graphs", "memory", "random", "streams")

# Old names.
CUDA_RENAMED = {
    "CUDAGraph": "Graph",
    "memory_cached": "memory_reserved",
    "max_memory_cached": "max_memory_reserved",
    "reset_max_memory_cached": "reset_peak_memory_stats",
    "reset_max_memory_allocated": "reset_peak_memory_stats",
}

# Functions of torch._C, and the accelerator's in memory.pools.
MEMORY_POOLS = {
    "_cuda_beginAllocateCurrentThreadToPool": "begin_allocate_to_pool",
    "_cuda_endAllocateToPool": "end_allocate_to_pool",
    "_cuda_releasePool": "release_pool",
}

# Functions of torch._C that libraries call, and the accelerator's of torch.<type>. PyTorch decides by the presence of
# _cuda_getDeviceCount whether it was built for CUDA.
CUDA_BINDINGS = {
    "_cuda_getDevice": "current_device",
    "_cuda_isInBadFork": "_is_in_bad_fork",
    "_cuda_attach_out_of_memory_observer": "memory._attach_out_of_memory_observer",
    "_cuda_setDevice": "set_device",
    "_cuda_synchronize": "synchronize",
}

# Names that have no meaning on another accelerator: calling them raises NotImplementedError with this reason.
CUDA_GRAPHS = ("graph", "make_graphed_callables", "graph_pool_handle")
CUDA_REFUSED = {
    "CUDAPluggableAllocator": "the driver supplies the allocator",
    "MemPool": "private memory pools belong to CUDA's allocator",
    "use_mem_pool": "private memory pools belong to CUDA's allocator",
    "change_current_allocator": "the driver supplies the allocator",
    "caching_allocator_alloc": "use torch.empty",
    "caching_allocator_delete": "use torch.empty",
    "caching_allocator_enable": "the accelerator's allocator is always on",
    "caching_allocator_disabled": "the accelerator's allocator is always on",
    "host_memory_stats_as_nested_dict": "use torch.cuda.host_memory_stats",
    "reset_accumulated_host_memory_stats": "pinned memory has no such counters",
    "reset_peak_host_memory_stats": "pinned memory has no such counters",
    "GreenContext": "green contexts exist on NVIDIA GPUs only",
    "current_blas_handle": "cuBLAS is not available",
    "current_solver_handle": "cuSOLVER is not available",
    "export_dot": "it reads the nodes of a CUDA graph",
    "export_graph_data": "it reads the nodes of a CUDA graph",
    "list_gpu_processes": "it needs NVML; see `isthmus doctor`",
    "utilization": "it needs NVML",
    "temperature": "it needs NVML",
    "power_draw": "it needs NVML",
    "clock_rate": "it needs NVML",
    "memory_usage": "it needs NVML; use torch.cuda.mem_get_info",
    "memory_snapshot": "the accelerator records no snapshots",
    "_sleep": "it launches a CUDA kernel",
    "_compile_kernel": "it compiles CUDA C++",
}

MEMORY_HISTORY = ("_record_memory_history", "_snapshot", "_dump_snapshot")

# cuBLAS's workspaces, of which there are none to free.
CUBLAS_NO_OPS = ("torch._C._cuda_clearCublasWorkspaces", "torch.cuda._clear_cublas_workspaces")

# NVTX ranges are for NVIDIA's profiler; elsewhere they are no-ops.
NVTX_NO_OPS = ("range_push", "range_pop", "range_start", "range_end", "mark")

# Values reported to scripts that query the GPU. Documented in docs; part of the public behaviour.
CAPABILITY_WITH_BFLOAT16 = (8, 0)  # scripts check `>= 8` to enable bfloat16 and flash attention
CAPABILITY_WITHOUT = (7, 0)
CUDA_VERSION = "12.8"  # torch.version.cuda
NCCL_VERSION = (2, 27, 0)  # scripts check `>= (2, 10)` before they reduce bfloat16

OUT_OF_MEMORY = "CUDA out of memory"  # message of CUDA's allocator; scripts compare with it

# PyTorch's own modules see that CUDA is unavailable, except these, which act for the user.
PYTORCH_FOR_USERS = ("torch.distributed.run", "torch.distributed.distributed_c10d")
