"""Replacements in PyTorch: scaled_dot_product_attention on the chip."""

from collections.abc import Callable

import torch

from isthmus.ops.patching.attempt import Attempt

_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


def _attention(attempt: Attempt) -> None:
    """Code compiled before this call keeps its attention."""
    accelerator = torch.accelerator.current_accelerator()
    module = torch.get_device_module(accelerator) if accelerator is not None else None
    request = getattr(module, "set_fused_attention", None)
    if accelerator is None or module is None or request is None:
        attempt.left[_ATTENTION] = "no chip available; other devices use PyTorch's own attention"
    elif module.fused_attention():
        attempt.left[_ATTENTION] = "already replaced, by another call or by the chip's operator library"
    else:
        request(True)
        attempt.scope.record(
            _ATTENTION,
            f"flash attention with masks, dropout and grouped heads on {accelerator.type} (attention)",
            lambda: request(False),
        )


PARTS: dict[str, Callable[[Attempt], None]] = {"attention": _attention}
