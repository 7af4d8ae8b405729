"""Devices: which is current, per thread and across errors; what they support."""

from __future__ import annotations

import multiprocessing
import threading

import pytest
import torch
from torch.testing._internal.common_dtype import get_all_dtypes

from tests.privateuse1 import covers

DEVICES = 2


@pytest.fixture(autouse=True)
def _device_zero():
    yield
    torch.accelerator.set_device_index(0)


def current() -> int:
    return torch.accelerator.current_device_index()


@covers("device", "test_device_count", "test_device_count_consistency", "test_device_switch")
@covers("accelerator", "test_generic_multi_device_behavior")
def test_every_device_can_be_made_current():
    assert torch.accelerator.device_count() == torch.chip.device_count() == DEVICES
    for index in (1, 0):
        torch.accelerator.set_device_index(index)
        assert current() == index
    stream = torch.Stream(1)
    torch.accelerator.set_stream(stream)
    assert current() == 1
    torch.accelerator.synchronize(0)
    assert current() == 1
    torch.accelerator.set_stream(torch.chip.default_stream(1))


@covers("device", "test_device_context", "test_device_guard")
@covers("accelerator", "test_device_context_manager", "test_multi_device_context_manager")
def test_device_context():
    with torch.accelerator.device_index(None):
        assert current() == 0
    with torch.accelerator.device_index(1):
        assert current() == 1
        with torch.accelerator.device_index(0):
            assert current() == 0
        assert current() == 1
    assert current() == 0


@covers("device", "test_device_context_restoration")
def test_device_is_restored_after_an_exception():
    with pytest.raises(ValueError, match="inner"), torch.accelerator.device_index(1):
        assert torch.empty(2, device="chip").device.index == 1
        with torch.accelerator.device_index(0):
            raise ValueError("inner")
    assert current() == 0


@covers("device", "test_invalid_device_index")
def test_absent_device_is_refused():
    with pytest.raises(RuntimeError, match="chip:2 does not exist: 2 devices available"):
        torch.accelerator.set_device_index(2)


@covers("device", "test_device_capability", "test_device_properties")
def test_capability_names_every_dtype_on_every_device():
    capabilities = [torch.accelerator.get_device_capability(f"chip:{index}") for index in range(DEVICES)]
    dtypes = capabilities[0]["supported_dtypes"]
    assert isinstance(dtypes, set)
    assert set(get_all_dtypes(include_complex32=True)) <= dtypes
    assert capabilities[1]["supported_dtypes"] == dtypes
    device = torch.device("chip:0")
    assert (device.type, device.index, str(device)) == ("chip", 0, "chip:0")
    assert torch.device("chip").index is None


@covers("device", "test_tensor_device", "test_device_switch_persistence")
def test_tensors_are_made_on_the_current_device():
    assert torch.randn(2, device="chip").device == torch.device("chip:0")
    assert torch.randn(2, device="chip:1").device == torch.device("chip:1")
    torch.accelerator.set_device_index(1)
    assert [torch.randn(2, device="chip").device.index for _ in range(2)] == [1, 1]


@covers("device", "test_current_device_after_operations")
def test_operations_leave_the_current_device():
    for index in range(DEVICES):
        torch.accelerator.set_device_index(index)
        x = torch.randn(4, 4, device="chip")
        y = torch.sum(x @ x + x)
        assert (x.device.index, y.device.index, current()) == (index, index, index)


@covers("device", "test_device_state_after_errors")
def test_a_failed_operation_leaves_the_device_usable():
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied|must have same reduction dim"):
        torch.matmul(torch.randn(5, 5, device="chip"), torch.randn(3, 3, device="chip"))
    assert current() == 0
    x = torch.eye(5, device="chip")
    assert torch.equal((x @ x).cpu(), torch.eye(5))


@covers("device", "test_concurrent_device_operations")
def test_threads_have_their_own_current_device():
    barrier = threading.Barrier(4)
    wrong: list[tuple[int, ...]] = []

    def work(index: int) -> None:
        barrier.wait()
        for _ in range(25):
            torch.accelerator.set_device_index(index)
            x = torch.randn(10, 10, device="chip")
            found = (x.device.index, (x @ x).sum().device.index, current())
            if found != (index,) * 3:
                wrong.append((index, *found))

    threads = [threading.Thread(target=work, args=(number % DEVICES,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert current() == 0


@covers("device", "test_device_initialization_state")
def test_init():
    torch.chip.init()
    assert torch.chip.is_initialized()


def _init_and_report(queue) -> None:
    try:
        torch.chip.init()
        queue.put("no error")
    except RuntimeError as error:
        queue.put(str(error).splitlines()[0])


@covers("device", "test_device_poison_fork")
def test_a_forked_child_is_refused():
    torch.chip.init()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_init_and_report, args=(queue,))
    child.start()
    assert "forked after its first use. Use the spawn start method" in queue.get(timeout=60)
    child.join()


def _multiply_and_report(queue) -> None:
    torch.accelerator.set_device_index(1)
    x = torch.full((3, 3), 2.0, device="chip")
    queue.put((x.device.index, torch.sum(x @ x).item()))


@pytest.mark.full
@covers("device", "test_device_multiprocessing_spawn")
def test_a_spawned_child_works():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_multiply_and_report, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == (1, 108.0)
    child.join()
    assert child.exitcode == 0
