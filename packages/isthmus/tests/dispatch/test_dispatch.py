"""Routes: native, delegate, decomposition, fallback; allowed and refused mixes of chip and CPU tensors."""

import inspect
import warnings
from collections.abc import Iterator

import pytest
import torch

from tests.helpers.children import output


@pytest.fixture(autouse=True)
def fresh_counts() -> Iterator[None]:
    torch.chip.reset_dispatch_stats()
    yield


def calls_of(name: str) -> int:
    entry = torch.chip.dispatch_stats()["operators"].get(name)
    return 0 if entry is None else int(entry["calls"])


@pytest.mark.host("its delegate")
def test_delegated_results_lie_in_the_chips_memory_without_a_copy() -> None:
    value = torch.ones(1000, device="chip")
    before = torch.chip.memory_allocated()
    result = value + value
    assert torch.chip.memory_allocated() - before >= result.nbytes
    assert result.device == torch.device("chip:0") and not result.is_cpu
    stats = torch.chip.dispatch_stats()
    assert stats["calls"]["delegate"] == 2  # fill_ and add
    assert stats["adopted_copy_bytes"] == 0 and stats["fallback_bytes"] == 0


def test_every_call_is_counted() -> None:
    value = torch.ones(4, device="chip")
    for _ in range(5):
        value.mul_(2)
    assert calls_of("aten::mul_.Tensor") == 5
    value.view(2, 2)
    assert calls_of("aten::view") == 1


def test_an_argument_returned_is_the_same_tensor() -> None:
    value = torch.ones(4, device="chip")
    assert value.add_(1) is value
    out = torch.empty(4, device="chip")
    assert torch.add(value, 1, out=out) is out
    assert torch.equal(out.cpu(), torch.full((4,), 3.0))


def test_out_is_resized_and_grows_in_the_chips_memory() -> None:
    value = torch.arange(100.0, device="chip")
    out = torch.empty(0, device="chip")
    torch.mul(value, 2, out=out)
    assert out.shape == (100,) and out.untyped_storage().device.type == "chip"
    assert torch.equal(out.cpu(), torch.arange(100.0) * 2)


def test_views_made_by_kernels_share_the_storage() -> None:
    value = torch.arange(10.0, device="chip")
    windows = value.unfold(0, 4, 2)
    assert windows.data_ptr() == value.data_ptr()
    value.zero_()
    assert windows.cpu().count_nonzero() == 0


@pytest.mark.parametrize("other", [torch.ones(4), torch.ones(1, 4)])
def test_tensors_of_two_devices_do_not_mix(other: torch.Tensor) -> None:
    value = torch.ones(4, device="chip")
    with pytest.raises(RuntimeError, match=r"same device, but found at least two devices, chip:0 and cpu"):
        value + other
    with pytest.raises(RuntimeError, match="same device"):
        torch.add(value, value, out=torch.empty(4))
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([value, torch.ones(4)])
    with pytest.raises(RuntimeError, match=r"indices should be either .* \(cpu\)"):
        torch.ones(4)[torch.zeros(2, dtype=torch.long, device="chip")]


def test_a_cpu_scalar_may_be_an_operand_but_not_an_output() -> None:
    value = torch.ones(4, device="chip")
    assert torch.equal((value + torch.tensor(2.0)).cpu(), torch.full((4,), 3.0))
    with pytest.raises(RuntimeError):
        torch.tensor(2.0).add_(torch.tensor(1.0, device="chip"))


def test_cpu_indices_are_accepted_as_on_cuda() -> None:
    value = torch.arange(10.0, device="chip")
    assert value[torch.tensor([1, 3])].tolist() == [1.0, 3.0]
    value[torch.tensor([0])] = 5.0
    assert value[0].item() == 5.0


def test_numpy_is_refused() -> None:
    with pytest.raises(TypeError, match="can't convert chip:0 device type tensor to numpy"):
        torch.ones(2, device="chip").numpy()


def test_random_state_is_not_shared_with_cpu() -> None:
    torch.manual_seed(1)
    first = torch.rand(3)
    torch.manual_seed(1)
    torch.rand(3, device="chip")
    assert torch.equal(torch.rand(3), first)


def convolutions() -> list[torch.Tensor]:
    """CPU convolutions that oneDNN computes, in float32 and bfloat16, forward and backward."""
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator().manual_seed(5)
        image = torch.randn(2, 8, 16, 16, generator=generator).to(dtype).requires_grad_()
        weight = torch.randn(8, 8, 3, 3, generator=generator).to(dtype).requires_grad_()
        output = torch.nn.functional.conv2d(image, weight, padding=1)
        output.float().square().sum().backward()
        assert image.grad is not None and weight.grad is not None
        results += [output.detach(), image.grad, weight.grad]
    return results


def test_plain_cpu_work_is_the_same_before_during_and_after() -> None:
    script = f"""
import gc, torch
{inspect.getsource(convolutions)}
before = convolutions()
layer = torch.nn.Conv2d(3, 4, 3, device="chip")
value = layer(torch.randn(1, 3, 8, 8, device="chip"))
during = convolutions()
kept = [tensor.clone() for tensor in during]
value.sum().backward()
del layer, value
gc.collect()
torch.chip.empty_cache()
after = convolutions()
for a, b, c, d in zip(before, during, after, kept):
    assert torch.equal(a, b) and torch.equal(b, c) and torch.equal(b, d)
print(torch.chip.memory_allocated(), torch.chip.memory_reserved())
"""
    assert output(script).split() == ["0", "0"]


def test_a_cpu_tensor_that_outlives_its_call_keeps_the_bytes() -> None:
    """A Python kernel of a CPU operator that keeps its argument."""
    kept: list[torch.Tensor] = []
    library = torch.library.Library("isthmus_test", "DEF")
    library.define("keep(Tensor x) -> Tensor")

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x.clone()

    library.impl("keep", keep, "CPU")
    value = torch.full((1000,), 7.0, device="chip")
    result = torch.ops.isthmus_test.keep(value)
    assert result.device.type == "chip"
    del value
    torch.chip.empty_cache()
    other = [torch.zeros(1000, device="chip") for _ in range(4)]
    assert kept[0].device.type == "cpu" and kept[0].eq(7.0).all() and len(other) == 4
    library._destroy()
    kept.clear()  # the chip's memory of other tests


def test_an_operator_with_only_a_cuda_kernel_is_refused_by_name() -> None:
    value = torch.ones(2, 2, device="chip")
    with pytest.raises(NotImplementedError, match=r"aten::_cslt_compress is not available on chip"):
        torch.ops.aten._cslt_compress(value)


@pytest.mark.host("its routes")
def test_routes_name_every_overload() -> None:
    routes = torch.chip.routes()
    assert len(routes) > 3000
    assert routes["aten::add.Tensor"][0] == "delegate"
    assert routes["aten::view"][0] == "native"
    assert routes["aten::dropout"][0] == "decomposition"
    assert {route for route, _ in routes.values()} <= {
        "native",
        "delegate",
        "decomposition",
        "fallback",
        "none",
    }


FALLBACK = """
import warnings, torch
value = torch.arange(6.0, device="chip").view(2, 3)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = value.t() @ value
    value.t().add_(1)
    value.mul_(2)
    value.mul_(2)
expected = (torch.arange(6.0).view(2, 3) + 1) * 4
assert torch.equal(value.cpu(), expected), value.cpu()
assert result.device.type == "chip"
stats = torch.chip.dispatch_stats()
print(len([w for w in caught if "aten::mul_.Tensor" in str(w.message)]), stats["calls"]["fallback"] > 3,
      stats["fallback_bytes"] > 0)
"""


@pytest.mark.host("its settings")
def test_the_fallback_route_copies_counts_and_warns_once() -> None:
    assert output(FALLBACK, ISTHMUS_HOST_DELEGATE="0").split() == ["1", "True", "True"]


@pytest.mark.host("its settings")
def test_strict_forbids_the_fallback() -> None:
    script = """
import torch
try:
    torch.ones(2, device="chip")
except NotImplementedError as error:
    print(error)
"""
    text = output(script, ISTHMUS_HOST_DELEGATE="0", ISTHMUS_STRICT="1")
    assert "aten::fill_.Scalar" in text and "ISTHMUS_STRICT=1 forbids" in text


@pytest.mark.host("its settings")
def test_strict_device_memory_gives_the_same_results() -> None:
    script = """
import io, torch
value = torch.arange(12.0, device="chip").view(3, 4)
out = torch.empty(0, device="chip")
torch.add(value, 1, out=out)
file = io.BytesIO()
torch.save(value, file)
file.seek(0)
back = torch.load(file, weights_only=True)
print((value @ value.t()).sum().item(), out.sum().item(), back.device, back.sum().item())
"""
    text = output(script, ISTHMUS_HOST_STRICT="1")
    value = torch.arange(12.0).view(3, 4)
    total = value.sum().item()
    assert text.split() == [str((value @ value.t()).sum().item()), str(total + 12), "chip:0", str(total)]


def test_no_warning_on_the_delegate_route() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.nn.Linear(4, 4, device="chip")(torch.ones(2, 4, device="chip")).sum().backward()


@pytest.mark.parametrize("base", [0.5j, 1 + 1j, 1 + 0j])
def test_pow_of_a_complex_number_and_float16(base: complex) -> None:
    """CUDA has it and the CPU has not; the result is complex32."""
    exponents = torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=torch.float16, device="chip")
    found, out = torch.pow(base, exponents), torch.empty(0, dtype=torch.complex32, device="chip")
    assert found.dtype == torch.complex32 and found.shape == (2, 2)
    assert torch.pow(base, exponents, out=out) is out
    expected = torch.pow(base, exponents.cpu().float())
    for result in (found, out, base**exponents):
        torch.testing.assert_close(result.cpu().to(torch.complex64), expected, rtol=1e-3, atol=1e-3)
