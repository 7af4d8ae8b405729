"""Tools over device memory: snapshots, histories, leaks, pools, fractions, steps, metrics, traces of jobs."""

from __future__ import annotations

import gc
import pickle
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from children import output, run
from torch.cuda import _memory_viz

from isthmus import config
from isthmus.memory import trace as traces

chip = torch.chip
memory = chip.memory
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _fresh():
    gc.collect()
    chip.synchronize()
    chip.empty_cache()
    yield
    memory._record_memory_history(None)


def empty(size: int, device: str = "chip") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def recorded() -> list[dict]:
    return memory._snapshot()["device_traces"][0]


# ---- statistics


def test_every_key_of_cuda():
    tensor = empty(MIB)
    pools = {
        f"{name}.{pool}.{value}"
        for name in (
            "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes "
            "inactive_split_bytes requested_bytes"
        ).split()
        for pool in ("all", "small_pool", "large_pool")
        for value in ("current", "peak", "allocated", "freed")
    }
    single = {
        f"{name}.{value}"
        for name in ("oversize_allocations", "oversize_segments")
        for value in ("current", "peak", "allocated", "freed")
    }
    counts = set(
        "num_alloc_retries num_ooms num_sync_all_streams num_device_alloc num_device_free num_oom_rejections "
        "max_split_size".split()
    )
    found = chip.memory_stats()
    assert {key for key in found if not key.startswith("reserved_bytes_by")} == pools | single | counts
    assert list(found) == sorted(found)
    nested = chip.memory_stats_as_nested_dict()
    assert (
        nested["allocated_bytes"]["all"]["current"] == found["allocated_bytes.all.current"] >= tensor.nbytes
    )


def test_host_keys_of_cuda_and_resets():
    chip.empty_host_cache()
    chip.reset_peak_host_memory_stats()
    chip.reset_accumulated_host_memory_stats()
    before = chip.host_memory_stats()
    first = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    del first
    second = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    stats = chip.host_memory_stats()
    assert stats["active_requests.allocated"] == 2 and stats["active_requests.freed"] == 1
    assert stats["num_host_alloc"] == stats["allocations.allocated"] == stats["host_alloc_time.count"] == 1
    assert stats["active_bytes.current"] == before["active_bytes.current"] + second.nbytes
    del second
    chip.empty_host_cache()
    stats = chip.host_memory_stats()
    assert stats["num_host_free"] == stats["allocations.freed"] == 1
    assert stats["allocated_bytes.peak"] == before["allocated_bytes.current"] + MIB
    chip.reset_peak_host_memory_stats()
    chip.reset_accumulated_host_memory_stats()
    stats = chip.host_memory_stats()
    assert stats["allocated_bytes.peak"] == stats["allocated_bytes.current"]
    assert stats["num_host_alloc"] == stats["active_requests.allocated"] == 0
    assert set(stats) == set(before)


def test_pinned_memory_is_busy_until_its_copy_is_done():
    stream = chip.Stream()
    before = chip.host_memory_stats()["active_bytes.current"]
    pinned = torch.ones(64 * MIB, dtype=torch.uint8).pin_memory()
    with chip.stream(stream):
        copy = pinned.to("chip", non_blocking=True)
    address = pinned.data_ptr()
    del pinned
    other = torch.zeros(64 * MIB, dtype=torch.uint8).pin_memory()
    if other.data_ptr() == address:
        assert stream.query()
    stream.synchronize()
    assert bool((copy == 1).all())
    del other
    torch.empty(1, pin_memory=True)
    chip.empty_host_cache()
    assert chip.host_memory_stats()["active_bytes.current"] == before


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
    empty(4 * MIB)
    file = tmp_path / "dump.pickle"
    memory._dump_snapshot(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    snapshot = pickle.loads(file.read_bytes())
    assert "total_allocated: 21.0MiB" in _memory_viz.segsum(snapshot)
    assert "cudaMalloc(" in _memory_viz.trace(snapshot)
    for plot in (_memory_viz.segment_plot, _memory_viz.trace_plot):
        assert "snapshot.pickle" in plot(snapshot)
    lines = _memory_viz.memory(snapshot, format_flamegraph=str)
    assert f"test_memory_tools.py:{empty.__code__.co_firstlineno + 1}:empty {21 * MIB}\n" in lines
    result = subprocess.run(
        [sys.executable, "-m", "torch.cuda._memory_viz", "stats", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0 and "total_reserved" in result.stdout, result.stderr
    del kept


def test_history_keeps_the_newest_and_skips_what_is_asked():
    memory._record_memory_history(max_entries=4, clear_history=True, skip_actions=["free_requested"])
    for size in range(1, 6):
        empty(size * 512)
    events = [event for event in recorded() if event["action"] != "snapshot"]
    assert len(events) <= 4
    assert {event["action"] for event in events} == {"alloc", "free_completed"}
    assert max(event["size"] for event in events) == 5 * 512
    with pytest.raises(ValueError, match="skip_actions"):
        memory._record_memory_history(skip_actions=["no such action"])


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
    assert first == "isthmus: held in device memory: 12000 bytes in 3 tensors"
    assert second.split() == "chip:0 12000 bytes in 3 <string>:4 build".split()


def test_nothing_held_is_nothing_said():
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


# ---- pools, fraction, raw memory


def test_a_pool_keeps_to_itself_and_goes_back():
    pool = memory.MemPool()
    before = chip.memory_reserved()
    with memory.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = empty(3 * MIB)
    outside = empty(3 * MIB)
    assert pool.use_count() == 1
    (segment,) = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    start = segment["address"]
    assert start <= inside.data_ptr() < start + segment["total_size"]
    assert not start <= outside.data_ptr() < start + segment["total_size"]
    key = "reserved_bytes_by_private_pools.{}_{}.all.current".format(*pool.id)
    assert chip.memory_stats()[key] == segment["total_size"]
    del inside, outside
    chip.empty_cache()
    assert chip.memory_reserved() == before + segment["total_size"]
    del pool
    chip.empty_cache()
    assert chip.memory_reserved() == before
    assert chip.memory_stats()[key] == 0


def test_a_pool_outlives_its_object_while_a_tensor_does():
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        tensor = torch.ones(MIB, device="chip")
    del pool
    chip.empty_cache()
    assert bool((tensor == 1).all())
    identity = (tensor.data_ptr(), 4 * MIB)
    assert identity in [
        (b["address"], b["requested_size"]) for s in chip.memory_snapshot() for b in s["blocks"]
    ]


def test_pools_of_devices_and_threads():
    pool = memory.MemPool()
    with memory.use_mem_pool(pool, "chip:1"):
        here, there = empty(MIB, "chip:0"), empty(MIB, "chip:1")
        other: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: other.append(empty(MIB, "chip:1")))
        thread.start()
        thread.join()
    segments = pool.snapshot()
    assert [segment["device"] for segment in segments] == [1]
    held = [b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    assert held == [there.data_ptr()]
    assert here.data_ptr() not in held and other[0].data_ptr() not in held


def test_a_pool_of_last_resort():
    printed = output(
        """
        import torch
        chip = torch.chip
        chip.set_per_process_memory_fraction(0.5)
        pools = [chip.MemPool(use_on_oom=answer) for answer in (False, True)]
        for pool in pools:
            with chip.use_mem_pool(pool):
                torch.empty(12 << 20, dtype=torch.uint8, device="chip")
        ones = torch.ones(11 << 20, dtype=torch.bool, device="chip")
        print(chip.get_per_process_memory_fraction(), bool(ones.all()))
        """,
        ISTHMUS_HOST_MEMORY="64MiB",
    )
    assert printed.split() == ["0.5", "True"]


def test_what_a_pool_cannot():
    for arguments in ({"no_split": True}, {"allocator": object()}):
        with pytest.raises(NotImplementedError, match="MemPool"):
            memory.MemPool(**arguments)


def test_fraction_of_the_device():
    chip.set_per_process_memory_fraction(0.01)
    try:
        assert chip.get_per_process_memory_fraction() == 0.01
        with pytest.raises(torch.OutOfMemoryError, match="set_per_process_memory_fraction"):
            empty(100 * MIB)
        empty(5 * MIB)
    finally:
        chip.set_per_process_memory_fraction(1)
    assert empty(100 * MIB).numel() == 100 * MIB
    for fraction in (0, 1.5, -1):
        with pytest.raises(ValueError, match="fraction"):
            chip.set_per_process_memory_fraction(fraction)


def test_memory_by_address():
    before = chip.memory_allocated()
    address = chip.caching_allocator_alloc(5000)
    assert chip.memory_allocated() == before + 5120
    chip.caching_allocator_delete(address)
    assert chip.memory_allocated() == before
    with pytest.raises(ValueError, match="caching_allocator_delete"):
        chip.caching_allocator_delete(address)


# ---- allocators and steps


def test_the_options_know_every_allocator():
    assert set(config._ALLOCATORS) == set(memory.allocators())


def test_allocators_are_chosen_by_device():
    printed = output("""
        import torch
        memory = torch.chip.memory
        memory.set_allocator("torch", "chip:1", "max_split_size_mb:64")
        torch.ones(3, device="chip:0"), torch.ones(3, device="chip:1")
        print(*(memory.get_allocator_backend(i) for i in range(2)), memory.memory_stats(1)["max_split_size"])
        for arguments in (("bf", 0), ("none", 1), ("bf", 1, "no:1")):
            try:
                memory.set_allocator(*arguments)
            except (RuntimeError, ValueError) as error:
                print(type(error).__name__, str(error).splitlines()[0])
    """)
    names, used, unknown, option = printed.splitlines()
    assert names.split() == ["planned", "torch", str(64 * MIB)]
    assert used.startswith("RuntimeError chip 0 has allocated memory already")
    assert unknown.startswith("ValueError") and "none" in unknown
    assert option.startswith("ValueError") and "no:1" in option


@pytest.mark.parametrize(
    ("variable", "value", "is_right"),
    [
        ("ISTHMUS_ALLOCATOR", "chip:1=torch,planned", True),
        ("ISTHMUS_ALLOCATOR", "jemalloc", False),
        ("ISTHMUS_ALLOC_CONF", "roundup_power2_divisions:[256:1,512:2],expandable_segments:True", True),
        ("ISTHMUS_ALLOC_CONF", "max_split_size", False),
    ],
)
def test_options_are_checked(monkeypatch, variable: str, value: str, is_right: bool):
    monkeypatch.setenv(variable, value)
    (option,) = [option for option in config.options() if option.variable == variable]
    assert (option.problem == "") is is_right


def test_each_optimizer_step_is_a_step():
    model = torch.nn.Linear(4, 4).to("chip")
    optimizer = torch.optim.AdamW(model.parameters())
    memory._record_memory_history(context=None, clear_history=True)
    for _ in range(3):
        model(torch.ones(2, 4, device="chip")).sum().backward()
        optimizer.step()
    memory.step()
    actions = torch.chip.memory._C.memory_events(0)[0].tolist()
    assert actions.count(9) == 4


def test_a_job_without_the_chip_has_no_hook():
    printed = output("""
        import torch
        from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
        before = len(hooks)
        torch.optim.SGD([torch.ones(1)], 0.1).step()
        torch.ones(1, device="chip"), torch.ones(1).to("chip")
        print(before, len(hooks))
    """)
    assert printed.split() == ["0", "1"]


def test_communication_streams_are_marked():
    stream = chip.Stream()
    memory.mark_communication_stream(stream)
    tensor = empty(2 * MIB)
    address = tensor.data_ptr()
    tensor.record_stream(stream)
    del tensor
    again = [empty(2 * MIB) for _ in range(3)]
    assert address not in [each.data_ptr() for each in again]


# ---- text for Prometheus, traces of jobs


def test_prometheus_reads_the_text():
    tensor = empty(MIB)
    samples: dict[str, int] = {}
    types: dict[str, str] = {}
    for line in memory.prometheus().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            series, value = line.split()
            assert series.partition("{")[0] in types
            samples[series] = int(value)
    assert samples['isthmus_memory_allocated_bytes{device="0",pool="all"}'] == chip.memory_allocated(0)
    assert samples['isthmus_memory_allocated_bytes{device="1",pool="all"}'] == chip.memory_allocated(1)
    assert all((kind == "counter") == name.endswith("_total") for name, kind in types.items())
    del tensor


def test_a_job_becomes_a_trace(tmp_path: Path):
    weight = torch.ones(600, 500, device="chip", requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1, momentum=0.9)
    stream = chip.Stream()
    with memory.record_trace(tmp_path / "job.trace", model="one weight"):
        for _ in range(2):
            loss = (weight * 2).sum()
            loss.record_stream(stream)
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad()
    found = traces.read(tmp_path / "job.trace")
    assert (found.steps, found.name, found.model) == (2, "job", "one weight")
    assert found.size[0] in {600 * 500 * 4, *found.sizes}
    assert 600 * 500 * 4 in found.sizes
    assert (found.kind == traces.USE).sum() == 2
    assert found.live().min() >= 0
    memory._record_memory_history()
    with pytest.raises(RuntimeError, match="history is on"), memory.record_trace(tmp_path / "inner.trace"):
        pass
