"""``torch.nn.functional.linear_cross_entropy`` on the chip: 16-bit inputs are accumulated as on the CPU.

PyTorch takes the dtype of the sums from the device's type; for a type that it does not know, they stay in 16 bits.
"""

from collections.abc import Callable
from typing import Any

import torch

from isthmus.chip import torch_version
from isthmus_common.patches import Scope

_scope = Scope("chip")
_OPTIONS = "torch.nn.modules.linear_cross_entropy_options"
_REASON = "the chunked loss accumulates 16-bit inputs in float32, as on the CPU"


def install() -> None:
    """Accumulate for the chip as for the CPU."""
    if _scope.patches:
        return
    if torch_version.CROSS_ENTROPY_HAS_TABLE:
        _scope.replace(f"{_OPTIONS}._AUTO_DEFAULTS", _with_chip, _REASON)
    else:
        _scope.replace(
            f"{_OPTIONS}._auto_acc_policy", _policy_of_cpu, _REASON, expects=("device_type", "dtype")
        )
    _scope.replace(
        f"{_OPTIONS}.LinearCrossEntropyOptions._resolve_auto_acc_dtype",
        _as_on_cpu,
        _REASON,
        expects=("dtype", "device"),
    )


def uninstall() -> None:
    """Undo the patches."""
    _scope.undo()


def _with_chip(defaults: dict[tuple[str, torch.dtype], Any]) -> dict[tuple[str, torch.dtype], Any]:
    chip = {("chip", dtype): choice for (kind, dtype), choice in defaults.items() if kind == "cpu"}
    return {**defaults, **chip}


def _policy_of_cpu(
    original: Callable[[str | None, torch.dtype], str],
) -> Callable[[str | None, torch.dtype], str]:
    return lambda kind, dtype: original("cpu" if kind == "chip" else kind, dtype)


def _as_on_cpu(original: Callable[..., torch.dtype | None]) -> Any:
    def resolve(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        on_chip = device is not None and device.type == "chip"
        return original(dtype, torch.device("cpu") if on_chip else device)

    return staticmethod(resolve)
