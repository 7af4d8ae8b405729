"""Mamba layer."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from isthmus.ops.state_space import (
    causal_conv1d,
    causal_conv1d_update,
    last_inputs,
    selective_scan,
    state_update,
)

from ..ops.selective_scan_interface import mamba_inner_fn


class Mamba(nn.Module):
    """Projection, convolution, scan and projection (Gu and Dao, 2023).

    Args:
        d_model: features of input and output.
        d_state: size of a channel's state.
        d_conv: width of the convolution.
        expand: channels per feature.
        dt_rank: rank of the step sizes; "auto" is ``d_model / 16``, rounded up.
        dt_min: least step size at first.
        dt_max: largest step size at first.
        dt_init: "random" or "constant" projection of the step sizes.
        dt_scale: factor of that projection.
        dt_init_floor: lower limit of the step sizes at first.
        conv_bias: whether the convolution has a bias.
        bias: whether the outer projections have one.
        use_fast_path: ignored.
        layer_idx: index of the layer in a cache, for generation.
        device: device of the parameters.
        dtype: dtype of the parameters, except ``A_log`` and ``D``.

    Raises:
        NotImplementedError: another ``dt_init``.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        dt_rank: int | str = "auto",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init: str = "random",
        dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4,
        conv_bias: bool = True,
        bias: bool = False,
        use_fast_path: bool = True,
        layer_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if dt_init not in ("random", "constant"):
            raise NotImplementedError(
                f"Mamba: dt_init {dt_init!r} is not supported; use 'random' or 'constant'"
            )
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner = int(expand * d_model)
        self.dt_rank = math.ceil(d_model / 16) if isinstance(dt_rank, str) else dt_rank
        self.use_fast_path, self.layer_idx = use_fast_path, layer_idx
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=bias, **options)
        self.conv1d = nn.Conv1d(
            self.d_inner,
            self.d_inner,
            d_conv,
            groups=self.d_inner,
            padding=d_conv - 1,
            bias=conv_bias,
            **options,
        )
        self.activation, self.act = "silu", nn.SiLU()
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False, **options)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner, **options)
        limit = self.dt_rank**-0.5 * dt_scale
        with torch.no_grad():
            if dt_init == "constant":
                self.dt_proj.weight.fill_(limit)
            else:
                self.dt_proj.weight.uniform_(-limit, limit)
            spread = torch.rand(self.d_inner, device=device) * (math.log(dt_max) - math.log(dt_min))
            steps = (spread + math.log(dt_min)).exp().clamp(min=dt_init_floor)
            self.dt_proj.bias.copy_(steps + (-(-steps).expm1()).log())  # the inverse of softplus
        self.dt_proj.bias._no_reinit = True  # type: ignore[attr-defined]
        levels = torch.arange(1, d_state + 1, dtype=torch.float32, device=device)
        self.A_log = nn.Parameter(levels.log().repeat(self.d_inner, 1))
        self.D = nn.Parameter(torch.ones(self.d_inner, device=device))
        self.A_log._no_weight_decay = self.D._no_weight_decay = True  # type: ignore[attr-defined]
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias, **options)

    def forward(self, hidden_states: torch.Tensor, inference_params: Any = None) -> torch.Tensor:
        """Apply the layer.

        Args:
            hidden_states: [batch, length, d_model].
            inference_params: cache for generation, with ``seqlen_offset`` and ``key_value_memory_dict``.

        Returns:
            A tensor like ``hidden_states``.
        """
        if inference_params is None:
            xz = self.in_proj(hidden_states).transpose(1, 2)
            return mamba_inner_fn(
                xz, self.conv1d.weight, self.conv1d.bias, self.x_proj.weight, self.dt_proj.weight,
                self.out_proj.weight, self.out_proj.bias, self._A(), None, None, self.D.float(),
                self.dt_proj.bias.float(),
            )  # fmt: skip
        states = self._states(inference_params, hidden_states.shape[0])
        if inference_params.seqlen_offset > 0:
            return self.step(hidden_states, *states)[0]
        return self._fill(hidden_states, *states)

    def _A(self) -> torch.Tensor:
        return -self.A_log.float().exp()

    def _parts(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Step sizes without their bias, B and C of [..., channels]."""
        dt, b, c = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], -1)
        return F.linear(dt, self.dt_proj.weight), b, c

    def _fill(
        self, hidden_states: torch.Tensor, conv_state: torch.Tensor, ssm_state: torch.Tensor
    ) -> torch.Tensor:
        """Apply the layer to the first positions, and write the states."""
        x, z = self.in_proj(hidden_states).transpose(1, 2).chunk(2, 1)
        conv_state.copy_(last_inputs(x, None, self.d_conv))
        x = causal_conv1d(x, self.conv1d.weight.squeeze(1), self.conv1d.bias, activation="silu")
        dt, b, c = (each.transpose(1, 2) for each in self._parts(x.transpose(1, 2)))
        bias = self.dt_proj.bias.float()
        y, last = selective_scan(x, dt, self._A(), b, c, self.D.float(), z, bias, delta_softplus=True)
        ssm_state.copy_(last)
        return self.out_proj(y.transpose(1, 2))

    def step(
        self, hidden_states: torch.Tensor, conv_state: torch.Tensor, ssm_state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Apply the layer to one position [batch, 1, d_model]; the states are changed in place and returned."""
        x, z = self.in_proj(hidden_states.squeeze(1)).chunk(2, -1)
        x = causal_conv1d_update(x, conv_state, self.conv1d.weight.squeeze(1), self.conv1d.bias, "silu")
        dt, b, c = self._parts(x)
        y = state_update(ssm_state, x, dt, self._A(), b, c, self.D, z, self.dt_proj.bias, dt_softplus=True)
        return self.out_proj(y).unsqueeze(1), conv_state, ssm_state

    def allocate_inference_cache(
        self, batch_size: int, max_seqlen: int, dtype: torch.dtype | None = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States before the first position: [batch_size, channels, d_conv] and [batch_size, channels, d_state]."""
        sizes = zip((self.d_conv, self.d_state), (self.conv1d.weight, self.dt_proj.weight), strict=True)
        conv_state, ssm_state = (
            torch.zeros(batch_size, self.d_inner, size, device=weight.device, dtype=dtype or weight.dtype)
            for size, weight in sizes
        )
        return conv_state, ssm_state

    def _states(self, params: Any, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.layer_idx is None:
            raise ValueError("Mamba: generation needs layer_idx")
        if self.layer_idx not in params.key_value_memory_dict:
            params.key_value_memory_dict[self.layer_idx] = self.allocate_inference_cache(batch_size, 0)
        return params.key_value_memory_dict[self.layer_idx]
