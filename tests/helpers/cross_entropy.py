"""Helpers for tests of cross entropy: options, a reference and targets."""

import pytest
import torch

OPTIONS = [
    {},
    {"label_smoothing": 0.1},
    {"logit_scale": 0.3, "softcap": 2.0},
    {"lse_square_scale": 0.01, "label_smoothing": 0.2, "softcap": 4.0, "logit_scale": 1.5},
]
in_every_form = pytest.mark.parametrize("options", OPTIONS, ids=lambda each: "-".join(each) or "plain")


def reference(logits, target, reduction="mean", softcap=0.0, logit_scale=1.0, lse_square_scale=0.0, **others):
    z = logits * logit_scale
    z = softcap * (z / softcap).tanh() if softcap else z
    plain = torch.nn.functional.cross_entropy(
        z.reshape(-1, z.shape[-1]), target.reshape(-1).long(), reduction="none", **others
    ).view(target.shape)
    kept = target != others.get("ignore_index", -100)
    loss = plain + (lse_square_scale * z.logsumexp(-1).square()).masked_fill(~kept, 0)
    if reduction == "none":
        return loss
    return loss.sum() / kept.sum() if reduction == "mean" else loss.sum()


def targets(shape, device="cpu", ignore_index=-100):
    target = torch.randint(shape[-1], shape[:-1])
    if len(shape) > 1:
        target.view(-1)[1::3] = ignore_index
    return target.to(device)
