"""Devices: which is current, per thread and across errors; what they support."""

from __future__ import annotations

import multiprocessing
import threading

import pytest
import torch
from torch.testing._internal.common_dtype import get_all_dtypes

from tests.privateuse1.inventory import covers

DEVICES = 2


@pytest.fixture(autouse=True)
def _device_zero():
    yield
    torch.accelerator.set_device_index(0)


def current() -> int:
    return torch.accelerator.current_device_index()


@covers("device", "test_device_context_restoration")
def test_device_is_restored_after_an_exception():
    with pytest.raises(ValueError, match="inner"), torch.accelerator.device_index(1):
        assert torch.empty(2, device="chip").device.index == 1
        with torch.accelerator.device_index(0):
            raise ValueError("inner")
    assert current() == 0


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
    started: list[int] = []
    wrong: list[tuple[int, ...]] = []

    def work(index: int) -> None:
        barrier.wait()
        started.append(current())
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
    assert started == [0] * 4 and wrong == []
    assert current() == 0


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
