"""Statistics under the keys of torch.cuda, their text for Prometheus, and a job's allocations as a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isthmus.memory import trace as traces

chip = torch.chip
memory = chip.memory
MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("fresh_memory")


def empty(size: int, device: str = "chip") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


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
    with (
        pytest.raises(RuntimeError, match="history is already on"),
        memory.record_trace(tmp_path / "inner.trace"),
    ):
        pass
    with pytest.raises(FileNotFoundError, match="create it first"), memory.record_trace(tmp_path / "x" / "y"):
        raise AssertionError("it is refused before the block runs")
