"""Factories, copies, views and operators of each route, against the CPU."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.privateuse1.inventory import covers


@covers("ops", "test_empty")
@covers("compile", "test_fake_tensor_mode")
@covers("open_device_registration", "test_open_device_faketensor")
def test_fake_tensors_have_the_device():
    with FakeTensorMode():
        total = torch.empty(3, 3, device="chip") + torch.empty(3, 3, device="chip:0")
        assert total.device == torch.device("chip:0") and total.shape == torch.Size([3, 3])
        assert (total + 1).device.type == "chip"


@covers("ops", "test_copy_same_device", "test_cross_device_copy", "test_clone", "test_copy_non_blocking")
@covers("openreg", "test_cross_device_copy", "test_copy_same_device")
@covers("device_type", "test_to_device", "test_clone", "test_copy_", "test_copy_from_cpu", "test_copy_to_cpu")
@covers("device_type", "test_round_trip")
def test_copies_are_equal_and_apart():
    x = torch.rand(3, 4)
    there = x.to("chip")
    empty = lambda device: torch.empty(3, 4, device=device)  # noqa: E731
    copies = [
        there.clone(),
        empty("chip").copy_(there),
        empty("chip").copy_(x),
        empty("chip").copy_(there, non_blocking=True),
        empty("cpu").copy_(there),
    ]
    for copy in copies:
        assert torch.equal(copy.cpu(), x)
        assert copy.data_ptr() != there.data_ptr()
    assert torch.equal(there.add(2).cpu(), x + 2)


@covers("device_type", "test_to_device_with_copy")
def test_to_copies_only_when_it_must():
    x = torch.randn(3, 4, device="chip")
    assert x.to("chip").data_ptr() == x.data_ptr()
    assert x.to("chip", copy=True).data_ptr() != x.data_ptr()


@covers("ops", "test_copy_different_dtypes")
@covers("device_type", "test_dtype_propagation")
def test_dtypes():
    x = torch.randn(3, 4, device="chip")
    y = torch.empty(3, 4, dtype=torch.float64, device="chip").copy_(x)
    assert torch.equal(y.cpu(), x.cpu().double())
    assert (x + x).dtype == torch.float32 and (y * 2).dtype == torch.float64
    assert x.to(torch.float64).device == x.device
    assert torch.randint(0, 100, (3,), device="chip").dtype == torch.int64
    assert torch.all(~torch.zeros(3, dtype=torch.bool, device="chip"))


@covers("ops", "test_masked_select", "test_expand", "test_local_scalar_dense", "test_printing")
@covers("openreg", "test_data_dependent_output", "test_expand", "test_printing")
def test_values_that_reach_the_host():
    x = torch.arange(10.0, device="chip") - 5
    assert torch.masked_select(x, x.gt(0)).tolist() == [1, 2, 3, 4]
    rows = torch.tensor([[1], [2], [3]], device="chip")
    wide = rows.expand(3, 2)
    assert wide.data_ptr() == rows.data_ptr()
    assert wide.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert torch.tensor([5.0], device="chip").item() == 5.0
    assert str(torch.ones(2, device="chip")) == "tensor([1., 1.], device='chip:0')"


@covers("ops", "test_set_tensor", "test_set_storage")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_set():
    x = torch.randn(3, 4, device="chip")
    for arguments in ((x,), (x.storage(), 0, x.size()), (x.untyped_storage(), 0, x.size(), x.stride())):
        y = torch.empty(3, 4, device="chip").set_(*arguments)
        assert y.data_ptr() == x.data_ptr() and torch.equal(y.cpu(), x.cpu())


@covers("ops", "test_backend_dispatchstub", "test_abs_contiguous", "test_abs_non_contiguous", "test_abs_out")
@covers("ops", "test_cpu_fallback_blocklist")
@covers("open_device_registration", "test_open_device_dispatchstub")
def test_abs_with_every_kind_of_output():
    x = torch.randn(2, 2, 3)
    there = x.to("chip")
    assert torch.equal(torch.abs(there).cpu(), torch.abs(x))
    assert torch.equal(torch.abs(there.transpose(0, 2)).cpu(), torch.abs(x.transpose(0, 2)))
    assert torch.equal(torch.abs(there, out=torch.empty_like(there)).cpu(), torch.abs(x))
    host = torch.randn(2, 2, 6)
    out = host.to("chip")
    torch.abs(x, out=host[:, :, 0:6:2])  # the part has the shape
    torch.abs(there, out=out[:, :, 0:6:2])
    assert torch.equal(out.cpu(), host)


@covers("ops", "test_backend_dispatchstub")
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_output_of_another_shape_is_resized():
    x, host = torch.randn(2, 2, 3), torch.randn(2, 2, 6)
    out = host.to("chip")
    torch.abs(x, out=host[:, :, 0:6:3])
    torch.abs(x.to("chip"), out=out[:, :, 0:6:3])
    assert torch.equal(out.cpu(), host)


@covers("ops", "test_maximum_functional", "test_maximum_out")
@covers("ops", "test_minimum_ext_structured_meta_functional", "test_minimum_ext_structured_meta_out")
@pytest.mark.parametrize("function", [torch.maximum, torch.minimum])
def test_structured_operators(function):
    x, y = torch.tensor([1.0, 5.0, 3.0]), torch.tensor([4.0, 2.0, 6.0])
    out = torch.empty(3, device="chip")
    assert function(x.to("chip"), y.to("chip")).tolist() == function(x, y).tolist()
    assert function(x.to("chip"), y.to("chip"), out=out) is out
    assert out.tolist() == function(x, y).tolist()


@covers("ops", "test_scalar_type_fallback", "test_tensor_type_fallback", "test_tensorlist_type_fallback")
@covers("ops", "test_fallback_operations", "test_fallback_with_scalars")
@covers("open_device_registration", "test_open_device_scalar_type_fallback")
@covers("open_device_registration", "test_open_device_tensor_type_fallback")
@covers(
    "open_device_registration", "test_open_device_tensorlist_type_fallback", "test_base_device_registration"
)
@covers("device_type", "test_tensor_operations")
def test_operators_without_a_kernel_in_the_core():
    assert torch.triu_indices(3, 3, device="chip").tolist() == torch.triu_indices(3, 3).tolist()
    x = torch.tensor([[1.0, 2, 3], [2, 3, 4]], device="chip")
    y = torch.tensor([1.0, 0, 2], device="chip")
    assert not x.is_cpu
    assert torch.sub(x, y).tolist() == [[0, 2, 1], [1, 3, 2]]
    index = torch.tensor([1, 0], device="chip")
    assert x[index, index].tolist() == [3, 1]
    assert [total.tolist() for total in torch._foreach_add((y, y), (y, y))] == [[2, 0, 4]] * 2
    for result, expected in (
        (x + y, x.cpu() + y.cpu()),
        (x * y, x.cpu() * y.cpu()),
        (x / 2.0, x.cpu() / 2.0),
        (x + 1.0, x.cpu() + 1.0),
    ):
        assert result.device == x.device
        assert torch.equal(result.cpu(), expected)


@covers("open_device_registration", "test_open_device_tensorlist_type_fallback")
def test_undefined_tensors_in_lists():
    """The fused AdamW kernel takes an empty list for the squares that only AMSGrad keeps."""
    parameter = torch.nn.Parameter(torch.ones(4, device="chip"))
    twin = torch.nn.Parameter(torch.ones(4))
    for tensor in (parameter, twin):
        optimizer = torch.optim.AdamW([tensor], fused=True)
        tensor.sum().backward()
        optimizer.step()
    assert torch.equal(parameter.detach().cpu(), twin.detach())
