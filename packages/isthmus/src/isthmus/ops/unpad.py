"""Attention over packed sequences without padding, with the interface of AscendSpeed's unpad operators.

Tokens of all sequences are concatenated, [total, hidden]. Scores are one flat tensor: for each sequence of length s
and each head, the s * s scores, row by row. Lengths are a list on the host.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast, cpu
from isthmus.ops.registration import compute_dtype, operator
from isthmus.ops.rotary import rotary_qk


@operator("unpad_seqlen", any_dtype=True)
def _unpad_seqlen(x: torch.Tensor, seq_len: Sequence[int], max_s: int) -> torch.Tensor:
    return torch.cat([x[i, :length] for i, length in enumerate(seq_len)])


@operator("pad_seqlen", any_dtype=True)
def _pad_seqlen(x: torch.Tensor, seq_len: Sequence[int], max_s: int) -> torch.Tensor:
    out = x.new_zeros(len(seq_len), max_s, x.size(1))
    for i, part in enumerate(x.split(list(seq_len))):
        out[i, : seq_len[i]].copy_(part)
    return out


@operator("unpad_gen_attention_mask", any_dtype=True)
def _unpad_gen_attention_mask(mask: torch.Tensor, seq_len: Sequence[int], heads: int) -> torch.Tensor:
    return torch.cat(
        [mask[i, 0, :s, :s].expand(heads, s, s).flatten() for i, s in enumerate(seq_len)]
    ).clone()


@operator("unpad_softmax")
def _unpad_softmax(x: torch.Tensor, seq_len: Sequence[int], heads: int) -> torch.Tensor:
    wide = compute_dtype(x)
    return torch.cat([part.to(wide).softmax(-1).to(x.dtype).flatten() for part in _rows(x, seq_len, heads)])


@operator("unpad_softmax_backward")
def _unpad_softmax_backward(
    grad: torch.Tensor, out: torch.Tensor, seq_len: Sequence[int], heads: int
) -> torch.Tensor:
    wide = compute_dtype(grad)

    def part(slope: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (y * (slope - (y * slope).sum(-1, keepdim=True))).to(grad.dtype).flatten()

    pairs = zip(_rows(grad, seq_len, heads), _rows(out, seq_len, heads), strict=True)
    return torch.cat([part(slope.to(wide), y.to(wide)) for slope, y in pairs])


def _rows(flat: torch.Tensor, seq_len: Sequence[int], heads: int) -> list[torch.Tensor]:
    parts = flat.split([heads * s * s for s in seq_len])
    return [part.view(heads * s, s) for part, s in zip(parts, seq_len, strict=True)]


for _each in (_unpad_seqlen, _pad_seqlen, _unpad_gen_attention_mask):
    cpu.add(_each, lambda *_: "")  # they copy elements of any dtype
for _each in (_unpad_softmax, _unpad_softmax_backward):
    cpu.add(_each)


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seq_len: list[int], max_s: int, pad: bool) -> Any:
        ctx.settings = seq_len, max_s, pad
        return (_pad_seqlen if pad else _unpad_seqlen)(x, seq_len, max_s)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        seq_len, max_s, pad = ctx.settings
        return (_unpad_seqlen if pad else _pad_seqlen)(grad, seq_len, max_s), None, None, None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seq_len: list[int], heads: int) -> Any:
        out = _unpad_softmax(x, seq_len, heads)
        ctx.save_for_backward(out)
        ctx.settings = seq_len, heads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return _unpad_softmax_backward(grad, out, *ctx.settings), None, None


def unpad_seqlen(x: torch.Tensor, seq_len: Sequence[int], max_s: int | None = None) -> torch.Tensor:
    """Remove the padding of a batch: concatenate the tokens of its sequences.

    Args:
        x: [batch, max_s, hidden] of any dtype.
        seq_len: length of each sequence; may be 0.
        max_s: must be ``x.size(1)``, the default.

    Returns:
        [sum(seq_len), hidden].

    Raises:
        ValueError: ``seq_len`` or ``max_s`` do not match the batch.
    """
    longest = x.size(1) if max_s is None else max_s
    lengths = _lengths("unpad_seqlen", seq_len, longest)
    if x.dim() != 3 or x.size(0) != len(lengths) or x.size(1) != longest:
        raise ValueError(
            f"unpad_seqlen: x has shape {tuple(x.shape)} for {len(lengths)} sequences and max_s {longest}; "
            "it must be [batch, max_s, hidden]"
        )
    return _Unpad.apply(x, lengths, longest, False)


def pad_seqlen(x: torch.Tensor, seq_len: Sequence[int], max_s: int) -> torch.Tensor:
    """The inverse of :func:`unpad_seqlen`; pads with zeros.

    Args:
        x: [sum(seq_len), hidden] of any dtype.
        seq_len: length of each sequence.
        max_s: length of the padded sequences.

    Returns:
        [batch, max_s, hidden].

    Raises:
        ValueError: the lengths do not add up to the tokens, or one is above ``max_s``.
    """
    lengths = _lengths("pad_seqlen", seq_len, max_s)
    if x.dim() != 2 or x.size(0) != sum(lengths):
        raise ValueError(
            f"pad_seqlen: x has shape {tuple(x.shape)} and the lengths add up to {sum(lengths)}; it must be "
            "[sum(seq_len), hidden]"
        )
    return _Unpad.apply(x, lengths, max_s, True)


def unpad_gen_attention_mask(mask: torch.Tensor, seq_len: Sequence[int], heads: int) -> torch.Tensor:
    """Convert the mask of a padded batch to a mask of flat scores.

    Args:
        mask: [batch, 1, max_s, max_s]; True, or above 0.5, is masked.
        seq_len: length of each sequence.
        heads: number of heads.

    Returns:
        [heads * sum(s * s)] bool. No gradient.

    Raises:
        ValueError: the mask has another shape, or a length is above ``max_s``.
    """
    lengths = _lengths("unpad_gen_attention_mask", seq_len, mask.size(-1))
    square = mask.dim() == 4 and mask.size(1) == 1 and mask.size(2) == mask.size(3)
    if not square or mask.size(0) != len(lengths):
        raise ValueError(
            f"unpad_gen_attention_mask: mask has shape {tuple(mask.shape)} for {len(lengths)} sequences; it must be "
            "[batch, 1, max_s, max_s]"
        )
    masked = mask if mask.dtype == torch.bool else mask > 0.5
    return _unpad_gen_attention_mask(masked.detach(), lengths, heads)


def unpad_softmax(x: torch.Tensor, seq_len: Sequence[int], heads: int) -> torch.Tensor:
    """Softmax over each row of flat scores, computed in float32 or wider.

    Args:
        x: [heads * sum(s * s)], float16, bfloat16, float32 or float64.
        seq_len: length of each sequence.
        heads: number of heads.

    Returns:
        A tensor like ``x``.

    Raises:
        ValueError: the number of scores does not match the lengths and heads.
    """
    lengths = _lengths("unpad_softmax", seq_len)
    wanted = heads * sum(s * s for s in lengths)
    if x.shape != (wanted,):
        raise ValueError(
            f"unpad_softmax: x has shape {tuple(x.shape)}; {heads} heads and these lengths need {wanted} scores"
        )
    (x,) = autocast.single(x)
    return _Softmax.apply(x, lengths, heads)


def unpad_rope(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, seq_len: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary embedding (NeoX style); the first token of each sequence has position 0.

    Args:
        query: [sum(seq_len), heads * size], float16, bfloat16, float32 or float64.
        key: [sum(seq_len), key heads * size].
        cos: [max_s, size].
        sin: [max_s, size].
        seq_len: length of each sequence.

    Returns:
        The rotated (query, key). The gradient is the inverse rotation.

    Raises:
        ValueError: the shapes do not match, or a sequence is longer than the tables.
    """
    lengths = _lengths("unpad_rope", seq_len, cos.size(0))
    size, total = cos.size(-1), sum(lengths)
    for name, each in (("query", query), ("key", key)):
        if each.dim() != 2 or each.size(0) != total or each.size(1) % size:
            raise ValueError(
                f"unpad_rope: {name} has shape {tuple(each.shape)}; it must be [{total}, heads * {size}], by the "
                "lengths and the tables"
            )
    where = torch.cat([torch.arange(0), *(torch.arange(s) for s in lengths)]).to(query.device)
    of_query, of_key = query.unflatten(1, (-1, size)), key.unflatten(1, (-1, size))
    rotated, other = rotary_qk(of_query, of_key, cos, sin, positions=where, dim=size)
    return rotated.flatten(1), other.flatten(1)


def _lengths(name: str, seq_len: Sequence[int], most: int | None = None) -> list[int]:
    lengths = [int(each) for each in seq_len]
    if not lengths or min(lengths) < 0 or (most is not None and max(lengths) > most):
        limit = "from 0 on" if most is None else f"from 0 to {most}"
        raise ValueError(f"{name}: seq_len is {lengths}; it must have at least one length, each {limit}")
    return lengths
