"""Symmetric memory: choosing an allocator that is not here is no error, so that code that only may use it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable

from isthmus._support.patches import Scope

_MODULE = "torch.distributed._symmetric_memory"


def install(scope: Scope) -> None:
    """Replace ``set_backend`` as soon as its module is imported."""
    scope.when_imported(_MODULE, functools.partial(_replace, scope), "it refuses NCCL's memory without CUDA")


def _replace(scope: Scope) -> None:
    scope.replace(
        f"{_MODULE}.set_backend",
        _takes_nccl,
        "'NCCL' chooses CUDA's allocator, which is not registered here; allocating is refused by PyTorch itself",
        expects=("name",),
    )


def _takes_nccl(original: Callable[[str], None]) -> Callable[[str], None]:
    @functools.wraps(original)
    def set_backend(name: str) -> None:
        if name not in ("NCCL", "CUDA", "NVSHMEM"):
            original(name)

    return set_backend
