"""Sleep mode: the weights move to host memory and the cache is freed; both come back at the same tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend


class ChipSleepMode(SleepModeBackend):
    """Frees the storages of a worker's tensors. A captured graph would keep their addresses."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker
        self._freed: dict[str, list[tuple[torch.UntypedStorage, int, torch.Tensor | None]]] = {}

    def suspend(self, level: int = 1) -> None:
        """Free the cache and the weights; level 1 copies the weights to host memory first."""
        runner = self._worker.model_runner
        models = [runner.get_model(), self._worker.get_draft_model()]
        weights = [each for model in models if model for each in (*model.parameters(), *model.buffers())]
        self._free("weights", weights, keep=level == 1)
        self._free("kv_cache", runner.kv_caches, keep=False)
        torch.accelerator.empty_cache()
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        """Allocate what was freed, all of it or "weights" or "kv_cache", and copy the weights back."""
        for tag in tags or list(self._freed):
            for storage, size, copy in self._freed.pop(tag, []):
                storage.resize_(size)
                if copy is not None:
                    _as_bytes(storage).copy_(copy)
        if not self._freed:
            self._state = "RUNNING"

    def _free(self, tag: str, tensors: Iterable[torch.Tensor], keep: bool) -> None:
        storages = {each.untyped_storage()._cdata: each.untyped_storage() for each in tensors}
        used = [each for each in storages.values() if each.nbytes() and each.device.type != "cpu"]
        self._freed[tag] = [(each, each.nbytes(), _as_bytes(each).cpu() if keep else None) for each in used]
        for each in used:
            each.resize_(0)


def _as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
