"""DeepSpeed's accelerator interface for the current accelerator of PyTorch; nothing here names a chip."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator


class Accelerator(DeepSpeedAccelerator):  # type: ignore[misc]
    """What DeepSpeed asks of a device, answered by ``torch.accelerator`` and the device's module.

    Methods are those of ``deepspeed.accelerator.DeepSpeedAccelerator``, where they are described.

    Args:
        device_type: ``torch.device`` type, such as ``chip``.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self._name = device_type
        self._module: Any = torch.get_device_module(device_type)
        self._compile_backend = "inductor"

    # ---- how DeepSpeed orders its work: kernels run asynchronously on streams ----

    def is_synchronized_device(self) -> bool:
        """False: a kernel may still run when its launch returns."""
        return False

    def use_host_timers(self) -> bool:
        """False: events of the device measure."""
        return False

    def resolves_data_dependency(self) -> bool:
        """False: streams wait for each other by events."""
        return False

    def handles_memory_backpressure(self) -> bool:
        """False: DeepSpeed limits what is in flight."""
        return False

    # ---- devices ----

    def device_name(self, device_index: int | None = None) -> str:
        """``chip`` or ``chip:0``."""
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def device(self, device_index: int | None = None) -> torch.device:
        """The device; the current one without an index."""
        return torch.device(self.device_name(device_index))

    def set_device(self, device_index: int) -> None:
        """Make a device current."""
        torch.accelerator.set_device_index(device_index)

    def current_device(self) -> int:
        """Index of the current device."""
        return torch.accelerator.current_device_index()

    def current_device_name(self) -> str:
        """Name of the current device with its index."""
        return self.device_name(self.current_device())

    def device_count(self) -> int:
        """Number of devices."""
        return torch.accelerator.device_count()

    def synchronize(self, device_index: int | None = None) -> None:
        """Wait for all work of a device."""
        torch.accelerator.synchronize(device_index)

    def is_available(self) -> bool:
        """Whether there is a device."""
        return torch.accelerator.is_available()

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on a device of this type."""
        return tensor.device.type == self._name

    # ---- random numbers ----

    def random(self) -> Any:
        """``torch.random``."""
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Set the state of a device's generator."""
        self._module.set_rng_state(new_state, self.device(device_index))

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        """State of a device's generator, uint8."""
        return self._module.get_rng_state(self.device(device_index))

    def manual_seed(self, seed: int) -> None:
        """Seed the current device's generator."""
        self._module.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed every device's generator."""
        self._module.manual_seed_all(seed)

    def initial_seed(self) -> int:
        """Seed of the current device's generator."""
        return self._module.initial_seed()

    def default_generator(self, device_index: int) -> torch.Generator:
        """Generator of a device."""
        return self._module.default_generators[device_index]

    # ---- streams and events ----

    @property
    def Stream(self) -> Any:
        """Type of streams."""
        return self._module.Stream

    def stream(self, stream: Any) -> Any:
        """A context in which the stream is current."""
        return self._module.stream(stream)

    def current_stream(self, device_index: int | None = None) -> Any:
        """Current stream of a device."""
        return self._module.current_stream(device_index)

    def default_stream(self, device_index: int | None = None) -> Any:
        """Default stream of a device."""
        return self._module.default_stream(device_index)

    @property
    def Event(self) -> Any:
        """Type of events."""
        return self._module.Event

    # ---- memory, in bytes ----

    def empty_cache(self) -> None:
        """Give cached memory back to the device."""
        torch.accelerator.empty_cache()

    def memory_allocated(self, device_index: int | None = None) -> int:
        """Bytes held by tensors."""
        return torch.accelerator.memory_allocated(device_index)

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Most bytes that tensors have held."""
        return torch.accelerator.max_memory_allocated(device_index)

    def memory_reserved(self, device_index: int | None = None) -> int:
        """Bytes held by the allocator."""
        return torch.accelerator.memory_reserved(device_index)

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """Most bytes that the allocator has held."""
        return torch.accelerator.max_memory_reserved(device_index)

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        """Counters of the allocator."""
        return dict(torch.accelerator.memory_stats(device_index))

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Start the maxima anew."""
        torch.accelerator.reset_peak_memory_stats(device_index)

    # CUDA's old names.
    memory_cached = memory_reserved
    max_memory_cached = max_memory_reserved
    reset_max_memory_allocated = reset_peak_memory_stats
    reset_max_memory_cached = reset_peak_memory_stats

    def total_memory(self, device_index: int | None = None) -> int:
        """Capacity of a device."""
        return torch.accelerator.get_memory_info(device_index)[1]

    def available_memory(self, device_index: int | None = None) -> int:
        """Bytes of a device that are free, all processes together."""
        return torch.accelerator.get_memory_info(device_index)[0]

    # ---- dtypes ----

    def is_bf16_supported(self) -> bool:
        """Whether the device computes in bfloat16."""
        asked: Callable[[], bool] | None = getattr(self._module, "is_bf16_supported", None)
        return True if asked is None else asked()

    def is_fp16_supported(self) -> bool:
        """True."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Dtypes to train in."""
        return [torch.float32, torch.float16, *([torch.bfloat16] if self.is_bf16_supported() else [])]

    def _tensor(self, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
        return functools.partial(torch.tensor, dtype=dtype, device=self._name)

    @property
    def BFloat16Tensor(self) -> Callable[..., torch.Tensor]:
        """Makes a bfloat16 tensor on the current device."""
        return self._tensor(torch.bfloat16)

    @property
    def ByteTensor(self) -> Callable[..., torch.Tensor]:
        """Makes a uint8 tensor on the current device."""
        return self._tensor(torch.uint8)

    @property
    def DoubleTensor(self) -> Callable[..., torch.Tensor]:
        """Makes a float64 tensor on the current device."""
        return self._tensor(torch.float64)

    @property
    def FloatTensor(self) -> Callable[..., torch.Tensor]:
        """Makes a float32 tensor on the current device."""
        return self._tensor(torch.float32)

    @property
    def HalfTensor(self) -> Callable[..., torch.Tensor]:
        """Makes a float16 tensor on the current device."""
        return self._tensor(torch.float16)

    @property
    def IntTensor(self) -> Callable[..., torch.Tensor]:
        """Makes an int32 tensor on the current device."""
        return self._tensor(torch.int32)

    @property
    def LongTensor(self) -> Callable[..., torch.Tensor]:
        """Makes an int64 tensor on the current device."""
        return self._tensor(torch.int64)

    # ---- profiler ranges, graphs, compilation ----

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        """Nothing: NVTX marks work for NVIDIA's profiler."""

    def range_pop(self, domain: Any = None) -> None:
        """Nothing."""

    def lazy_call(self, callback: Callable[[], None]) -> None:
        """Call it: the device is initialised by whatever it uses first."""
        callback()

    def is_triton_supported(self) -> bool:
        """False: DeepSpeed's Triton kernels are for GPUs."""
        return False

    def create_graph(self) -> NoReturn:
        """Raise: there are no graphs.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{self._name} captures no graphs; leave out enable_cuda_graph of DeepSpeed's inference"
        )

    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> NoReturn:
        """Raise: there are no graphs."""
        self.create_graph()

    def replay_graph(self, graph: Any) -> NoReturn:
        """Raise: there are no graphs."""
        self.create_graph()

    def get_compile_backend(self) -> str:
        """Backend of ``torch.compile``."""
        return str(self._compile_backend)

    def set_compile_backend(self, backend: str) -> None:
        """Choose the backend of ``torch.compile``.

        Raises:
            ValueError: there is none of that name.
        """
        known = torch._dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(f"torch.compile has no backend {backend!r}; it has {', '.join(known)}")
        self._compile_backend = backend

    # ---- operators that DeepSpeed builds ----

    def op_builder_dir(self) -> str:
        """Package of the builders that serve where no other does."""
        return "deepspeed.ops.op_builder.cpu"

    def create_op_builder(self, class_name: str) -> Any:
        """A builder by the name of its class."""
        return self.get_op_builder(class_name)()

    def get_op_builder(self, class_name: str) -> Any:
        """Class of a builder by its name."""
        from isthmus.deepspeed import builders

        return builders.find(class_name, self._name)

    def build_extension(self) -> Any:
        """PyTorch's command that builds extensions."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    # ---- DeepSpeed's launcher ----

    def communication_backend_name(self) -> str:
        """The c10d backend that serves the device; gloo where none is registered for it."""
        from torch.distributed import Backend

        return str(Backend.default_device_backend_map.get(self._name, "gloo"))

    def export_envs(self) -> list[str]:
        """Beginnings of the variables that go to other nodes."""
        return ["ISTHMUS", "DS_ACCELERATOR"]

    def visible_devices_envs(self) -> list[str]:
        """The variable that DeepSpeed's launcher reads and writes; devices here are not chosen by it."""
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, current_env: dict[str, str], local_accelerator_ids: list[int]) -> None:
        """Environment of the ranks of a node.

        Raises:
            ValueError: other devices than the first of the node are asked for.
        """
        count = len(local_accelerator_ids)
        if sorted(local_accelerator_ids) != list(range(count)):
            raise ValueError(
                f"devices {local_accelerator_ids} of {self._name}: ranks take devices 0 to {count - 1}; "
                "give --num_gpus instead of --include or --exclude"
            )
        current_env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, local_accelerator_ids))
        # torchrun sets it, DeepSpeed's launcher does not; drivers that make as many devices as ranks read it.
        current_env.setdefault("LOCAL_WORLD_SIZE", os.environ.get("LOCAL_WORLD_SIZE", str(count)))
