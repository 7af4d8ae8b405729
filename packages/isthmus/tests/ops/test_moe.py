"""Permutation of tokens by expert and grouped products, by every implementation, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, gradcheck, in_each_dtype, leaf, on_each_device

TOKENS, EXPERTS, CHOSEN = 11, 5, 2


def routing(device="cpu", tokens=TOKENS, seed=0):
    """(map [tokens, experts], weights [tokens, experts]): two experts for each token, none for the last."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(tokens, EXPERTS, generator=generator, dtype=torch.float64)
    chosen = torch.zeros(tokens, EXPERTS, dtype=torch.bool).scatter_(1, scores.topk(CHOSEN).indices, True)
    chosen[-1] = False
    return chosen.to(device), (scores * chosen).to(device)


def there_and_back(tokens, chosen, probs):
    permuted, taken, rows = ops.permute(tokens, chosen, probs)
    return ops.unpermute(permuted, rows, tokens.shape, permuted_probs=taken)


def weighted(tokens, chosen, probs):
    """Expected result: every token times the sum of its probabilities."""
    return tokens * (probs * chosen).sum(-1, keepdim=True)


def using(implementation):
    """Force the implementations used by permutation."""
    import contextlib

    stack = contextlib.ExitStack()
    for name in ("gather_rows", "scatter_rows", "row_products"):
        stack.enter_context(ops.use(name, implementation))
    return stack


@on_each_device
@by_each
@in_each_dtype
def test_permuting_there_and_back_is_a_weighted_sum(device, implementation, dtype):
    chosen, probs = routing(device)
    for hidden in (1, 33, 128):
        tokens = leaf(TOKENS, hidden, device=device, dtype=dtype)
        weights = probs.to(torch.float32).requires_grad_()
        with using(implementation):
            against_float64(there_and_back, weighted, [tokens, chosen, weights], factor=2)


@by_each
def test_the_order_is_megatrons(implementation):
    """Rows by expert, in the order of the tokens within each."""
    chosen, probs = routing()
    tokens = torch.randn(TOKENS, 3, dtype=torch.float64)
    with using(implementation):
        permuted, taken, rows = ops.permute(tokens, chosen, probs)
        again = ops.permute(tokens, chosen, probs, num_out_tokens=int(chosen.sum()))
        restored = ops.unpermute(permuted, rows, tokens.shape, probs=probs, routing_map=chosen)
    pairs = [(t, e) for e in range(EXPERTS) for t in range(TOKENS) if chosen[t, e]]
    assert rows.tolist() == [t for t, _ in pairs]
    assert torch.equal(permuted, tokens[rows])
    assert taken.tolist() == [probs[t, e].item() for t, e in pairs]
    for one, other in zip((permuted, taken, rows), again, strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(restored, weighted(tokens, chosen, probs))


def test_a_list_of_experts_is_the_map():
    chosen, probs = routing()
    experts = torch.stack([torch.randperm(EXPERTS)[:CHOSEN] for _ in range(TOKENS)])
    chosen = torch.zeros_like(chosen).scatter_(1, experts, True)
    tokens = torch.randn(TOKENS, 6)
    by_map = ops.permute(tokens, chosen, probs)
    by_list = ops.permute_by_experts(tokens, experts, probs.gather(1, experts))
    for one, other in zip(by_map, by_list, strict=True):
        assert torch.equal(one, other)
    assert len(ops.permute_by_experts(tokens, experts, num_out_tokens=5)[0]) == 5


@on_each_device
def test_every_expert_gets_its_capacity(device):
    chosen, probs = routing(device)
    tokens = torch.randn(TOKENS, 4, dtype=torch.float64, device=device)
    permuted, taken, rows = ops.permute(tokens, chosen, probs, num_out_tokens=EXPERTS * 3, drop_and_pad=True)
    assert permuted.shape == (EXPERTS * 3, 4)
    kept = torch.zeros_like(chosen, device="cpu")
    for expert in range(EXPERTS):
        mine = chosen[:, expert].nonzero().flatten().tolist()
        assert rows.tolist()[expert * 3 : expert * 3 + min(3, len(mine))] == mine[:3]
        kept[rows[expert * 3 : expert * 3 + 3].cpu(), expert] = True
    assert taken.tolist() == [probs[t, i // 3].item() for i, t in enumerate(rows.tolist())]
    restored = ops.unpermute(permuted, rows, tokens.shape, probs, chosen, drop_and_pad=True)
    torch.testing.assert_close(restored.cpu(), weighted(tokens.cpu(), kept, probs.cpu()))


@by_each
def test_no_rows_and_strided_tokens(implementation):
    tokens = leaf(6, 4).detach().t()
    none = torch.zeros(4, EXPERTS, dtype=torch.bool)
    with using(implementation):
        permuted, _, rows = ops.permute(tokens, none)
        assert permuted.shape == (0, 6)
        assert not ops.unpermute(permuted, rows, tokens.shape).any()
        all_of_them = ops.permute(tokens, ~none)
        torch.testing.assert_close(
            ops.unpermute(all_of_them[0], all_of_them[2], tokens.shape), tokens * EXPERTS
        )


@on_each_device
@by_each
@pytest.mark.parametrize("trans_b", [False, True])
def test_gradients_of_grouped_products(device, implementation, trans_b):
    x = leaf(9, 4, device=device)
    weight = leaf(4, *((3, 4) if trans_b else (4, 3)), device=device)

    def product(x, weight):
        return ops.grouped_matmul(x, weight, [2, 0, 6, 1], trans_b=trans_b)

    gradcheck("grouped_matmul", implementation, product, x, weight)
    with ops.use("grouped_matmul", implementation):
        assert (
            ops.which("grouped_matmul", x, weight, [2, 0, 6, 1], trans_b=trans_b).implementation
            == implementation
        )


def by_group(x, weight, sizes, trans_b):
    parts = x.split(sizes)
    return torch.cat([part @ (w.t() if trans_b else w) for part, w in zip(parts, weight, strict=True)])


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("sizes", [[3, 0, 5, 1], [0, 0], [70, 3], [1, 2, 3, 4, 5, 6, 0, 7, 8, 9]], ids=str)
@pytest.mark.parametrize("trans_b", [False, True])
def test_grouped_products_against_float64(device, implementation, dtype, sizes, trans_b):
    x = leaf(sum(sizes), 33, device=device, dtype=dtype)
    weight = leaf(len(sizes), *((17, 33) if trans_b else (33, 17)), device=device, dtype=dtype)
    with ops.use("grouped_matmul", implementation):
        against_float64(lambda x, w: ops.grouped_matmul(x, w, sizes, trans_b=trans_b),
                        lambda x, w: by_group(x, w, sizes, trans_b), [x, weight])  # fmt: skip


@by_each
def test_invalid_arguments_are_named(implementation):
    with pytest.raises(ValueError, match="cannot be multiplied"):
        ops.grouped_matmul(torch.ones(3, 4), torch.ones(2, 5, 6), [1, 2])
    with ops.use("grouped_matmul", implementation), pytest.raises(ValueError, match="sizes of the groups"):
        ops.grouped_matmul(torch.ones(3, 4), torch.ones(2, 4, 6), [1, 1])
    with pytest.raises(ValueError, match="for 3 tokens"):
        ops.permute(torch.ones(3, 4), torch.ones(2, 4))
    with pytest.raises(ValueError, match="experts \\* capacity"):
        ops.permute(torch.ones(3, 4), torch.ones(3, 4), drop_and_pad=True)
    with pytest.raises(ValueError, match="need the routing_map"):
        ops.unpermute(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64), (3, 4), probs=torch.ones(3, 2))
    with using(implementation), pytest.raises((IndexError, RuntimeError), match=r"out of bounds|is not in"):
        ops.unpermute(torch.ones(3, 4), torch.tensor([0, 1, 3]), (3, 4))


@on_each_device
def test_autocast_multiplies_in_its_dtype(device):
    x, weight = torch.ones(3, 4, device=device), torch.ones(2, 4, 5, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert ops.grouped_matmul(x, weight, [1, 2]).dtype == torch.bfloat16
