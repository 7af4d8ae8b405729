"""``torch.nn.DataParallel`` on chips: the copies among devices that PyTorch's C++ has for CUDA only."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus.chip import comm
from isthmus_common.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Supply the functions behind ``torch.nn.parallel.comm``; a build for CUDA keeps its own for its tensors."""
    if _scope.patches:
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
        _scope.replace(
            f"torch._C.{name}",
            functools.partial(_choose, function),
            "DataParallel; PyTorch has it for CUDA only",
        )


def uninstall() -> None:
    """Take them away again."""
    _scope.undo()


def _choose(ours: Callable[..., Any], original: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function that calls ours unless the first tensor is CUDA's."""

    def copy(tensors: Tensor | Sequence[Tensor], *args: Any) -> Any:
        first = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
        is_cudas = original is not None and first is not None and first.is_cuda
        return (original if is_cudas and original else ours)(tensors, *args)

    return copy


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
