"""Models of the subjects, and the single-process training to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

STEPS = 3
Loss = Callable[[nn.Module, Tensor], Tensor]


def mlp(width: int = 16, layers: int = 3) -> nn.Sequential:
    """Layers of a multilayer perceptron on [batch, width]; equal for every caller."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    return nn.Sequential(*parts)


def batch(step: int, rank: int = 0, rows: int = 4, width: int = 16) -> Tensor:
    """Input of one rank in one step, on the CPU."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(100 * step + rank))


def square(model: nn.Module, inputs: Tensor) -> Tensor:
    return model(inputs).square().mean()


def in_float32(model: nn.Module, inputs: Tensor) -> Tensor:
    """The loss of outputs in bfloat16."""
    return model(inputs).float().square().mean()


def in_bfloat16(model: nn.Module, inputs: Tensor) -> Tensor:
    """The loss with parameters and inputs rounded to bfloat16."""
    half = {name: value.bfloat16() for name, value in model.named_parameters()}
    return torch.func.functional_call(model, half, inputs.bfloat16()).float().square().mean()


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def parameters(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().cpu().clone() for parameter in model.parameters()]


def train_alone(
    model: nn.Module,
    shards: int,
    device: torch.device,
    loss: Loss = square,
    micro_batches: int = 1,
    reduced: torch.dtype | None = None,
) -> list[list[Tensor]]:
    """Train in one process like data-parallel ranks: losses of each shard, then the parameters.

    Gradients of the shards are halved (or quartered ...) and added in the order of the ranks, as an all-reduce of
    two ranks does it to the bit; in another dtype where one is given.

    Returns:
        For each shard, its losses on the CPU; last, the parameters.
    """
    model = model.to(device)
    steps = optimizer(model)
    losses: list[list[Tensor]] = [[] for _ in range(shards)]
    for step in range(STEPS):
        total: list[Tensor | None] = [None for _ in model.parameters()]
        for shard in range(shards):
            model.zero_grad()
            for micro in range(micro_batches):
                value = loss(model, batch(step * micro_batches + micro, shard).to(device))
                value.backward()
                losses[shard].append(value.detach().cpu())
            add_gradients(total, model.parameters(), shards, reduced)
        for parameter, gradient in zip(model.parameters(), total, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.dtype)
        steps.step()
    return [*losses, parameters(model)]


def add_gradients(
    total: list[Tensor | None], of: Iterable[nn.Parameter], shards: int, dtype: torch.dtype | None
) -> None:
    for position, parameter in enumerate(of):
        if parameter.grad is not None:
            part = parameter.grad.to(dtype or parameter.grad.dtype) / shards
            before = total[position]
            total[position] = part if before is None else before + part


def train(model: nn.Module, rank: int, device: torch.device, loss: Loss = square) -> list[Tensor]:
    """Losses of one rank of a parallel model that averages its gradients by itself."""
    steps = optimizer(model)
    losses = []
    for step in range(STEPS):
        value = loss(model, batch(step, rank).to(device))
        steps.zero_grad()
        value.backward()
        steps.step()
        losses.append(value.detach().cpu())
    return losses
