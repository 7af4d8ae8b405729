"""Convolution states of packed sequences."""

import torch


@torch.no_grad()
def causal_conv1d_varlen_states(x: torch.Tensor, cu_seqlens: torch.Tensor, state_len: int) -> torch.Tensor:
    """The last inputs of each sequence, after zeros if it is shorter.

    Args:
        x: [tokens, channels].
        cu_seqlens: cumulative lengths [sequences + 1].
        state_len: number of inputs.

    Returns:
        [sequences, channels, state_len].
    """
    ends = cu_seqlens[1:].long().unsqueeze(1)
    rows = torch.arange(-state_len, 0, device=x.device) + ends
    kept = rows >= cu_seqlens[:-1].long().unsqueeze(1)
    states = x[rows.clamp(min=0)] * kept.unsqueeze(-1)
    return states.transpose(1, 2)
