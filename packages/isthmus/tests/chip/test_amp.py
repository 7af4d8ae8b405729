"""Autocast and GradScaler."""

from __future__ import annotations

import copy
import functools

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_the_dtype(dtype):
    a = torch.randn(8, 8, device="chip")
    with torch.autocast("chip", dtype=dtype):
        assert torch.is_autocast_enabled("chip")
        assert (a @ a).dtype == dtype
        assert torch.nn.functional.linear(a, a).dtype == dtype
        assert torch.softmax(a @ a, dim=-1).dtype == torch.float32
        assert (a + a).dtype == torch.float32
    assert (a @ a).dtype == torch.float32


def test_autocast_does_not_affect_the_cpu():
    a = torch.ones(2, 2)
    with torch.autocast("chip", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32


@pytest.mark.host("other chips' log_softmax rounds as its kernel does")
def test_bfloat16_step_is_that_of_explicit_casts_on_the_cpu():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    twin = copy.deepcopy(model).chip()
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    with torch.autocast("chip", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(twin(x.chip()), y.chip())
    loss.backward()
    hidden = x.bfloat16()
    for layer in model:
        parameters = [parameter.bfloat16() for parameter in layer.parameters()]
        hidden = torch.nn.functional.linear(hidden, *parameters) if parameters else layer(hidden)
    # cross_entropy passes its input's dtype to log_softmax, which sums in float32; nll_loss is promoted, as on CUDA.
    logarithms = torch.log_softmax(hidden, -1)
    logarithms.data.copy_(torch.log_softmax(hidden.float(), -1))
    expected = torch.nn.functional.nll_loss(logarithms.float(), y)
    expected.backward()
    assert loss.item() == expected.item()
    for parameter, reference in zip(twin.parameters(), model.parameters(), strict=True):
        assert torch.equal(parameter.grad.cpu(), reference.grad)


@pytest.mark.parametrize("make", [functools.partial(torch.amp.GradScaler, "chip"), torch.chip.amp.GradScaler])
def test_grad_scaler(make):
    weight = torch.nn.Parameter(torch.ones(4, device="chip"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = make()
    scaler.scale((weight * 2).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [2, 2, 2, 2]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0, 0, 0]


def test_custom_forward_casts():
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.chip.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("chip")))
            return x * 2

        @staticmethod
        @torch.chip.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(2, device="chip", dtype=torch.bfloat16, requires_grad=True)
    with torch.chip.amp.autocast(dtype=torch.bfloat16):
        Double.apply(x).sum().backward()
    assert seen == [(torch.float32, False)]
    assert x.grad.tolist() == [2, 2]


def casts_in(region, weight):
    """Count the casts of the weight while region runs."""
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._to_copy.default and args[0].shape == weight.shape:
                seen.append(function)
            return function(*args, **(kwargs or {}))

    with Watch():
        region()
    return len(seen)


@pytest.mark.parametrize(("cached", "casts"), [(True, 1), (False, 3)])
def test_a_parameter_is_cast_once_in_a_region(cached, casts):
    weight = torch.nn.Parameter(torch.randn(5, 5, device="chip"))
    x = torch.ones(2, 5, device="chip", dtype=torch.bfloat16)

    def region():
        with torch.autocast("chip", dtype=torch.bfloat16, cache_enabled=cached):
            for _ in range(3):
                torch.nn.functional.linear(x, weight)

    assert casts_in(region, weight) == casts


def test_the_cache_ends_with_the_outermost_region():
    weight = torch.nn.Parameter(torch.ones(2, 2, device="chip"))
    x = torch.ones(1, 2, device="chip")
    for expected in (2.0, 6.0):
        with torch.autocast("chip", dtype=torch.bfloat16):
            assert torch.nn.functional.linear(x, weight).tolist() == [[expected, expected]]
        with torch.no_grad():
            weight.fill_(3)


def test_regions_nest():
    a = torch.ones(2, 2, device="chip")
    with torch.autocast("chip", dtype=torch.bfloat16):
        with torch.autocast("chip", dtype=torch.float16):
            assert (a @ a).dtype == torch.float16
            with torch.autocast("chip", enabled=False):
                assert (a @ a).dtype == torch.float32
            assert (a @ a).dtype == torch.float16
        assert (a @ a).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("chip")


def test_an_error_ends_the_region():
    with pytest.raises(KeyError), torch.autocast("chip"):
        raise KeyError
    assert not torch.is_autocast_enabled("chip")


def test_default_dtype_can_be_set():
    former = torch.get_autocast_dtype("chip")
    a = torch.ones(2, 2, device="chip")
    try:
        torch.set_autocast_dtype("chip", torch.bfloat16)
        with torch.autocast("chip"):
            assert (a @ a).dtype == torch.bfloat16
    finally:
        torch.set_autocast_dtype("chip", former)


def test_as_a_decorator():
    @torch.autocast("chip", dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(torch.ones(2, 2, device="chip")).dtype == torch.bfloat16


def test_backward_runs_in_the_state_of_forward():
    states = []

    class Watched(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="chip")
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="chip")
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            states.append((torch.is_autocast_enabled("chip"), (x @ x).dtype))
            return grad.float() @ x

    x = torch.ones(2, 2, device="chip", requires_grad=True)
    with torch.autocast("chip", dtype=torch.float16):
        out = Watched.apply(x)
    assert out.dtype == torch.float16
    out.float().sum().backward()
    assert states == [(True, torch.float16)]


def test_checkpoint_recomputes_under_autocast():
    layer = torch.nn.Linear(4, 4).chip()
    dtypes = []

    def block(x):
        dtypes.append(layer(x).dtype)
        return layer(x)

    x = torch.ones(2, 4, device="chip", requires_grad=True)
    with torch.autocast("chip", dtype=torch.bfloat16):
        out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    out.float().sum().backward()
    assert dtypes == [torch.bfloat16, torch.bfloat16]


@pytest.mark.parametrize("overflow", [float("nan"), float("inf")])
def test_grad_scaler_skips_an_overflow_and_grows_after_the_interval(overflow):
    weight = torch.nn.Parameter(torch.ones(2, device="chip"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("chip", init_scale=4.0, growth_interval=2)
    scales = []
    for factor in (1.0, 1.0, overflow, 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [4.0, 8.0, 4.0, 4.0, 8.0]
    assert torch.isfinite(weight).all()


def test_grad_scaler_clips_unscaled_gradients_and_keeps_its_state():
    weight = torch.nn.Parameter(torch.ones(4, device="chip"))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    scaler = torch.amp.GradScaler("chip", init_scale=1024.0)
    scaler.scale((weight * 3).sum()).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert norm.item() == 6.0
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    twin = torch.amp.GradScaler("chip")
    twin.load_state_dict(scaler.state_dict())
    assert twin.get_scale() == scaler.get_scale() == 1024.0


def test_fused_optimizer_takes_the_scale():
    weight = torch.nn.Parameter(torch.ones(4, device="chip"))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("chip", init_scale=8.0)
    for factor, moved in ((float("inf"), False), (1.0, True)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (weight.tolist() != [1, 1, 1, 1]) == moved
