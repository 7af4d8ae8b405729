"""Pack and unpack padded batches, like flash-attn's ``bert_padding``."""

import torch


def index_first_axis(input: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Select rows of the first dimension: ``input[indices]``.

    Args:
        input: [rows, ...].
        indices: [n] integers.

    Returns:
        [n, ...].
    """
    return input.index_select(0, indices)


def index_put_first_axis(values: torch.Tensor, indices: torch.Tensor, first_axis_dim: int) -> torch.Tensor:
    """The inverse of :func:`index_first_axis`: write rows into a zero tensor.

    Args:
        values: [n, ...].
        indices: [n] unique integers.
        first_axis_dim: rows of the result.
    """
    empty = values.new_zeros(first_axis_dim, *values.shape[1:])
    return empty.index_copy(0, indices, values)


def unpad_input(
    hidden_states: torch.Tensor, attention_mask: torch.Tensor, unused_mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """Remove the padding of a batch.

    Args:
        hidden_states: [batch, seq, ...].
        attention_mask: [batch, seq] bool or integers, 1 for a token.
        unused_mask: [batch, seq], 1 for an allocated but unused position. It is kept, but not counted in the last
            result.

    Returns:
        (tokens [total, ...], their indices [total] in the flattened batch, cumulative lengths [batch + 1] int32, the
        maximum length, tokens of each sequence [batch] int32).

    Raises:
        ValueError: a mask does not have the batch's shape.
    """
    for name, mask in (("attention_mask", attention_mask), ("unused_mask", unused_mask)):
        if mask is not None and mask.shape != hidden_states.shape[:2]:
            raise ValueError(
                f"unpad_input: {name} has shape {tuple(mask.shape)} and hidden_states "
                f"{tuple(hidden_states.shape)}; their first two dimensions must match"
            )
    kept = attention_mask.bool()
    counted = kept.sum(-1, dtype=torch.int32)
    kept = kept if unused_mask is None else kept | unused_mask.bool()
    lengths = kept.sum(-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    bounds = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if lengths.numel() else 0
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, bounds, longest, counted


def pad_input(hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """The inverse of :func:`unpad_input`; padding is zero.

    Args:
        hidden_states: [total, ...].
        indices: [total], as returned by :func:`unpad_input`.
        batch: number of sequences.
        seqlen: length of the padded sequences.

    Returns:
        [batch, seqlen, ...].
    """
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
