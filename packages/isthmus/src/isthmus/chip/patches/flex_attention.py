"""``torch.nn.attention.flex_attention`` on the chip: eager by its composition, forward and backward, under autocast.

PyTorch admits the devices of one list. Compiled calls: :mod:`isthmus.chip.compile.flex_attention`.
"""

from collections.abc import Callable
from typing import Any

import torch

from isthmus.chip.patches.higher_order import AUTOCAST
from isthmus_common.patches import Scope

_MODULE = "torch.nn.attention.flex_attention"
_scope = Scope("chip")


def install() -> None:
    """Let FlexAttention accept chip tensors, once PyTorch's module of it is imported."""
    if not _scope.patches:
        _scope.when_imported(_MODULE, _admit, "FlexAttention accepts chip tensors")


def uninstall() -> None:
    """Restore PyTorch's list of devices."""
    _scope.undo()


def _admit() -> None:
    _scope.replace(
        f"{_MODULE}._validate_device",
        _but_the_chips,
        "FlexAttention accepts chip tensors",
        expects=("query", "key", "value"),
    )
    from torch._higher_order_ops.flex_attention import flex_attention

    if AUTOCAST not in flex_attention.py_kernels:
        flex_attention.py_impl(AUTOCAST)(_under_autocast)


def _but_the_chips(original: Callable[..., None]) -> Callable[..., None]:
    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "chip":
            original(query, key, value)

    return validate


def _under_autocast(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any) -> Any:
    """Cast query, key and value to autocast's dtype, as for CUDA."""
    from torch._higher_order_ops.flex_attention import flex_attention
    from torch.amp.autocast_mode import _cast

    dtype = torch.get_autocast_dtype("chip")
    query, key, value = (_cast(each, "chip", dtype) for each in (query, key, value))
    keys = torch._C.DispatchKeySet(AUTOCAST)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        return flex_attention(query, key, value, *args)
