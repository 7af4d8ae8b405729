"""Dropout, addition and normalisation in one, by every implementation, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, gradcheck, in_each_dtype, leaf, on_each_device

NAME = "dropout_add_norm"
SHAPES = [(2, 3, 33), (1, 1), (5, 1031), (4, 64), (0, 7)]
EPS = 0.1  # a row of one element, whose rounded sum is all that the backward pass has of it, is not blown up
in_both_norms = pytest.mark.parametrize("rms", [False, True], ids=["layer_norm", "rms_norm"])


def function_of(rms):
    return ops.dropout_add_rms_norm if rms else ops.dropout_add_layer_norm


def reference(x0, residual, weight, bias, rowscale=None, layerscale=None, mask=None, p=0.0, rms=False):
    x = x0 if rowscale is None else x0 * rowscale.unsqueeze(-1)
    x = x if layerscale is None else x * layerscale
    x = x if mask is None else x * mask / (1 - p)
    total = x if residual is None else x + residual
    if rms:
        out = torch.nn.functional.rms_norm(total, total.shape[-1:], weight, EPS)
        return out if bias is None else out + bias, total
    return torch.nn.functional.layer_norm(total, total.shape[-1:], weight, bias, EPS), total


def inputs(shape, device="cpu", dtype=torch.float64, residual=None, parameters=None):
    """x0, residual, weight, bias, rowscale, layerscale."""
    wide = {"device": device, "dtype": parameters or dtype}
    rows = leaf(*shape[:-1], device=device, dtype=dtype).detach().abs()
    x0, other = leaf(*shape, device=device, dtype=dtype), leaf(*shape, device=device, dtype=residual or dtype)
    return x0, other, leaf(shape[-1], **wide), leaf(shape[-1], **wide), rows, leaf(shape[-1], **wide)


@pytest.mark.sampled(6)
@on_each_device
@by_each
@in_both_norms
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_gradients_in_float64(device, implementation, rms, p):
    x0, residual, weight, bias, rows, scales = inputs((2, 1, 5), device)
    function = function_of(rms)

    def full(x0, residual, weight, bias, scales):
        torch.manual_seed(7)
        return function(x0, residual, weight, bias, p, EPS, rows, scales, prenorm=True)

    def plain(x0, weight):
        torch.manual_seed(7)
        return function(x0, None, weight, None, p, EPS)

    gradcheck(NAME, implementation, full, x0, residual, weight, bias, scales)
    gradcheck(NAME, implementation, plain, x0, weight)
    with ops.use(NAME, implementation):
        name = "dropout_add_rms_norm" if rms else "dropout_add_layer_norm"
        assert ops.which(name, x0, residual, weight, bias, p, EPS).implementation == implementation


@on_each_device
@by_each
@in_both_norms
@in_each_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(device, implementation, rms, dtype, shape):
    x0, residual, weight, bias, rows, scales = inputs(shape, device, dtype)
    function, seen = function_of(rms), {}

    def ours(x0, residual, weight, bias, rows, scales):
        out, total, seen["mask"] = function(
            x0, residual, weight, bias, 0.3, EPS, rows, scales, prenorm=True, return_dropout_mask=True
        )
        return out, total

    def theirs(*given):
        return reference(*given, mask=seen["mask"].cpu(), p=0.3, rms=rms)

    with ops.use(NAME, implementation):
        # The sum of halves is rounded before the backward pass takes it.
        against_float64(ours, theirs, [x0, residual, weight, bias, rows, scales], factor=2)
        plain = [x0, None, weight, None]
        against_float64(
            lambda *g: function(*g, 0.0, EPS, prenorm=True),
            lambda *g: reference(*g, rms=rms),
            plain,
            factor=2,
        )


@by_each
@pytest.mark.parametrize("x0", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("residual", [None, "own", torch.float32])
@pytest.mark.parametrize("in_fp32", [True, False])
def test_dtypes(implementation, x0, residual, in_fp32):
    given, other, weight, bias, _, _ = inputs(
        (4, 33), dtype=x0, residual=x0 if residual == "own" else residual, parameters=torch.float32
    )
    other = other if residual else None
    with ops.use(NAME, implementation):
        out, total = ops.dropout_add_layer_norm(
            given, other, weight, bias, 0.0, EPS, prenorm=True, residual_in_fp32=in_fp32
        )
        (out.float().sum() + total.float().sum()).backward()
    assert out.dtype == given.grad.dtype == x0
    assert total.dtype == (other.dtype if residual else torch.float32 if in_fp32 else x0)
    assert weight.grad.dtype == torch.float32
    assert other is None or other.grad.dtype == other.dtype


@on_each_device
@by_each
def test_the_mask_of_dropout(device, implementation):
    x0 = torch.ones(100, 200, device=device, requires_grad=True)
    weight = torch.ones(200, device=device)

    def step():
        made = ops.dropout_add_layer_norm(
            x0, None, weight, None, 0.3, EPS, prenorm=True, return_dropout_mask=True
        )
        return made[1:]

    with ops.use(NAME, implementation):
        torch.manual_seed(3)
        (total, mask), (_, other) = step(), step()
        assert 0.69 < mask.float().mean().item() < 0.71  # 3 standard deviations of 20000 draws
        assert not torch.equal(mask, other)
        torch.testing.assert_close(total, mask / 0.7)
        torch.manual_seed(3)
        assert torch.equal(step()[1], mask)
        (grad,) = torch.autograd.grad(total.sum(), x0)
        torch.testing.assert_close(grad, mask / 0.7)
        assert not ops.dropout_add_layer_norm(x0, None, weight, None, 1.0, EPS, prenorm=True)[1].any()


def test_the_rows_scale_may_have_a_last_dimension_of_one():
    x0, residual, weight, bias, rows, _ = inputs((2, 3, 8))
    got = ops.dropout_add_layer_norm(x0, residual, weight, bias, 0.0, EPS, rows.unsqueeze(-1))
    assert torch.equal(got, ops.dropout_add_layer_norm(x0, residual, weight, bias, 0.0, EPS, rows))


def test_returned_values():
    x0, residual, weight, bias, _, _ = inputs((2, 8))
    alone = ops.dropout_add_layer_norm(x0, residual, weight, bias, 0.0, EPS)
    assert isinstance(alone, torch.Tensor)
    out, mask = ops.dropout_add_layer_norm(x0, residual, weight, bias, 0.0, EPS, return_dropout_mask=True)
    assert torch.equal(out, alone)
    assert mask.all()
    assert mask.dtype == torch.bool


@pytest.mark.parametrize("kind", [ops.DropoutAddLayerNorm, ops.DropoutAddRMSNorm])
def test_the_modules(kind):
    rms = kind is ops.DropoutAddRMSNorm
    layer = kind(16, prenorm=True, p=0.5, eps=EPS)
    x0, residual = torch.randn(3, 16), torch.randn(3, 16)
    assert set(layer.state_dict()) == ({"weight"} if rms else {"weight", "bias"})
    with torch.no_grad():
        assert not torch.equal(layer(x0, residual)[1], layer(x0, residual)[1])
        layer.eval()
        got = layer(x0, residual)
        torch.testing.assert_close(got, reference(x0, residual, layer.weight, layer.bias, rms=rms))


def test_wrong_arguments_are_refused():
    x0, residual, weight, bias, rows, _ = inputs((2, 3, 8), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"weight has shape \(7,\) and x0 \(2, 3, 8\)"):
        ops.dropout_add_layer_norm(x0, residual, weight[:7], bias, 0.0, EPS)
    with pytest.raises(ValueError, match=r"residual is torch\.float16"):
        ops.dropout_add_rms_norm(x0, residual.half(), weight, bias, 0.0, EPS)
    with pytest.raises(ValueError, match=r"dropout_p is 1\.5"):
        ops.dropout_add_layer_norm(x0, residual, weight, bias, 1.5, EPS)
    with pytest.raises(ValueError, match=r"rowscale has shape \(2,\)"):
        ops.dropout_add_layer_norm(x0, residual, weight, bias, 0.0, EPS, rows[:, 0])
    with pytest.raises(ValueError, match="rowscale requires a gradient and gets none"):
        ops.dropout_add_layer_norm(x0, residual, weight, bias, 0.0, EPS, rows.requires_grad_())


@on_each_device
def test_compiled_dropout_draws_its_mask(device):
    _, _, weight, bias, _, _ = inputs((4, 16), device, torch.float32)

    def dropped(x0):
        return ops.dropout_add_layer_norm(x0, None, weight, bias, 0.5, EPS, prenorm=True)[1]

    kept = torch.compile(dropped, fullgraph=True, backend="aot_eager")(torch.ones(64, 16, device=device)) != 0
    assert 0.4 < kept.float().mean().item() < 0.6
