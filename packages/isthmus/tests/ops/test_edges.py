"""Edge cases of isthmus.ops: correct, or refused with one clear line."""

import copy
import pickle
import threading

import pytest
import torch

from isthmus import ops
from isthmus.ops import registration
from isthmus.ops.attention import attend
from tests.helpers.ops_checks import on_each_device


def optimizer(**options):
    param = torch.nn.Parameter(torch.randn(5, generator=torch.Generator().manual_seed(0)))
    made = ops.AdamW([param], lr=0.1, max_norm=0.5, decoupled=False, **options)
    param.grad = torch.arange(5.0)
    made.step()
    return made


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))],
                         ids=["deepcopy", "pickle"])  # fmt: skip
def test_a_copy_of_an_optimizer_goes_on_as_the_original(copied):
    ours = optimizer(state_dtype=torch.float32, amsgrad=True)
    again = copied(ours)
    for each in (ours, again):
        each.param_groups[0]["params"][0].grad = torch.arange(5.0).flip(0)
        each.step()
    first, second = (each.param_groups[0]["params"][0] for each in (ours, again))
    assert first is not second
    assert torch.equal(first, second)
    assert torch.equal(ours.last_grad_norm, again.last_grad_norm)
    assert again._step_supports_amp_scaling  # the scaler leaves the division to it, as to the original


def test_which_reports_a_single_implementation():
    with pytest.raises(ValueError, match="pad_input uses only PyTorch's operators"):
        ops.which("pad_input", torch.ones(2, 4), torch.tensor([0, 1]), 1, 3)
    for name in ("patch", "which", "use", "AdamW"):
        with pytest.raises(ValueError, match=f"isthmus.ops: unknown function '{name}'"):
            ops.which(name, "transformers")


def test_which_counts_the_calls_of_its_own_thread():
    with registration.record_choices() as choices:
        thread = threading.Thread(target=ops.rms_norm, args=(torch.ones(2, 4),))
        thread.start()
        thread.join()
        ops.swiglu(torch.ones(2, 4))
    assert [choice.operator for choice in choices] == ["swiglu"]


def test_nothing_to_normalise_over():
    for function in (ops.rms_norm, lambda x, *w: ops.add_rms_norm(x, x, *w)):
        with pytest.raises(ValueError, match=r"input has shape \(\) and weight None; both need a dimension"):
            function(torch.tensor(1.0))
        with pytest.raises(ValueError, match=r"weight \(\); both need a dimension"):
            function(torch.ones(2, 4), torch.tensor(1.0))


def test_slopes_of_another_number_of_heads():
    q, k, v = torch.randn(3, 2, 3, 4, 8)
    for shape in ((3,), (3, 4), (2, 4, 1)):
        with pytest.raises(ValueError, match=r"alibi_slopes has shape .*; it must be \(4,\) or \(2, 4\)"):
            ops.flash_attn_func(q, k, v, alibi_slopes=torch.ones(shape))


def test_a_capacity_above_the_number_of_tokens():
    with pytest.raises(ValueError, match="a capacity of 4 each, above the 2 tokens"):
        ops.permute(torch.ones(2, 3), torch.ones(2, 2), num_out_tokens=8, drop_and_pad=True)


def test_the_gradient_is_not_written_over_rows_that_share_memory():
    row, target = torch.randn(1, 5, requires_grad=True), torch.tensor([0, 1, 2, 3])
    found = [
        torch.autograd.grad(ops.cross_entropy((row * 1).expand(4, 5), target, inplace_backward=inplace), row)[
            0
        ]
        for inplace in (False, True)
    ]
    assert torch.equal(*found)


@on_each_device
def test_rotary_in_place_of_heads_that_do_not_follow_each_other(device):
    cos, sin = torch.randn(3, 2, device=device), torch.randn(3, 2, device=device)
    for count, function in ((2, ops.apply_rotary_emb_kv_), (3, ops.apply_rotary_emb_qkv_)):
        packed = torch.randn(1, 3, 2, count, 4, device=device).transpose(2, 3)
        turned = function(packed.clone(memory_format=torch.contiguous_format), cos, sin)
        assert function(packed, cos, sin) is packed
        torch.testing.assert_close(packed, turned)


@on_each_device
def test_rotary_in_place_of_two_views_of_one_projection(device):
    cos, sin = torch.randn(3, 2, device=device), torch.randn(3, 2, device=device)
    packed = torch.randn(2, 3, 5, 4, device=device, requires_grad=True)

    def turned(inplace):
        own = packed * 1
        query, key = own[:, :, :3], own[:, :, 3:]
        query, key = ops.rotary_qk(query, key, cos, sin, inplace=inplace)
        return torch.autograd.grad(query.square().sum() + (3 * key).sum(), packed)[0]

    torch.testing.assert_close(turned(True), turned(False))


@on_each_device
def test_products_of_every_other_element(device):
    """The operands are flat tensors with rows addressed by their distance, which must be in bounds."""
    sizes = ([2], [2], [2], [2], [2], [2], [4], [4], [4])
    a, b = torch.randn(8, device=device)[::2], torch.randn(1, device=device).expand(4)
    found = ops.unpad_strided_batch_matmul(a, b, False, False, *sizes, 1, 1)
    torch.testing.assert_close(found.view(2, 2), a.reshape(2, 2) @ b.reshape(2, 2))


@pytest.mark.full
def test_a_compiled_composite_of_a_transposed_tensor():
    x = torch.randn(4, 3, 5).permute(2, 1, 0)
    with ops.use("swiglu", "composite"):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: ops.swiglu(x, x + 1) * 2, fullgraph=True)
        torch.testing.assert_close(compiled(x), ops.swiglu(x, x + 1) * 2)


def test_the_same_tensor_as_query_key_and_value_compiles():
    x = torch.randn(2, 5, 3, 4, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: ops.flash_attn_func(x, x, x), fullgraph=True, backend="aot_eager")
    for function in (compiled, lambda x: ops.flash_attn_func(x, x, x)):
        (found,) = torch.autograd.grad(function(x).square().sum(), x)
        wide = x.detach().transpose(1, 2).double().requires_grad_()
        y = torch.nn.functional.scaled_dot_product_attention(wide, wide, wide)
        (expected,) = torch.autograd.grad(y.square().sum(), wide)
        torch.testing.assert_close(found.double(), expected.transpose(1, 2), rtol=1e-4, atol=1e-5)


def test_a_sparse_gradient_in_a_later_group_leaves_the_earlier_as_they_are():
    dense, sparse = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    dense.grad, sparse.grad = torch.ones(3), torch.ones(3).to_sparse()
    optimizer = ops.AdamW([{"params": [dense]}, {"params": [sparse]}])
    with pytest.raises(RuntimeError, match="AdamW: a gradient is sparse"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(3)) and not optimizer.state


def test_sparse_gradients_are_refused():
    layer = torch.nn.Embedding(5, 3, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    for max_norm in (None, 1.0):
        with pytest.raises(RuntimeError, match="AdamW: a gradient is sparse"):
            ops.AdamW(layer.parameters(), max_norm=max_norm).step()
    with pytest.raises(RuntimeError, match="the norm of a sparse gradient is not supported"):
        ops.clip_grad_norm_(layer.weight, 1.0)


def test_a_mixture_with_meta_tensors_is_refused():
    with pytest.raises(RuntimeError, match="isthmus::rms_norm: tensors on cpu and on meta"):
        ops.rms_norm(torch.randn(2, 3), torch.ones(3, device="meta"))


def test_scores_far_apart():
    """Differences so large that their powers of two are not exact; the expected values are those of one element."""
    scores = torch.zeros(2, 37)
    scores[:, 5] = 3e38
    scores[1, :5] = -3e38
    one = torch.nn.functional.one_hot(torch.full((2,), 5), 37).float()
    assert torch.equal(ops.scaled_masked_softmax(scores[None, None])[0, 0], one)
    assert torch.equal(ops.cross_entropy(scores, torch.full((2,), 5)), torch.tensor(0.0))
    q, steps = torch.full((1, 1, 1, 8), 1e18, requires_grad=True), torch.linspace(-1e18, 1e18, 37)
    k, v = steps[None, :, None, None].expand(1, 37, 1, 8), torch.arange(296.0).view(1, 37, 1, 8)
    out, _ = attend(q, k, v, scale=0.3)
    assert torch.equal(out[0, 0, 0], v[0, -1, 0])
    out.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))


def test_attention_of_one_token_with_any_stride():
    """A dimension of size 1 may have any stride, and contiguous() keeps it."""
    one, key = torch.randn(1, 1, 1, 3, dtype=torch.float64), torch.randn(1, 3, 1, 3, dtype=torch.float64)
    query, value = one.as_strided(one.shape, (0, 0, 0, 1)), one.expand(1, 3, 1, 3)
    expected, _ = attend(one, key, value.clone(memory_format=torch.contiguous_format))
    assert torch.equal(attend(query, key, value)[0], expected)
