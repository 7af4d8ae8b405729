"""``torch.nn.attention.sdpa_kernel`` with backends that only CUDA has."""

import functools
from collections.abc import Callable, Iterable

from torch.nn.attention import SDPBackend

from isthmus_common.patches import Scope

# Backends available without CUDA.
_OTHERS = (SDPBackend.FLASH_ATTENTION, SDPBackend.OVERRIDEABLE, SDPBackend.MATH)


def install(scope: Scope) -> None:
    """Add the accelerator's backends to a selection of fused backends, all of which may be CUDA's."""
    scope.replace(
        "torch.nn.attention._sdpa_kernel",
        _admit_accelerator,
        "sdpa_kernel(EFFICIENT_ATTENTION) and others name kernels that only CUDA has",
        expects=("backends", "set_priority"),
    )


def _admit_accelerator(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def choose(backends: Iterable[SDPBackend], set_priority: bool = False) -> None:
        chosen = list(backends)
        if SDPBackend.MATH not in chosen:
            chosen = list(dict.fromkeys((*chosen, *_OTHERS)))
        original(chosen, set_priority)

    return choose
