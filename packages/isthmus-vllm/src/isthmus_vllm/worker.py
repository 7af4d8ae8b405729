"""The process of one device: vLLM's worker, with the device chosen and its memory measured through the chip."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, nullcontext

import torch
from vllm import envs
from vllm.config import set_current_vllm_config
from vllm.platforms import current_platform
from vllm.utils.mem_utils import MemorySnapshot
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.utils import request_memory

from isthmus_vllm import cuda_names
from isthmus_vllm.sleep import ChipSleepMode

# Most tokens of a pass that measures memory.
_PROFILED_TOKENS = 512


class ChipWorker(Worker):
    """vLLM's worker on a device that is not CUDA's."""

    _sleep_mode_backend: ChipSleepMode | None

    def init_device(self) -> None:
        """Choose the device, join the process groups, note the free memory and make the model runner.

        Raises:
            ValueError: no device is left for this rank, or not enough of its memory is free.
        """
        cuda_names.install()
        self.local_rank = self._device_index()
        count = torch.accelerator.device_count()
        if self.local_rank >= count:
            raise ValueError(
                f"isthmus: rank {self.rank} needs device {self.local_rank} of {count}; start fewer ranks, or set "
                "ISTHMUS_HOST_DEVICES on the host chip"
            )
        if envs.VLLM_BATCH_INVARIANT:
            torch.get_device_module().set_batch_invariant(True)
        self.device = torch.device(current_platform.device_type, self.local_rank)
        torch.accelerator.set_device_index(self.device)
        current_platform.check_if_supports_dtype(self.model_config.dtype)
        init_worker_distributed_environment(
            self.vllm_config,
            self.rank,
            self.distributed_init_method,
            self.local_rank,
            current_platform.dist_backend,
        )
        set_random_seed(self.model_config.seed)
        gc.collect()
        torch.accelerator.empty_cache()
        self.init_snapshot = MemorySnapshot(device=self.device)
        if (
            self.cache_config.kv_cache_memory_bytes
        ):  # no share of the device is asked for, which others may use too
            self.requested_memory = self.init_snapshot.free_memory
        else:
            self.requested_memory = request_memory(self.init_snapshot, self.cache_config)
        self._init_workspace_and_model_runner()

    def _device_index(self) -> int:
        parallel = self.parallel_config
        if parallel.distributed_executor_backend in ("ray", "external_launcher"):
            return self.local_rank
        replica = parallel.data_parallel_rank_local
        replica = parallel.data_parallel_index if replica is None else replica
        return self.local_rank + replica * parallel.world_size

    @torch.inference_mode()
    def determine_available_memory(self) -> int:
        """Bytes for the cache, measured on short batches; what activations take grows with the number of tokens.

        vLLM measures a batch of the largest size, which takes a chip of CPU threads many seconds.
        """
        runner = self.model_runner
        tokens, short = runner.max_num_tokens, max(_PROFILED_TOKENS, self.scheduler_config.max_num_seqs)
        if tokens <= short:
            return super().determine_available_memory()
        growth = 0
        if not self.cache_config.kv_cache_memory_bytes:
            with set_current_vllm_config(self.vllm_config):
                peaks = [self._peak_of_pass(length) for length in (short // 2, short)]
            growth = max(peaks[1] - peaks[0], 0) * (tokens - short) // (short - short // 2)
        runner.max_num_tokens = short
        try:
            available = super().determine_available_memory() - growth
        finally:
            runner.max_num_tokens = tokens
        self.available_kv_cache_memory_bytes = available
        return available

    def _peak_of_pass(self, tokens: int) -> int:
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
        self.model_runner._dummy_run(
            tokens, is_profile=True, **({"skip_attn": True} if self.use_v2_model_runner else {})
        )
        torch.accelerator.synchronize()
        return torch.accelerator.max_memory_allocated() - before

    @property
    def sleep_mode_backend(self) -> ChipSleepMode:
        """Sleep mode of this worker, made when first asked for."""
        if self._sleep_mode_backend is None:
            self._sleep_mode_backend = ChipSleepMode(self)
        return self._sleep_mode_backend

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        return nullcontext()
