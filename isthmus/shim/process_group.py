"""``torch.distributed.ProcessGroupNCCL`` under the shim: a PyTorch without CUDA does not have the class."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch._C._distributed_c10d import Backend

from isthmus._support.patches import Scope
from isthmus.shim.accelerator import Accelerator


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Offer the class where scripts import it from."""
    made = _make(accelerator.collective_backend())
    for module in (
        "torch.distributed",
        "torch.distributed.distributed_c10d",
        "torch._C._distributed_c10d",
    ):
        scope.replace(
            f"{module}.ProcessGroupNCCL",
            lambda _: made,
            "scripts make its Options, and ask whether a backend is one",
        )


def _make(backend: str) -> type:
    class Kind(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            """Whether instance is the accelerator's backend."""
            return isinstance(instance, Backend) and instance.name() == backend

    class Options(Backend.Options):
        """Options of a group: the timeout is the group's, those of NCCL alone are kept and not read."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__(backend)
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace()

    return Kind("ProcessGroupNCCL", (), {"Options": Options, "__doc__": "The accelerator's backend."})
