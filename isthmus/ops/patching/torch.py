"""What is replaced in PyTorch itself: the attention of the chip. Other devices keep PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from isthmus.ops.patching.attempt import Attempt

_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


def _attention(attempt: Attempt) -> None:
    """Code that was compiled before keeps the attention that it was compiled with."""
    accelerator = torch.accelerator.current_accelerator()
    module = torch.get_device_module(accelerator) if accelerator is not None else None
    request = getattr(module, "set_fused_attention", None)
    if accelerator is None or module is None or request is None:
        attempt.left[_ATTENTION] = (
            "there is no chip, and PyTorch chooses the attention of other devices itself"
        )
    elif module.fused_attention():
        attempt.left[_ATTENTION] = "replaced already, by another call or by the chip's own operator library"
    else:
        request(True)
        attempt.scope.record(
            _ATTENTION,
            f"flash attention with masks, dropout and grouped heads on {accelerator.type} (attention)",
            lambda: request(False),
        )


PARTS: dict[str, Callable[[Attempt], None]] = {"attention": _attention}
