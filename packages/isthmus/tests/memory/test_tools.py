"""Holders of device memory: snapshots, histories, out of memory, leaks at exit."""

from __future__ import annotations

import pickle
import stat
import threading
from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz

from isthmus import _C
from tests.helpers.children import output, run, start_module

chip = torch.chip
memory = chip.memory
MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("fresh_memory")


def empty(size: int, device: str = "chip") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def recorded() -> list[dict]:
    return memory._snapshot()["device_traces"][0]


# ---- snapshots and history


def test_snapshot_has_the_blocks_where_they_are():
    tensors = [empty(size) for size in (100, 3 * MIB, 30 * MIB)]
    segments = chip.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == chip.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == chip.memory_allocated()
    blocks = {block["address"]: block for segment in segments for block in segment["blocks"]}
    for tensor in tensors:
        block = blocks[tensor.data_ptr()]
        assert block["state"] == "active_allocated"
        assert block["requested_size"] == tensor.nbytes
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("allocator", ["planned", "lifetime", "torch", "torch+expandable", "bf", "bs", "raw"])
def test_snapshots_of_every_allocator_add_up(allocator: str):
    name, _, option = allocator.partition("+")
    printed = output(
        """
        import torch
        from torch.cuda import _memory_viz
        chip = torch.chip
        model = torch.nn.Linear(512, 512).to("chip")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        stream = chip.Stream()
        for step in range(4):
            x = torch.randn(700 + 100 * step, 512, device="chip")
            model(x).relu().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            with chip.stream(stream):
                torch.ones(3 << 20, device="chip")
            snapshot = chip.memory._snapshot()
            _memory_viz.segsum(snapshot)
            segments = snapshot["segments"]
            stats = chip.memory_stats()
            assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
            assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
            assert sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"]
            chip.empty_cache()
        print(chip.get_allocator_backend(), any(s["is_expandable"] for s in segments))
        """,
        ISTHMUS_ALLOCATOR=name,
        ISTHMUS_ALLOC_CONF="expandable_segments:True" if option else None,
    )
    assert printed.split() == [name, str(bool(option))]


def test_history_names_the_lines():
    memory._record_memory_history(clear_history=True)
    tensor = empty(5 * MIB)
    address = tensor.data_ptr()
    assert memory._allocation_traceback(address)[0]["name"] == "empty"
    del tensor
    events = [event for event in recorded() if event.get("addr") == address]
    actions = [event["action"] for event in events]
    assert actions[-3:] == ["alloc", "free_requested", "free_completed"]
    assert {event["size"] for event in events[-3:]} == {5 * MIB}
    frames = events[-3]["frames"]
    assert Path(frames[0]["filename"]).name == Path(__file__).name
    assert [frame["name"] for frame in frames[:2]] == ["empty", "test_history_names_the_lines"]
    assert events[-1]["time_us"] >= events[-3]["time_us"] > 1.7e15
    assert memory._allocation_traceback(address) is None


def test_pytorchs_tools_read_the_dump(tmp_path: Path):
    memory._record_memory_history(clear_history=True)
    kept = [empty(21 * MIB), empty(1000)]
    requested = torch.chip.memory_stats()["requested_bytes.all.current"]
    empty(4 * MIB)
    file = tmp_path / "dump.pickle"
    memory._dump_snapshot(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    snapshot = pickle.loads(file.read_bytes())
    assert f"total_allocated: {_memory_viz.Bytes(requested)}" in _memory_viz.segsum(snapshot)
    assert "cudaMalloc(" in _memory_viz.trace(snapshot)
    for plot in (_memory_viz.segment_plot, _memory_viz.trace_plot):
        assert "snapshot.pickle" in plot(snapshot)
    lines = _memory_viz.memory(snapshot, format_flamegraph=str)
    assert f"{Path(__file__).name}:{empty.__code__.co_firstlineno + 1}:empty {21 * MIB}\n" in lines
    child = start_module("torch.cuda._memory_viz", "stats", str(file))
    printed, error = child.communicate()
    assert child.returncode == 0 and "total_reserved" in printed, error
    del kept


def test_history_keeps_the_newest_and_skips_selected_events():
    memory._record_memory_history(max_entries=4, clear_history=True, skip_actions=["free_requested"])
    for size in range(1, 6):
        empty(size * 512)
    events = [event for event in recorded() if event["action"] != "snapshot"]
    assert len(events) <= 4
    assert {event["action"] for event in events} == {"alloc", "free_completed"}
    assert max(event["size"] for event in events) == 5 * 512
    with pytest.raises(ValueError, match="skip_actions"):
        memory._record_memory_history(skip_actions=["no such action"])


@pytest.mark.parametrize("positional", [True, False])
def test_the_older_arguments_are_taken_with_a_bool(positional):
    if positional:
        memory._record_memory_history(True, True, 3, True, clear_history=True)
    else:
        memory._record_memory_history(
            True, trace_alloc_max_entries=3, trace_alloc_record_context=True, clear_history=True
        )
    held = [empty(size * 512) for size in range(1, 6)]
    allocations = [event for event in recorded() if event["action"] == "alloc"]
    assert 0 < len(allocations) <= 3 < len(held) and allocations[-1]["frames"][0]["name"] == "empty"
    memory._record_memory_history(False)
    with pytest.raises(TypeError, match="trace_alloc_max_entries"):
        memory._record_memory_history("all", trace_alloc_max_entries=3)


def test_a_snapshot_that_cannot_be_written_names_the_file_asked_for(tmp_path):
    path = tmp_path / "absent" / "memory.pickle"
    with pytest.raises(FileNotFoundError) as caught:
        memory._dump_snapshot(path)
    assert caught.value.filename == str(path)


def test_state_alone_keeps_stacks_and_no_events():
    memory._record_memory_history("state", clear_history=True)
    tensor = empty(MIB)
    snapshot = memory._snapshot()
    assert snapshot["device_traces"][0] == []
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == tensor.data_ptr()]
    assert blocks[0]["frames"][0]["name"] == "empty"


def test_a_block_that_another_stream_uses_awaits_its_free():
    printed = output("""
        import torch
        chip = torch.chip
        chip.memory._record_memory_history()
        stream, source = chip.Stream(), torch.empty(256 << 20, dtype=torch.uint8).pin_memory()
        tensor = torch.empty(256 << 20, dtype=torch.uint8, device="chip")
        with chip.stream(stream):
            for _ in range(8):
                tensor.copy_(source, non_blocking=True)
        tensor.record_stream(stream)
        del tensor
        states = [b["state"] for s in chip.memory_snapshot() for b in s["blocks"] if b["size"] == 256 << 20]
        busy = not stream.query()
        stream.synchronize()
        chip.empty_cache()
        events = [e["action"] for e in chip.memory._snapshot()["device_traces"][0]]
        print(states == ["active_pending_free"] or not busy, events)
    """)
    right, _, events = printed.partition(" ")
    assert right == "True"
    for action in ("segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"):
        assert action in events


def test_backward_and_other_threads_are_recorded():
    memory._record_memory_history(clear_history=True)
    weight = torch.ones(1000, 1000, device="chip", requires_grad=True)

    def work() -> None:
        for _ in range(20):
            (weight * 2).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = recorded()
    assert sum(event["action"] == "alloc" for event in events) >= 60
    assert any(frame["name"] == "work" for event in events for frame in event["frames"])


def test_history_outlives_a_fork_and_the_interpreter():
    printed = output("""
        import builtins, os, torch
        torch.chip.memory._record_memory_history()
        tensor = torch.ones(10, device="chip")
        if os.fork() == 0:
            del tensor
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        builtins.kept = [tensor, torch.ones(5, device="chip")]
    """)
    assert printed == "7"


def test_out_of_memory_is_observed():
    seen: list[tuple[int, ...]] = []
    memory._attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    memory._record_memory_history(clear_history=True)
    total = chip.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        empty(total + 1)
    device, asked, allocated, free = seen[-1]
    assert (device, asked) == (0, total + 1)
    assert 0 <= allocated <= total and 0 < free <= total
    event = next(event for event in recorded() if event["action"] == "oom")
    assert (event["size"], event["device_free"]) == (total + 1, free)


# ---- leaks


def test_leak_report_names_the_lines():
    result = run(
        """
        import torch
        def build():
            return torch.ones(1000, device="chip")
        kept = [build() for _ in range(3)]
        cycle = [torch.ones(77, device="chip")]
        cycle.append(cycle)
        del cycle
        temporary = build() + 1
        del temporary
        """,
        ISTHMUS_LEAK_REPORT="1",
    )
    assert result.returncode == 0, result.stderr
    first, second = result.stderr.splitlines()
    assert first == "isthmus: 12000 bytes of device memory in use by 3 tensors"
    assert second.split() == "chip:0 12000 bytes in 3 <string>:4 build".split()


def test_no_report_without_live_memory():
    result = run(
        """
        import torch
        def job():
            return (torch.ones(10, device="chip") + 1).sum().item()
        job()
        """,
        ISTHMUS_LEAK_REPORT="1",
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_history_of_threads_that_accumulate_into_one_leaf():
    # PyTorch creates the record of the forward's stack at its first use, without a lock.
    said = output(
        """
        import threading, torch
        torch.chip.memory._record_memory_history(max_entries=100)
        weight = torch.ones(64, 64, device="chip", requires_grad=True)
        def work():
            for _ in range(1500):
                (weight * 2).sum().backward()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads: each.start()
        for each in threads: each.join()
        print(weight.grad[0, 0].item())
        """
    )
    assert said == "12000.0"


def test_history_refuses_invalid_arguments():
    record = memory._record_memory_history
    with pytest.raises(ValueError, match="max_entries is -3; it must not be negative"):
        record(max_entries=-3)
    with pytest.raises(RuntimeError, match="chip:99 does not exist"):
        record(device=99)
    assert not _C.memory_history_is_on()
