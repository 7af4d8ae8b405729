"""DLPack to and from the chip."""

from __future__ import annotations

import pytest
import torch

from tests.privateuse1 import covers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(1,), (2, 3), (4, 5, 6), (1, 2, 3, 4)])
@covers("utils", "test_dlpack_roundtrip", "test_dlpack_different_shapes", "test_dlpack_different_dtypes")
@covers("utils", "test_open_device_dlpack", "test_dlpack_cross_device")
@covers("open_device_registration", "test_open_device_dlpack")
def test_round_trip_shares_the_memory(shape, dtype):
    x = torch.randn(shape).to(dtype)
    there = x.to("chip")
    back = torch.from_dlpack(torch.utils.dlpack.to_dlpack(there))
    assert (back.device, back.dtype, back.shape) == (there.device, dtype, x.shape)
    assert back.data_ptr() == there.data_ptr()
    assert torch.equal(back.cpu(), x)


@covers("utils", "test_dlpack_non_contiguous")
def test_strides_survive():
    x = torch.randn(3, 4, device="chip").t()
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.stride() == x.stride()
    assert torch.equal(y.cpu(), x.cpu())
