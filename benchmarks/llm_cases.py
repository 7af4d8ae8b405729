"""The operators that llm_operators.py and llm_operators_gpu.py measure: ours, PyTorch's, and the limit of each.

A case creates its tensors once, on the default device, and has two functions of them; ``portion`` multiplies the
number of tokens for two cores. Memory-bound operators are compared with a copy of as many bytes, matrix products with
a product of as many FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from isthmus import ops

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One operator at one size.

    Attributes:
        sizes: description for the table.
        inputs: arguments of both functions; those that require gradients get them in the backward.
        ours: function with isthmus.ops.
        eager: function with PyTorch.
        goals: maximum ratios to eager and to torch.compile; None for no goal.
        moved: bytes read and written in the forward, and in forward and backward together.
        flops: of the forward, and of both.
        in_place: whether it modifies its inputs and has no backward.
    """

    sizes: str
    inputs: tuple[Any, ...]
    ours: Function
    eager: Function
    goals: tuple[float | None, float | None] = (None, None)
    moved: tuple[int, int] = (0, 0)
    flops: tuple[int, int] = (0, 0)
    in_place: bool = False


def leaf(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


def rms_norm(dtype: torch.dtype, portion: float) -> Case:
    tokens, hidden = round(4096 * portion), 2048
    x, weight = leaf(tokens, hidden, dtype=dtype), leaf(hidden, dtype=dtype)
    bytes_of_x = x.nbytes
    return Case(
        sizes=f"{tokens} x {hidden}",
        inputs=(x, weight),
        ours=lambda x, w: ops.rms_norm(x, w, 1e-6),
        eager=lambda x, w: F.rms_norm(x, (hidden,), w, 1e-6),
        goals=(0.25, 0.8),
        moved=(2 * bytes_of_x, 5 * bytes_of_x),
    )


def add_rms_norm(dtype: torch.dtype, portion: float) -> Case:
    tokens, hidden = round(4096 * portion), 2048
    x, residual = leaf(tokens, hidden, dtype=dtype), leaf(tokens, hidden, dtype=dtype)

    def eager(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
        total = x + residual
        return F.rms_norm(total, (hidden,), weight, 1e-6), total

    return Case(
        sizes=f"{tokens} x {hidden}",
        inputs=(x, residual, leaf(hidden, dtype=dtype)),
        ours=lambda x, residual, w: ops.add_rms_norm(x, residual, w, 1e-6),
        eager=eager,
        goals=(0.25, 0.8),
        moved=(4 * x.nbytes, 8 * x.nbytes),
    )


def swiglu(dtype: torch.dtype, portion: float) -> Case:
    tokens, hidden = round(2048 * portion), 5632
    gate, up = leaf(tokens, hidden, dtype=dtype), leaf(tokens, hidden, dtype=dtype)
    return Case(
        sizes=f"{tokens} x {hidden}",
        inputs=(gate, up),
        ours=ops.swiglu,
        eager=lambda gate, up: F.silu(gate) * up,
        goals=(0.5, 1.0),
        moved=(3 * gate.nbytes, 8 * gate.nbytes),
    )


def rotary(dtype: torch.dtype, portion: float) -> Case:
    """Query and key as in LLaMA: [batch, heads, tokens, size], transposed views of a projection."""
    tokens, heads, size = round(2048 * portion), 16, 128
    angles = torch.outer(torch.arange(tokens), 10000.0 ** (-torch.arange(0, size, 2) / size))
    cos, sin = (torch.cat([each, each], -1)[None].to(dtype) for each in (angles.cos(), angles.sin()))
    query, key = (leaf(1, tokens, heads, size, dtype=dtype) for _ in range(2))

    def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]

    def eager(q: torch.Tensor, k: torch.Tensor, *tables: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return turned(q.transpose(1, 2), *tables), turned(k.transpose(1, 2), *tables)

    def ours(q: torch.Tensor, k: torch.Tensor, *tables: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ops.rotary_qk(q.transpose(1, 2), k.transpose(1, 2), *tables, layout="bhsd")

    return Case(
        sizes=f"2 x {tokens} x {heads} x {size}",
        inputs=(query, key, cos, sin),
        ours=ours,
        eager=eager,
        goals=(0.5, 1.0),
        moved=(4 * query.nbytes, 8 * query.nbytes),
    )


def attention(dtype: torch.dtype, portion: float) -> Case:
    """Causal attention, as in PyTorch's flash attention for CPU."""
    tokens, heads, size = round(1024 * portion), 16, 64
    inputs = tuple(leaf(1, tokens, heads, size, dtype=dtype) for _ in range(3))

    def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        views = (each.transpose(1, 2) for each in (q, k, v))
        return F.scaled_dot_product_attention(*views, is_causal=True).transpose(1, 2)

    product = heads * tokens * tokens * size  # FLOPs of one causal product: half of the pairs
    return Case(
        sizes=f"{tokens} x {heads} x {size}",
        inputs=inputs,
        ours=lambda q, k, v: ops.flash_attn_func(q, k, v, causal=True),
        eager=eager,
        goals=(1.0, None),
        flops=(2 * product, 7 * product),
    )


def cross_entropy(dtype: torch.dtype, portion: float) -> Case:
    tokens, classes = round(2048 * portion), 32000
    logits = leaf(tokens, classes, dtype=dtype)
    target = torch.randint(0, classes, (tokens,))
    return Case(
        sizes=f"{tokens} x {classes}",
        inputs=(logits, target),
        ours=ops.cross_entropy,
        eager=F.cross_entropy,
        moved=(logits.nbytes, 3 * logits.nbytes),
    )


def linear_cross_entropy(dtype: torch.dtype, portion: float) -> Case:
    tokens, hidden, classes = round(1024 * portion), 1024, 32000
    x, weight = leaf(tokens, hidden, dtype=dtype), leaf(classes, hidden, dtype=dtype)
    target = torch.randint(0, classes, (tokens,))
    product = 2 * tokens * hidden * classes
    return Case(
        sizes=f"{tokens} x {hidden} x {classes}",
        inputs=(x, weight, target),
        ours=ops.linear_cross_entropy,
        eager=lambda x, weight, target: F.cross_entropy(F.linear(x, weight), target),
        goals=(1.05, None),
        flops=(product, 3 * product),
    )


def adamw(dtype: torch.dtype, portion: float) -> Case:
    """All parameters of a LLaMA of four layers, clipped to a norm of one; state in the parameters' dtype."""
    layer = [(512, 512)] * 4 + [(1376, 512)] * 2 + [(512, 1376)] + [(512,)] * 2
    shapes = [(round(8192 * portion), 512)] * 2 + 4 * layer
    sides = []
    for _ in range(2):
        params = [leaf(*shape, dtype=dtype) for shape in shapes]
        for each in params:
            each.grad = torch.randn(each.shape).to(dtype)
        sides.append(params)
    fused = torch.optim.AdamW(sides[0], lr=1e-4, fused=True)
    ours = ops.AdamW(sides[1], lr=1e-4, max_norm=1.0)

    def eager() -> None:
        torch.nn.utils.clip_grad_norm_(sides[0], 1.0)
        fused.step()

    size = sum(each.nbytes for each in sides[0])
    return Case(
        sizes=f"{len(shapes)} tensors, {size / 2**20:.0f} MiB",
        inputs=(),
        ours=ours.step,
        eager=eager,
        goals=(0.78, None),
        moved=(8 * size, 0),
        in_place=True,
    )


CASES: dict[str, Callable[[torch.dtype, float], Case]] = {
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "swiglu": swiglu,
    "rotary": rotary,
    "attention": attention,
    "cross_entropy": cross_entropy,
    "linear_cross_entropy": linear_cross_entropy,
    "adamw": adamw,
}
