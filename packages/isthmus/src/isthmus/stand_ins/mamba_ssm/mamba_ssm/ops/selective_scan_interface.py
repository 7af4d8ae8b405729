"""Scan of Mamba, alone and with the projections around it."""

from typing import Any

import torch
import torch.nn.functional as F

from isthmus.ops.norm import rms_norm
from isthmus.ops.state_space import causal_conv1d, selective_scan

_Tensor = torch.Tensor | None

__all__ = ["mamba_inner_fn", "mamba_inner_ref", "selective_scan_fn", "selective_scan_ref"]


def selective_scan_fn(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: _Tensor = None,
    z: _Tensor = None,
    delta_bias: _Tensor = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """:func:`isthmus.ops.state_space.selective_scan`.

    Args:
        u: [batch, channels, length].
        delta: step sizes, like ``u``.
        A: [channels, state], real.
        B: [channels, state], [batch, state, length] or [batch, groups, state, length].
        C: like ``B``.
        D: [channels], factor of ``u`` in the result.
        z: like ``u``; the result is multiplied by ``silu(z)``.
        delta_bias: [channels], added to ``delta``.
        delta_softplus: apply softplus to ``delta``.
        return_last_state: also return the last state [batch, channels, state], without a gradient.

    Returns:
        A tensor like ``u``, or (it, last state).
    """
    out, state = selective_scan(u, delta, A, B, C, D, z, delta_bias, bool(delta_softplus))
    return (out, state) if return_last_state else out


def mamba_inner_fn(
    xz: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: _Tensor,
    x_proj_weight: torch.Tensor,
    delta_proj_weight: torch.Tensor,
    out_proj_weight: torch.Tensor,
    out_proj_bias: _Tensor,
    A: torch.Tensor,
    B: _Tensor = None,
    C: _Tensor = None,
    D: _Tensor = None,
    delta_bias: _Tensor = None,
    B_proj_bias: _Tensor = None,
    C_proj_bias: _Tensor = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
    b_rms_weight: _Tensor = None,
    c_rms_weight: _Tensor = None,
    dt_rms_weight: _Tensor = None,
    b_c_dt_rms_eps: float = 1e-6,
) -> torch.Tensor:
    """Convolution, projection of step sizes and matrices, scan, and projection of the result.

    Args:
        xz: [batch, 2 * channels, length], input and gate.
        conv1d_weight: [channels, 1, width].
        conv1d_bias: [channels].
        x_proj_weight: [rank + 2 * state, channels].
        delta_proj_weight: [channels, rank].
        out_proj_weight: [features, channels].
        out_proj_bias: [features].
        A: [channels, state], real.
        B: of :func:`selective_scan_fn`; None is projected from the input.
        C: like ``B``.
        D: of :func:`selective_scan_fn`, like the next.
        delta_bias: of :func:`selective_scan_fn`.
        B_proj_bias: [state], added to the projected ``B``.
        C_proj_bias: like ``B_proj_bias``.
        delta_softplus: of :func:`selective_scan_fn`.
        checkpoint_lvl: ignored.
        b_rms_weight: [state], weight of an RMSNorm of the projected ``B``.
        c_rms_weight: like ``b_rms_weight``.
        dt_rms_weight: [channels], weight of an RMSNorm of the step sizes.
        b_c_dt_rms_eps: of these norms.

    Returns:
        [batch, length, features].
    """
    x, z = xz.chunk(2, 1)
    x = causal_conv1d(x, conv1d_weight.squeeze(1), conv1d_bias, activation="silu")
    rank, size = delta_proj_weight.shape[1], A.shape[1]
    delta, b, c = F.linear(x.transpose(1, 2), x_proj_weight).split([rank, size, size], -1)
    delta = F.linear(delta, delta_proj_weight)
    if dt_rms_weight is not None:
        delta = rms_norm(delta, dt_rms_weight, b_c_dt_rms_eps)
    if B is None:
        B = _projected(b, B_proj_bias, b_rms_weight, b_c_dt_rms_eps)
    if C is None:
        C = _projected(c, C_proj_bias, c_rms_weight, b_c_dt_rms_eps)
    y, _ = selective_scan(x, delta.transpose(1, 2), A, B, C, D, z, delta_bias, delta_softplus)
    bias = None if out_proj_bias is None else out_proj_bias.to(out_proj_weight.dtype)
    return F.linear(y.transpose(1, 2), out_proj_weight, bias)


def _projected(matrix: torch.Tensor, bias: _Tensor, weight: _Tensor, eps: float) -> torch.Tensor:
    """B or C [batch, state, length] of a projection [batch, length, state]."""
    matrix = matrix if bias is None else matrix + bias.to(matrix.dtype)
    matrix = matrix if weight is None else rms_norm(matrix, weight, eps)
    return matrix.transpose(1, 2)


selective_scan_ref = selective_scan_fn
mamba_inner_ref = mamba_inner_fn
