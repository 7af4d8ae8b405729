"""Devices: count, selection, description, and torch.accelerator."""

from __future__ import annotations

import pytest
import torch

from isthmus import _C
from tests.helpers.children import output


def test_accelerator_is_the_chip():
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator == torch.device("chip") and accelerator.index is None
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == torch.chip.device_count() == 2
    with pytest.raises(ValueError, match="doesn't match the current accelerator"):
        torch.accelerator.set_device_index("cpu")


def test_get_device_module():
    assert torch.get_device_module("chip") is torch.chip
    assert torch.get_device_module() is torch.chip


def test_current_device_is_set_and_restored():
    assert torch.chip.current_device() == 0
    with torch.chip.device(1):
        assert torch.chip.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="chip").device == torch.device("chip:1")
        with torch.chip.device("chip:0"):
            assert torch.chip.current_device() == 0
        assert torch.chip.current_device() == 1
    assert torch.chip.current_device() == 0


@pytest.mark.parametrize("device", [None, -1])
def test_device_context_that_changes_nothing(device):
    with torch.chip.device(1), torch.chip.device(device):
        assert torch.chip.current_device() == 1


@pytest.mark.parametrize("device", [1, "chip:1", torch.device("chip", 1)])
def test_set_device_takes_every_form(device):
    try:
        torch.chip.set_device(device)
        assert torch.chip.current_device() == 1
    finally:
        torch.chip.set_device(0)


def test_device_of():
    with torch.chip.device_of(torch.empty(1, device="chip:1")):
        assert torch.chip.current_device() == 1
    with torch.chip.device_of(torch.empty(1)):
        assert torch.chip.current_device() == 0


@pytest.mark.parametrize("device", [2, "chip:7", 99])
def test_absent_device_is_named(device):
    with pytest.raises(RuntimeError, match="does not exist: 2 devices available"):
        torch.chip.set_device(device)
    assert torch.chip.current_device() == 0


def test_one_device_is_singular(monkeypatch):
    monkeypatch.setattr(torch.chip._utils._C, "device_count", lambda: 1)
    with pytest.raises(RuntimeError, match="chip:1 does not exist: 1 device available, chip:0"):
        torch.chip.synchronize(1)


@pytest.mark.parametrize(
    "ask",
    [
        torch.chip.current_stream,
        torch.chip.default_stream,
        torch.chip.get_device_properties,
        torch.chip.get_rng_state,
        torch.chip.mem_get_info,
        torch.chip.memory_allocated,
        torch.chip.memory_stats,
        torch.chip.synchronize,
        torch.chip.Stream,
        torch.accelerator.set_device_index,
    ],
)
@pytest.mark.parametrize("device", [2, "chip:9"])
def test_absent_device_is_named_by_every_function(ask, device):
    with pytest.raises(RuntimeError, match=r"chip:\d does not exist: 2 devices available"):
        ask(device)


def test_tensor_on_absent_device():
    with pytest.raises(RuntimeError, match=r"chip:5"):
        torch.empty(1, device="chip:5")


@pytest.mark.parametrize("device", ["cpu", torch.device("meta")])
def test_device_of_another_type_is_refused(device):
    with pytest.raises(ValueError, match="expected a device of the chip"):
        torch.chip.set_device(device)


def test_properties():
    properties = torch.chip.get_device_properties("chip:1")
    assert properties.total_memory == torch.chip.mem_get_info(1)[1] == 2 << 30
    assert properties.memory_alignment & (properties.memory_alignment - 1) == 0
    assert torch.chip.get_device_name() == properties.name != ""
    assert torch.chip.get_device_capability() == (properties.major, properties.minor)
    assert torch.chip.is_bf16_supported()


@pytest.mark.host("its description")
def test_driver_describes_itself():
    driver = torch.chip.driver()
    assert driver["name"] == "host"
    assert driver["delegate"] == "cpu"
    assert driver["functions"]["host_window"]


def test_access_between_devices():
    assert not torch.chip.can_device_access_peer(0, 0)
    assert torch.chip.can_device_access_peer(0, 1) == _C.driver()["functions"]["copy_peer_async"]
    with pytest.raises(RuntimeError, match="chip:5 does not exist: 2 devices"):
        torch.chip.can_device_access_peer(0, 5)


def test_synchronize_every_form():
    for device in (None, 1, "chip", torch.device("chip:1")):
        torch.chip.synchronize(device)
    torch.accelerator.synchronize()


def test_default_device():
    with torch.device("chip:1"):
        assert torch.ones(2).device == torch.device("chip:1")


def test_typed_tensors():
    assert torch.chip.FloatTensor([1, 2]).dtype == torch.float32
    assert torch.chip.LongTensor(2, 3).shape == (2, 3)
    half = torch.chip.HalfTensor([1.5])
    assert half.device.type == "chip"
    assert isinstance(half, torch.chip.HalfTensor)
    assert not isinstance(half, torch.chip.FloatTensor)
    assert not isinstance(torch.ones(1), torch.chip.FloatTensor)
    assert torch.chip.HalfTensor.is_chip and torch.chip.HalfTensor.layout is torch.strided


def test_typed_constructors_and_complex_halves_warn():
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match=r"torch\.chip\.\*DtypeTensor constructors are no longer"):
            torch.chip.FloatTensor([0])
        for make in (torch.empty, torch.zeros, torch.randn):
            with pytest.warns(UserWarning, match="ComplexHalf support is experimental"):
                make(3, dtype=torch.chalf, device="chip")
    finally:
        torch.set_warn_always(False)


def test_every_public_name_has_a_docstring():
    for name in dir(torch.chip):
        value = getattr(torch.chip, name)
        if callable(value) and not name.startswith("_"):
            assert value.__doc__, name


def test_lazy_initialisation():
    found = output(
        """
        import torch
        print(torch.chip.is_initialized(), torch.chip._is_in_bad_fork())
        torch.chip.init()
        print(torch.chip.is_initialized())
        """
    )
    assert found.split() == ["False", "False", "True"]
