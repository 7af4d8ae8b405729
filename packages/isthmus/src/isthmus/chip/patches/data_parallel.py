"""``torch.nn.DataParallel`` on chips: the copies among devices that PyTorch's C++ has in builds for CUDA only."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus.chip import comm
from isthmus_common.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Supply the functions behind ``torch.nn.parallel.comm``; in a build that has them nothing changes."""
    if _scope.patches or hasattr(torch._C, "_scatter"):
        return
    functions: dict[str, Callable[..., Any]] = {
        "_broadcast": _broadcast,
        "_broadcast_coalesced": comm.broadcast_coalesced,
        "_broadcast_out": _broadcast_out,
        "_scatter": comm.scatter,
        "_scatter_out": _scatter_out,
        "_gather": comm.gather,
        "_gather_out": _gather_out,
    }
    for name, function in functions.items():
        _scope.set(torch._C, name, function, f"torch._C.{name}", "DataParallel; PyTorch has it for CUDA only")


def uninstall() -> None:
    """Take them away again."""
    _scope.undo()


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> tuple[Tensor, ...]:
    return comm.broadcast(tensor, devices)


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return comm.broadcast(tensor, out=out)


def _scatter_out(
    tensor: Tensor, out: Sequence[Tensor], dim: int, streams: Sequence[torch.Stream | None] | None
) -> tuple[Tensor, ...]:
    return comm.scatter(tensor, dim=dim, streams=streams, out=out)


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    return comm.gather(tensors, dim, out=out)
