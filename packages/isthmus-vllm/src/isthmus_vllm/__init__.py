"""vLLM on any chip: its engine, model runner and sampler, unmodified, over the device of Isthmus.

:mod:`platform` answers what vLLM asks about the device, :mod:`worker` is the process of one device,
:mod:`attention` the attention backend; :mod:`layers`, :mod:`experts` and :mod:`packed` use the operators of
:mod:`isthmus.ops`. What differs between versions of vLLM stands in :mod:`versions`.
"""

from __future__ import annotations

__all__ = ["platform", "operators", "reason_against"]


def platform() -> str | None:
    """Return the class of the platform, or None where vLLM must use another (entry point of vLLM)."""
    return None if reason_against() else "isthmus_vllm.platform.ChipPlatform"


def operators() -> None:
    """Register the layers that use the operators of Isthmus (entry point of vLLM, called in each process)."""
    from vllm.platforms import current_platform

    if type(current_platform).__module__ == "isthmus_vllm.platform":
        from isthmus_vllm import experts, layers, packed, quantized  # noqa: F401


def reason_against() -> str:
    """Why vLLM must not use this plugin here, in one line with the remedy; "" if it may."""
    from importlib.util import find_spec

    from isthmus_vllm import versions

    if find_spec("vllm") is None:
        return "vLLM is not installed; see docs/guides/serving.md"
    if unsupported := versions.reason_against_installed():
        return unsupported
    import torch

    import isthmus

    status = isthmus.status()
    if not status.registered:
        return f"the chip is not registered ({status.reason}); `isthmus doctor` says why"
    if not torch.accelerator.is_available():
        return f"driver {status.driver} has no device; `isthmus doctor` says why"
    return ""
