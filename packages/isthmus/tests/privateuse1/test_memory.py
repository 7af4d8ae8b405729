"""Device and pinned memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from tests.privateuse1.inventory import covers


@covers("memory", "test_basic_allocation", "test_different_dtypes", "test_large_allocation")
@covers("memory", "test_allocation_with_requires_grad", "test_storage_operations")
@pytest.mark.parametrize("shape", [(100,), (10, 20, 30), (10 * 1024 * 1024 // 4,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_an_allocation_holds_its_elements(shape, dtype):
    x = torch.empty(shape, device="chip", dtype=dtype, requires_grad=dtype.is_floating_point)
    assert (x.device.type, x.dtype, x.shape) == ("chip", dtype, torch.Size(shape))
    assert x.untyped_storage().device == x.device
    assert x.untyped_storage().nbytes() >= x.nbytes
    assert x.requires_grad == dtype.is_floating_point


@covers("memory", "test_memory_format_allocation")
@covers("ops", "test_empty_with_memory_format", "test_empty_strided")
def test_memory_formats_and_strides():
    x = torch.empty(2, 3, 4, 4, device="chip", memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    assert torch.empty(2, 3, 4, device="chip", memory_format=torch.contiguous_format).is_contiguous()
    y = torch.empty_strided((3, 4), (1, 3), device="chip")
    assert (y.shape, y.stride()) == (torch.Size([3, 4]), (1, 3))


@covers("memory", "test_tensor_shallow_copy")
def test_data_of_another_device():
    for mine, other in (("cpu", "chip"), ("chip", "cpu")):
        x, y = torch.randn(4, 4, device=mine), torch.randn(4, 4, device=other)
        assert torch._has_compatible_shallow_copy_type(x, y)
        x.data = y
        assert x.device == y.device and x.data_ptr() == y.data_ptr()
        assert torch.equal(x.cpu(), y.cpu())


@covers("memory", "test_inplace_operations", "test_view_operations", "test_tensor_from_blob")
@covers("ops", "test_view", "test_reshape", "test_as_strided")
def test_views_share_the_memory():
    x = torch.zeros(100, device="chip")
    for view in (x.view(10, 10), x.reshape(20, 5), x.view_as(x)):
        assert view.data_ptr() == x.data_ptr()
    assert x[10:20].data_ptr() == x.data_ptr() + 10 * x.element_size()
    windows = torch.as_strided(x, (2, 2), (4, 1), 1)
    pointer = x.data_ptr()
    x.add_(1).mul_(2)
    assert x.data_ptr() == pointer
    assert windows.tolist() == [[2, 2], [2, 2]]


@covers("memory", "test_tensor_resize")
@covers("ops", "test_resize")
@covers("open_device_registration", "test_open_device_storage_resize")
def test_resize():
    x = torch.arange(16.0, device="chip")
    pointer = x.data_ptr()
    for shape in ((8,), (2, 2, 2, 2)):
        x.resize_(*shape)
        assert x.shape == torch.Size(shape) and x.data_ptr() == pointer
        assert x.untyped_storage().nbytes() == 16 * 4
    assert x.flatten().tolist() == list(range(16))
    with pytest.raises(TypeError, match="Overflow"):
        x.resize_(8**29)


@covers("memory", "test_tensor_copy_operations", "test_tensor_to_different_device")
@covers("memory", "test_bidirectional_device_transfer")
@covers("openreg", "test_cross_diff_devices_copy")
@covers("ops", "test_cross_diff_devices_copy")
def test_values_travel_between_devices():
    x = torch.randn(100)
    first = x.to("chip:0")
    second = first.to("chip:1")
    assert second.device == torch.device("chip:1") and second.data_ptr() != first.data_ptr()
    for copy in (first, first.clone(), second, second.to("chip:0")):
        assert torch.equal(copy.cpu(), x)


@covers("memory", "test_allocation_on_device_1", "test_simultaneous_device_allocations")
@covers("memory", "test_memory_isolation_between_devices", "test_alternating_device_allocations")
def test_devices_have_separate_memory():
    tensors = [torch.empty(100 + i, device=f"chip:{i % 2}") for i in range(20)]
    assert [tensor.device.index for tensor in tensors] == [i % 2 for i in range(20)]
    pointers = {tensor.data_ptr() for tensor in tensors}
    assert len(pointers) == 20


def _copies() -> None:
    torch.randn(500, device="chip").cpu().to("chip").clone()


def _views() -> None:
    x = torch.randn(1000, device="chip")
    x.view(10, 100), x[100:200], x.reshape(20, 50)


def _in_place() -> None:
    torch.ones(1000, device="chip").add_(1).mul_(2).div_(2).sub_(1)


def _gradients() -> None:
    x, y = (torch.randn(100, device="chip", requires_grad=True) for _ in range(2))
    (x * y).sum().backward()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("work", "times"),
    [
        (lambda: torch.empty(1000, device="chip"), 1000),
        (lambda: [torch.empty(size, device="chip") for size in (100, 500, 1000, 5000, 10000)], 100),
        (lambda: [torch.empty(1000, device="chip") for _ in range(100)], 10),
        (lambda: torch.empty(50 * 1024 * 1024 // 4, device="chip"), 50),
        (_copies, 100),
        (_views, 100),
        (_in_place, 100),
        (_gradients, 100),
    ],
    ids=["simple", "sizes", "many", "large", "copies", "views", "in_place", "gradients"],
)
@covers("memory", "test_memory_lifecycle", "test_sequential_allocations_and_deallocations")
@covers("memory", "test_no_leak_simple_allocations", "test_no_leak_varying_sizes", "test_no_leak_with_copies")
@covers("memory", "test_no_leak_with_views", "test_no_leak_inplace_operations", "test_no_leak_with_gradients")
@covers("memory", "test_no_leak_repeated_large_allocations", "test_leak_detection_with_statistics")
def test_nothing_leaks(work: Callable[[], object], times: int):
    """Upstream only checks for crashes; here the statistics must return to their initial values."""
    found = []
    for repeated in (1, times, times):
        for _ in range(repeated):
            work()
        gc.collect()
        found.append((torch.chip.memory_allocated(), torch.chip.memory_reserved()))
    assert found[0][0] == found[1][0]
    # In the first half the allocator may still request the memory of a whole step of earlier tests.
    assert found[1] == found[2]


@covers("memory", "test_pin_memory", "test_pin_memory_view", "test_pin_memory_storage_sharing")
@covers("memory", "test_pin_memory_different_devices")
@covers("openreg", "test_pin_memory")
@covers("open_device_registration", "test_open_device_storage_pin_memory")
@covers("python_backend", "test_accessing_is_pinned")
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_pinned_tensors_and_storages():
    x = torch.randn(20)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    shared = torch.tensor(()).set_(pinned.storage())
    for tensor in (pinned, pinned[2:5], pinned[::2], pinned.view(4, 5), shared, x.pin_memory("chip")):
        assert tensor.is_pinned()
    assert torch.equal(pinned, x)
    for storage in (torch.randn(10).storage(), torch.randn(10).untyped_storage()):
        assert not storage.is_pinned("chip")
        assert storage.pin_memory("chip").is_pinned("chip")


@covers("storage", "test_rewrapped_storage")
@covers("openreg", "test_rewrapped_storage")
def test_a_part_of_a_pinned_storage_is_pinned():
    pinned = torch.randn(10).pin_memory()
    part = torch.tensor((), dtype=torch.float32).set_(
        pinned.untyped_storage()[2:], size=(5,), stride=(1,), storage_offset=0
    )
    assert part.is_pinned()
    assert part.data_ptr() == pinned.data_ptr() + 2


@covers("accelerator", "test_pin_memory_on_non_blocking_copy")
def test_a_non_blocking_copy_goes_to_pinned_memory():
    x = torch.randn(100, device="chip")
    host = x.to("cpu", non_blocking=True)
    torch.accelerator.synchronize()
    assert host.is_pinned()
    assert torch.equal(host, x.cpu())
