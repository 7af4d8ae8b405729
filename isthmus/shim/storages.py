"""Proxies for storages: made on ``"cuda"``, moved there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from isthmus._support.patches import Scope
from isthmus.shim.accelerator import Accelerator
from isthmus.shim.devices import accelerator_device


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let storages take ``"cuda"`` as their device."""
    for storage in ("UntypedStorage", "TypedStorage"):
        scope.replace(
            f"torch.{storage}.cuda",
            functools.partial(_cuda, accelerator),
            "storage.cuda() moves to the accelerator",
        )
    scope.replace(
        "torch.UntypedStorage.__new__",
        functools.partial(_new, accelerator),
        "UntypedStorage(8, device='cuda')",
    )


def _cuda(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """A copy of the storage on the accelerator."""
        return self.to(device=accelerator_device(accelerator, device), non_blocking=non_blocking)

    return cuda


def _new(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = accelerator.numbered_device(kwargs["device"])
        return original(cls, *args, **kwargs)

    return new
