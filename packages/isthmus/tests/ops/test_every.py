"""Properties of every function of isthmus.ops: gradients by the fused kernels, any layout, compilation, modes."""

import contextlib
import types

import pytest
import torch

from isthmus import ops
from isthmus.ops import registration
from tests.helpers.ops_checks import by_each, on_each_device
from tests.helpers.ops_table import Case, cases

# These have no gradients, or no tensor arguments; computing ones have their own tests.
WITHOUT = {
    "implementations", "which", "patch", "unpad_gen_attention_mask", "grad_norm", "grad_norms", "clip_grad_norm_",
    "adamw_", "cache_write", "paged_attention", "pack_linear", "packed_linear", "pack_weights", "rows_to_pack",
    "unpack_weights",
}  # fmt: skip
# Composed of PyTorch's batched products.
COMPOSITE = {"unpad_strided_batch_matmul"}

NAMES = [f"{case.function}-{len(case.inputs)}" for case in cases()]
for_every_function = pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)


def tensors(made) -> list[torch.Tensor]:
    return [each for each in (made if isinstance(made, tuple) else (made,)) if each is not None]


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """Return equal values in reversed memory layout."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.detach().permute(order).contiguous().permute(order)


def gradients(case: Case, inputs, layout) -> list[torch.Tensor]:
    outputs = [each for each in tensors(case.call(*inputs)) if each.requires_grad]
    generator = torch.Generator().manual_seed(1)
    made = [
        torch.randn(each.shape, generator=generator, dtype=each.dtype).to(each.device) for each in outputs
    ]
    return list(torch.autograd.grad(outputs, inputs, [layout(each) for each in made]))


def test_every_function_is_in_the_table():
    computing = {name for name in ops.__all__ if isinstance(getattr(ops, name), types.FunctionType)}
    assert {case.function for case in cases()} == computing - WITHOUT


@pytest.mark.sampled(24)
@on_each_device
@by_each
@for_every_function
def test_gradients_in_float64(index, implementation, device):
    case = cases(device)[index]
    with contextlib.ExitStack() as forced, registration.record_choices() as choices:
        for name in set(case.operators) - COMPOSITE:
            forced.enter_context(ops.use(name, implementation))
        outputs = [each for each in tensors(case.call(*case.inputs)) if each.requires_grad]
        torch.autograd.backward(outputs, [torch.randn_like(each) for each in outputs])
        assert torch.autograd.gradcheck(case.call, case.inputs, nondet_tol=0.0)
    assert {choice.operator for choice in choices} >= set(case.operators)
    for choice in choices:
        if choice.operator in case.operators:
            expected = "composite" if choice.operator in COMPOSITE else implementation
            assert choice.implementation == expected, choice


@pytest.mark.sampled(9)
@on_each_device
@for_every_function
def test_any_layout_of_inputs_and_gradients(index, device):
    case = cases(device)[index]
    expected = gradients(case, case.inputs, lambda grad: grad)
    inputs = [turned(each).requires_grad_() for each in case.inputs]
    for ours, theirs in zip(tensors(case.call(*inputs)), tensors(case.call(*case.inputs)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    for layout in (turned, lambda grad: torch.stack([grad, grad], -1)[..., 0]):
        for ours, theirs in zip(gradients(case, inputs, layout), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.sampled(9)
@for_every_function
def test_the_gradient_of_a_sum(index):
    """The gradient of a sum is one number in memory, expanded."""
    case = cases()[index]
    spread = gradients(case, case.inputs, lambda grad: torch.ones(()).double().expand(grad.shape))
    whole = gradients(case, case.inputs, torch.ones_like)
    for ours, theirs in zip(spread, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.sampled(9)
@for_every_function
def test_a_gradient_of_one_input_alone(index):
    case = cases()[index]
    expected = gradients(case, case.inputs, torch.ones_like)
    for place, each in enumerate(case.inputs):
        inputs = [other if other is each else other.detach() for other in case.inputs]
        outputs = [made for made in tensors(case.call(*inputs)) if made.requires_grad]
        every = [made for made in tensors(case.call(*case.inputs)) if made.requires_grad]
        if len(outputs) == len(every):  # otherwise the random gradients are of other outputs
            (found,) = torch.autograd.grad(outputs, each, [torch.ones_like(made) for made in outputs])
            torch.testing.assert_close(found, expected[place], rtol=1e-12, atol=1e-13)


@pytest.mark.sampled(9)
@for_every_function
def test_second_derivatives_are_right_or_refused(index):
    case = cases()[index]
    total = sum(each.sum() for each in tensors(case.call(*case.inputs)) if each.requires_grad)
    first = torch.autograd.grad(total, case.inputs, create_graph=True)
    wanted = [each for each in first if each.requires_grad]
    if case.operators and wanted:
        with pytest.raises(RuntimeError, match="once_differentiable"):
            torch.autograd.grad(sum(each.sum() for each in wanted), case.inputs)


@for_every_function
def test_without_gradients(index):
    case = cases()[index]
    expected = tensors(case.call(*case.inputs))
    with torch.no_grad():
        found = tensors(case.call(*case.inputs))
    with torch.inference_mode():
        inferred = tensors(case.call(*[each.detach().clone() for each in case.inputs]))
    for ours, others, theirs in zip(found, inferred, expected, strict=True):
        assert not ours.requires_grad
        assert torch.equal(ours, theirs)
        assert torch.equal(others, theirs)


@for_every_function
def test_derivatives_forward_are_refused(index):
    case = cases()[index]
    given = tuple(each.detach() for each in case.inputs)
    if case.operators:
        with pytest.raises(RuntimeError, match="setup_context"):
            torch.func.jvp(case.call, given, given)


@pytest.mark.sampled(5)
@on_each_device
@for_every_function
def test_compiled_in_one_graph(index, device):
    case = cases(device, torch.float32)[index]
    torch._dynamo.reset()
    compiled = torch.compile(case.call, fullgraph=True, backend="aot_eager", dynamic=True)
    for ours, theirs in zip(tensors(compiled(*case.inputs)), tensors(case.call(*case.inputs)), strict=True):
        assert (ours.shape, ours.dtype, ours.stride()) == (theirs.shape, theirs.dtype, theirs.stride())
        torch.testing.assert_close(ours, theirs)
    found = gradients(case._replace(call=compiled), case.inputs, torch.ones_like)
    for ours, theirs in zip(found, gradients(case, case.inputs, torch.ones_like), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", sorted({name for case in cases() for name in case.operators}))
def test_composites_lay_out_what_the_compiler_expects(name):
    for case in cases():
        if name in case.operators:
            with ops.use(name, "composite"), registration.record_choices() as choices:
                inputs = [turned(each).requires_grad_() for each in case.inputs]
                made = tensors(case.call(*inputs))
                plain = tensors(case.call(*case.inputs))
            assert {choice.implementation for choice in choices if choice.operator == name} == {"composite"}
            for ours, theirs in zip(made, plain, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@for_every_function
def test_integers_are_refused_by_floating_point_operators(index):
    case = cases()[index]
    moving = {"gather_rows", "scatter_rows", "pad_seqlen", "unpad_seqlen"}
    given = [each.detach().to(torch.int64) for each in case.inputs]
    if case.operators and not moving & set(case.operators):
        with pytest.raises(ValueError, match=r"got torch\.int64; it supports float16, bfloat16"):
            case.call(*given)
