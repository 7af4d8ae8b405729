"""``torch.chip``: the device module, with the functions of ``torch.cuda`` that apply to any chip.

Importing it does not initialize the driver; the first call that needs a device does.
"""

import torch

from isthmus._C import set_cuda_words as _set_cuda_words
from isthmus.chip import _utils, amp, comm, graphs, memory, nvtx, profiler, random, sharing, streams, types
from isthmus.chip._lazy import _is_in_bad_fork, _lazy_call, _lazy_init, init, is_initialized
from isthmus.chip.amp import get_amp_supported_dtype
from isthmus.chip.device import (
    _exchange_device,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    driver,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    is_host_addressable,
    is_tf32_supported,
    set_device,
    synchronize,
)
from isthmus.chip.dispatch import (
    batch_invariant,
    dispatch_stats,
    fused_attention,
    is_batch_invariant,
    kernel_choices,
    reset_dispatch_stats,
    routes,
    serve_extension,
    set_batch_invariant,
    set_fused_attention,
    set_route,
    set_strict,
    set_tracing,
)
from isthmus.chip.distributed import dump_flight_recorder
from isthmus.chip.graphs import (
    Graph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from isthmus.chip.memory import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    device_memory_used,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    ipc_collect,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from isthmus.chip.random import (
    _get_generator,
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from isthmus.chip.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    set_stream_check,
    stream,
    stream_priority_range,
)
from isthmus.chip.sync_debug import get_sync_debug_mode, set_sync_debug_mode
from isthmus.chip.telemetry import clock_rate, memory_usage, power_draw, telemetry, temperature, utilization
from isthmus.chip.types import (
    BFloat16Storage,
    BFloat16Tensor,
    BoolStorage,
    BoolTensor,
    ByteStorage,
    ByteTensor,
    CharStorage,
    CharTensor,
    ComplexDoubleStorage,
    ComplexFloatStorage,
    DoubleStorage,
    DoubleTensor,
    FloatStorage,
    FloatTensor,
    HalfStorage,
    HalfTensor,
    IntStorage,
    IntTensor,
    LongStorage,
    LongTensor,
    ShortStorage,
    ShortTensor,
)

has_half = True
AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError


def __getattr__(name: str) -> bool:
    # torch.utils.checkpoint reads this attribute, not the function, to decide whether to save the RNG state.
    if name == "_initialized":
        return is_initialized()
    from isthmus.chip.absent import reason  # `from isthmus.chip import` would recurse

    why = reason(name)
    raise AttributeError(f"module 'torch.chip' has no attribute {name!r}" + (f": {why}" if why else ""))


def _is_compiled() -> bool:
    """True: this module needs the compiled core."""
    return True
