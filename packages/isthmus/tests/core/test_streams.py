"""Streams and events, by torch.chip's names and by PyTorch's own."""

from __future__ import annotations

import threading

import pytest
import torch


def test_default_stream_is_current():
    stream = torch.chip.current_stream()
    assert stream == torch.chip.default_stream()
    assert stream.stream_id == 0
    assert isinstance(stream, torch.Stream)
    assert stream == torch.accelerator.current_stream()


def test_stream_context_of_none():
    with torch.chip.stream(None):
        assert torch.chip.current_stream() == torch.chip.default_stream()


def test_stream_context_inside_itself():
    outer, stream = torch.chip.current_stream(0), torch.chip.Stream(device=1)
    context = torch.chip.stream(stream)
    with context:
        with context:
            assert torch.chip.current_stream() == stream
        assert torch.chip.current_stream() == stream
    assert torch.chip.current_stream() == outer
    assert torch.chip.current_stream(1) == torch.chip.default_stream(1)


def test_current_stream_is_per_thread():
    stream = torch.chip.Stream()
    seen = []
    with torch.chip.stream(stream):
        thread = threading.Thread(target=lambda: seen.append(torch.chip.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]


def test_work_is_ordered_by_an_event():
    first, second = torch.chip.Stream(), torch.chip.Stream()
    source = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    with torch.chip.stream(first):
        there = source.to("chip", non_blocking=True)
        event = first.record_event()
    with torch.chip.stream(second):
        second.wait_event(event)
        doubled = there * 2
        there.record_stream(second)
    second.synchronize()
    assert torch.equal(doubled.cpu(), source * 2)


def test_elapsed_time_is_milliseconds():
    start, end = torch.chip.Event(enable_timing=True), torch.chip.Event(enable_timing=True)
    start.record()
    x = torch.randn(512, 512, device="chip")
    for _ in range(4):
        x = x @ x
    end.record()
    end.synchronize()
    assert end.query()
    assert 0 < start.elapsed_time(end) < 60_000


def test_event_not_recorded():
    event = torch.chip.Event()
    assert event.query()
    event.synchronize()
    torch.chip.current_stream().wait_event(event)


def test_events_mix_with_pytorch_types():
    event = torch.chip.Event(enable_timing=True)
    assert isinstance(event, torch.Event)
    assert isinstance(event, torch.chip.Event)
    plain_stream, plain_event = torch.Stream("chip"), torch.Event("chip", enable_timing=True)
    event.record(plain_stream)
    plain_event.record(torch.chip.Stream())
    assert plain_stream.record_event(event) is event
    plain_stream.wait_stream(torch.chip.Stream())
    plain_event.synchronize()
    event.synchronize()
    assert isinstance(event.elapsed_time(plain_event), float)


def test_priorities():
    lowest, highest = torch.chip.stream_priority_range()
    assert highest <= lowest
    assert torch.chip.Stream.priority_range() == (lowest, highest)
    assert torch.chip.Stream(priority=highest) != torch.chip.current_stream()
    assert [torch.chip.Stream(priority=p).priority for p in (highest, lowest)] == [highest, lowest]
    assert torch.chip.Stream(priority=highest - 9).priority == highest
    assert torch.chip.Stream(priority=lowest + 9).priority == lowest
    assert torch.chip.default_stream().priority == 0


def test_external_stream():
    made = torch.chip.Stream()
    wrapped = torch.chip.ExternalStream(made.native_handle)
    with torch.chip.stream(wrapped):
        x = torch.ones(8, device="chip") + 1
    wrapped.synchronize()
    assert x.sum().item() == 16


def test_external_handles_of_our_own_streams_are_those_streams():
    made = torch.chip.Stream(device=1)
    assert torch.chip.get_stream_from_external(made.native_handle, 1) == made
    default = torch.chip.default_stream(1)
    assert torch.chip.ExternalStream(default.native_handle, "chip:1") == default
    assert made._as_parameter_.value == made.native_handle


def test_contexts_nested_and_mixed():
    first, second = torch.chip.Stream(device=0), torch.chip.Stream(device=1)

    def state():
        return torch.chip.current_device(), *(torch.chip.current_stream(i).stream_id for i in (0, 1))

    states = [state()]
    with pytest.raises(ZeroDivisionError), torch.chip.stream(first):
        states.append(state())
        with torch.chip.device(1):
            states.append(state())
            with second:
                states.append(state())
                with torch.chip.stream(first):
                    assert state() == (0, first.stream_id, second.stream_id)
                assert state() == states.pop()
                raise ZeroDivisionError
    assert states == [(0, 0, 0), (0, first.stream_id, 0), (1, first.stream_id, 0)]
    assert state() == (0, 0, 0)


def test_pytorch_generic_names():
    stream = torch.Stream("chip:1")
    assert stream.device == torch.device("chip:1")
    event = torch.Event("chip:1", enable_timing=True)
    with stream:
        assert torch.accelerator.current_stream() == stream
        assert torch.accelerator.current_device_index() == 1
        event.record()
    later = stream.record_event(torch.Event("chip:1", enable_timing=True))
    torch.accelerator.synchronize(1)
    assert event.query() and later.query() and stream.query()
    assert event.elapsed_time(later) >= 0
    assert torch.accelerator.current_device_index() == 0
    torch.chip.current_stream(0).wait_event(event)
    with pytest.raises(RuntimeError, match="event of chip:1 cannot be recorded on a stream of chip:0"):
        event.record(torch.chip.Stream(device=0))


def test_an_event_used_again_stands_for_its_last_record():
    for _ in range(3):  # the driver's events are taken from a pool
        start, end = (torch.chip.Event(enable_timing=True) for _ in range(2))
        start.record()
        end.record()
        end.synchronize()
        assert 0 <= start.elapsed_time(end) < 60_000
        start.record()
        start.synchronize()
        assert end.elapsed_time(start) >= 0
        del start, end


def test_repr_names_device():
    assert "chip:0" in repr(torch.chip.Stream(device=0))


def test_stream_of_another_device_type_is_refused():
    with pytest.raises(ValueError, match="expected a stream of the chip, got one of 'cpu"):
        torch.chip.set_stream(torch.Stream("cpu"))
