"""Cross entropy of a vocabulary divided among ranks: parts of two ranks put together, and their gradients."""

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check
from tests.runtime.tensors import real, whole
from tests.runtime.test_opapi_errors import refused


def packed(mask: torch.Tensor) -> torch.Tensor:
    """Return the bits of a mask, the first the highest of its byte, and ones at the end."""
    bits = F.pad(mask.long(), (0, -len(mask) % 8), value=1).view(-1, 8)
    return torch.tensor([int("".join(map(str, row)), 2) for row in bits.tolist()], dtype=torch.uint8)


@pytest.mark.parametrize("rows", [5, 16])
@pytest.mark.parametrize("with_logits", [False, True])
def test_two_ranks(rows: int, with_logits: bool) -> None:
    x, weight = real(rows, 6).double().requires_grad_(), real(14, 6).double().requires_grad_()
    target, dy = whole(rows, high=14), real(rows)
    loss = F.cross_entropy(x @ weight.T, target, reduction="none")
    dx, dweight = torch.autograd.grad(loss, (x, weight), dy.double())
    x, weight = x.detach().float(), weight.detach().float()
    parts = []
    for start in (0, 7):
        own = weight[start : start + 7]
        logits = x.double() @ own.T.double()
        mask = (target < start) | (target > start + 6)
        index = torch.where(mask, 0, target - start)
        largest = logits.amax(-1)
        part = {
            "logits_max": largest,
            "sum_exp_logits": (logits - largest[:, None]).exp().sum(-1),
            "predicted_logits": ((logits - largest[:, None]).gather(1, index[:, None])[:, 0]).masked_fill(
                mask, 0
            ),
            "target_mask": packed(mask),
            "masked_target": index,
        }
        expected = part | ({"logits": logits} if with_logits else {})
        given = {"input": x, "weight": own, "target": target, "vocab_start": start, "vocab_end": start + 6}
        check("FusedLinearOnlineMaxSum", expected, **given)
        parts.append((own, part, logits, mask))
    most = torch.maximum(parts[0][1]["logits_max"], parts[1][1]["logits_max"])
    sums = sum(part["sum_exp_logits"] * (part["logits_max"] - most).exp() for _, part, _, _ in parts)
    predicted = sum(
        torch.where(mask, 0, part["predicted_logits"] + part["logits_max"] - most)
        for _, part, _, mask in parts
    )
    total, got = torch.zeros(rows, 6), []
    for own, part, logits, _ in parts:
        given = {"logits_max": most.float(), "sum_exp_logits": sums.float()}
        softmax = (logits - most[:, None]).exp() / sums[:, None]
        expected = {"loss": loss.detach()} | ({"softmax": softmax} if with_logits else {})
        check("FusedCrossEntropyLossWithMaxSum", expected, **given, predicted_logits=predicted.float(),
              input=x, weight=own, logits=logits.float() if with_logits else None)  # fmt: skip
        out, out_weight = torch.zeros(rows, 6), torch.zeros(7, 6)
        opapi.named("FusedLinearCrossEntropyLossGrad", grad=dy, input=x, weight=own,
                    target_mask=part["target_mask"], masked_target=part["masked_target"],
                    **({"softmax": softmax.float()} if with_logits else given),
                    input_grad=out, weight_grad=out_weight)  # fmt: skip
        total, got = total + out, [*got, out_weight]
    torch.testing.assert_close((total, torch.cat(got)), (dx.float(), dweight.float()), rtol=1e-4, atol=1e-5)


def test_refused() -> None:
    x, weight, target = torch.zeros(3, 4), torch.zeros(5, 4), torch.zeros(3, dtype=torch.int64)
    outs = [*(torch.zeros(3) for _ in range(3)), torch.zeros(1, dtype=torch.uint8), target.clone(), None]
    message = refused("FusedLinearOnlineMaxSum", x, weight, target, 0, 5, *outs)
    assert "aclnnFusedLinearOnlineMaxSum" in message and "vocabEndIndex is 5" in message
    message = refused("FusedLinearOnlineMaxSum", x, weight[:, :3], target, 0, 4, *outs)
    assert "weight has shape [5, 3] for input of shape [3, 4]" in message
