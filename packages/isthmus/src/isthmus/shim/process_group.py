"""``torch.distributed.ProcessGroupNCCL``, which PyTorch lacks without CUDA."""

from types import SimpleNamespace
from typing import Any

from torch._C._distributed_c10d import Backend

from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Add the class to the modules from which scripts import it."""
    made = _make(accelerator.collective_backend())
    for module in ("torch.distributed", "torch.distributed.distributed_c10d", "torch._C._distributed_c10d"):
        scope.replace(f"{module}.ProcessGroupNCCL", lambda _: made, "scripts use its Options and isinstance")


def _make(backend: str) -> type:
    class Kind(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            """Whether instance is the accelerator's backend."""
            return isinstance(instance, Backend) and instance.name() == backend

    class Options(Backend.Options):
        """Options of a group; NCCL's own options are stored and ignored."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__(backend)
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace()

    return Kind("ProcessGroupNCCL", (), {"Options": Options, "__doc__": "The accelerator's backend."})
