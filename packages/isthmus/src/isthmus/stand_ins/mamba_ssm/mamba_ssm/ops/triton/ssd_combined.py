"""Scan of Mamba-2, alone and with the convolution, the norm and the projection around it."""

from typing import Any

import torch
import torch.nn.functional as F

from isthmus.ops import swiglu
from isthmus.ops.state_space import causal_conv1d, chunk_scan, gated_norm

_Tensor = torch.Tensor | None
_Limit = tuple[float, float]
_NO_LIMIT = (0.0, float("inf"))


def mamba_chunk_scan_combined(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: _Tensor = None,
    z: _Tensor = None,
    dt_bias: _Tensor = None,
    initial_states: _Tensor = None,
    seq_idx: _Tensor = None,
    cu_seqlens: _Tensor = None,
    dt_softplus: bool = False,
    dt_limit: _Limit = _NO_LIMIT,
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    state_dtype: torch.dtype | None = None,
) -> Any:
    """:func:`isthmus.ops.state_space.chunk_scan`.

    Args:
        x: [batch, length, heads, features].
        dt: step sizes [batch, length, heads].
        A: [heads].
        B: [batch, length, groups, state].
        C: like ``B``.
        chunk_size: positions of a chunk.
        D: [heads] or [heads, features].
        z: gate, like ``x``.
        dt_bias: [heads].
        initial_states: [batch, heads, features, state].
        seq_idx: [batch, length], index of the sequence at each position.
        cu_seqlens: ignored without ``return_varlen_states``.
        dt_softplus: apply softplus to ``dt``.
        dt_limit: limits of ``dt``.
        return_final_states: also return the last state [batch, heads, features, state].
        return_varlen_states: not supported.
        state_dtype: ignored; states are float32.

    Returns:
        A tensor like ``x``, or (it, last state).

    Raises:
        NotImplementedError: ``return_varlen_states``.
    """
    if return_varlen_states:
        raise NotImplementedError("mamba_chunk_scan_combined: return_varlen_states=True is not supported")
    out, state = chunk_scan(
        x, dt, A, B, C, chunk_size, D, z, dt_bias, initial_states, seq_idx, bool(dt_softplus), dt_limit
    )
    return (out, state) if return_final_states else out


def mamba_split_conv1d_scan_combined(
    zxbcdt: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: _Tensor,
    dt_bias: torch.Tensor,
    A: torch.Tensor,
    D: torch.Tensor,
    chunk_size: int,
    initial_states: _Tensor = None,
    seq_idx: _Tensor = None,
    dt_limit: _Limit = _NO_LIMIT,
    return_final_states: bool = False,
    activation: str = "silu",
    rmsnorm_weight: _Tensor = None,
    rmsnorm_eps: float = 1e-6,
    outproj_weight: _Tensor = None,
    outproj_bias: _Tensor = None,
    headdim: int | None = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,
    state_dtype: torch.dtype | None = None,
) -> Any:
    """Split a projection into gate, input, matrices and step sizes; convolve, scan, normalize and project.

    Args:
        zxbcdt: [batch, length, 2 * channels + 2 * groups * state + heads], channels = heads * features; further
            features in front pass through a SwiGLU only.
        conv1d_weight: [channels + 2 * groups * state, width].
        conv1d_bias: [channels + 2 * groups * state].
        dt_bias: [heads].
        A: [heads].
        D: [heads] or [heads, features].
        chunk_size: positions of a chunk.
        initial_states: [batch, heads, features, state].
        seq_idx: [batch, length], index of the sequence at each position.
        dt_limit: limits of the step sizes.
        return_final_states: also return the last state.
        activation: of the convolution: None, "silu" or "swish".
        rmsnorm_weight: [channels]; None multiplies by the gate without a norm.
        rmsnorm_eps: of the norm.
        outproj_weight: [out features, channels].
        outproj_bias: [out features].
        headdim: features of a head; required if ``D`` is [heads].
        ngroups: number of groups, also of the norm.
        norm_before_gate: multiply by the gate after the norm, not before.
        state_dtype: ignored; states are float32.

    Returns:
        [batch, length, channels or out features], or (it, last state).

    Raises:
        ValueError: ``headdim`` is missing.
    """
    heads = D.shape[0]
    features = D.shape[1] if D.dim() == 2 else headdim
    if features is None:
        raise ValueError("mamba_split_conv1d_scan_combined: D of shape [heads] needs headdim")
    channels, convolved = heads * features, conv1d_weight.shape[0]
    size = (convolved - channels) // (2 * ngroups)
    rest = zxbcdt.shape[-1] - channels - convolved - heads
    extra, z, xbc, dt = zxbcdt.split([rest, channels, convolved, heads], -1)
    xbc = causal_conv1d(xbc.transpose(1, 2), conv1d_weight, conv1d_bias, seq_idx, None, activation).transpose(
        1, 2
    )
    x, b, c = xbc.split([channels, ngroups * size, ngroups * size], -1)
    x, gate = (each.unflatten(-1, (heads, features)) for each in (x, z))
    b, c = (each.unflatten(-1, (ngroups, size)) for each in (b, c))
    out, state = chunk_scan(
        x, dt, A, b, c, chunk_size, D, gate if rmsnorm_weight is None else None, dt_bias, initial_states, seq_idx,
        True, dt_limit,
    )  # fmt: skip
    out = out.flatten(-2)
    if rmsnorm_weight is not None:
        group = channels // ngroups
        out = gated_norm(out, rmsnorm_weight, None, z, rmsnorm_eps, group, norm_before_gate, True)
    if rest:
        out = torch.cat((swiglu(extra), out), -1)
    if outproj_weight is not None:
        out = F.linear(out, outproj_weight, outproj_bias)
    return (out, state) if return_final_states else out
