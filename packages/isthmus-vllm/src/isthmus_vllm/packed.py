"""Linear layers whose weights are packed once, where the chip multiplies faster by them."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.linear import UnquantizedLinearMethod

from isthmus import ops
from isthmus_common.patches import Scope

_scope = Scope("vllm")


class ChipLinearMethod(UnquantizedLinearMethod):
    """vLLM's method of layers without quantization, which packs a weight after it was loaded.

    The packed weight replaces the weight, as in vLLM's own method for CPUs: nothing can change one that is not used.
    Loading weights again packs them again, unless graphs have captured them.
    ``--additional-config '{"pack_weights": false}'`` switches it off.
    """

    def __init__(self) -> None:
        super().__init__()
        config = get_current_vllm_config()
        asked = bool(config.additional_config.get("pack_weights", True))
        # Packed weights are not the device's memory, which sleep mode frees.
        sleeps = config.model_config is not None and config.model_config.enable_sleep_mode
        # A trainer in the same process writes into the weights.
        trains = config.parallel_config.distributed_executor_backend == "external_launcher"
        self._packs = asked and not sleeps and not trains and not _is_batch_invariant()
        self._is_captured = not config.model_config.enforce_eager if config.model_config else False
        self._rows = sorted({1, min(8, config.scheduler_config.max_num_seqs)})

    def process_weights_after_loading(self, layer: Any) -> None:
        """Pack the weight of a layer.

        Raises:
            RuntimeError: graphs have captured the packed weight that the layer had before.
        """
        if self._is_captured and getattr(layer, "packed", None) is not None:
            raise RuntimeError(
                "isthmus: graphs keep the packed weights that they captured; to load weights again, start with "
                "--enforce-eager or --additional-config '{\"pack_weights\": false}'"
            )
        super().process_weights_after_loading(layer)
        layer.packed = None
        rows = ops.rows_to_pack(layer.weight, self._rows) if self._packs else 0
        if not rows:
            return
        layer.packed = ops.pack_linear(layer.weight, rows)
        empty = torch.empty(0, dtype=layer.weight.dtype, device=layer.weight.device)
        layer.weight = torch.nn.Parameter(empty, requires_grad=False)

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply x, [..., in features], by the weight of the layer."""
        packed = getattr(layer, "packed", None)
        return super().apply(layer, x, bias) if packed is None else ops.packed_linear(x, packed, bias)


def _is_batch_invariant() -> bool:
    return bool(torch.get_device_module().is_batch_invariant())


_scope.replace(
    "vllm.model_executor.layers.linear.UnquantizedLinearMethod",
    lambda _: ChipLinearMethod,
    "packs weights after loading",
)
