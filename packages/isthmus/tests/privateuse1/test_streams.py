"""torch.Stream on the chip."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.privateuse1.inventory import covers


@pytest.fixture(autouse=True)
def _default_streams():
    yield
    for index in (1, 0):
        torch.chip.set_stream(torch.chip.default_stream(index))


def current() -> torch.Stream:
    return torch.accelerator.current_stream()


@covers("streams", "test_stream_create", "test_stream_repr")
def test_a_stream_knows_its_device():
    assert torch.Stream(device="chip").device_index == torch.chip.current_device()
    for stream in (torch.Stream(device="chip:1"), torch.Stream(1)):
        assert stream.device == torch.device("chip:1")
        assert stream.device_index == 1
        assert "device_type=chip, device_index=1" in repr(stream)


@covers("streams", "test_stream_create", "test_stream_equality")
@covers("accelerator", "test_stream_compare_with_non_stream")
@pytest.mark.parametrize("kind", [torch.Stream, torch.chip.Stream])
def test_equality(kind):
    first, second = kind(device="chip:0"), kind(device="chip:0")
    same = kind(stream_id=first.stream_id, device_index=first.device_index, device_type=first.device_type)
    assert operator.eq(first, same) and not operator.ne(first, same)
    assert first != second and len({first, same, second}) == 2
    for other in (42, "stream", 3.14, None, object()):
        assert not operator.eq(first, other)
    assert first in [same, "a"]


@covers("streams", "test_stream_switch", "test_stream_multiple_devices")
@covers("event", "test_stream_compatibility")
def test_set_stream_makes_its_device_current():
    first, second = torch.Stream(device="chip:0"), torch.Stream(device="chip:1")
    torch.accelerator.set_stream(first)
    assert current() == first
    torch.accelerator.set_stream(second)
    assert current() == second
    assert torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_stream(0) == first


@covers("streams", "test_stream_wait_stream", "test_stream_wait_event")
@covers("openreg", "test_stream_wait_stream", "test_stream_wait_event")
def test_a_stream_waits_for_another():
    source = torch.arange(1 << 18, dtype=torch.float32).pin_memory()
    first, second = torch.Stream(device="chip:0"), torch.Stream(device="chip:0")
    with first:
        there = source.to("chip", non_blocking=True)
    second.wait_stream(first)
    second.wait_event(first.record_event())
    with second:
        back = there.to("cpu", non_blocking=True)
    second.synchronize()
    assert torch.equal(back, source)
    torch.Stream(device="chip:1").wait_stream(first)


@covers("accelerator", "test_current_stream_query")
def test_current_stream_of_a_device():
    stream = current()
    for device in (stream.device, stream.device.index, str(stream.device)):
        assert torch.accelerator.current_stream(device) == stream
    with pytest.raises(ValueError, match="doesn't match the current accelerator"):
        torch.accelerator.current_stream(torch.device("cpu"))
