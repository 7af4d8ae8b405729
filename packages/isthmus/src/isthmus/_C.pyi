"""The C++ core (csrc/). Everything here is for isthmus.chip; user code calls torch.chip."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch
from torch._C._distributed_c10d import Backend, Store

class DeviceProperties:
    name: str
    uuid: str
    total_memory: int  # bytes
    major: int
    minor: int
    multi_processor_count: int
    numa_node: int
    memory_alignment: int  # bytes
    is_integrated: bool
    supports_bfloat16: bool

# ---- driver
def open_driver(path: str, name: str = "", delegate: str = "") -> None:
    """Open a driver library and its allocators; register_routes() comes next.

    Starts no thread, allocates no device memory and does not call ``initialize``. Once per process. name takes
    the place of the driver's own; delegate "none" or "cpu" narrows what it declares.

    Raises:
        RuntimeError: with one line: the file, what is wrong with it (no symbol, wrong version, a missing
            mandatory function by name) and the remedy.
    """

def driver() -> dict[str, Any]:
    """name, description, path, version "1.0", delegate ("cpu" or ""), functions: dict[str, bool] (present)."""

def init() -> None:
    """Initialise the driver; no-op when done. Raises RuntimeError in a forked child of an initialised process."""

def is_initialized() -> bool: ...
def in_bad_fork() -> bool: ...

# ---- device
def device_count() -> int:
    """Number of devices; 0 if the driver cannot be used (see device_error()). Never raises, and does not initialise
    a driver that can count without it. A process forked after the first use gets the number of its parent."""

def device_error() -> str: ...
def set_cuda_words(uses: bool) -> None:
    """Let the errors of running out of memory and of use after a fork begin with CUDA's words."""

def numbers_for_cuda(list: str, count: int) -> list[int]:
    """Return the devices that a list as in CUDA_VISIBLE_DEVICES names among count; all if it has identifiers."""

def show_as_cuda(type: str) -> None:
    """Let the devices of a type read "cuda" in the type and text of torch.device and in Tensor.is_cuda, for all code
    but that of PyTorch and Isthmus; "" ends it. Under torch.use_deterministic_algorithms torch.nn.functional reads
    is_cuda as a program does: it chooses CUDA's deterministic implementations by it."""

def trace_program(traces: bool) -> bool:
    """Let what Dynamo evaluates on this thread read as a program's; return the previous state."""

def reads_real_names(module: object) -> bool:
    """Whether a module, by its name, is PyTorch's or Isthmus's own."""

def current_device() -> int: ...
def set_device(device: int) -> None: ...
def exchange_device(device: int) -> int:
    """Make device current if it is >= 0; return the previous one."""

def device_properties(device: int) -> DeviceProperties: ...
def memory_info(device: int) -> tuple[int, int]:
    """(free, total) bytes of the device, all processes together."""

def synchronize(device: int) -> None: ...
def telemetry(device: int) -> dict[str, float | None]:
    """Members of isthmus_telemetry (driver.h); None for what the driver does not measure."""

# ---- streams: triples (stream_id, device_index, device_type) as torch.Stream takes them
def current_stream(device: int) -> tuple[int, int, int]: ...
def default_stream(device: int) -> tuple[int, int, int]: ...
def new_stream(device: int, priority: int) -> tuple[int, int, int]: ...
def external_stream(handle: int, device: int) -> tuple[int, int, int]: ...
def set_stream(stream_id: int, device_index: int, device_type: int) -> None: ...
def stream_priority_range() -> tuple[int, int]:
    """(lowest, highest); highest <= lowest, as in CUDA."""

def stream_priority(stream_id: int, device_index: int) -> int: ...
def launch_host_function(stream_id: int, device: int, function: int, data: int) -> None: ...
def launch_program(
    name: str, stream_id: int, device: int, program: int, arguments: bytes, tensors: Sequence[torch.Tensor]
) -> None: ...
def listen_to_streams(function: Callable[[str, int, int, int], None] | None) -> None:
    """Call function(action, what, stream id, device index) for each operation on streams and events, on any thread.

    Actions: "record" and "wait" (what: an event), "event_done", "stream_done", "device_done" (the host has seen it),
    "memory_used" (what: an address that the stream uses). None ends it. One listener at a time.
    """

class SharedEvent:
    """An event that processes share. The second form opens another process's."""

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, device: int, handle: bytes) -> None: ...
    def record(self, stream_id: int, device_index: int) -> None: ...
    def wait(self, stream_id: int, device_index: int) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def ipc_handle(self) -> bytes: ...
    @property
    def device(self) -> int: ...
    @property
    def native_handle(self) -> int: ...

# ---- graphs
class ExternalEvent:
    def __init__(self, timing: bool) -> None: ...
    def record(self, stream_id: int, device_index: int) -> None: ...
    def wait(self, stream_id: int, device_index: int) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_ms(self, end: ExternalEvent) -> float: ...

class Graph:
    def __init__(self, keep_graph: bool = False) -> None: ...
    def capture_begin(
        self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global"
    ) -> None: ...
    def capture_end(self) -> None:
        """End the capture; Python errors of the captured code do not reach it.

        Raises:
            RuntimeError: an operation was not permitted in the capture, or a stream's work was not waited for.
        """

    def instantiate(self) -> None: ...
    def replay(self) -> None:
        """Run the captured work on the current stream, without Python and without the dispatcher."""

    def reset(self) -> None: ...
    def pool(self) -> tuple[int, int]: ...
    def enable_debug_mode(self) -> None: ...
    def debug_dump(self, debug_path: str) -> None: ...
    def register_generator_state(self, generator: torch.Generator) -> None: ...
    def has_allocated(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's memory was allocated in the capture, which may be under way."""

    def memory(self) -> list[torch.Tensor]:
        """The bytes that were allocated in the capture, freed ones included; valid until :meth:`reset`."""

    def __len__(self) -> int:
        """Number of captured calls."""

class Mutex:
    """Lock that C++ takes without the GIL."""

    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

class MovingGraph:
    """A captured graph as a function: its inputs and results lie elsewhere at each call.

    Args:
        graph: has captured a run.
        inputs: tensors of the run, on one chip.
        results: of the run, in memory of the graph or of the inputs.
        mutex: of all graphs that share memory.

    Raises:
        RuntimeError: the addresses of a step cannot be changed, or a tensor is not a strided one of the chip.
    """

    def __init__(
        self, graph: Graph, inputs: list[torch.Tensor], results: list[torch.Tensor], mutex: Mutex
    ) -> None: ...
    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """Results for other inputs; None if these have another geometry or share memory otherwise."""

def graph_pool() -> tuple[int, int]: ...
def capturing() -> bool:
    """Whether any stream of the process is captured."""

def is_capturing(stream_id: int, device_index: int) -> bool: ...
def register_graphs() -> None:
    """Make ``torch.accelerator.Graph`` ours; once, after the device has its name."""

# ---- memory; statistics and empty_cache come through torch.accelerator
def host_memory_stats() -> dict[str, Any]:
    """Pinned memory, under the keys of torch.cuda.host_memory_stats_as_nested_dict."""

def reset_accumulated_host_memory_stats() -> None: ...
def reset_peak_host_memory_stats() -> None: ...
def host_empty_cache() -> None: ...
def host_view_blocks() -> int:
    """Number of blocks of the chip's pool held by CPU tensors: 0 while no chip kernel runs. For tests."""

def private_pool_stats(device: int) -> dict[tuple[int, int], Any]:
    """Statistics under reserved_bytes_by_private_pools in torch.cuda.memory_stats_as_nested_dict."""

def allocators() -> list[str]: ...
def choose_allocator(device: int, name: str, options: str) -> None:
    """Set the allocator of a device that has no memory yet; device < 0: of all. Raises ValueError, RuntimeError."""

def allocator_name(device: int) -> str: ...
def memory_step() -> None:
    """Mark the boundary between two training steps, on all devices."""

def set_memory_fraction(device: int, fraction: float) -> None: ...
def memory_fraction(device: int) -> float: ...
def mark_communication_stream(stream_id: int, device: int) -> None: ...
def new_memory_pool() -> int:
    """Return the number of a new MemPool."""

def open_memory_pool(device: int, number: int, is_last_resort: bool) -> int:
    """Open a pool's part of a device; return its id there."""

def close_memory_pool(device: int, pool: int) -> None: ...
def exchange_memory_pool(pool: int) -> int:
    """Make this thread allocate from the pool of that id (0: the common one); return the previous id."""

def export_storage(tensor: torch.Tensor) -> tuple[bytes, int] | None:
    """Handle and offset of the tensor's storage for another process; None where it cannot be exported."""

def add_leases(table: torch.Tensor) -> int:
    """Add a table of leases for sent storages, int64 [n, 2] in shared memory; return its number."""

def send_storage(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Keep the storage until its lease (a table and a row) is released; None if all leases are in use."""

def take_back(table: int, row: int) -> torch.Tensor:
    """The bytes of a storage that this process sent to itself. RuntimeError if it was received."""

def collect_sent() -> int:
    """Free the storages whose receivers released them or died; return their number."""

def count_sent() -> int: ...
def receive_storage(
    device: int, handle: bytes, offset: int, size: int, table: torch.Tensor, row: int, known_process: bool
) -> torch.Tensor:
    """The bytes of another process's storage. RuntimeError if it was received."""

def release_lease(table: torch.Tensor, row: int) -> None: ...
def raw_allocate(size: int, stream_id: int, device: int) -> int:
    """Allocate memory that raw_delete() frees; return its address."""

def raw_delete(address: int) -> None: ...
def start_memory_history(
    keep_events: bool, context: str, cpp_frames: bool, max_entries: int, clear: bool, skipped: list[str]
) -> None:
    """Record memory events; context is "", "state", "alloc" or "all". Raises ValueError."""

def stop_memory_history() -> None:
    """Stop recording; recorded events are kept."""

def memory_history_is_on() -> bool: ...
def memory_snapshot(with_traces: bool) -> dict[str, Any]:
    """Return a snapshot in the form of torch.cuda.memory._snapshot()."""

def memory_events(device: int) -> tuple[Any, Any, Any, Any]:
    """Columns of the recorded events: action (uint8, 9: step, 10: use of address by the stream in size), address,
    size, stream (int64)."""

def allocation_traceback(address: int) -> list[dict[str, Any]] | None: ...
def observe_out_of_memory(observer: Callable[[int, int, int, int], object]) -> None: ...
def set_failure_callback(callback: Callable[[int, int], bool]) -> None: ...

# ---- random numbers
def default_generator(device: int) -> torch.Generator: ...
def seed_default_generators(seed: int) -> None:
    """Seed the default generator of every device, those not made yet included; does not initialise."""

# ---- dispatch
def dispatch_stats() -> dict[str, Any]:
    """operators: {"aten::add.Tensor": {"route": str, "calls": int}} for operators called at least once;
    calls: {route: int}; fallback_bytes: int copied by the fallback route; kernel_copy_bytes: int of tensors
    made contiguous, cast or brought from the CPU for kernels; set_device: int calls of the
    driver's device_set."""

def reset_dispatch_stats() -> None: ...
def routes() -> dict[str, tuple[str, str]]:
    """Overload name -> (route, reason) for every ATen overload; route is native, kernel, delegate,
    decomposition, fallback or none."""

def unboxed_overloads() -> list[str]:
    """Names of the overloads that are called without a stack where the CPU's kernel serves them."""

def add_operators(
    library: str,
    operators: list[tuple[str, int, int, int, int, tuple[Any, ...] | None, tuple[Any, ...] | None]],
) -> None:
    """Add an operator library after the present ones: (overload, dtypes, flags, address of the
    TVMFFISafeCallType, handle, rule of its indices, refusals) of each operator. Before register_routes()."""

def set_operator_runtime(library: int) -> None:
    """dlopen handle of libtvm_ffi, which errors of kernels are fetched from."""

def register_routes(
    prefer_delegate: bool,
    fallback: bool,
    decompositions: dict[str, Callable[..., Any]],
    compute_rules: Mapping[str, tuple[dict[torch.dtype, torch.dtype], str, tuple[str, ...], tuple[str, ...]]],
    now: bool,
) -> None:
    """Register what serves each overload, now or at the first use of a device; once, after open_driver() and
    add_operators(). compute_rules: of isthmus.chip.compute_dtypes."""

def serve_extension(name: str) -> bool:
    """Register the libraries' kernels of an operator that was defined after register_routes(); False if none."""

def set_fused_attention(requested: bool) -> None:
    """Serve scaled_dot_product_attention by isthmus::attention, or only where a library has a kernel for it."""

def fused_attention() -> bool:
    """Whether scaled_dot_product_attention goes to isthmus::attention."""

def set_alerts(alerts: dict[str, Callable[..., str]]) -> None:
    """Alert of nondeterminism as another device does, under torch.use_deterministic_algorithms.

    Args:
        alerts: by full name of an overload, a function of its arguments that returns the name to report a call under,
            "" if it is deterministic. Replaces the alerts set before.
    """

def kernel_choices() -> list[dict[str, str]]:
    """The kernels chosen so far: operator, dtypes, layout, library ("" if none served)."""

def force_route(pattern: str, route: str) -> int:
    """Force a route ("" undoes) on matching overloads; return how many have it. Raises ValueError."""

def set_tracing(tracing: bool) -> None:
    """Whether new choices are printed (ISTHMUS_TRACE)."""

def set_strict(strict: bool) -> None:
    """Whether the fallback route raises (ISTHMUS_STRICT)."""

def batch_invariant() -> bool:
    """Whether rows have the same bits in every batch."""

def set_batch_invariant(on: bool) -> None:
    """Serve each row of the operators with such kernels by the same additions in every batch."""

def sync_debug_mode() -> int:
    """Mode for operators that make the host wait for the chip: 0 off, 1 warn, 2 error."""

def set_sync_debug_mode(mode: int) -> None: ...

# ---- compiled code
def call_on_host(
    function: Callable[[list[Any]], Any], inputs: list[Any], device: int, same: list[tuple[int, int]]
) -> list[Any]:
    """Call code that was compiled for the CPU on tensors of chip:device.

    Args:
        function: takes a list, which it may empty to release its inputs, and returns a sequence.
        inputs: the list; its chip tensors are replaced by CPU tensors over the same bytes.
        device: of the inputs and of the memory that the function allocates.
        same: (output, input), by output, of the outputs that may be an input itself: it then is the caller's.

    Returns:
        The results, tensors as chip tensors: the inputs' storages where they share them, else new ones.
    """

def as_host(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the bytes of a chip tensor, which it keeps alive. Only with the delegate CPU."""

def as_chip(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """The chip tensor that a CPU tensor is an alias of, or whose memory it has; else a copy on chip:device."""

# ---- collectives
class ChipBackendOptions(Backend.Options):
    def __init__(self) -> None: ...

class ChipBackend(Backend):
    """The c10d backend "chip". make_gloo returns the gloo backend that carries a group's data."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        options: Backend.Options,
        make_gloo: Callable[[Store, int, int, Backend.Options], Backend],
    ) -> None: ...
    def perform_nocolor_split(self, device: torch.device) -> None: ...

def dump_flight_recorder(with_collectives: bool = True, only_active: bool = False) -> bytes: ...
def write_flight_records() -> None: ...
def end_drops() -> None: ...
