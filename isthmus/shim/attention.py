"""Choosing the kernels of scaled dot-product attention: a script names CUDA's, the accelerator has its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from torch.nn.attention import SDPBackend

from isthmus._support.patches import Scope

# Those that a PyTorch without CUDA may have.
_OTHERS = (SDPBackend.FLASH_ATTENTION, SDPBackend.OVERRIDEABLE, SDPBackend.MATH)


def install(scope: Scope) -> None:
    """Let a choice of fused kernels alone, which may all be CUDA's, admit the accelerator's too."""
    scope.replace(
        "torch.nn.attention._sdpa_kernel",
        _admitting,
        "sdpa_kernel(EFFICIENT_ATTENTION) and others name kernels that CUDA alone has",
        expects=("backends", "set_priority"),
    )


def _admitting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def choose(backends: Iterable[SDPBackend], set_priority: bool = False) -> None:
        chosen = list(backends)
        if SDPBackend.MATH not in chosen:
            chosen = list(dict.fromkeys((*chosen, *_OTHERS)))
        original(chosen, set_priority)

    return choose
