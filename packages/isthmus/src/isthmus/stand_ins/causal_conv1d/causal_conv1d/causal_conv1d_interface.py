"""Causal convolutions of channels, for whole sequences and for new positions."""

from typing import Any

import torch

from isthmus.ops.state_space import causal_conv1d, causal_conv1d_update, last_inputs

__all__ = ["causal_conv1d_fn", "causal_conv1d_update"]


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """:func:`isthmus.ops.state_space.causal_conv1d`.

    Args:
        x: [batch, channels, length].
        weight: [channels, width].
        bias: [channels].
        seq_idx: [batch, length], index of the sequence at each position.
        initial_states: [batch, channels, width - 1], inputs before the first.
        return_final_states: also return the last width - 1 inputs.
        final_states_out: receives them, or None.
        activation: None, "silu" or "swish".

    Returns:
        A tensor like ``x``; with ``return_final_states`` also [batch, channels, width - 1].

    Raises:
        NotImplementedError: another activation, or ``seq_idx`` with states.
    """
    if seq_idx is not None and return_final_states:
        raise NotImplementedError("causal_conv1d_fn: seq_idx with return_final_states is not supported")
    out = causal_conv1d(x, weight, bias, seq_idx, initial_states, activation)
    if not return_final_states:
        return out
    states = last_inputs(x, initial_states, weight.shape[1] - 1)
    return out, states if final_states_out is None else final_states_out.copy_(states)
