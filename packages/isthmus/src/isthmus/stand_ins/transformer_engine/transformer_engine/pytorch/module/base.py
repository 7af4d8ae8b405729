"""Base class and helpers of the layers."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

# Options without effect on results.
_WITHOUT_EFFECT = ("name", "ub_name", "cache_quantized_input")


def refuse_options(layer: str, options: dict[str, Any]) -> None:
    """Check that options are disabled or have no effect on results.

    Raises:
        ValueError: an unsupported option is enabled.
    """
    for name, value in options.items():
        if value and name not in _WITHOUT_EFFECT:
            raise ValueError(f"{layer}: {name}={value} needs the real Transformer Engine")


def place(device: Any) -> Any:
    """The device of new parameters; ``"cuda"`` is the accelerator."""
    return torch.accelerator.current_accelerator() if str(device) == "cuda" else device


def get_dummy_wgrad(shape: list[int], dtype: torch.dtype, zero: bool = False) -> torch.Tensor:
    """A placeholder gradient for hooks; the real gradient is in ``main_grad``."""
    make = torch.zeros if zero else torch.empty
    return make(shape, dtype=dtype, device=torch.accelerator.current_accelerator())


class TransformerEngineBaseModule(nn.Module):
    """A layer with a tensor-parallel group, and FP8 attributes that are disabled."""

    def __init__(self) -> None:
        super().__init__()
        self.tp_group: Any = None
        self.tp_size = 1
        self.fp8 = self.fp8_calibration = self.fp8_initialized = False
        self.fp8_meta: dict[str, Any] = {"fp8_checkpoint": False, "num_gemms": 1}

    def set_tensor_parallel_group(self, tp_group: Any) -> None:
        """Set the tensor-parallel group."""
        self.tp_group = tp_group

    def init_fp8_metadata(self, num_gemms: int = 1) -> None:
        """No-op."""

    def get_extra_state(self) -> torch.Tensor:
        """FP8 state in checkpoints: empty."""
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Ignore FP8 state of a checkpoint."""

    def _join(self, tp_group: Any, tp_size: int) -> None:
        """Store the group, or only its size if the group is set later."""
        self.tp_group = tp_group
        self.tp_size = tp_size if tp_group is None else torch.distributed.get_world_size(tp_group)

    def _fill(self, parameter: nn.Parameter, init_method: Callable[..., Any] | None, tracker: Any) -> None:
        """Initialize a weight; on the accelerator with the layer's RNG state."""
        if parameter.is_meta:
            return
        get_tracker, name = tracker
        draw = init_method or (lambda weight: nn.init.normal_(weight, 0.0, 0.023))
        if get_tracker is None or parameter.device.type == "cpu":
            context: Any = nullcontext()
        else:
            context = get_tracker().fork(name) if name else get_tracker().fork()
        with torch.no_grad(), context:
            draw(parameter)


def mark_split(parameter: nn.Parameter, dimension: int) -> None:
    """Mark a parameter as split over tensor-parallel ranks, like Megatron's layers."""
    parameter.tensor_model_parallel = True  # type: ignore[attr-defined]
    parameter.partition_dim = dimension  # type: ignore[attr-defined]
    parameter.partition_stride = 1  # type: ignore[attr-defined]
