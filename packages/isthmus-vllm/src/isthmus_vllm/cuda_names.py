"""Patches of a worker: names of ``torch.cuda`` that vLLM uses on every platform mean the accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from isthmus_common.patches import Scope

_NAMES = (
    "Stream", "Event", "current_stream", "default_stream", "graph", "graph_pool_handle",
    "is_current_stream_capturing", "synchronize", "OutOfMemoryError",
)  # fmt: skip
_scope = Scope("vllm")


def install() -> None:
    """Apply the patches in this process; a second call does nothing."""
    if _scope.patches:
        return
    module = torch.get_device_module()
    reason = "vLLM's model runner names torch.cuda on every platform"
    for name in _NAMES:
        _scope.set(torch.cuda, name, getattr(module, name), f"torch.cuda.{name}", reason)
    _scope.set(torch.cuda, "CUDAGraph", module.Graph, "torch.cuda.CUDAGraph", reason)
    _scope.replace(
        "vllm.v1.worker.gpu.buffer_utils.is_uva_available", lambda _: lambda: False,
        "vLLM takes views of host memory on CUDA and XPU only; it then copies",
    )  # fmt: skip
    _scope.set(torch.cuda, "stream", _stream, "torch.cuda.stream", reason)
    # vLLM has replaced torch.cuda.set_stream by a function that calls this one.
    _scope.replace("vllm.utils.torch_utils.prev_set_stream", lambda _: module.set_stream, reason)
    _scope.replace(
        "vllm.v1.worker.gpu_worker.kernel_warmup", lambda _: lambda worker: None,
        "imports and tunes kernels of models that run on CUDA only",
    )  # fmt: skip
    _scope.replace(
        "vllm.model_executor.determinism.batch_invariant.init_batch_invariance", lambda _: lambda: None,
        "replaces operators by Triton kernels for CUDA; the chip has a mode of its own",
    )  # fmt: skip


@contextmanager
def _stream(stream: Any) -> Iterator[None]:
    """Make a stream current by ``torch.cuda.set_stream``, from which vLLM knows the current stream."""
    if stream is None:
        yield
        return
    before = torch.cuda.current_stream()
    torch.cuda.set_stream(stream)
    try:
        yield
    finally:
        torch.cuda.set_stream(before)
