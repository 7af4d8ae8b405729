"""Fresh memory under torch.use_deterministic_algorithms(): NaN, or the largest value of the dtype."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
)


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.full((64,), 5.0, device="chip")  # its memory is used again
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Bytes are compared: NaN is not equal to itself."""
    return torch.equal(ours.cpu().reshape(-1).view(torch.uint8), theirs.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_new_elements_of_a_resized_tensor_are_filled(dtype):
    for old, size in (((0,), (7,)), ((3,), (10,)), ((2, 3), (4, 5)), ((8,), (4,)), ((4,), (2, 2))):
        found = []
        for device in ("cpu", "chip"):
            x = torch.ones(old, device=device).to(dtype)
            found.append(x.resize_(size))
        assert same(found[1], found[0])


def test_only_new_memory_of_a_storage_is_filled():
    found = []
    for device in ("cpu", "chip"):
        x = torch.arange(12.0, device=device)[2:5]
        x.resize_(8)
        x.resize_(3, 4, memory_format=torch.contiguous_format)
        found.append(torch.empty(0, device=device).set_(x.untyped_storage()))
    assert same(found[1], found[0])


def test_other_ways_to_grow():
    for device in ("cpu", "chip"):
        x = torch.ones(2, device=device).resize_as_(torch.ones(5, device=device))
        assert x[:2].eq(1).all() and x[2:].isnan().all()
        assert torch.empty_like(x).isnan().all() and x.new_empty(3).isnan().all()
        assert torch.empty_strided((2, 2), (3, 1), device=device).isnan().all()


def test_memory_is_not_filled_on_request(monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    torch.chip.reset_dispatch_stats()
    torch.ones(2, device="chip").resize_(64)
    calls = torch.chip.dispatch_stats()["operators"]
    assert calls["aten::fill_.Scalar"]["calls"] == 1  # the call of ones()
