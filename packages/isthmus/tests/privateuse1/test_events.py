"""torch.Event on the chip."""

from __future__ import annotations

import pytest
import torch

from tests.privateuse1.inventory import covers


def timed() -> torch.Event:
    return torch.Event(device="chip", enable_timing=True)


@covers("event", "test_event_create")
def test_an_event_has_an_index_and_a_handle_once_it_is_recorded():
    for event in (torch.Event(), torch.Event(device="chip"), torch.Event(device="chip:1")):
        assert (event.device.type, event.device.index, event.event_id) == ("chip", None, 0)
    recorded = torch.Stream(device="chip:1").record_event()
    assert recorded.device == torch.device("chip:1")
    assert recorded.event_id != 0


@covers("event", "test_event_record", "test_interleaved_stream_operations")
@covers("openreg", "test_record_event")
def test_events_between_operations_are_different():
    stream = torch.Stream(device="chip:0")
    x = torch.randn(50, 50, device="chip:0")
    with stream:
        first = stream.record_event()
        y = x @ x
        second = stream.record_event()
        z = y @ x
    stream.synchronize()
    assert len({0, first.event_id, second.event_id}) == 3
    assert first.query() and second.query()
    assert torch.equal(z.cpu(), x.cpu() @ x.cpu() @ x.cpu())


@covers("event", "test_event_timing_disabled")
@covers("accelerator", "test_generic_event_behavior")
def test_elapsed_time_needs_timing_and_records():
    stream = torch.Stream(device="chip:1")
    for make in (torch.Event, lambda: torch.Event(enable_timing=False)):
        pair = make(), make()
        for event in pair:
            event.record(stream)
        stream.synchronize()
        with pytest.raises(ValueError, match="must be created with argument 'enable_timing=True'"):
            pair[0].elapsed_time(pair[1])
    with pytest.raises(ValueError, match="must be recorded before calculating elapsed time"):
        timed().elapsed_time(timed())


@covers("event", "test_event_different_devices")
def test_events_of_two_devices():
    events = [torch.Event(device=f"chip:{index}") for index in range(2)]
    for index, event in enumerate(events):
        event.record(torch.Stream(device=f"chip:{index}"))
    assert [event.device.index for event in events] == [0, 1]


@covers("event", "test_device_synchronization")
def test_synchronize_leaves_the_current_device():
    with torch.accelerator.device_index(1):
        x = torch.ones(64, 64, device="chip")
        y = x @ x
        torch.accelerator.synchronize()
        assert torch.accelerator.current_device_index() == 1
        assert torch.sum(y).device == torch.device("chip:1")
        assert torch.sum(y).item() == 64**3
