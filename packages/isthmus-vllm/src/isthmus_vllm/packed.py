"""Layers whose weights are packed once, where the chip multiplies faster by them."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from isthmus import ops
from isthmus_common.patches import Scope

_scope = Scope("vllm")


class _Packing:
    """Packs weights if the configuration of vLLM allows it.

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

    def _forget(self, layer: Any) -> None:
        """Forget the packed weight of a layer whose weight was loaded.

        Raises:
            RuntimeError: graphs have captured it.
        """
        if self._is_captured and getattr(layer, "packed", None) is not None:
            raise RuntimeError(
                "isthmus: graphs keep the packed weights that they captured; to load weights again, start with "
                "--enforce-eager or --additional-config '{\"pack_weights\": false}'"
            )
        layer.packed = None

    def _pack(self, layer: Any) -> None:
        rows = ops.rows_to_pack(layer.weight, self._rows) if self._packs else 0
        layer.packed = ops.pack_linear(layer.weight, rows) if rows else None


class ChipLinearMethod(_Packing, UnquantizedLinearMethod):
    """vLLM's method of layers without quantization, which packs a weight after it was loaded.

    The packed weight replaces the weight, as in vLLM's own method for CPUs: nothing can change one that is not used.
    """

    def process_weights_after_loading(self, layer: Any) -> None:
        """Pack the weight of a layer.

        Raises:
            RuntimeError: graphs have captured the packed weight that the layer had before.
        """
        self._forget(layer)
        super().process_weights_after_loading(layer)
        self._pack(layer)
        if layer.packed is not None:
            empty = torch.empty(0, dtype=layer.weight.dtype, device=layer.weight.device)
            layer.weight = torch.nn.Parameter(empty, requires_grad=False)

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply x, [..., in features], by the weight of the layer."""
        packed = getattr(layer, "packed", None)
        return super().apply(layer, x, bias) if packed is None else ops.packed_linear(x, packed, bias)


class ChipEmbeddingMethod(_Packing, UnquantizedEmbeddingMethod):
    """vLLM's method of embeddings, which packs the weight of an output layer when it first multiplies.

    The weight stays, for an embedding may share it; after it was loaded again it is packed again.
    """

    def process_weights_after_loading(self, layer: Any) -> None:
        """Forget the packed weight, also whenever the weight is loaded without this method.

        Raises:
            RuntimeError: graphs have captured it.
        """
        super().process_weights_after_loading(layer)
        self._changed(layer)
        loader = getattr(layer.weight, "weight_loader", None)
        if loader is not None and getattr(layer, "loads", None) is not loader:

            def load(*arguments: Any, **options: Any) -> None:
                self._changed(layer)
                loader(*arguments, **options)

            layer.loads = layer.weight.weight_loader = load

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply x, [..., hidden], by the weight of the layer, [words, hidden]."""
        if getattr(layer, "is_changed", False):
            self._pack(layer)
            layer.is_changed = False
        packed = getattr(layer, "packed", None)
        return super().apply(layer, x, bias) if packed is None else ops.packed_linear(x, packed, bias)

    def _changed(self, layer: Any) -> None:
        self._forget(layer)
        layer.is_changed = True


def _is_batch_invariant() -> bool:
    return bool(torch.get_device_module().is_batch_invariant())


_scope.replace(
    "vllm.model_executor.layers.linear.UnquantizedLinearMethod",
    lambda _: ChipLinearMethod,
    "packs weights after loading",
)
_scope.replace(
    "vllm.model_executor.layers.vocab_parallel_embedding.UnquantizedEmbeddingMethod",
    lambda _: ChipEmbeddingMethod,
    "packs the weight of the output layer",
)
