"""Symmetric memory: ignore the selection of CUDA's allocators, so that scripts that never allocate run."""

import functools
from collections.abc import Callable

from isthmus_common.patches import Scope

_MODULE = "torch.distributed._symmetric_memory"


def install(scope: Scope) -> None:
    """Replace ``set_backend`` once its module is imported."""
    scope.when_imported(_MODULE, functools.partial(_replace, scope), "refuses NCCL's allocator without CUDA")


def _replace(scope: Scope) -> None:
    scope.replace(
        f"{_MODULE}.set_backend",
        _takes_nccl,
        "'NCCL' selects CUDA's allocator, which is not registered; PyTorch still refuses allocations",
        expects=("name",),
    )


def _takes_nccl(original: Callable[[str], None]) -> Callable[[str], None]:
    @functools.wraps(original)
    def set_backend(name: str) -> None:
        if name not in ("NCCL", "CUDA", "NVSHMEM"):
            original(name)

    return set_backend
