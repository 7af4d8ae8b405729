"""Products of LoRA adapters in float32, which vLLM's Triton kernels do not take."""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


class AdapterProducts(PunicaWrapperCPU):
    """PyTorch's operators, an adapter for each token: no lengths of runs are read, so that graphs capture them."""

    _rows: torch.Tensor | None = None

    def update_metadata(
        self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **kwargs: Any
    ) -> None:
        self._update_base_metadata(mapping, lora_index_to_id, max_loras, vocab_size)

    @property
    def sampler_indices(self) -> torch.Tensor:
        """The adapter of each row of the logits."""
        return super().sampler_indices if self._rows is None else self._rows

    def add_lora_logits(self, y: torch.Tensor, x: torch.Tensor, *arguments: Any, **options: Any) -> None:
        """Add to logits ``y``; rows for log-probabilities of prompts are a view of the batch's tokens ``x``."""
        if len(x) != self.indices_len[1]:
            first = x.storage_offset() // x.stride(0)
            self._rows = self.token_lora_indices[first : first + len(x)]
        try:
            super().add_lora_logits(y, x, *arguments, **options)
        finally:
            self._rows = None
