"""Convolutions and scans of state space models (Mamba, Gu and Dao, 2023; Mamba-2, Dao and Gu, 2024).

All functions compute in float32, or float64 for float64 inputs, and return the dtype of their input.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from isthmus.ops.registration import compute_dtype

_Tensor = torch.Tensor | None


# ---- causal convolution ----------------------------------------------------------------------------------------
def _activate(name: str, x: torch.Tensor, activation: str | None) -> torch.Tensor:
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError(
            f"{name}: activation {activation!r} is not supported; use None, 'silu' or 'swish'"
        )
    return x if activation is None else F.silu(x)


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: _Tensor = None,
    seq_idx: _Tensor = None,
    initial_states: _Tensor = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Depthwise convolution over the current and the previous positions.

    Args:
        x: [batch, channels, length].
        weight: [channels, width].
        bias: [channels].
        seq_idx: [batch, length], index of the sequence at each position; others are not seen.
        initial_states: [batch, channels, width - 1], inputs before the first; None is 0.
        activation: None, "silu" or "swish".

    Returns:
        A tensor like ``x``.

    Raises:
        NotImplementedError: another activation, or ``seq_idx`` with ``initial_states``.
    """
    if seq_idx is not None and initial_states is not None:
        raise NotImplementedError("causal_conv1d: seq_idx with initial_states is not supported")
    kind, width, length = compute_dtype(x), weight.shape[1], x.shape[-1]
    wide, taps = x.to(kind), weight.to(kind)
    offset = None if bias is None else bias.to(kind)
    before = F.pad(wide, (width - 1, 0))
    if initial_states is not None:
        before = torch.cat((initial_states.to(kind), wide), -1)
    if seq_idx is None:
        out = F.conv1d(before, taps.unsqueeze(1), offset, groups=x.shape[1])
    else:
        out = torch.zeros_like(wide) if offset is None else offset[:, None].expand_as(wide)
        index = F.pad(seq_idx, (width - 1, 0), value=-1)
        for i in range(width):
            same = (index[:, i : i + length] == seq_idx).unsqueeze(1)
            out = out + taps[:, i, None] * before[..., i : i + length] * same
    return _activate("causal_conv1d", out, activation).to(x.dtype)


def last_inputs(x: torch.Tensor, initial_states: _Tensor, size: int) -> torch.Tensor:
    """The last ``size`` inputs of a convolution [batch, channels, size], with those before the first."""
    whole = x if initial_states is None else torch.cat((initial_states.to(x.dtype), x), -1)
    return F.pad(whole, (size - whole.shape[-1], 0))


@torch.no_grad()
def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: _Tensor = None,
    activation: str | None = None,
    cache_seqlens: _Tensor = None,
    conv_state_indices: _Tensor = None,
) -> torch.Tensor:
    """:func:`causal_conv1d` of new positions, with the previous inputs in a state that is changed in place.

    Args:
        x: [batch, channels] or [batch, channels, length].
        conv_state: [batch, channels, size], size at least width - 1; the last inputs.
        weight: [channels, width].
        bias: [channels].
        activation: None, "silu" or "swish".
        cache_seqlens: [batch], number of inputs so far: the state is a circular buffer.
        conv_state_indices: [batch], rows of ``conv_state``; None is all.

    Returns:
        A tensor like ``x``.
    """
    new = x.unsqueeze(-1) if x.dim() == 2 else x
    state = conv_state if conv_state_indices is None else conv_state[conv_state_indices.long()]
    width, size, length = weight.shape[1], state.shape[-1], new.shape[-1]
    if cache_seqlens is None:
        whole = torch.cat((state, new.to(state.dtype)), -1)
        before, state = whole[..., size - width + 1 : size], whole[..., -size:]
    else:
        past = torch.arange(-(width - 1), 0, device=x.device) + cache_seqlens.long().unsqueeze(1)
        here = torch.arange(length, device=x.device) + cache_seqlens.long().unsqueeze(1)
        before = state.gather(2, (past % size).unsqueeze(1).expand(-1, state.shape[1], -1))
        where = (here % size).unsqueeze(1).expand(-1, state.shape[1], -1)
        state = state.scatter(2, where, new.to(state.dtype))
    if conv_state_indices is None:
        conv_state.copy_(state)
    else:
        conv_state[conv_state_indices.long()] = state
    out = causal_conv1d(new, weight, bias, None, before, activation)
    return out.squeeze(-1) if x.dim() == 2 else out


# ---- scan of Mamba ---------------------------------------------------------------------------------------------
class _Scan(torch.autograd.Function):
    """``h[t] = decay[t] * h[t - 1] + input[t]`` along the first dimension, from 0."""

    @staticmethod
    def forward(ctx: Any, decay: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
        states = torch.empty_like(input)
        for t in range(len(input)):
            states[t] = input[t] if t == 0 else torch.addcmul(input[t], decay[t], states[t - 1])
        ctx.save_for_backward(decay, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        decay, states = ctx.saved_tensors
        total = torch.empty_like(states)
        last = len(states) - 1
        for t in range(last, -1, -1):
            total[t] = grad[t] if t == last else torch.addcmul(grad[t], decay[t + 1], total[t + 1])
        before = torch.cat((torch.zeros_like(states[:1]), states[:-1]))
        return total * before, total


def selective_scan(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: _Tensor = None,
    z: _Tensor = None,
    delta_bias: _Tensor = None,
    delta_softplus: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scan of Mamba: ``h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * B[t] * u[t]`` and ``y[t] = C[t] @ h[t]``.

    Args:
        u: [batch, channels, length].
        delta: step sizes, like ``u``.
        A: [channels, state].
        B: [channels, state], [batch, state, length] or [batch, groups, state, length].
        C: like ``B``.
        D: [channels], factor of ``u`` in the result.
        z: like ``u``; the result is multiplied by ``silu(z)``.
        delta_bias: [channels], added to ``delta``.
        delta_softplus: apply softplus to ``delta``.

    Returns:
        (a tensor like ``u``, last state [batch, channels, state] without a gradient).

    Raises:
        NotImplementedError: ``A`` is complex.
    """
    if A.is_complex():
        raise NotImplementedError("selective_scan: a complex A is not supported")
    kind, channels = compute_dtype(u), u.shape[1]
    wide, steps = u.to(kind), delta.to(kind)
    if delta_bias is not None:
        steps = steps + delta_bias.to(kind)[:, None]
    steps = F.softplus(steps) if delta_softplus else steps
    b, c = (_per_position(each.to(kind), channels) for each in (B, C))
    steps, scaled = steps.permute(2, 0, 1), (steps * wide).permute(2, 0, 1)  # [length, batch, channels]
    states = _Scan.apply((steps.unsqueeze(-1) * A.to(kind)).exp(), scaled.unsqueeze(-1) * b)
    y = (states * c).sum(-1).permute(1, 2, 0)
    if D is not None:
        y = y + wide * D.to(kind)[:, None]
    if z is not None:
        y = y * F.silu(z.to(kind))
    return y.to(u.dtype), states[-1].detach()


def _per_position(matrix: torch.Tensor, channels: int) -> torch.Tensor:
    """B or C broadcastable to [length, batch, channels, state]."""
    if matrix.dim() == 2:
        return matrix
    if matrix.dim() == 3:
        return matrix.permute(2, 0, 1).unsqueeze(2)
    return matrix.repeat_interleave(channels // matrix.shape[1], 1).permute(3, 0, 1, 2)


@torch.no_grad()
def state_update(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: _Tensor = None,
    z: _Tensor = None,
    dt_bias: _Tensor = None,
    dt_softplus: bool = False,
    state_batch_indices: _Tensor = None,
) -> torch.Tensor:
    """One position of :func:`selective_scan` or :func:`chunk_scan`; ``state`` is changed in place.

    Args:
        state: [batch, heads, features, state], or without heads.
        x: [batch, heads, features], or without heads, like the next.
        dt: like ``x``.
        A: [heads, features, state].
        B: [batch, groups, state], or without groups.
        C: like ``B``.
        D: [heads, features].
        z: like ``x``; the result is multiplied by ``silu(z)``.
        dt_bias: [heads, features].
        dt_softplus: apply softplus to ``dt``.
        state_batch_indices: [batch], rows of ``state``; None is all.

    Returns:
        A tensor like ``x``.
    """
    kind, rows = compute_dtype(x), None if state_batch_indices is None else state_batch_indices.long()
    given = state if rows is None else state[rows]
    has_heads = state.dim() == 4
    held = (given if has_heads else given.unsqueeze(1)).to(kind)
    inputs, steps = (each.to(kind) if has_heads else each.to(kind).unsqueeze(1) for each in (x, dt))
    steps = steps if dt_bias is None else steps + dt_bias.to(kind)
    steps = F.softplus(steps) if dt_softplus else steps
    heads = held.shape[1]
    b, c = (each.to(kind) if each.dim() == 3 else each.to(kind).unsqueeze(1) for each in (B, C))
    b, c = (each.repeat_interleave(heads // each.shape[1], 1).unsqueeze(2) for each in (b, c))
    held = held * (steps.unsqueeze(-1) * A.to(kind)).exp() + (steps * inputs).unsqueeze(-1) * b
    out = (held * c).sum(-1)
    out = out if D is None else out + inputs * D.to(kind)
    out = out if has_heads else out.squeeze(1)
    changed = held.view(given.shape).to(state.dtype)
    if rows is None:
        state.copy_(changed)
    else:
        state[rows] = changed
    return (out if z is None else out * F.silu(z.to(kind))).to(x.dtype)


# ---- scan of Mamba-2 -------------------------------------------------------------------------------------------
def chunk_scan(
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
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scan of Mamba-2, in chunks: ``h[t] = exp(dt[t] * A) * h[t - 1] + dt[t] * x[t] B[t]`` and ``y[t] = h[t] C[t]``.

    Args:
        x: [batch, length, heads, features].
        dt: step sizes [batch, length, heads].
        A: [heads].
        B: [batch, length, groups, state].
        C: like ``B``.
        chunk_size: positions of a chunk.
        D: [heads] or [heads, features], factor of ``x`` in the result.
        z: like ``x``; the result is multiplied by ``silu(z)``.
        dt_bias: [heads], added to ``dt``.
        initial_states: [batch, heads, features, state] before the first position; None is 0.
        seq_idx: [batch, length], index of the sequence at each position, from 0; states stay in their sequence.
        dt_softplus: apply softplus to ``dt``.
        dt_limit: limits of ``dt``, after softplus.

    Returns:
        (a tensor like ``x``, last state [batch, heads, features, state]).
    """
    kind, (batch, length, heads, features) = compute_dtype(x), x.shape
    steps = dt.to(kind) if dt_bias is None else dt.to(kind) + dt_bias.to(kind)
    steps = (F.softplus(steps) if dt_softplus else steps).clamp(*dt_limit)
    wide = x.to(kind)
    size = min(chunk_size, max(length, 1))
    pad = -length % size

    def chunks(tensor: torch.Tensor) -> torch.Tensor:
        padded = F.pad(tensor, (*(0, 0) * (tensor.dim() - 2), 0, pad))
        return padded.unflatten(1, (-1, size))

    log_decay = chunks(steps * A.to(kind)).cumsum(2).movedim(3, 2)  # [batch, chunks, heads, positions]
    inputs = chunks(wide * steps.unsqueeze(-1)).movedim(3, 2)  # [batch, chunks, heads, positions, features]
    b, c = (
        chunks(each.to(kind).repeat_interleave(heads // each.shape[2], 2)).movedim(3, 2) for each in (B, C)
    )
    same = _Sequences(seq_idx, batch, size, pad, log_decay)
    within = log_decay.unsqueeze(-1) - log_decay.unsqueeze(-2)
    within = within.masked_fill(~same.within(), -torch.inf).exp()
    out = (c @ b.transpose(-1, -2) * within) @ inputs
    to_end = (log_decay[..., -1:] - log_decay).exp() * same.to_end()
    added = (inputs * to_end.unsqueeze(-1)).transpose(-1, -2) @ b  # [batch, chunks, heads, features, state]
    carried = log_decay[..., -1].exp() * same.carried()
    state = added.new_zeros(added[:, 0].shape) if initial_states is None else initial_states.to(kind)
    before = []
    for i in range(added.shape[1]):
        before.append(state)
        state = state * carried[:, i, :, None, None] + added[:, i]
    from_start = (log_decay.exp() * same.from_start()).unsqueeze(-1)
    out = out + (c @ torch.stack(before, 1).transpose(-1, -2)) * from_start
    out = out.movedim(2, 3).reshape(batch, -1, heads, features)[:, :length]
    if D is not None:
        out = out + wide * (D if D.dim() == 2 else D.unsqueeze(-1)).to(kind)
    if z is not None:
        out = out * F.silu(z.to(kind))
    return out.to(x.dtype), state


class _Sequences:
    """Masks of the positions that belong to one sequence, for tensors [batch, chunks, heads, positions].

    Args:
        seq_idx: [batch, length], or None for one sequence.
        batch: batch size.
        size: positions of a chunk.
        pad: positions after the last one.
        like: a tensor on the device.
    """

    def __init__(self, seq_idx: _Tensor, batch: int, size: int, pad: int, like: torch.Tensor) -> None:
        self._index = self._last = self._previous = None
        self._causal = torch.ones(size, size, dtype=torch.bool, device=like.device).tril()
        if seq_idx is None:
            return
        tail = seq_idx[:, -1:].expand(batch, pad)
        self._index = torch.cat((seq_idx, tail), 1).unflatten(1, (-1, size)).unsqueeze(2)
        self._last = self._index[..., -1:]
        self._previous = F.pad(self._last[:, :-1], (0, 0, 0, 0, 1, 0))  # initial states belong to sequence 0

    def within(self) -> torch.Tensor:
        """Whether a position sees another of its chunk: [..., positions, positions]."""
        if self._index is None:
            return self._causal
        return self._causal & (self._index.unsqueeze(-1) == self._index.unsqueeze(-2))

    def to_end(self) -> Any:
        """Whether a position is in the sequence of its chunk's last position."""
        return 1 if self._index is None else self._index == self._last

    def from_start(self) -> Any:
        """Whether a position is in the sequence of the previous chunk's last position."""
        return 1 if self._index is None else self._index == self._previous

    def carried(self) -> Any:
        """Whether a chunk passes the state before it on: [batch, chunks, 1]."""
        if self._last is None:
            return 1
        return (self._last == self._previous).squeeze(-1)


def gated_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: _Tensor = None,
    z: _Tensor = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
) -> torch.Tensor:
    """Normalize the last dimension in groups, and multiply by ``silu(z)`` before or after.

    Args:
        x: [..., size].
        weight: [size].
        bias: [size].
        z: like ``x``.
        eps: added to the variance.
        group_size: size of a group; None is the whole dimension.
        norm_before_gate: multiply after the normalization.
        is_rms_norm: without the mean.

    Returns:
        A tensor like ``x``.
    """
    kind = compute_dtype(x)
    wide, gate = x.to(kind), None if z is None else F.silu(z.to(kind))
    if gate is not None and not norm_before_gate:
        wide = wide * gate
    groups = wide.unflatten(-1, (-1, group_size or x.shape[-1]))
    groups = groups if is_rms_norm else groups - groups.mean(-1, keepdim=True)
    hat = (groups * (groups.square().mean(-1, keepdim=True) + eps).rsqrt()).flatten(-2)
    out = hat * weight.to(kind)
    out = out if bias is None else out + bias.to(kind)
    return (out * gate if gate is not None and norm_before_gate else out).to(x.dtype)
