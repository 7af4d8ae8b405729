"""apex.fp16_utils and apex.optimizers.FusedLAMB of ``--provide apex``, on one device."""

import copy
import importlib
import sys

import pytest
import torch
from torch import nn

from isthmus.stand_ins import provide


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    """Put the stand-in on the module search path."""
    before = list(sys.path)
    sys.path[:0] = provide.folders("apex")
    yield
    sys.path[:] = before
    for name in [each for each in sys.modules if each.partition(".")[0] in provide.PROVIDED["apex"]]:
        del sys.modules[name]


def load(name):
    return importlib.import_module(name)


def model(dtype=torch.float16):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.GELU(), nn.Linear(7, 3))
    return load("apex.fp16_utils").convert_network(layers, dtype).to("chip")


def loss_of(layers, step=0, factor=1.0):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(6, 5, generator=generator).to("chip", layers[0].weight.dtype)
    return layers(inputs).float().square().mean() * factor


# ---- fp16_utils -------------------------------------------------------------------------------------------------
def test_conversion_keeps_batch_normalization():
    utils = load("apex.fp16_utils")
    layers = model()
    assert [each.dtype for each in layers.parameters()] == [torch.float16] * 2 + [torch.float32] * 2 + [
        torch.float16
    ] * 2
    assert layers[1].running_mean.dtype == torch.float32
    half = utils.network_to_half(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, affine=False))
    )
    assert half[1][1].weight.dtype == torch.float32 and half[1][2].running_mean.dtype == torch.float16
    assert half[0](torch.ones(2)).dtype == torch.float16
    assert utils.FP16Model(nn.Linear(3, 4).to("chip"))(torch.ones(2, 3, device="chip")).dtype == torch.float16
    assert utils.to_python_float(torch.tensor(2.0)) == 2.0 and utils.to_python_float([3.0]) == 3.0


@pytest.mark.parametrize("flat", [False, True])
def test_master_parameters(flat):
    utils = load("apex.fp16_utils")
    layers = nn.Linear(5, 3).half().to("chip")
    params, masters = utils.prep_param_lists(layers, flat)
    assert len(masters) == (1 if flat else 2) and all(each.dtype == torch.float32 for each in masters)
    layers(torch.ones(2, 5, device="chip").half()).sum().backward()
    utils.model_grads_to_master_grads(params, masters, flat)
    grads = torch.cat([each.grad.flatten() for each in masters])
    torch.testing.assert_close(grads, torch.cat([each.grad.flatten().float() for each in params]))
    with torch.no_grad():
        for each in masters:
            each.add_(1.0)
    utils.master_params_to_model_params(params, masters, flat)
    values = torch.cat([each.detach().flatten() for each in masters])
    assert torch.equal(torch.cat([each.detach().flatten() for each in params]), values.half())
    if flat:
        with pytest.raises(ValueError, match="several dtypes"):
            utils.prep_param_lists(model(), True)


@pytest.mark.parametrize("options", [{}, {"static_loss_scale": 128.0}, {"dynamic_loss_scale": True}])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fp16_optimizer_is_an_optimizer_of_masters(options, dtype):
    utils, layers = load("apex.fp16_utils"), model(dtype)
    plain = copy.deepcopy(layers)
    wrapped = utils.FP16_Optimizer(torch.optim.SGD(layers.parameters(), 0.1, 0.9), verbose=False, **options)
    masters = [each.detach().float().clone().requires_grad_() for each in plain.parameters()]
    alone = torch.optim.SGD(masters, 0.1, 0.9)
    for step in range(3):
        wrapped.zero_grad()
        wrapped.backward(loss_of(layers, step))
        limit = wrapped.clip_master_grads(0.5)
        wrapped.step()
        plain.zero_grad()
        scale = wrapped.loss_scale
        (loss_of(plain, step) * scale).backward()
        for master, param in zip(masters, plain.parameters(), strict=True):
            master.grad = param.grad.float() / scale
        expected = nn.utils.clip_grad_norm_(masters, 0.5)
        alone.step()
        with torch.no_grad():
            for master, param in zip(masters, plain.parameters(), strict=True):
                param.copy_(master)
        torch.testing.assert_close(limit, expected)
    for a, b in zip(layers.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
    groups = wrapped.inspect_master_grad_data()
    assert [len(each) for each in groups] == [6] and all(each.dtype == torch.float32 for each in groups[0])


def test_fp16_optimizer_skips_overflows_and_restores_its_state(capsys):
    utils, layers = load("apex.fp16_utils"), model()
    more = {"init_scale": 1024.0, "scale_factor": 4.0, "scale_window": 2}
    make = torch.optim.SGD
    wrapped = utils.FP16_Optimizer(make(layers.parameters(), 0.1, 0.9), 1.0, True, more, False)
    before = [each.detach().clone() for each in layers.parameters()]
    wrapped.backward(loss_of(layers, factor=1e30))
    assert wrapped.overflow and wrapped.loss_scale == 256.0 and wrapped.clip_master_grads(1.0) == -1
    wrapped.step()
    assert "Gradient overflow" in capsys.readouterr().out and wrapped.inspect_master_grad_data() is None
    assert all(torch.equal(a, b) for a, b in zip(layers.parameters(), before, strict=True))
    for step in range(2):
        wrapped.zero_grad(set_grads_to_None=True)
        wrapped.backward(loss_of(layers, step), update_master_grads=False)
        wrapped.update_master_grads()
        wrapped.step()
    assert wrapped.loss_scale == 1024.0
    other = copy.deepcopy(layers)
    again = utils.FP16_Optimizer(make(other.parameters(), 0.1, 0.9), 1.0, True, more, False)
    again.load_state_dict(copy.deepcopy(wrapped.state_dict()))  # PyTorch shares loaded tensors
    for each, optimizer in ((layers, wrapped), (other, again)):

        def closure(each=each, optimizer=optimizer):
            optimizer.zero_grad()
            loss = loss_of(each, 7)
            optimizer.backward(loss)
            return loss

        optimizer.step(closure)
    assert all(torch.equal(a, b) for a, b in zip(layers.parameters(), other.parameters(), strict=True))
    wrapped.param_groups[0]["lr"] = 0.5
    assert wrapped.optimizer.param_groups[0]["lr"] == 0.5
    with pytest.raises(TypeError, match=r"a parameter is torch\.float64"):
        utils.FP16_Optimizer(make([nn.Parameter(torch.ones(2, dtype=torch.float64))], 0.1), verbose=False)


def test_loss_scalers():
    utils = load("apex.fp16_utils")
    scaler = utils.DynamicLossScaler(16.0, 2.0, 2)
    param = torch.ones(2, requires_grad=True)
    scaler.backward(param.sum())
    assert param.grad.tolist() == [16.0, 16.0] and not scaler.has_overflow([param])
    param.grad[0] = torch.inf
    assert scaler.has_overflow([param])
    for overflow, expected in ((True, 8.0), (False, 8.0), (False, 16.0), (False, 16.0), (False, 32.0)):
        scaler.update_scale(overflow)
        assert scaler.loss_scale == expected
    assert utils.LossScaler(3.0).scale_gradient(None, [torch.ones(1)], None)[0].item() == 3.0


# ---- optimizers -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.0, "bias_correction": False},
        {"weight_decay": 0.0, "use_nvlamb": True, "grad_averaging": False},
        {"adam_w_mode": False, "max_grad_norm": 100.0},
    ],
)
def test_lamb(options):
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(5, 7, generator=generator), torch.zeros(3), torch.randn(11, generator=generator)]
    mine = [nn.Parameter(each.to("chip")) for each in params]
    wide = [each.double() for each in params]
    optimizer = load("apex.optimizers").FusedLAMB(mine, lr=0.1, **options)
    settings = optimizer.defaults
    (b1, b2), decay = settings["betas"], settings["weight_decay"]
    b3 = 1 - b1 if settings["grad_averaging"] else 1.0
    means, squares = ([torch.zeros_like(each) for each in wide] for _ in range(2))
    for step in (1, 2, 3):
        grads = [torch.randn(each.shape, generator=generator) for each in params]
        for param, grad in zip(mine, grads, strict=True):
            param.grad = grad.to("chip")
        optimizer.step()
        norm = torch.cat([each.double().flatten() for each in grads]).norm()
        clip = max(norm / settings["max_grad_norm"], 1.0)
        for i, each in enumerate(grads):
            grad = each.double() / clip + (0.0 if options.get("adam_w_mode", True) else decay) * wide[i]
            means[i] = b1 * means[i] + b3 * grad
            squares[i] = b2 * squares[i] + (1 - b2) * grad**2
            first, second = (1 - b1**step, 1 - b2**step) if settings["bias_correction"] else (1.0, 1.0)
            update = means[i] / first / ((squares[i] / second).sqrt() + settings["eps"])
            update = update + decay * wide[i] if options.get("adam_w_mode", True) else update
            if decay or options.get("use_nvlamb"):
                ratio = wide[i].norm() / update.norm()
                update = update * (ratio if ratio else 1.0)
            wide[i] = wide[i] - 0.1 * update
    for param, expected in zip(mine, wide, strict=True):
        torch.testing.assert_close(param.detach().double().cpu(), expected, rtol=1e-4, atol=1e-5)
    optimizer.zero_grad()
    assert mine[0].grad is None and optimizer.param_groups[0]["step"] == 3


def test_lamb_refuses_amsgrad():
    with pytest.raises(RuntimeError, match="amsgrad=True is not supported"):
        load("apex.optimizers").FusedLAMB([nn.Parameter(torch.ones(1))], amsgrad=True)


def test_larc_scales_gradients():
    larc, params = load("apex.parallel").LARC, [nn.Parameter(torch.full((4,), 2.0)) for _ in range(3)]
    for param, grad in zip(params, (1.0, 1e-4, 0.0), strict=True):
        param.grad = torch.full((4,), grad)
    optimizer = larc(torch.optim.SGD(params, lr=0.1, weight_decay=0.5), trust_coefficient=0.02)
    optimizer.step()
    rate = 0.02 * 4.0 / (2.0 + 4.0 * 0.5)
    assert params[0][0].item() == pytest.approx(2.0 - 0.1 * (rate / 0.1) * (1.0 + 0.5 * 2.0), rel=1e-5)
    assert params[2][0].item() == 2.0 and optimizer.param_groups[0]["weight_decay"] == 0.5
    assert copy.deepcopy(optimizer).state_dict()["param_groups"][0]["lr"] == 0.1
