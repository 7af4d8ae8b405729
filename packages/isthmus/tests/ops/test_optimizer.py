"""AdamW over all parameters in one call, and the norm of all gradients, by every implementation."""

import copy

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import by_each, on_each_device

SIZES = ((7, 13), (35,), (), (0, 5), (3, 1, 17), (70001,))
# Both sides round a dozen times in another order; the update is 1e-3 or so of a parameter of about 1.
CLOSE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def parameters(dtype=torch.float32, device="cpu", sizes=SIZES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(size, dtype=torch.float64, generator=generator) for size in sizes]
    return [torch.nn.Parameter(each.to(dtype).to(device)) for each in made]


def give_gradients(*lists, step, scale=1.0, dtype=None):
    generator = torch.Generator().manual_seed(100 + step)
    for row in zip(*lists, strict=True):
        grad = torch.randn(row[0].shape, dtype=torch.float64, generator=generator) * scale
        for each in row:
            each.grad = grad.to(dtype or each.dtype).to(each.device)


def train(ours, theirs, mine, yours, steps=10, clip=None, scale=1.0):
    for step in range(steps):
        give_gradients(mine, yours, step=step, scale=scale)
        if clip:
            expected = torch.nn.utils.clip_grad_norm_(yours, clip)
        ours.step()
        theirs.step()
        if clip:
            torch.testing.assert_close(
                ours.last_grad_norm.cpu(), expected, rtol=1e-5, atol=0, check_dtype=False
            )


def assert_alike(mine, yours):
    for a, b in zip(mine, yours, strict=True):
        limit = CLOSE[b.dtype]
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=limit, atol=limit)


@on_each_device
@by_each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"amsgrad": True, "maximize": True}, {"weight_decay": 0.3, "eps": 1e-3}],
                         ids=["plain", "amsgrad-maximize", "decay"])  # fmt: skip
def test_ten_steps_are_those_of_pytorch(device, implementation, dtype, options):
    mine, yours = parameters(dtype, device), parameters(dtype)
    with ops.use("adamw_", implementation):
        train(ops.AdamW(mine, **options), torch.optim.AdamW(yours, fused=True, **options), mine, yours)
    assert_alike(mine, yours)


@on_each_device
@by_each
@pytest.mark.parametrize("scale", [1.0, 1e-5], ids=["clipped", "below"])
def test_clipping_is_folded_in(device, implementation, scale):
    mine, yours = parameters(device=device), parameters()
    with ops.use("adamw_", implementation), ops.use("grad_norm", implementation):
        ours = ops.AdamW(mine, max_norm=1.5, lr=0.03)
        assert (
            ops.which("grad_norm", [each.grad for each in _with_gradients(mine)]).implementation
            == implementation
        )
        train(ours, torch.optim.AdamW(yours, fused=True, lr=0.03), mine, yours, clip=1.5, scale=scale)
    assert_alike(mine, yours)


def _with_gradients(params):
    give_gradients(params, step=0)
    return params


def test_adam_adds_the_decay_to_the_gradient():
    mine, yours = parameters(), parameters()
    train(ops.AdamW(mine, decoupled=False, weight_decay=0.2), torch.optim.Adam(yours, fused=True, weight_decay=0.2),
          mine, yours)  # fmt: skip
    assert_alike(mine, yours)


def test_the_gradients_are_not_modified():
    mine = _with_gradients(parameters())
    before = [each.grad.clone() for each in mine]
    ops.AdamW(mine, max_norm=0.1).step()
    for each, was in zip(mine, before, strict=True):
        assert torch.equal(each.grad, was)


@by_each
def test_parameters_of_other_layouts(implementation):
    def made():
        wide = torch.randn(6, 20, generator=torch.Generator().manual_seed(3))
        return [
            torch.nn.Parameter(wide.clone()[:, ::2]),
            torch.nn.Parameter(wide.clone().t()),
            torch.nn.Parameter(wide.view(2, 3, 4, 5).clone(memory_format=torch.channels_last)),
        ]

    mine, yours = made(), [torch.nn.Parameter(each.detach().contiguous()) for each in made()]
    with ops.use("adamw_", implementation):
        train(ops.AdamW(mine, amsgrad=True), torch.optim.AdamW(yours, fused=True, amsgrad=True), mine, yours)
    assert_alike(mine, yours)


@on_each_device
@pytest.mark.parametrize("fused", [True, False])
def test_state_converts_both_ways(device, fused):
    mine, yours = parameters(device=device), parameters()
    ours, theirs = ops.AdamW(mine, amsgrad=True), torch.optim.AdamW(yours, amsgrad=True, fused=fused)
    train(ours, theirs, mine, yours, 3)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    saved = copy.deepcopy(ours.state_dict())
    theirs = torch.optim.AdamW(yours, amsgrad=True, fused=fused)
    theirs.load_state_dict(saved)
    train(ours, theirs, mine, yours, 3)
    assert_alike(mine, yours)
    assert {each["step"].item() for each in ours.state.values()} == {6.0}
    assert saved["param_groups"][0].keys() == theirs.state_dict()["param_groups"][0].keys()


@by_each
def test_halves_with_float32_state_and_masters(implementation):
    """With master weights, bfloat16 training equals float32: the parameters are rounded masters."""
    mine, yours = parameters(torch.bfloat16), parameters(torch.bfloat16)
    yours = [torch.nn.Parameter(each.detach().float()) for each in yours]
    ours = ops.AdamW(mine, lr=1e-4, state_dtype=torch.float32, master_weights=True)
    theirs = torch.optim.AdamW(yours, lr=1e-4, fused=True)
    with ops.use("adamw_", implementation):
        for step in range(10):
            give_gradients(mine, yours, step=step, dtype=None)
            for a, b in zip(mine, yours, strict=True):
                b.grad = a.grad.float()
            ours.step()
            theirs.step()
    for a, b in zip(mine, yours, strict=True):
        state = ours.state[a]
        torch.testing.assert_close(state["master_param"], b.detach(), rtol=2e-6, atol=2e-6)
        assert torch.equal(a.detach(), state["master_param"].bfloat16())
        assert state["exp_avg"].dtype == torch.float32
    again = ops.AdamW(parameters(torch.bfloat16), state_dtype=torch.float32, master_weights=True)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    for a, b in zip(again.param_groups[0]["params"], mine, strict=True):
        for key in ("master_param", "exp_avg", "exp_avg_sq", "step"):
            assert torch.equal(again.state[a][key], ours.state[b][key])


@on_each_device
def test_gradient_scaler(device):
    mine, yours = parameters(device=device), parameters()
    ours, theirs = (
        ops.AdamW(mine, max_norm=2.0, error_if_nonfinite=True),
        torch.optim.AdamW(yours, fused=True),
    )
    scalers = [torch.amp.GradScaler(kind, init_scale=1024.0) for kind in (device, "cpu")]
    for step in range(4):
        give_gradients(mine, yours, step=step, scale=1024.0)
        if step == 2:
            for each in (mine[1], yours[1]):
                each.grad[3] = float("inf")
        for scaler in scalers:
            scaler.scale(torch.ones((), device=device if scaler is scalers[0] else "cpu"))
        scalers[1].unscale_(theirs)
        if step != 2:
            torch.nn.utils.clip_grad_norm_(yours, 2.0)
        for scaler, optimizer in zip(scalers, (ours, theirs), strict=True):
            scaler.step(optimizer)
            scaler.update()
        for each in zip(mine, yours, strict=True):
            each[0].grad = each[1].grad = None
        scalers[0].update(1024.0)
        scalers[1].update(1024.0)
    assert_alike(mine, yours)
    assert ours.state[mine[0]]["step"].item() == 3.0


def test_a_learning_rate_in_a_tensor_and_parameters_without_gradient():
    rate = torch.tensor(0.01)
    mine, yours = parameters(), parameters()
    ours, theirs = ops.AdamW(mine, lr=rate), torch.optim.AdamW(yours, lr=0.02, fused=True)
    rate.fill_(0.02)
    give_gradients(mine[:2], yours[:2], step=0)
    ours.step()
    theirs.step()
    assert_alike(mine, yours)
    assert mine[3] not in ours.state
    assert ours.step(lambda: 7) == 7


def test_invalid_arguments_are_named():
    with pytest.raises(ValueError, match="max_norm is 0; it must be positive"):
        ops.AdamW(parameters(), max_norm=0)
    mine = _with_gradients(parameters())
    mine[0].grad[0, 0] = float("nan")
    with pytest.raises(RuntimeError, match="norm of order 2 is nan"):
        ops.AdamW(mine, max_norm=1.0, error_if_nonfinite=True).step()
    mine[0].grad = mine[0].grad.to_sparse()
    with pytest.raises(RuntimeError, match="a gradient is sparse"):
        ops.AdamW(mine).step()
    whole = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    whole.grad = torch.ones_like(whole)
    with pytest.raises(ValueError, match="view_as_real"):
        ops.AdamW([whole]).step()


@on_each_device
@by_each
@pytest.mark.parametrize("order", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norms(device, implementation, order, dtype):
    grads = [each.detach() for each in parameters(dtype, device)]
    with ops.use("grad_norm", implementation):
        total, each = ops.grad_norms(grads, order)
        assert torch.equal(ops.grad_norm(grads, order), total)
    flat = torch.cat([grad.cpu().double().reshape(-1) for grad in grads])
    expected = torch.linalg.vector_norm(flat, order)
    limit = 5e-7 if implementation == "cpu" else 1e-5  # PyTorch sums 70001 squares in fewer float32 sums
    torch.testing.assert_close(total.cpu().double(), expected, rtol=limit, atol=0)
    for one, grad in zip(each.tolist(), grads, strict=True):
        wide = grad.cpu().double().reshape(-1)
        assert one == pytest.approx(
            torch.linalg.vector_norm(wide, order).item() if len(wide) else 0.0, rel=limit
        )


def test_the_norm_does_not_depend_on_the_number_of_threads():
    grads = [each.detach() for each in parameters()]
    before, threads = ops.grad_norm(grads), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(ops.grad_norm(grads), before)
    finally:
        torch.set_num_threads(threads)


def test_an_order_without_a_kernel_is_by_the_composite():
    grads = [each.detach() for each in parameters()]
    choice = ops.which("grad_norm", grads, 3.0)
    assert choice.implementation == "composite"
    assert choice.refused == {"cpu": "no kernel for norms of order 3"}
    flat = torch.cat([grad.double().reshape(-1) for grad in grads])
    assert ops.grad_norm(grads, 3.0).item() == pytest.approx(
        torch.linalg.vector_norm(flat, 3).item(), rel=1e-5
    )


@on_each_device
@pytest.mark.parametrize("limit", [1.5, 1e6])
def test_clip_grad_norm(device, limit):
    mine, yours = parameters(device=device), parameters()
    give_gradients(mine, yours, step=1)
    got = ops.clip_grad_norm_(mine, limit)
    torch.testing.assert_close(got.cpu(), torch.nn.utils.clip_grad_norm_(yours, limit), rtol=1e-5, atol=0)
    for a, b in zip(mine, yours, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-5, atol=1e-7)
    assert ops.clip_grad_norm_([], 1.0).item() == 0.0
    mine[0].grad.fill_(float("inf"))
    with pytest.raises(RuntimeError, match="is inf"):
        ops.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)


def test_a_function_with_a_step_compiles_without_a_break():
    def step(param, grad, mean, square, count):
        ops.adamw_(
            [param], [grad], [mean], [square], [count], lr=0.1, norm=ops.grad_norm([grad]), max_norm=1.0
        )
        return param * 2

    def arguments():
        return [torch.full((5,), value) for value in (1.0, 2.0, 0.5, 0.25)] + [torch.zeros(())]

    mine, yours = arguments(), arguments()
    got = torch.compile(step, fullgraph=True)(*mine)
    torch.testing.assert_close(got, step(*yours))
    torch.testing.assert_close(mine, yours)
