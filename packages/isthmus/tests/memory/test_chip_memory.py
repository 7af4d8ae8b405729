"""Memory as torch.chip and torch.accelerator report it. The allocator's own tests are in test_allocator*.py."""

from __future__ import annotations

import re

import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _fresh(fresh_memory):
    torch.chip.reset_peak_memory_stats()


def test_allocated_and_peak():
    before = torch.chip.memory_allocated()
    tensor = torch.empty(8 * MIB, dtype=torch.uint8, device="chip")
    assert torch.chip.memory_allocated() - before == 8 * MIB
    del tensor
    assert torch.chip.memory_allocated() == before
    assert torch.chip.max_memory_allocated() - before == 8 * MIB
    torch.chip.reset_peak_memory_stats()
    assert torch.chip.max_memory_allocated() == before


def test_reserved_and_empty_cache():
    tensor = torch.empty(32 * MIB, dtype=torch.uint8, device="chip")
    held = torch.chip.memory_reserved()
    assert held >= 32 * MIB
    assert torch.chip.max_memory_reserved() >= held
    del tensor
    assert torch.chip.memory_reserved() == held
    torch.chip.empty_cache()
    assert torch.chip.memory_reserved() <= held - 32 * MIB


def test_devices_are_counted_apart():
    before = torch.chip.memory_allocated(1)
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, device="chip:0")
    assert torch.chip.memory_allocated(1) == before
    assert torch.chip.memory_allocated("chip:0") >= tensor.nbytes


def test_accelerator_agrees():
    tensor = torch.empty(2 * MIB, dtype=torch.uint8, device="chip")
    assert torch.accelerator.memory_allocated() == torch.chip.memory_allocated() >= tensor.nbytes
    assert torch.accelerator.memory_reserved() == torch.chip.memory_reserved()


def test_stats_have_cuda_keys():
    tensor = torch.empty(2 * MIB, dtype=torch.uint8, device="chip")
    stats = torch.chip.memory_stats()
    assert stats["allocated_bytes.all.current"] >= tensor.nbytes
    for key in ("reserved_bytes.all.peak", "allocation.all.allocated", "segment.all.current", "num_ooms"):
        assert key in stats


def test_mem_get_info():
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="chip")
    free, total = torch.chip.mem_get_info()
    assert total == torch.chip.get_device_properties().total_memory
    assert free <= total - tensor.nbytes
    assert torch.chip.device_memory_used() == total - torch.chip.mem_get_info()[0]


def test_out_of_memory_names_the_numbers_and_the_remedy():
    total = torch.chip.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(total + 1, dtype=torch.uint8, device="chip")
    message = str(caught.value).splitlines()[0]
    for word in ("chip 0", "GiB", "free"):
        assert word in message
    assert torch.ones(4, device="chip").sum().item() == 4


def test_summary_is_a_table():
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="chip")
    summary = torch.chip.memory_summary()
    assert re.match(r"chip:0 memory: OOMs \d+, retries after emptying the cache \d+\n", summary)
    assert "reserved memory" in summary
    assert len(torch.chip.memory_summary(abbreviated=True)) < len(summary)
    del tensor


def test_pinned_memory_is_counted():
    before = torch.chip.host_memory_stats()["active_bytes.current"]
    pinned = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    assert pinned.is_pinned()
    assert torch.chip.host_memory_stats()["active_bytes.current"] >= before + MIB
    del pinned
    torch.chip.empty_host_cache()
    assert torch.chip.host_memory_stats()["active_bytes.current"] == before


def test_dataloader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(64, dtype=torch.float32))
    loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True)
    total = 0.0
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.to("chip", non_blocking=True).sum().item()
    assert total == sum(range(64))


def test_dataloader_workers_after_first_use():
    torch.ones(1, device="chip")
    data = torch.utils.data.TensorDataset(torch.arange(32, dtype=torch.float32))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    assert sum(batch.to("chip").sum().item() for (batch,) in loader) == sum(range(32))
