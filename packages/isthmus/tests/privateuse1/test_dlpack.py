"""DLPack to and from the chip."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm_ffi
from torch.utils.dlpack import DLDeviceType

from isthmus.chip.patches import dlpack
from tests.privateuse1.inventory import covers

ADDRESSABLE = pytest.mark.host("the CPU addresses its memory")


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


def _six() -> torch.Tensor:
    return torch.arange(6.0, device="chip")


def test_a_chip_tensor_is_its_own_producer():
    x = _six().to("chip:1")
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    for y in (torch.from_dlpack(x), torch.from_dlpack(x, device="chip:1", copy=False)):
        assert (y.device, y.data_ptr()) == (x.device, x.data_ptr())
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()


def test_between_devices():
    x = _six()
    assert torch.equal(torch.from_dlpack(x, device="cpu"), x.cpu())
    assert torch.from_dlpack(x, device="chip:1").device == torch.device("chip:1")
    with torch.chip.device(1):
        assert torch.from_dlpack(np.ones(2), device="chip").device == torch.device("chip:1")
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="chip:1", copy=False)


def test_pinned_memory_is_the_cpus():
    assert torch.ones(2).pin_memory().__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@ADDRESSABLE
def test_numpy_gets_a_copy_unless_it_asks_for_none():
    x = _six()
    copy, alias = np.from_dlpack(x, device="cpu"), np.from_dlpack(x, device="cpu", copy=False)
    x += 1
    torch.chip.synchronize()
    assert copy.tolist() == [0, 1, 2, 3, 4, 5]
    assert alias.tolist() == [1, 2, 3, 4, 5, 6]
    alias[0] = 7
    assert x[0].item() == 7
    del x
    assert alias[0] == 7, "the array keeps the chip's memory alive"
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(_six())  # NumPy's arrays are the CPU's: like .numpy(), not without saying so


def test_numpy_without_a_copy_needs_memory_that_the_cpu_addresses(monkeypatch):
    monkeypatch.setattr(dlpack, "is_host_addressable", lambda: False)
    with pytest.raises(BufferError, match="cannot address the memory of chip:0; export with copy=None"):
        np.from_dlpack(_six(), device="cpu", copy=False)


@pytest.mark.parametrize(
    ("tensor", "options", "error", "text"),
    [
        (lambda: _six().requires_grad_(), {}, BufferError, "detach"),
        (lambda: _six().requires_grad_(), {"dl_device": (1, 0), "copy": False}, BufferError, "detach"),
        (
            lambda: torch.ones(2, dtype=torch.cfloat, device="chip").conj().imag,
            {},
            BufferError,
            "resolve_neg",
        ),
        (_six, {"stream": "0"}, TypeError, "native_handle of a torch.chip.Stream"),
        (_six, {"stream": 0}, ValueError, "native_handle of a torch.chip.Stream"),
        (_six, {"dl_device": (12, 1), "copy": False}, BufferError, "in place"),
    ],
)
@ADDRESSABLE
def test_refusals(tensor, options, error, text):
    with pytest.raises(error, match=text):
        tensor().__dlpack__(**options)


@pytest.mark.parametrize("wanted", ["handle", "default", "cuda's default", "none", "the same"])
def test_the_consumers_stream_waits_for_the_producers(wanted, monkeypatch):
    producer, consumer, default = torch.chip.Stream(), torch.chip.Stream(), torch.chip.default_stream()
    stream, waiting = {
        "handle": (consumer.native_handle, [consumer.native_handle]),
        "default": (None, [default.native_handle]),
        "cuda's default": (1, [default.native_handle]),
        "none": (-1, []),
        "the same": (producer.native_handle, []),
    }[wanted]
    waits = []
    monkeypatch.setattr(
        torch.chip.Stream, "wait_stream", lambda self, of: waits.append((self.native_handle, of))
    )
    with torch.chip.stream(producer):
        _six().__dlpack__(stream=stream)
    assert waits == [(handle, producer) for handle in waiting]


class _Producer:
    """A library that holds a tensor of the chip."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.streams: list[int | None] = []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **options)


def test_producers_are_asked_with_the_current_stream():
    producer, stream = _Producer(_six()), torch.chip.Stream()
    with torch.chip.stream(stream):
        torch.from_dlpack(producer)
    assert producer.streams == [stream.native_handle]


def test_tvm_ffi_functions_take_and_return_chip_tensors_on_the_current_stream():
    handles = []

    @tvm_ffi.register_global_func("isthmus_test.identity", override=True)
    def identity(tensor):
        handles.append(tvm_ffi.get_raw_stream(tensor.device))
        return tensor

    x, stream = _six().to("chip:1"), torch.chip.Stream("chip:1")
    with torch.chip.stream(stream):
        y = tvm_ffi.get_global_func("isthmus_test.identity")(x)
    assert (y.device, y.data_ptr()) == (x.device, x.data_ptr())
    assert handles == [stream.native_handle]
    assert torch.from_dlpack(tvm_ffi.from_dlpack(x)).data_ptr() == x.data_ptr()


@pytest.mark.full
def test_jax():
    jax = pytest.importorskip("jax")
    x = _six()
    assert torch.equal(torch.from_dlpack(jax.numpy.arange(6.0), device="chip"), x)
    assert jax.numpy.from_dlpack(np.from_dlpack(x, device="cpu", copy=False)).tolist() == x.tolist()
    with pytest.raises(TypeError, match="unsupported device type"):
        jax.numpy.from_dlpack(x)
