"""Grouped linear layers of several experts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .base import TransformerEngineBaseModule, mark_split, place, refuse_options
from .linear import multiply


class GroupedLinear(TransformerEngineBaseModule):
    """``num_gemms`` linear layers ``weight0``, ``weight1``, ...; arguments as :class:`Linear`.

    Raises:
        ValueError: more than one tensor-parallel rank, or an option that needs the real Transformer Engine.
    """

    def __init__(
        self,
        num_gemms: int,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        rng_tracker_name: str | None = None,
        init_method: Callable[..., Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        device: Any = "cuda",
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_options(type(self).__name__, options)
        self._join(tp_group, tp_size)
        if self.tp_size > 1:
            raise ValueError(
                f"GroupedLinear: tp_size is {self.tp_size}; it must be 1, as the token dispatcher communicates"
            )
        self.num_gemms, self.in_features, self.out_features = num_gemms, in_features, out_features
        self.use_bias, self.return_bias, self.parallel_mode = bias, return_bias, parallel_mode
        self.sequence_parallel, self.fuse_wgrad_accumulation = False, fuse_wgrad_accumulation
        where: dict[str, Any] = {"dtype": params_dtype, "device": place(device)}
        for index in range(num_gemms):
            weight = nn.Parameter(torch.empty(out_features, in_features, **where))
            self.register_parameter(f"weight{index}", weight)
            mark_split(weight, 1 if parallel_mode == "row" else 0)
            self._fill(weight, init_method, (get_rng_state_tracker, rng_tracker_name))
        for index in range(num_gemms if bias else 0):
            self.register_parameter(f"bias{index}", nn.Parameter(torch.zeros(out_features, **where)))

    def forward(
        self, inp: torch.Tensor, m_splits: list[int], is_first_microbatch: bool | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Multiply rows by the weights of their experts.

        Args:
            inp: [rows, in features], sorted by expert.
            m_splits: rows of each expert.
            is_first_microbatch: ignored.

        Returns:
            [rows, out features]; with ``return_bias`` also the biases.
        """
        rows = inp.reshape(-1, self.in_features).split([int(each) for each in m_splits])
        biases = [getattr(self, f"bias{index}") if self.use_bias else None for index in range(self.num_gemms)]
        parts = [
            multiply(self, part, getattr(self, f"weight{index}"), None if self.return_bias else bias)
            for index, (part, bias) in enumerate(zip(rows, biases, strict=True))
        ]
        out = torch.cat(parts).view(*inp.shape[:-1], self.out_features)
        return (out, biases) if self.return_bias else out
