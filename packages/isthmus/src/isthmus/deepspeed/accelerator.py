"""DeepSpeed's accelerator interface for the current accelerator of PyTorch, of any type."""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator


def _tensor_type(dtype: torch.dtype) -> property:
    """Property: a function that creates tensors of a dtype on the current device."""
    return property(lambda self: functools.partial(torch.tensor, dtype=dtype, device=self._name))


class Accelerator(DeepSpeedAccelerator):  # type: ignore[misc]
    """DeepSpeed's accelerator by ``torch.accelerator`` and the device module.

    The methods are documented in ``deepspeed.accelerator.DeepSpeedAccelerator``.

    Args:
        device_type: ``torch.device`` type, such as ``chip``.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self._name = device_type
        self._module: Any = torch.get_device_module(device_type)
        self._compile_backend = "inductor"

    # ---- synchronization: kernels run asynchronously on streams ----

    def is_synchronized_device(self) -> bool:
        """False: kernels are asynchronous."""
        return False

    def use_host_timers(self) -> bool:
        """False: device events measure time."""
        return False

    def resolves_data_dependency(self) -> bool:
        """False: streams synchronize by events."""
        return False

    def handles_memory_backpressure(self) -> bool:
        """False: DeepSpeed limits the memory in flight."""
        return False

    # ---- devices ----

    def device_name(self, device_index: int | None = None) -> str:
        """``chip`` or ``chip:0``."""
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def device(self, device_index: int | None = None) -> torch.device:
        """The device; the current one without an index."""
        return torch.device(self.device_name(device_index))

    def set_device(self, device_index: int) -> None:
        torch.accelerator.set_device_index(device_index)

    def current_device(self) -> int:
        return torch.accelerator.current_device_index()

    def current_device_name(self) -> str:
        return self.device_name(self.current_device())

    def device_count(self) -> int:
        return torch.accelerator.device_count()

    def synchronize(self, device_index: int | None = None) -> None:
        torch.accelerator.synchronize(device_index)

    def is_available(self) -> bool:
        return torch.accelerator.is_available()

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._name

    # ---- random numbers ----

    def random(self) -> Any:
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        self._module.set_rng_state(new_state, self.device(device_index))

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return self._module.get_rng_state(self.device(device_index))

    def manual_seed(self, seed: int) -> None:
        self._module.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        self._module.manual_seed_all(seed)

    def initial_seed(self) -> int:
        return self._module.initial_seed()

    def default_generator(self, device_index: int) -> torch.Generator:
        return self._module.default_generators[device_index]

    # ---- streams and events ----

    @property
    def Stream(self) -> Any:
        return self._module.Stream

    def stream(self, stream: Any) -> Any:
        return self._module.stream(stream)

    def current_stream(self, device_index: int | None = None) -> Any:
        return self._module.current_stream(device_index)

    def default_stream(self, device_index: int | None = None) -> Any:
        return self._module.default_stream(device_index)

    @property
    def Event(self) -> Any:
        return self._module.Event

    # ---- memory, in bytes ----

    def empty_cache(self) -> None:
        torch.accelerator.empty_cache()

    def memory_allocated(self, device_index: int | None = None) -> int:
        return torch.accelerator.memory_allocated(device_index)

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return torch.accelerator.max_memory_allocated(device_index)

    def memory_reserved(self, device_index: int | None = None) -> int:
        return torch.accelerator.memory_reserved(device_index)

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return torch.accelerator.max_memory_reserved(device_index)

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return dict(torch.accelerator.memory_stats(device_index))

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        torch.accelerator.reset_peak_memory_stats(device_index)

    # Deprecated names of CUDA.
    memory_cached = memory_reserved
    max_memory_cached = max_memory_reserved
    reset_max_memory_allocated = reset_peak_memory_stats
    reset_max_memory_cached = reset_peak_memory_stats

    def total_memory(self, device_index: int | None = None) -> int:
        return torch.accelerator.get_memory_info(device_index)[1]

    def available_memory(self, device_index: int | None = None) -> int:
        """Free bytes of a device, over all processes."""
        return torch.accelerator.get_memory_info(device_index)[0]

    # ---- dtypes ----

    def is_bf16_supported(self) -> bool:
        asked: Callable[[], bool] | None = getattr(self._module, "is_bf16_supported", None)
        return True if asked is None else asked()

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float32, torch.float16, *([torch.bfloat16] if self.is_bf16_supported() else [])]

    BFloat16Tensor = _tensor_type(torch.bfloat16)
    ByteTensor = _tensor_type(torch.uint8)
    DoubleTensor = _tensor_type(torch.float64)
    FloatTensor = _tensor_type(torch.float32)
    HalfTensor = _tensor_type(torch.float16)
    IntTensor = _tensor_type(torch.int32)
    LongTensor = _tensor_type(torch.int64)

    # ---- profiler ranges, graphs, compilation ----

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        """Do nothing: NVTX ranges are for NVIDIA's profiler."""

    def range_pop(self, domain: Any = None) -> None:
        """No-op."""

    def lazy_call(self, callback: Callable[[], None]) -> None:
        callback()

    def is_triton_supported(self) -> bool:
        """False: DeepSpeed's Triton kernels are for GPUs."""
        return False

    def create_graph(self) -> Any:
        """Return an empty graph.

        Raises:
            NotImplementedError: the device has no graphs.
        """
        if not hasattr(self._module, "Graph"):
            raise NotImplementedError(f"{self._name} has no graphs; omit DeepSpeed's enable_cuda_graph")
        return self._module.Graph()

    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Any:
        """Return a context in which work is captured to a graph."""
        return self._module.graph(graph, pool, stream)

    def replay_graph(self, graph: Any) -> None:
        graph.replay()

    def get_compile_backend(self) -> str:
        return str(self._compile_backend)

    def set_compile_backend(self, backend: str) -> None:
        """Set the backend of ``torch.compile``.

        Raises:
            ValueError: unknown backend.
        """
        known = torch._dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(f"unknown torch.compile backend {backend!r}; expected one of {', '.join(known)}")
        self._compile_backend = backend

    # ---- operator builders ----

    def op_builder_dir(self) -> str:
        """Package of the default builders."""
        return "deepspeed.ops.op_builder.cpu"

    def create_op_builder(self, class_name: str) -> Any:
        return self.get_op_builder(class_name)()

    def get_op_builder(self, class_name: str) -> Any:
        from isthmus.deepspeed import builders

        return builders.find(class_name, self._name)

    def build_extension(self) -> Any:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    # ---- DeepSpeed's launcher ----

    def communication_backend_name(self) -> str:
        """The c10d backend registered for the device; gloo if none is."""
        from torch.distributed import Backend

        return str(Backend.default_device_backend_map.get(self._name, "gloo"))

    def export_envs(self) -> list[str]:
        """Prefixes of the environment variables exported to other nodes."""
        return ["ISTHMUS", "DS_ACCELERATOR"]

    def visible_devices_envs(self) -> list[str]:
        """The variable used by DeepSpeed's launcher; it does not select devices here."""
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, current_env: dict[str, str], local_accelerator_ids: list[int]) -> None:
        """Set the environment of the ranks of a node.

        Raises:
            ValueError: not the first devices of the node are requested.
        """
        count = len(local_accelerator_ids)
        if sorted(local_accelerator_ids) != list(range(count)):
            raise ValueError(
                f"devices {local_accelerator_ids} of {self._name}: {count} ranks use devices 0 to {count - 1}; "
                "pass --num_gpus instead of --include or --exclude"
            )
        current_env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, local_accelerator_ids))
        # Read by drivers that create one device per rank. torchrun sets it, DeepSpeed's launcher does not.
        current_env.setdefault("LOCAL_WORLD_SIZE", os.environ.get("LOCAL_WORLD_SIZE", str(count)))
