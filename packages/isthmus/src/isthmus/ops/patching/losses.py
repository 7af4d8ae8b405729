"""transformers' losses by cross_entropy, which needs no float32 copy of the logits."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from isthmus.ops.cross_entropy import cross_entropy


def _loss(
    logits: torch.Tensor, target: torch.Tensor, items: torch.Tensor | int | None, ignore_index: int
) -> torch.Tensor:
    """The mean over targets that are not ignored, or the sum divided by the items of the batch."""
    target = target.to(logits.device)
    reduction = "mean" if items is None else "sum"
    loss = cross_entropy(logits, target, ignore_index=ignore_index, reduction=reduction)
    assert isinstance(loss, torch.Tensor)
    if items is None:
        return loss
    return loss / (items.to(loss.device) if isinstance(items, torch.Tensor) else items)


@functools.cache
def causal(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``ForCausalLMLoss``: the target of a token is the next token.

    Cached, because Trainer compares losses by identity to count the shifted targets.
    """

    @functools.wraps(original)
    def loss(
        logits: torch.Tensor,
        labels: torch.Tensor,
        vocab_size: int,
        num_items_in_batch: torch.Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: torch.Tensor | None = None,
        **others: Any,
    ) -> torch.Tensor:
        if shift_labels is None:
            shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        flat = shift_labels.reshape(-1)
        return _loss(logits.view(-1, vocab_size), flat, num_items_in_batch, ignore_index)

    return loss


def masked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``ForMaskedLMLoss``."""

    @functools.wraps(original)
    def loss(
        logits: torch.Tensor,
        labels: torch.Tensor,
        vocab_size: int,
        num_items_in_batch: torch.Tensor | int | None = None,
        ignore_index: int = -100,
        **others: Any,
    ) -> torch.Tensor:
        return _loss(logits.view(-1, vocab_size), labels.reshape(-1), num_items_in_batch, ignore_index)

    return loss


def module(original: type[nn.CrossEntropyLoss]) -> type[nn.CrossEntropyLoss]:
    """Replacement for ``torch.nn.CrossEntropyLoss`` for inputs [rows, classes]."""

    class CrossEntropyLoss(original):  # type: ignore[valid-type, misc]
        """:class:`torch.nn.CrossEntropyLoss`, computed by isthmus.ops where it applies."""

        def forward(self, input: torch.Tensor, target: torch.Tensor) -> Any:
            """The loss of logits [rows, classes] and targets [rows]."""
            indices = target.dtype == torch.int64 and target.dim() == 1
            if self.weight is not None or input.dim() != 2 or not indices:
                return super().forward(input, target)
            loss = cross_entropy(
                input,
                target,
                ignore_index=self.ignore_index,
                reduction=self.reduction,
                label_smoothing=self.label_smoothing,
            )
            assert isinstance(loss, torch.Tensor)
            in_float32 = torch.is_autocast_enabled(input.device.type)
            return loss if in_float32 else loss.to(input.dtype)

    return CrossEntropyLoss
