"""AdamW in mixed precision: bfloat16 weights, float32 master copies and moments.

As in PyTorch's optimizers, the first step makes the states.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tools.traces.recorder import Recorder

_BUCKET = 40_000_000  # elements, as Megatron-LM's default


class AdamW:
    """AdamW in a loop over the parameters, or with the ``foreach`` operators and their lists of temporaries."""

    def __init__(self, parameters: Iterable[nn.Parameter], foreach: bool = False) -> None:
        self.parameters = list(parameters)
        self.foreach = foreach
        self.states: list[tuple[Tensor, Tensor, Tensor]] = []

    @torch.no_grad()
    def step(self) -> None:
        """Clip, update, and drop the gradients."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        assert len(gradients) == len(self.parameters), "a parameter has no gradient"
        clip(gradients)
        if not self.states:
            self.states = [_state(p) for p in self.parameters]
        if self.foreach:
            self._update_all(gradients)
        else:
            for parameter, gradient, state in zip(self.parameters, gradients, self.states, strict=True):
                update(parameter, gradient.float(), *state)
        for parameter in self.parameters:
            parameter.grad = None

    def _update_all(self, gradients: list[Tensor]) -> None:
        masters, first, second = (list(column) for column in zip(*self.states, strict=True))
        wide = [gradient.float() for gradient in gradients]
        torch._foreach_lerp_(first, wide, 0.1)
        torch._foreach_mul_(second, 0.95)
        torch._foreach_addcmul_(second, wide, wide, 0.05)
        roots = torch._foreach_sqrt(second)
        torch._foreach_add_(roots, 1e-8)
        torch._foreach_addcdiv_(masters, first, roots, -1e-4)
        torch._foreach_copy_(list[Tensor](self.parameters), masters)


class ShardedAdamW:
    """AdamW with states sharded over data-parallel ranks; gradients accumulate in float32 buckets."""

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: int, recorder: Recorder) -> None:
        self.recorder = recorder
        self.buckets: list[tuple[list[nn.Parameter], Tensor, int]] = []
        self.states: list[tuple[Tensor, Tensor, Tensor]] = []
        members: list[nn.Parameter] = []
        for parameter in reversed(list(parameters)):  # the order in which backward completes them
            members.append(parameter)
            if sum(p.numel() for p in members) >= _BUCKET:
                self._add_bucket(members, ranks)
                members = []
        if members:
            self._add_bucket(members, ranks)

    def _add_bucket(self, members: list[nn.Parameter], ranks: int) -> None:
        elements = sum(p.numel() for p in members)
        bucket = torch.zeros(elements, dtype=torch.float32)
        offset = 0
        for parameter in members:
            _add_into(parameter, bucket[offset : offset + parameter.numel()].view(parameter.shape))
            offset += parameter.numel()
        self.buckets.append((members, bucket, -(-elements // ranks)))

    @torch.no_grad()
    def step(self) -> None:
        """Reduce, clip, update this rank's shard, gather the weights, clear the gradients."""
        parts = [bucket[:share] for _, bucket, share in self.buckets]
        for _, bucket, _ in self.buckets:
            self.recorder.use(bucket)
        clip(parts)
        if not self.states:
            self.states = [_state(part) for part in parts]
        for (members, bucket, share), part, state in zip(self.buckets, parts, self.states, strict=True):
            weights = torch.empty(share, dtype=torch.bfloat16)
            update(weights, part, *state)
            for parameter in members:
                self.recorder.use(parameter)
            bucket.zero_()


def _add_into(parameter: nn.Parameter, main: Tensor) -> None:
    def add(parameter: Tensor) -> None:
        main.add_(parameter.grad)  # type: ignore[arg-type]
        parameter.grad = None

    parameter.register_post_accumulate_grad_hook(add)


def _state(parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make the float32 master copy and two moments; a float32 parameter is its own master copy."""
    copy: Any = parameter if isinstance(parameter, nn.Parameter) and parameter.is_floating_point() else None
    if copy is None or copy.dtype != torch.float32:
        copy = torch.empty_like(parameter, dtype=torch.float32)
    return copy, torch.zeros_like(copy), torch.zeros_like(copy)


def clip(gradients: list[Tensor]) -> None:
    """Clip gradients in place by their global norm."""
    norms = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients])
    scale = (1.0 / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)


def update(parameter: Tensor, gradient: Tensor, master: Tensor, first: Tensor, second: Tensor) -> None:
    """Update one tensor; all tensors but the parameter are float32."""
    master.mul_(1 - 1e-5)
    first.lerp_(gradient, 0.1)
    second.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
    root = (second.sqrt() / 0.99).add_(1e-8)
    master.addcdiv_(first, root, value=-1e-4)
    if master is not parameter:
        parameter.copy_(master)
