"""bitsandbytes' optimizer operators for the chip: one step against float64, and the real package's optimizers."""

from importlib.util import find_spec
from itertools import product

import pytest
import torch

from isthmus.ops import bitsandbytes as kernels
from tests.helpers.children import output

NAMES = ["adam", "ademamix", "momentum", "rmsprop", "adagrad", "lion"]
SIZE, BLOCKS = 301, 2
BETAS = (0.9, 0.99, 0.999)


def maps():
    """Ascending maps of 256 values with 0 and 1: signed and unsigned."""
    up = (torch.arange(1, 129, dtype=torch.float64) / 128) ** 3
    down = -((torch.arange(1, 128, dtype=torch.float64) / 128).flip(0) ** 3)
    signed = torch.cat([down, torch.zeros(1, dtype=torch.float64), up]).float()
    return signed.to("chip"), ((torch.arange(256) / 255) ** 3).to("chip")


def in_float64(name, grad, param, states, step, settings, scaled_only=None):
    """New states and parameter of one step; ``scaled_only`` is the gradient that rmsprop and adagrad divide."""
    lr, eps, decay, alpha = (settings[key] for key in ("lr", "eps", "weight_decay", "alpha"))
    b1, b2, b3 = BETAS
    if name in ("momentum", "rmsprop", "adagrad"):
        grad = grad + decay * param
    divided = grad if scaled_only is None else scaled_only
    if name in ("adam", "ademamix"):
        m, *slow, v = states
        m, v = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * grad**2
        mean, root = m / (1 - b1**step), (v / (1 - b2**step)).sqrt() + eps
        if name == "ademamix":
            slow = [b3 * slow[0] + (1 - b3) * grad]
            mean = mean + alpha * slow[0]
        return [m, *slow, v], (param - lr * mean / root) * (1 - lr * decay)
    (s,) = states
    if name == "momentum":
        s = grad if step == 1 else b1 * s + grad
        return [s], param - lr * s
    if name == "lion":
        sign = (b1 * s + (1 - b1) * grad).sign()
        return [b2 * s + (1 - b2) * grad], param * (1 - lr * decay) - lr * sign
    s = b1 * s + (1 - b1) * grad**2 if name == "rmsprop" else s + grad**2
    return [s], param - lr * divided / (s.sqrt() + eps)


def blocks(tensor):
    return torch.nn.functional.pad(tensor, (0, BLOCKS * 256 - SIZE)).view(BLOCKS, 256)


def decoded(codes, largest, values):
    parts = values.double()[codes.long()]
    return (blocks(parts) * largest.double().unsqueeze(1)).view(-1)[:SIZE]


def check_codes(codes, largest, values, expected, signed):
    """The codes are those of the nearest values that keep the sign."""
    torch.testing.assert_close(largest.double(), blocks(expected.abs()).amax(1), rtol=2e-5, atol=0)
    scaled = (blocks(expected) / largest.double().unsqueeze(1)).view(-1)[:SIZE]
    nearest = (scaled.unsqueeze(1) - values.double()).abs().min(1).values
    found = values.double()[codes.long()]
    least = signed & (scaled < 0) & (scaled.abs() < values[126].abs())  # 0 is nearer, and has no sign
    assert (((scaled - found).abs() <= nearest + 1e-5) | least).all()
    assert (~signed | (found.signbit() == scaled.signbit())).all()


@pytest.mark.parametrize(("name", "dtype"), list(product(NAMES, [torch.float32, torch.bfloat16])))
def test_states_in_8_bits(name, dtype):
    signed, unsigned = maps()
    two, count = name in ("adam", "ademamix"), 2 if name == "ademamix" else 1
    shape = (2, SIZE) if count == 2 else (SIZE,)
    state1, state2 = (torch.zeros(each, dtype=torch.uint8, device="chip") for each in (shape, (SIZE,)))
    absmax1 = torch.zeros((2, BLOCKS) if count == 2 else (BLOCKS,), device="chip")
    absmax2 = torch.zeros(BLOCKS, device="chip")
    settings = {"lr": 0.02, "eps": 1e-3, "weight_decay": 0.1, "alpha": 3.0}
    generator = torch.Generator().manual_seed(0)
    param = torch.randn(SIZE, generator=generator).to("chip", dtype)
    for step in (1, 2, 3):
        grad = torch.randn(SIZE, generator=generator).to("chip", dtype)
        firsts = list(zip(state1.view(count, SIZE), absmax1.view(count, BLOCKS), strict=True))
        before = [decoded(*each, signed) for each in firsts]
        before += [decoded(state2, absmax2, unsigned)] if two else []
        states, expected = in_float64(
            name, 0.5 * grad.double(), param.double(), before, step, settings, grad.double()
        )
        kernels.optimizer_update_8bit_blockwise(
            name, grad, param, state1, state2 if two else None, *BETAS, settings["alpha"], settings["eps"], step,
            settings["lr"], signed, unsigned if two else None, absmax1, absmax2 if two else None,
            settings["weight_decay"], 0.5,
        )  # fmt: skip
        tolerance = 2e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(param.double(), expected, rtol=tolerance, atol=tolerance)
        for (codes, largest), wanted in zip(firsts, states, strict=False):
            check_codes(codes, largest, signed, wanted, torch.tensor(True, device="chip"))
        if two:
            check_codes(state2, absmax2, unsigned, states[-1], torch.tensor(False, device="chip"))


def test_values_in_the_middle_take_the_even_code():
    signed, _ = maps()
    middles = ((signed[1:] + signed[:-1]) * 0.5)[:254].cpu()
    state = torch.cat([middles, torch.tensor([1.0])]).to("chip")  # the largest magnitude is 1
    codes, largest = torch.zeros(255, dtype=torch.uint8, device="chip"), torch.zeros(1, device="chip")
    kernels._encode(kernels._in_blocks(state, 0), codes, largest, signed, is_signed=True)
    expected = torch.arange(254) + torch.arange(254) % 2
    assert largest.item() == 1.0 and codes[254] == 255
    assert torch.equal(codes[:254].cpu().long(), expected)


def test_small_values_keep_their_sign():
    signed, unsigned = maps()
    state = torch.tensor([1.0, -1e-9, 0.0, 1e-9, -0.9], device="chip")
    for values, is_signed, expected in (
        (signed, True, [255, 126, 127, 127]),
        (unsigned, False, [255, 0, 0, 0]),
    ):
        codes, largest = torch.zeros(5, dtype=torch.uint8, device="chip"), torch.zeros(1, device="chip")
        kernels._encode(kernels._in_blocks(state, 0), codes, largest, values, is_signed=is_signed)
        assert codes[:4].tolist() == expected
    zeros = torch.zeros(1, 256, device="chip")
    for values, is_signed, code in ((signed, True, 255), (unsigned, False, 0)):  # as the kernels encode 0 / 0
        codes, largest = torch.zeros(256, dtype=torch.uint8, device="chip"), torch.ones(1, device="chip")
        kernels._encode(zeros, codes, largest, values, is_signed=is_signed)
        assert largest.item() == 0 and set(codes.tolist()) == {code}


def test_gradients_that_are_not_finite_or_zero():
    signed, unsigned = maps()
    param, grad = torch.ones(SIZE, device="chip"), torch.ones(SIZE, device="chip")
    grad[3], grad[280] = torch.nan, torch.inf
    state1, state2 = (torch.zeros(SIZE, dtype=torch.uint8, device="chip") for _ in range(2))
    absmax = [torch.zeros(BLOCKS, device="chip") for _ in range(2)]
    rest = (*BETAS, 0.0, 1e-8, 1, 0.1)
    kernels.optimizer_update_8bit_blockwise(
        "adam", grad, param, state1, state2, *rest, signed, unsigned, *absmax, 0.0, 1.0
    )
    kept = [3, 280]
    assert param[kept].tolist() == [1.0, 1.0] and (param != 1).sum() == SIZE - 2
    assert decoded(state1, absmax[0], signed)[kept].tolist() == [0.0, 0.0]
    grad = torch.zeros(SIZE, device="chip")
    grad[5] = 2.0
    before = param.clone()
    for skip, changed in ((True, 1), (False, SIZE)):
        kernels.optimizer_update_8bit_blockwise(
            "momentum",
            grad,
            param,
            state1,
            None,
            *BETAS,
            0.0,
            0.0,
            2,
            0.1,
            signed,
            None,
            absmax[0],
            None,
            0.0,
            1.0,
            skip,
        )
        assert (param != before).sum() == changed if skip else (param != before).sum() > 200
    with pytest.raises(ValueError, match="unsupported optimizer 'sgd'"):
        kernels.optimizer_update_8bit_blockwise(
            "sgd",
            grad,
            param,
            state1,
            None,
            *BETAS,
            0.0,
            0.0,
            2,
            0.1,
            signed,
            None,
            absmax[0],
            None,
            0.0,
            1.0,
        )


@pytest.mark.parametrize("name", [*NAMES, "lamb", "lars"])
@pytest.mark.parametrize("max_unorm", [0.0, 0.02])
def test_states_in_32_bits(name, max_unorm):
    meant = {"lamb": "adam", "lars": "momentum"}.get(name, name)
    settings = {"lr": 0.02, "eps": 1e-3, "weight_decay": 0.1, "alpha": 3.0}
    generator = torch.Generator().manual_seed(0)
    param = torch.randn(5, 7, generator=generator).to("chip")
    state1 = torch.zeros((2, 5, 7) if name == "ademamix" else (5, 7), device="chip")
    state2 = torch.zeros(5, 7, device="chip") if meant in ("adam", "ademamix") else None
    norm = torch.zeros(1, device="chip")
    update = kernels.optimizer_update_32bit(lion_decay_is_decoupled=True)
    for step in (1, 2, 3):
        grad = torch.randn(5, 7, generator=generator).to("chip")
        before = [*(state1 if name == "ademamix" else [state1]), *([] if state2 is None else [state2])]
        before = [each.double() for each in before]
        arguments = (0.5 * grad.double(), param.double(), before, step, settings)
        states, expected = in_float64(meant, *arguments)
        if max_unorm and meant not in ("ademamix", "adagrad", "lion"):  # the update is scaled down
            undecayed = {**settings, "weight_decay": 0.0, "lr": 1.0}
            length = (param.double() - in_float64(meant, *arguments[:4], undecayed)[1]).norm()
            shrink = settings["weight_decay"] * settings["lr"] if meant == "adam" else 0.0
            limit = max_unorm * param.double().norm() + (0 if meant == "adam" else settings["eps"])
            assert length > limit
            expected = (param.double() + limit / length * (expected / (1 - shrink) - param)) * (1 - shrink)
        update(
            name, grad, param, state1, state2, norm, max_unorm, float(param.norm()), *BETAS, settings["alpha"],
            settings["eps"], settings["weight_decay"], step, settings["lr"], 0.5,
        )  # fmt: skip
        if not max_unorm or meant != "lion":
            torch.testing.assert_close(param.double(), expected, rtol=1e-4, atol=2e-5)
        found = [*(state1 if name == "ademamix" else [state1]), *([] if state2 is None else [state2])]
        for a, b in zip(found, states, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6)


def test_lions_decay_before_version_0_50():
    grad, state = torch.tensor([0.1], device="chip"), torch.zeros(1, device="chip")
    for decoupled, expected in ((True, -1.0 * 0.9 - 0.5), (False, -1.0 + 0.5)):
        param = torch.tensor([-1.0], device="chip")
        rest = (None, None, 0.0, 0.0, *BETAS, 0.0, 0.0, 0.2, 1, 0.5, 1.0)
        kernels.optimizer_update_32bit(decoupled)("lion", grad, param, state.clone(), *rest)
        assert param.item() == pytest.approx(expected)


def test_functions_that_call_cudas_runtime():
    history = torch.zeros(100, device="chip")
    for step in range(1, 4):
        norm, limit, factor = kernels.percentile_clipping(
            torch.full((4,), float(step)).to("chip"), history, step, 98
        )
    assert norm.item() == 6.0 and limit.item() == 4.0 and factor == pytest.approx(4 / 6)
    assert kernels.percentile_clipping(torch.ones(4, device="chip"), history, 4, 99)[2] == 1.0
    with pytest.raises(NotImplementedError, match="block_wise=False"):
        kernels.optimizer_update_8bit("lamb")
    state = kernels.get_paged(2, 3, dtype=torch.uint8, device=torch.device("chip"))
    kernels.fill(state, 7)
    assert state.device.type == "chip" and state.tolist() == [[7] * 3] * 2


PACKAGE = """
from isthmus import shim
shim.enter()
import torch, bitsandbytes as bnb
target = torch.nn.Linear(400, 300).cuda()
for kind in ('Adam8bit', 'AdamW8bit', 'PagedAdamW8bit', 'Lion8bit', 'RMSprop8bit', 'SGD8bit', 'Adagrad8bit',
             'AdEMAMix8bit', 'PagedAdamW32bit', 'LAMB32bit', 'LARS32bit'):
    torch.manual_seed(0)
    x, model = torch.randn(64, 400, device='cuda'), torch.nn.Linear(400, 300).cuda()
    more = {'momentum': 0.9} if kind[:3] in ('SGD', 'LAR') else {}
    if kind.endswith('8bit') and kind not in ('Adagrad8bit',):
        more['min_8bit_size'] = 16
    optimizer = getattr(bnb.optim, kind)(model.parameters(), lr=1e-3, **more)
    losses = []
    for _ in range(4):
        loss = (model(x) - target(x)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    dtype = optimizer.state[model.weight]['state1'].dtype
    print(kind, losses[-1] < losses[0], dtype == (torch.uint8 if '8bit' in kind else torch.float32))
"""


@pytest.mark.full
@pytest.mark.skipif(not find_spec("bitsandbytes"), reason="no bitsandbytes")
def test_the_packages_optimizers():
    lines = [line for line in output(PACKAGE).splitlines() if line.endswith(("True", "False"))]
    assert len(lines) == 11 and all(line.endswith("True True") for line in lines), lines
