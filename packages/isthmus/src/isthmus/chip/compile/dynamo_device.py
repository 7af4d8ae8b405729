"""The device runtime in Dynamo's interface. Importing this module imports Dynamo."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo import trace_rules
from torch._dynamo.backends.registry import register_backend
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch.fx import GraphModule
from torch.utils import _triton

from isthmus import chip
from isthmus.chip import torch_version
from isthmus.chip.patches import flex_attention
from isthmus.opset import library


def register() -> None:
    """Register the interface for the device type. Indexed names are registered too, as Dynamo does for CUDA."""
    trace_rules.add("isthmus.chip")  # its functions call the runtime; Dynamo would warn of each C function
    trace_rules.add("isthmus.opset")  # calls kernels written in Python
    # Traced with FlexAttention, so that it compiles in one graph.
    trace_rules.get_legacy_mod_inlinelist().add(flex_attention.__file__)
    library.set_frame_compiler = set_eval_frame
    register_interface_for_device("chip", ChipInterface)
    for index in range(chip.device_count()):
        register_interface_for_device(f"chip:{index}", ChipInterface)
    if torch_version.HAS_TRITON_ASKS_LISTED_DEVICES and ChipInterface.is_triton_capable():
        _fill_has_triton()


def _fill_has_triton() -> None:
    """Fill the cache of ``has_triton``: the chip stands for one of the devices that it asks."""
    _triton.has_triton.cache_clear()
    interfaces = "torch._dynamo.device_interface.get_interface_for_device"
    with patch(interfaces, lambda name: SimpleNamespace(is_available=lambda: name == "mtia")):
        assert _triton.has_triton()


@register_backend
def isthmus(model: GraphModule, inputs: Sequence[Any], **settings: Any) -> Callable[..., Any]:
    """The graph backend by name, for any chip: ``torch.compile(..., backend="isthmus")``."""
    from isthmus.chip.compile.backend import compile_graph

    return compile_graph(model, inputs, **settings)


def get_raw_stream(device_idx: int) -> int:
    """Identity of the device's current stream."""
    return chip.current_stream(device_idx).stream_id


class ChipInterface(DeviceInterface):
    """``torch.chip`` in the form of a Dynamo device interface."""

    device: Any = chip.device
    Event: Any = chip.Event
    Stream: Any = chip.Stream

    class Worker:
        """The device as a compile worker process sees it; kernels are not compiled, so the process itself answers."""

        @staticmethod
        def set_device(device: int) -> None:
            """Make device current."""
            chip.set_device(device)

        @staticmethod
        def current_device() -> int:
            """Index of the current device."""
            return chip.current_device()

        @staticmethod
        def get_device_properties(device: torch.types.Device = None) -> Any:
            """Properties of the device."""
            return chip.get_device_properties(device)

    is_available = staticmethod(chip.is_available)
    device_count = staticmethod(chip.device_count)
    current_device = staticmethod(chip.current_device)
    set_device: Any = staticmethod(chip.set_device)
    exchange_device = staticmethod(chip._exchange_device)
    maybe_exchange_device = staticmethod(chip._maybe_exchange_device)
    stream: Any = staticmethod(chip.stream)
    current_stream: Any = staticmethod(chip.current_stream)
    set_stream: Any = staticmethod(chip.set_stream)
    _set_stream_by_id = staticmethod(chip._set_stream_by_id)
    synchronize: Any = staticmethod(chip.synchronize)
    get_device_properties: Any = staticmethod(chip.get_device_properties)
    memory_allocated: Any = staticmethod(chip.memory_allocated)
    get_raw_stream: Any = staticmethod(get_raw_stream)

    @staticmethod
    def get_compute_capability(device: torch.types.Device = None) -> int:
        """The maker's architecture number, major * 10 + minor."""
        major, minor = chip.get_device_capability(device)
        return major * 10 + minor

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """Whether bfloat16 works."""
        return chip.is_bf16_supported(including_emulation)

    @staticmethod
    def is_triton_capable(device: torch.types.Device = None) -> bool:
        """Whether a Triton backend compiles for the chip."""
        if not _triton.has_triton_package():
            return False
        from isthmus.drivers.generators.triton import vendor_backend

        return vendor_backend() is not None
