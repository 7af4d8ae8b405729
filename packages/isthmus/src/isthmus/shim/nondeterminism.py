"""CUDA's alerts of nondeterminism, under ``torch.use_deterministic_algorithms``.

They belong to the shim: a chip that computes deterministically has nothing to refuse, and only a program written for
CUDA expects CUDA's answers. :data:`ALERTS` has every caller of ``alertNotDeterministic`` in libtorch_cuda of PyTorch
2.14 and 2.15; PyTorch's documentation lists most of them. ``max_unpool2d``, ``max_unpool3d`` and ``put_`` without
accumulation are missing, because the CPU's kernels alert by themselves, and ``scatter``, which takes another way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from isthmus import _C
from isthmus.shim.accelerator import CPU, Accelerator
from isthmus_common.patches import Scope


class Alert(NamedTuple):
    """An alert of CUDA's kernel of an operator.

    Attributes:
        caller: name in the message, or a function of the arguments that returns it.
        when: whether a call with these arguments has the alert.
        out: name in the message of the overload that writes into a tensor, if it differs.
    """

    caller: str | Callable[..., str]
    when: Callable[..., bool] = lambda *_, **__: True
    out: str = ""


def _is_floating_point(self: torch.Tensor, *_: Any, **__: Any) -> bool:
    return self.is_floating_point()


def _has_weights(
    self: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0, **_: Any
) -> bool:
    return weights is not None


def _has_dim(self: torch.Tensor, dim: int | str | None = None, *_: Any, **__: Any) -> bool:
    return dim is not None


def _accumulates(
    self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> bool:
    return accumulate


def _reduces_tensor(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: Any, *, reduce: str = "", **_: Any
) -> bool:
    return bool(reduce) and isinstance(src, torch.Tensor)


def _is_among(position: int, *values: Any) -> Callable[..., bool]:
    """Whether the argument at this position is one of the values."""
    return lambda *arguments, **_: len(arguments) > position and arguments[position] in values


def _grid_sampler(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> str:
    """The name of CUDA's own kernel, or of cuDNN's, for bilinear interpolation with zeros and aligned corners."""
    by_cudnn = (
        torch.backends.cudnn.enabled
        and (interpolation_mode, padding_mode, align_corners) == (0, 0, True)
        and input.dtype in (torch.float16, torch.float32, torch.float64)
        and input.shape[1] <= 1024
    )
    return "cudnn_grid_sampler_backward" if by_cudnn else "grid_sampler_2d_backward_cuda"


_MEAN, _SUM = 1, 2  # at::Reduction
_MAX = 2  # at::native::EmbeddingBagMode

# The keys are operators; an entry holds for all overloads.
ALERTS = {
    "aten::avg_pool3d_backward": Alert("avg_pool3d_backward_cuda"),
    "aten::_adaptive_avg_pool2d_backward": Alert("adaptive_avg_pool2d_backward_cuda"),
    "aten::_adaptive_avg_pool3d_backward": Alert("adaptive_avg_pool3d_backward_cuda"),
    "aten::adaptive_avg_pool3d_backward": Alert("adaptive_avg_pool3d_backward_out_cuda"),
    "aten::adaptive_max_pool2d_backward": Alert("adaptive_max_pool2d_backward_cuda"),
    "aten::max_pool3d_with_indices_backward": Alert(
        "max_pool3d_with_indices_backward_cuda", out="max_pool3d_with_indices_backward_out_cuda"
    ),
    "aten::fractional_max_pool2d_backward": Alert("fractional_max_pool2d_backward_cuda"),
    "aten::fractional_max_pool3d_backward": Alert(
        "fractional_max_pool3d_backward_cuda", out="fractional_max_pool3d_backward_out_cuda"
    ),
    "aten::upsample_linear1d_backward": Alert("upsample_linear1d_backward_out_cuda"),
    "aten::upsample_bilinear2d_backward": Alert("upsample_bilinear2d_backward_out_cuda"),
    "aten::upsample_bicubic2d_backward": Alert("upsample_bicubic2d_backward_out_cuda"),
    "aten::upsample_trilinear3d_backward": Alert("upsample_trilinear3d_backward_out_cuda"),
    "aten::_upsample_bilinear2d_aa_backward": Alert("upsample_bilinear2d_aa_backward_out_cuda"),
    "aten::_upsample_bicubic2d_aa_backward": Alert("upsample_bicubic2d_aa_backward_out_cuda"),
    "aten::reflection_pad1d_backward": Alert("reflection_pad1d_backward_out_cuda"),
    "aten::reflection_pad3d_backward": Alert("reflection_pad3d_backward_out_cuda"),
    "aten::replication_pad1d_backward": Alert("replication_pad1d_backward_cuda"),
    "aten::replication_pad2d_backward": Alert(
        "replication_pad2d_backward_cuda", out="replication_pad2d_backward_out_cuda"
    ),
    "aten::replication_pad3d_backward": Alert(
        "replication_pad3d_backward_cuda", out="replication_pad3d_backward_out_cuda"
    ),
    "aten::nll_loss2d_forward": Alert("nll_loss2d_forward_out_cuda_template", _is_among(3, _MEAN, _SUM)),
    "aten::_ctc_loss_backward": Alert("ctc_loss_backward_gpu"),
    "aten::_embedding_bag_backward": Alert("embedding_bag_backward_cuda_max", _is_among(8, _MAX)),
    "aten::_embedding_bag_dense_backward": Alert("embedding_bag_backward_cuda_max", _is_among(7, _MAX)),
    "aten::grid_sampler_2d_backward": Alert(_grid_sampler),
    "aten::grid_sampler_3d_backward": Alert("grid_sampler_3d_backward_cuda"),
    "aten::put_": Alert("put_", _accumulates),
    "aten::histc": Alert("_histc_cuda with floating point input", _is_floating_point),
    "aten::bincount": Alert("_bincount_cuda", _has_weights),
    "aten::median": Alert("median CUDA with indices output", _has_dim),
    "aten::nanmedian": Alert("median CUDA with indices output", _has_dim),
    "aten::scatter_reduce": Alert("scatter_reduce_cuda_prod_", _is_among(4, "prod")),
    "aten::scatter_reduce_": Alert("scatter_reduce_cuda_prod_", _is_among(4, "prod")),
    "aten::scatter": Alert("scatter_reduce_cuda_kernel", _reduces_tensor),
    "aten::scatter_": Alert("scatter_reduce_cuda_kernel", _reduces_tensor),
    "aten::index_reduce": Alert("index_reduce_cuda"),
    "aten::index_reduce_": Alert("index_reduce_cuda"),
}


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let the chip's operators alert where CUDA's do."""
    if accelerator.type == CPU:
        return
    _C.set_alerts(_by_overload())
    scope.record(
        f"torch.{accelerator.type}: alerts of nondeterminism",
        "programs test and catch what CUDA refuses under torch.use_deterministic_algorithms",
        lambda: _C.set_alerts({}),
    )


def _by_overload() -> dict[str, Callable[..., str]]:
    found = {}
    for name in torch._C._dispatch_get_all_op_names():
        operator, _, overload = name.partition(".")
        if operator in ALERTS:
            found[name] = _caller(ALERTS[operator], overload)
    return found


def _caller(alert: Alert, overload: str) -> Callable[..., str]:
    """Return the function of an overload's arguments that the chip asks."""
    found = alert.out if alert.out and overload == "grad_input" else alert.caller

    def caller(*arguments: Any, **keywords: Any) -> str:
        if not alert.when(*arguments, **keywords):
            return ""
        return found if isinstance(found, str) else found(*arguments, **keywords)

    return caller
