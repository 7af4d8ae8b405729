"""``apex.amp`` as its documentation defines it: the levels, scaled losses, master weights, registered functions."""

from __future__ import annotations

import importlib
import sys
import types

import pytest
import torch
from torch import nn

from isthmus.stand_ins import provide

CHIP = torch.device("chip", 0)


@pytest.fixture
def amp(monkeypatch):
    """Return a fresh apex.amp; autocast is off again afterwards."""
    for path in provide.folders("apex"):
        monkeypatch.syspath_prepend(path)
    yield importlib.import_module("apex.amp")
    torch.set_autocast_enabled("chip", False)
    torch.set_autocast_cache_enabled(True)
    for name in [each for each in sys.modules if each.partition(".")[0] in ("apex", "amp_C")]:
        del sys.modules[name]


def made(lr=0.5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(CHIP)
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def loss_of(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return model(torch.randn(8, 4, generator=generator).to(CHIP)).float().square().mean()


def train(amp, model, optimizer, steps=3):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("level", "weight", "norm", "scale"),
    [
        ("O0", torch.float32, torch.float32, 1.0),
        ("O1", torch.float32, torch.float32, 2.0**16),
        ("O2", torch.float16, torch.float32, 2.0**16),
        ("O3", torch.float16, torch.float16, 1.0),
    ],
)
def test_levels(amp, level, weight, norm, scale):
    model, optimizer = made(0.1)
    plain = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        plain.append(loss.item())
    model, optimizer = amp.initialize(*made(0.1), opt_level=level, verbosity=0)
    assert (model[0].weight.dtype, model[1].weight.dtype) == (weight, norm)
    assert amp.state_dict() == {"loss_scaler0": {"loss_scale": scale, "unskipped": 0}}
    found = train(amp, model, optimizer)
    assert found == plain if level == "O0" else found == pytest.approx(plain, rel=2e-2)
    inside = []
    model[0].register_forward_hook(lambda *call: inside.append(call[2].dtype))
    output = model(torch.ones(2, 4, device=CHIP))
    assert inside == [torch.float32 if level == "O0" else torch.float16]
    assert output.dtype == (torch.float16 if level == "O1" else torch.float32)
    assert {value.dtype for name, value in model.state_dict().items() if "num_" not in name} == {
        torch.float32
    }


def test_master_weights(amp):
    model, optimizer = amp.initialize(*made(1e-5), opt_level="O2", verbosity=0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(amp, model, optimizer, 5)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-6)
    masters = list(amp.master_params(optimizer))
    assert {each.dtype for each in masters} == {torch.float32}
    for param, master in zip(model.parameters(), masters, strict=True):
        assert torch.equal(param, master.to(param.dtype))
    assert not torch.equal(masters[0], masters[0].half().float()), "small updates accumulate in float32"
    optimizer.zero_grad()
    assert all(each.grad is None for each in (*masters, *model.parameters()))


def test_a_checkpoint_is_loaded_before_the_masters_are_made(amp):
    model, optimizer = amp.initialize(*made(), opt_level="O2", verbosity=0)
    train(amp, model, optimizer)
    saved = [{**model.state_dict()}, optimizer.state_dict(), amp.state_dict()]
    again, restored = amp.initialize(*made(), opt_level="O2", verbosity=0)
    again.load_state_dict(saved[0])
    restored.load_state_dict(saved[1])
    amp.load_state_dict(saved[2])
    assert amp.state_dict()["loss_scaler0"]["unskipped"] == 3
    assert train(amp, again, restored, 1) == pytest.approx(train(amp, model, optimizer, 1), rel=1e-2)
    with pytest.raises(RuntimeError, match="unexpected keys model"):
        amp.load_state_dict({"model": 1})


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_an_overflow_skips_the_step_and_halves_the_scale(amp, level, capsys):
    model, optimizer = amp.initialize(*made(), opt_level=level, verbosity=0)
    before = model[0].weight.detach().clone()
    with amp.scale_loss(loss_of(model) * float("inf"), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert torch.equal(model[0].weight, before) and amp.state_dict()["loss_scaler0"]["loss_scale"] == 2.0**15
    assert "Gradient overflow.  Skipping step, loss scaler 0" in capsys.readouterr().out
    train(amp, model, optimizer, 1)
    assert not torch.equal(model[0].weight, before)


def test_a_dynamic_scale_doubles_up_to_its_limit(amp):
    model, optimizer = amp.initialize(*made(), verbosity=0, max_loss_scale=2.0**17, min_loss_scale=2.0**17)
    for expected in (2.0**17, 2.0**17):
        amp.load_state_dict({"loss_scaler0": {"loss_scale": expected, "unskipped": 1999}})
        train(amp, model, optimizer, 1)
        assert amp.state_dict() == {"loss_scaler0": {"loss_scale": 2.0**17, "unskipped": 0}}


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("scale", [128.0, "128", "dynamic"])
def test_gradients_accumulate_over_losses(amp, level, scale):
    model, optimizer = amp.initialize(*made(), opt_level=level, loss_scale=scale, num_losses=2, verbosity=0)
    model.eval()
    for index in (0, 1):
        with amp.scale_loss(loss_of(model, index), optimizer, loss_id=index) as scaled:
            scaled.backward()
    unscaled = [each.grad.clone() for each in amp.master_params(optimizer)]
    optimizer.zero_grad()
    for index in (0, 1):
        with amp.scale_loss(loss_of(model, index), optimizer, delay_unscale=index == 0) as scaled:
            factor = 2.0**16 if scale == "dynamic" else 128.0
            assert scaled.item() == pytest.approx(loss_of(model, index).item() * factor)
            scaled.backward()
    for ours, delayed in zip(unscaled, amp.master_params(optimizer), strict=True):
        assert torch.allclose(ours, delayed.grad, rtol=1e-2, atol=1e-3)
    assert len(amp.state_dict()) == 2


def test_two_optimizers_of_one_loss(amp):
    models = [made()[0], made()[0]]
    both = [torch.optim.Adam(each.parameters()) for each in models]
    models, both = amp.initialize(models, both, opt_level="O2", verbosity=0)
    with amp.scale_loss(loss_of(models[0]) + loss_of(models[1]), both) as scaled:
        scaled.backward()
    before = [each[0].weight.detach().clone() for each in models]
    for optimizer in both:
        optimizer.step()
    assert all(not torch.equal(old, each[0].weight) for old, each in zip(before, models, strict=True))


def test_functions_of_the_user(amp):
    library = types.SimpleNamespace(
        half=lambda x: x.dtype, full=lambda x: x.dtype, wide=lambda x, y=None: (x.dtype, y[0].dtype)
    )
    amp.register_half_function(library, "half")
    amp.register_float_function(library, "full")
    amp.register_promote_function(library, "wide")
    decorated = amp.half_function(lambda x: x.dtype), amp.float_function(lambda x: x.dtype)
    x, y = torch.ones(2, device=CHIP), torch.ones(2, device=CHIP, dtype=torch.float16)
    assert decorated[0](x) == library.half(x) == torch.float32, "nothing is cast before initialize"
    amp.initialize(made()[0], opt_level="O1", verbosity=0)
    assert (library.half(x), library.full(y)) == (torch.float16, torch.float32)
    assert library.wide(y, y=[x]) == (torch.float32, torch.float32)
    assert (decorated[0](x), decorated[1](y)) == (torch.float16, torch.float32)
    assert decorated[0](x.cpu()) == torch.float32
    with amp.disable_casts():
        assert decorated[0](x) == torch.float32 == (torch.ones(2, 2, device=CHIP) @ x).dtype
    assert (torch.ones(2, 2, device=CHIP) @ x).dtype == torch.float16
    with pytest.raises(ValueError, match="no function named missing"):
        amp.register_half_function(library, "missing")


def test_options(amp):
    model, optimizer = made()
    with (
        pytest.raises(RuntimeError, match=r"amp\.scale_loss: call"),
        amp.scale_loss(torch.ones(1), optimizer),
    ):
        pass
    for options, words in (
        ({"opt_level": "01"}, "expected O0, O1, O2, O3"),
        ({"opt_level": "O1", "keep_batchnorm_fp32": True}, "must be None with O1"),
        ({"opt_level": "O2", "patch_torch_functions": True}, "needs opt_level O1"),
    ):
        with pytest.raises(RuntimeError, match=words):
            amp.initialize(model, optimizer, **options)
    with pytest.raises(RuntimeError, match=r"0\.weight is torch\.float16"):
        amp.initialize(made()[0].half(), verbosity=0)
    with pytest.raises(TypeError, match="expected Optimizer"):
        amp.initialize(model, model, verbosity=0)
    same = amp.initialize(model, optimizer, enabled=False)
    assert same == (model, optimizer) and train(amp, model, optimizer, 1)
    model, _ = made()
    assert amp.initialize(model, opt_level="O3", keep_batchnorm_fp32="True", verbosity=0) is model
    assert model[1].weight.dtype == torch.float32
    model = amp.initialize(made()[0], opt_level="O2", cast_model_outputs=torch.float16, verbosity=0)
    assert model(torch.ones(2, 4, device=CHIP)).dtype == torch.float16
