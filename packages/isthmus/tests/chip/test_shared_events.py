"""Events between processes, by torch.chip's names."""

from __future__ import annotations

import os

import pytest
import torch
import torch.multiprocessing as mp

TIMEOUT = 120


def child(inbox, outbox) -> None:
    """Wait for the parent's event on a stream, then record an event."""
    event = torch.chip.Event.from_ipc_handle("chip:0", inbox.get(timeout=TIMEOUT))
    answer = torch.chip.Event(interprocess=True)
    outbox.put((answer.ipc_handle(), event.query()))
    inbox.get(timeout=TIMEOUT)  # the parent has recorded
    stream = torch.chip.Stream()
    stream.wait_event(event)
    stream.record_event(answer)
    outbox.put((event.query(), answer.query()))
    inbox.get(timeout=TIMEOUT)
    answer.synchronize()
    outbox.put((event.query(), answer.query()))
    inbox.get(timeout=TIMEOUT)


def test_two_processes_wait_for_each_other() -> None:
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    event = torch.chip.Event(interprocess=True)
    inbox.put(event.ipc_handle())
    handle, done = outbox.get(timeout=TIMEOUT)
    assert done  # nothing was recorded yet
    answer = torch.chip.Event.from_ipc_handle("chip", handle)
    event.record()
    inbox.put(None)
    outbox.get(timeout=TIMEOUT)
    torch.chip.current_stream().wait_event(answer)
    torch.chip.synchronize()
    assert answer.query()
    inbox.put(None)
    assert outbox.get(timeout=TIMEOUT) == (True, True)
    inbox.put(None)
    process.join(TIMEOUT)
    assert process.exitcode == 0


def test_within_a_process() -> None:
    event = torch.chip.Event(interprocess=True)
    assert isinstance(event, torch.chip.Event) and event.device == torch.device("chip")
    assert event.query()
    with torch.chip.device(1):
        handle = event.ipc_handle()
    assert event.device == torch.device("chip:1") and len(handle) == 128
    other = torch.chip.Event.from_ipc_handle(torch.device("chip:1"), handle)
    for _ in range(200):  # more than may be outstanding
        other.record(torch.chip.Stream(device=1))
    event.wait(torch.chip.Stream(device=0))
    event.synchronize()
    assert event.query() and other.query()
    with pytest.raises(RuntimeError, match="an event of chip:1 cannot be recorded on a stream of chip:0"):
        other.record(torch.chip.Stream(device=0))


@pytest.mark.host("its handles end with the event")
def test_invalid_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="omit enable_timing=True"):
        torch.chip.Event(enable_timing=True, interprocess=True)
    with pytest.raises(ValueError, match="has no timing"):
        torch.chip.Event(interprocess=True).elapsed_time(torch.chip.Event())
    with pytest.raises(ValueError, match="the handle of an event has 128 bytes, this one 3"):
        torch.chip.Event.from_ipc_handle(0, b"abc")
    with pytest.raises(RuntimeError, match="not the handle of shared event"):
        torch.chip.Event.from_ipc_handle(0, bytes(128))
    gone = torch.chip.Event(interprocess=True)
    handle = gone.ipc_handle()
    del gone
    with pytest.raises(RuntimeError, match=f"the event of process {os.getpid()} cannot be opened"):
        torch.chip.Event.from_ipc_handle(0, handle)
