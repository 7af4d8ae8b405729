"""Storages, torch.save and torch.load, metadata of tensors."""

from __future__ import annotations

import _codecs
import io
from typing import Any
from unittest import mock

import numpy
import pytest
import torch

from tests.privateuse1.inventory import covers

METADATA = {"version_number": True, "format_number": True}


def loaded(thing: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


def with_metadata() -> torch.Tensor:
    x = torch.empty(3, 3, device="chip")
    assert torch._utils.get_tensor_metadata(x) == {}
    torch._utils.set_tensor_metadata(x, dict(METADATA))
    return x


@covers("storage", "test_serialization", "test_serialization_storage_location_tag")
@covers("open_device_registration", "test_open_device_serialization")
def test_location_tag():
    for device, tag in (("chip", "chip:0"), ("chip:0", "chip:0"), ("chip:1", "chip:1")):
        storage = torch.UntypedStorage(4, device=torch.device(device))
        assert torch.serialization.location_tag(storage) == tag


@covers("storage", "test_serialization_default_restore_location")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_restoring_moves_to_the_device():
    for index in (0, 1):
        restored = torch.serialization.default_restore_location(torch.ones(4).storage(), f"chip:{index}")
        assert restored.is_chip and restored.device.index == index


@covers("storage", "test_serialization", "test_serialization_metadata_preservation")
def test_metadata_is_saved():
    x = with_metadata()
    found = loaded(x)
    assert found.is_chip
    assert torch._utils.get_tensor_metadata(found) == METADATA
    assert torch._utils.get_tensor_metadata(loaded(x, map_location="cpu")) == {}


class _FromNumpy:
    """Pickles as files do that PyTorch wrote for devices without a storage before version 2.2."""

    def __reduce__(self) -> tuple[Any, ...]:
        rows = numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.float32)
        return torch._utils._rebuild_device_tensor_from_numpy, (rows, torch.float32, "chip:0", False)


@covers("storage", "test_open_device_numpy_serialization")
@covers("open_device_registration", "test_open_device_numpy_serialization")
def test_files_with_numpy_arrays_are_read():
    constructor = numpy._core.multiarray._reconstruct
    safe = [
        (constructor, "numpy.core.multiarray._reconstruct"),
        (constructor, "numpy._core.multiarray._reconstruct"),
        numpy.ndarray,
        numpy.dtype,
        numpy.dtypes.Float32DType,
        _codecs.encode,
    ]
    with torch.serialization.safe_globals(safe):
        for where, device in ((None, "chip:0"), ("cpu", "cpu")):
            found = loaded({"x": _FromNumpy()}, map_location=where, weights_only=True)["x"]
            assert found.device == torch.device(device)
            assert found.tolist() == [[1, 2, 3], [4, 5, 6]]


@covers("storage", "test_open_device_cpu_serialization")
@covers("open_device_registration", "test_open_device_cpu_serialization")
def test_a_backend_without_storages_saves_cpu_tensors():
    x = torch.randn(2, 3, device="chip")
    with mock.patch.object(torch._C, "_has_storage", return_value=False):
        rebuild = x._reduce_ex_internal(torch.serialization.DEFAULT_PROTOCOL)[0]
        assert rebuild is torch._utils._rebuild_device_tensor_from_cpu_tensor
        for where, device in ((None, "chip:0"), ("cpu", "cpu")):
            found = loaded({"x": x}, map_location=where, weights_only=True)["x"]
            assert found.device == torch.device(device)
            assert torch.equal(found.cpu(), x.cpu())
        with (
            pytest.raises(RuntimeError, match="Cannot serialize tensors on backends with no storage"),
            torch.serialization.skip_data(),
        ):
            torch.save({"x": x}, io.BytesIO())


@covers("open_device_registration", "test_open_device_storage")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_move_by_name():
    typed = torch.ones(4, 4).storage()
    assert not typed.is_chip
    there = typed.chip()
    assert there.is_chip
    assert not there.cpu().is_chip
    assert there.cpu().chip(device="chip:1", non_blocking=False).device.index == 1
    for device in (torch.device("cpu"), "cuda:0"):
        with pytest.raises(RuntimeError, match="Invalid device"):
            there.chip(device=device)
    untyped = torch.ones(4, 4).untyped_storage()
    assert not untyped.is_chip and untyped.chip().is_chip
    assert untyped.chip()[0:3].tolist() == untyped[0:3].tolist()
