"""Linear layers with tensor parallelism."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .base import TransformerEngineBaseModule, mark_split, place, refuse_options


class Linear(TransformerEngineBaseModule):
    """``input @ weight.T + bias``.

    Args:
        in_features: input features of the whole layer.
        out_features: output features of the whole layer.
        sequence_parallel: split the input of a column-parallel and the output of a row-parallel layer by tokens.
        fuse_wgrad_accumulation: accumulate the weight's gradient in ``main_grad``.
        tp_group: tensor-parallel group.
        tp_size: its size, if the group is set later.
        get_rng_state_tracker: returns the tracker of RNG states for initialization.
        rng_tracker_name: name of the state; None is the tracker's default.
        init_method: initializes a weight in place.
        bias: add a bias.
        return_bias: return the bias instead of adding it.
        params_dtype: dtype of the parameters; None is PyTorch's default.
        parallel_mode: ``"column"``, ``"row"`` or None.
        device: device of the parameters.

    Raises:
        ValueError: an option that needs the real Transformer Engine.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        init_method: Callable[..., Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        device: Any = "cuda",
        rng_tracker_name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_options(type(self).__name__, options)
        self._join(tp_group, tp_size)
        self.parallel_mode, self.use_bias, self.return_bias = parallel_mode, bias, return_bias
        self.in_features = in_features // (self.tp_size if parallel_mode == "row" else 1)
        self.out_features = out_features // (self.tp_size if parallel_mode == "column" else 1)
        self.sequence_parallel = self.tp_size > 1 and sequence_parallel
        self.fuse_wgrad_accumulation = fuse_wgrad_accumulation
        where: dict[str, Any] = {"dtype": params_dtype, "device": place(device)}
        self._make_norm(where)
        self.weight = nn.Parameter(torch.empty(self.out_features, self.in_features, **where))
        self.bias = nn.Parameter(torch.zeros(self.out_features, **where)) if bias else None
        mark_split(self.weight, 1 if parallel_mode == "row" else 0)
        if self.bias is not None and parallel_mode == "row":
            self.bias.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]
        elif self.bias is not None:
            mark_split(self.bias, 0)
        self._fill(self.weight, init_method, (get_rng_state_tracker, rng_tracker_name))

    def _make_norm(self, where: dict[str, Any]) -> None:
        """Hook for layers that start with a norm."""

    def forward(
        self, inp: torch.Tensor, is_first_microbatch: bool | None = None, **options: Any
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """Map [tokens, ..., in features] to [tokens, ..., out features]; with ``return_bias`` also the bias.

        Raises:
            ValueError: an option that needs the real Transformer Engine.
        """
        refuse_options(type(self).__name__, options)
        inner = None if self.return_bias or self.parallel_mode == "row" else self.bias
        out = multiply(self, inp, self.weight, inner)
        if self.parallel_mode == "row":
            out = self._reduced(out)
            if self.bias is not None and not self.return_bias:
                out = out + self.bias
        return (out, self.bias) if self.return_bias else out

    def _reduced(self, partial: torch.Tensor) -> torch.Tensor:
        if self.tp_size == 1:
            return partial
        from megatron.core.tensor_parallel import layers

        if self.sequence_parallel:
            return layers.reduce_scatter_to_sequence_parallel_region(partial, group=self.tp_group)
        return layers.reduce_from_tensor_model_parallel_region(partial, group=self.tp_group)


def multiply(layer: Any, inp: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Megatron's linear function with its collectives.

    Args:
        layer: has ``parallel_mode``, ``tp_size``, ``tp_group``, ``sequence_parallel`` and
            ``fuse_wgrad_accumulation``.
        inp: [tokens, ..., in features].
        weight: [out features, in features].
        bias: [out features] or None.

    Returns:
        [all tokens, ..., out features].
    """
    from megatron.core.tensor_parallel import layers

    is_split = layer.parallel_mode == "column" and layer.tp_size > 1
    if weight.requires_grad:
        product = layers.linear_with_grad_accumulation_and_async_allreduce
    else:
        product = layers.linear_with_frozen_weight
    fused = layer.fuse_wgrad_accumulation and weight.requires_grad
    return product(
        input=inp,
        weight=weight,
        bias=bias,
        gradient_accumulation_fusion=fused,
        allreduce_dgrad=is_split and not layer.sequence_parallel,
        sequence_parallel=is_split and layer.sequence_parallel,
        tp_group=layer.tp_group,
    )
