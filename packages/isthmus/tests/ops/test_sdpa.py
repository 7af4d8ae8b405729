"""scaled_dot_product_attention on the chip by isthmus::attention: by request, and where a library has a kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from isthmus import ops
from isthmus_common import patches
from tests.helpers import command
from tests.helpers.children import output
from tests.helpers.ops_checks import DTYPES, against_float64, in_each_dtype, leaf

FORWARD, BACKWARD = "isthmus_cpu::attention", "isthmus_cpu::attention_backward"
OURS = "aten::_scaled_dot_product_fused_attention_overrideable"
QUERIES, KEYS = 33, 40


@pytest.fixture
def patched() -> Iterator[Any]:
    with ops.patch("torch") as patched:
        yield patched


def calls() -> dict[str, int]:
    """Return the calls of each attention operator on the chip since the last call of this function."""
    found = torch.chip.dispatch_stats()["operators"]
    torch.chip.reset_dispatch_stats()
    return {name: each["calls"] for name, each in found.items() if "attention" in name}


def heads(count: int, tokens: int, features: int, dtype: Any = torch.float32, **how: Any) -> torch.Tensor:
    """[2, heads, tokens, features] on the chip, heads by strides as projections leave them."""
    if how.get("contiguous"):
        return leaf(2, count, tokens, features, device="chip", dtype=dtype)
    return (
        leaf(2, tokens, count, features, device="chip", dtype=dtype).detach().transpose(1, 2).requires_grad_()
    )


def math(*arguments: Any, **settings: Any) -> torch.Tensor:
    """PyTorch's composite, without any fused kernel."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(*arguments, **settings)


CASES: dict[str, tuple[dict[str, Any], Callable[[], torch.Tensor | None]]] = {
    "plain": ({}, lambda: None),
    "causal": ({"is_causal": True}, lambda: None),
    "scale": ({"scale": 0.3, "is_causal": True}, lambda: None),
    "bool of all pairs": ({}, lambda: torch.rand(2, 4, QUERIES, KEYS) > 0.3),
    "bool of keys": ({}, lambda: torch.rand(2, 1, 1, KEYS) > 0.3),
    "bool of two dimensions": ({}, lambda: torch.rand(QUERIES, KEYS) > 0.3),
    "float": ({}, lambda: leaf(2, 4, QUERIES, KEYS)),
    "float of two dimensions": ({}, lambda: leaf(QUERIES, KEYS)),
    "float of heads": ({}, lambda: leaf(4, 1, KEYS)),
}


@pytest.mark.parametrize("contiguous", [False, True], ids=["by strides", "contiguous"])
@pytest.mark.parametrize("case", CASES)
def test_forward_and_backward_against_math_in_float64(patched, case, contiguous):
    settings, make = CASES[case]
    inputs = [heads(4, QUERIES, 16, contiguous=contiguous)]
    inputs += [heads(2, KEYS, size, contiguous=contiguous) for size in (16, 24)]
    mask = make()
    if mask is not None:
        dtype = torch.bool if mask.dtype == torch.bool else torch.float32
        inputs.append(mask.detach().to("chip", dtype).requires_grad_(mask.requires_grad))
    calls()
    against_float64(
        lambda *x: sdpa(*x, enable_gqa=True, **settings),
        lambda *x: math(*x, enable_gqa=True, **settings),
        inputs,
    )
    counted = calls()
    assert counted[OURS] == counted[FORWARD] == counted[f"{OURS}_backward"] == 1
    wants_bias = mask is not None and mask.requires_grad
    assert counted.get(BACKWARD, 0) == (not wants_bias), "no kernel has the gradient of the bias"


@in_each_dtype
def test_each_dtype(patched, dtype):
    inputs = [heads(4, QUERIES, 16, dtype), heads(4, KEYS, 16, dtype), heads(4, KEYS, 16, dtype)]
    with ops.use("attention", "cpu"):  # raises if unsupported
        against_float64(lambda *x: sdpa(*x, is_causal=True), lambda *x: math(*x, is_causal=True), inputs, 2)


def test_gradcheck_in_float64(patched):
    inputs = [leaf(1, 2, 3, 4, device="chip"), *(leaf(1, 2, 5, 4, device="chip") for _ in range(2))]
    mask = leaf(3, 5, device="chip")
    calls()
    with ops.use("attention", "cpu"):
        assert torch.autograd.gradcheck(lambda *x: sdpa(*x, is_causal=True), inputs)
    assert torch.autograd.gradcheck(sdpa, (*inputs, mask))
    counted = calls()
    assert counted[OURS] > 10
    assert counted[FORWARD] > counted[OURS], "backward makes the sums of float64 again"


def test_three_dimensions_no_keys_and_fully_masked_rows(patched):
    q, k, v = (leaf(4, each, 16, device="chip", dtype=torch.float32) for each in (QUERIES, KEYS, KEYS))
    against_float64(sdpa, math, (q, k, v))
    nothing = torch.zeros(QUERIES, KEYS, dtype=torch.bool, device="chip")
    against_float64(sdpa, math, (q, k, v, nothing))
    assert calls()[FORWARD] == 2
    none = [leaf(4, 0, 16, device="chip", dtype=torch.float32) for _ in range(2)]
    assert not sdpa(q, *none).any()


def test_dropout_has_the_rate_and_the_same_mask_in_backward(patched):
    q, k = (torch.zeros(2, 4, 128, 16, device="chip") for _ in range(2))
    v = torch.ones(2, 4, 128, 16, device="chip", requires_grad=True)
    torch.manual_seed(3)
    first = sdpa(q, k, v, dropout_p=0.25)
    assert abs(first.mean().item() - 1) < 0.01
    kept = first[..., 0] * 128 * 0.75  # number of each query's keys
    (grad,) = torch.autograd.grad(first.sum(), v)
    torch.testing.assert_close(grad[..., 0].sum() * 128 * 0.75, kept.sum())
    assert not torch.equal(first, sdpa(q, k, v, dropout_p=0.25))
    torch.manual_seed(3)
    assert torch.equal(first, sdpa(q, k, v, dropout_p=0.25))
    # The gradient of v is linear in the mask, so it shows the mask used in forward.
    weight = torch.randn(2, 4, 128, 16, device="chip")
    torch.manual_seed(3)
    (grad,) = torch.autograd.grad((sdpa(q, k, v, dropout_p=0.25) * weight).sum(), v)
    torch.manual_seed(3)
    moved = sdpa(q, k, grad, dropout_p=0.25)
    torch.testing.assert_close((moved * weight).sum(), grad.square().sum(), rtol=1e-4, atol=0)
    assert calls()[OURS] == 5


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.full)])
@pytest.mark.parametrize("contiguous", [False, True], ids=["by strides", "contiguous"])
def test_compiled(patched, backend, contiguous):
    torch._dynamo.reset()
    inputs = [heads(4, QUERIES, 16, contiguous=contiguous)]
    inputs += [heads(2, KEYS, size, contiguous=contiguous) for size in (16, 24)]
    seen = torch.rand(2, 1, QUERIES, KEYS, device="chip") > 0.3
    bias = leaf(QUERIES, KEYS, device="chip", dtype=torch.float32)

    def block(q: Any, k: Any, v: Any, bias: Any) -> Any:
        one = sdpa(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)
        two = sdpa(q, k, v, seen, dropout_p=0.1, enable_gqa=True).flatten(1)
        three = sdpa(q, k, v, bias, enable_gqa=True)
        return one.sin().sum() + two.square().sum() + three.cos().sum()

    def results(function: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        out = function(*inputs, bias)
        return [out, *torch.autograd.grad(out, [*inputs, bias])]

    expected = results(block)
    compiled = torch.compile(block, backend=backend, fullgraph=True)
    calls()
    for found, wanted in zip(results(compiled), expected, strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
    counted = calls()
    assert counted[OURS] == counted[FORWARD] == counted[f"{OURS}_backward"] == 3


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("contiguous", [False, True], ids=["by strides", "contiguous"])
def test_fake_tensors_are_what_real_ones_are(patched, dtype, contiguous):
    real = [heads(4, QUERIES, 16, dtype, contiguous=contiguous)]
    real += [heads(4, KEYS, size, dtype, contiguous=contiguous) for size in (16, 24)]
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
    with FakeTensorMode() as mode, torch.no_grad():
        fake = [mode.from_tensor(each) for each in real]
        assert sdpa(*fake).stride() == operator(*fake)[0].stride()
        stated = operator(*fake)
    for made, said in zip(operator(*real), stated, strict=True):
        if isinstance(said, torch.Tensor):
            assert (made.shape, made.dtype, made.device) == (said.shape, said.dtype, said.device)
            assert made.stride() == said.stride()


def test_unsupported_calls_take_the_previous_path(patched):
    q, k, v = heads(4, QUERIES, 16), heads(2, KEYS, 16), heads(2, KEYS, 16)
    one, five = k[:1], q.detach()[None]
    calls()
    for arguments in ((one[:, :, :, :8], one[:, :, :, :8], one[:, :, :, :8]), (five, five, five)):
        sdpa(*(each.detach() for each in arguments))
    sdpa(q, k[:1].expand_as(k).repeat_interleave(2, 1), v[:1].repeat_interleave(2, 1))  # batch is broadcast
    torch.vmap(sdpa)(five, five, five)
    assert calls()[OURS] == 1, "the first of them is served"
    both = torch.rand(
        QUERIES, QUERIES
    )  # a mask beside is_causal: 2.13's and 2.14's CPU takes it, others refuse it
    on_cpu, given = [q.detach().cpu()] * 3, both.to("chip")
    with contextlib.suppress(RuntimeError):
        expected = sdpa(*on_cpu, both, is_causal=True)
        assert torch.equal(sdpa(q, q, q, given, is_causal=True).detach().cpu(), expected)
    with pytest.raises(RuntimeError):
        sdpa(q, k, v)  # grouped heads without enable_gqa
    with sdpa_kernel(SDPBackend.MATH):
        sdpa(q, q, q)
    assert OURS not in calls()


def test_it_is_printed_and_undone():
    q = heads(4, QUERIES, 16).detach()
    before = sdpa(q, q, q)
    with ops.patch("torch") as patched:
        assert patched.left == {}
        assert "scaled_dot_product_attention: flash attention" in str(patched)
        assert [each.target for each in patches.active("ops")] == [each.target for each in patched.replaced]
        assert torch.chip.fused_attention()
        again = ops.patch("torch")
        assert not again.replaced and "already replaced" in str(again)
        sdpa(q, q, q)
        assert calls()[OURS] == 1
    assert not torch.chip.fused_attention()
    calls()
    assert torch.equal(sdpa(q, q, q), before)
    assert OURS not in calls() and torch.equal(before.cpu(), sdpa(q.cpu(), q.cpu(), q.cpu()))


def test_other_devices_keep_pytorchs(patched):
    q = torch.randn(2, 4, QUERIES, 16)
    assert torch._fused_sdp_choice(q, q, q) == SDPBackend.FLASH_ATTENTION.value


def test_a_chip_with_the_kernel_uses_it_by_default():
    said = output(
        """
        import sys, torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa
        assert torch.chip.fused_attention() and "isthmus.ops" not in sys.modules
        shapes = (2, 4, 9, 16), (2, 2, 11, 16), (2, 2, 11, 8)
        q, k, v = (torch.randn(shape, requires_grad=True) for shape in shapes)
        ours = [each.detach().to("chip").requires_grad_() for each in (q, k, v)]
        mask = torch.rand(9, 11) > 0.3
        for name, options in (("causal", {"is_causal": True}), ("mask", {"attn_mask": mask})):
            theirs = sdpa(q, k, v, enable_gqa=True, **options)
            options = {name: each.to("chip") if name == "attn_mask" else each for name, each in options.items()}
            found = sdpa(*ours, enable_gqa=True, **options)
            torch.testing.assert_close(found.cpu(), theirs)
            grads = torch.autograd.grad(found, ours, torch.ones_like(found))
            for made, wanted in zip(grads, torch.autograd.grad(theirs, (q, k, v), torch.ones_like(theirs))):
                torch.testing.assert_close(made.cpu(), wanted)
        assert sdpa(*ours, enable_gqa=True, dropout_p=0.5).isfinite().all()
        counted = torch.chip.dispatch_stats()["operators"]
        print(counted["isthmus::attention"])
        from isthmus import ops
        print(ops.patch("torch").left)
        """,
        ISTHMUS_DRIVER="numpy",
        ISTHMUS_STRICT="1",
    )
    first, second = said.splitlines()
    assert first == "{'route': 'kernel', 'calls': 3}"
    assert "the chip's operator library" in second


@pytest.mark.sampled(1)
@pytest.mark.parametrize("libraries", ["torch", "transformers,torch"])
def test_isthmus_run_patches_it(tmp_path, libraries):
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint(torch.chip.fused_attention(), torch.zeros(1).cuda().device)\n")
    done = command.run("--patch", libraries, script)
    assert (done.stdout, done.returncode) == ("True cuda:0\n", 0), done.stderr
    assert "not patched" not in done.stderr
