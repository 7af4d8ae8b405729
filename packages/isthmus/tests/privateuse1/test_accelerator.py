"""Remaining tests of upstream's torch.accelerator; devices, streams and events have their own files."""

from __future__ import annotations

import gc
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from tests.privateuse1.inventory import covers


@covers("accelerator", "test_device_index_fullgraph")
def test_device_index_is_traced():
    def shifted(x: torch.Tensor) -> torch.Tensor:
        with torch.accelerator.device_index(x.device.index):
            return torch.sin(x + 1)

    x = torch.randn(2, 2, device=0)
    assert x.device == torch.device("chip:0")
    compiled = torch.compile(shifted, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x).cpu(), shifted(x).cpu())


class _Takes:
    """A batch that remembers how it was pinned."""

    how: Any = None


class _TakesNothing(_Takes):
    def pin_memory(self) -> _Takes:
        self.how = "pinned"
        return self


class _TakesSomethingElse(_Takes):
    def pin_memory(self, copy: bool = False) -> _Takes:
        self.how = copy
        return self


@covers("accelerator", "test_custom_pin_memory_legacy_no_argument")
@covers("accelerator", "test_custom_pin_memory_unrelated_optional_argument")
@pytest.mark.parametrize(("batch", "how"), [(_TakesNothing(), "pinned"), (_TakesSomethingElse(), False)])
def test_batches_that_pin_themselves(batch, how):
    assert pin_memory(batch, "chip") is batch
    assert batch.how == how


@covers("accelerator", "test_memory_stats")
def test_memory_stats():
    torch.empty(100, device="chip")
    gc.collect()
    assert torch._C._accelerator_isAllocatorInitialized()
    torch.accelerator.empty_cache()
    keys = product(
        ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"),
        ("all", "small_pool", "large_pool"),
        ("peak", "current", "allocated", "freed"),
    )
    assert {".".join(key) for key in keys} <= torch.accelerator.memory_stats().keys()

    allocated, reserved = torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()
    assert torch.accelerator.max_memory_allocated() > 0 and torch.accelerator.max_memory_reserved() > 0
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    active = torch.accelerator.memory_stats()["active_bytes.all.current"]
    x = torch.randn(256, device="chip")
    stats = torch.accelerator.memory_stats()
    assert stats["active_bytes.all.current"] - active == x.nbytes == 1024
    assert stats["active_bytes.all.freed"] == 0
    assert torch.accelerator.memory_allocated() == allocated + 1024
    del x
    torch.accelerator.empty_cache()
    stats = torch.accelerator.memory_stats()
    assert (stats["active_bytes.all.current"], stats["active_bytes.all.freed"]) == (active, 1024)
    assert torch.accelerator.memory_allocated() == allocated
    assert torch.accelerator.memory_reserved() == reserved
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == allocated
    assert torch.accelerator.max_memory_reserved() == reserved


@covers("accelerator", "test_get_memory_info")
def test_get_memory_info():
    free, total = torch.accelerator.get_memory_info()
    assert 0 <= free <= total == torch.chip.get_device_properties().total_memory


def _works(dtype: torch.dtype) -> bool:
    try:
        return torch.zeros(16, device="chip").to(dtype).to(torch.float32).dtype == torch.float32
    except (RuntimeError, TypeError):
        return False


@covers("accelerator", "test_device_capability_supported_dtypes")
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_a_dtype_works_exactly_where_it_is_declared():
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert torch.accelerator.get_device_capability()["supported_dtypes"] == set(filter(_works, dtypes))
