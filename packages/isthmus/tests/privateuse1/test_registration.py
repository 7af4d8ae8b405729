"""Names that the device adds to PyTorch."""

from __future__ import annotations

import types

import pytest
import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import ProfilerActivity
from torch.nn.utils.rnn import PackedSequence
from torch.utils import backend_registration

from tests.privateuse1.inventory import covers


@covers("misc", "test_backend_module_name", "test_backend_module_registration")
@covers("openreg", "test_initializes")
@covers("open_device_registration", "test_common_registration")
def test_the_backend_is_named_once():
    assert torch._C._get_privateuse1_backend_name() == "chip"
    torch.utils.rename_privateuse1_backend("chip")
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("dev")
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        torch._register_device_module("dev", types.ModuleType("fake"))
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module("chip", types.ModuleType("fake"))
    with pytest.raises(RuntimeError, match="The custom device module of"):
        torch.utils.generate_methods_for_privateuse1_backend()


@covers("misc", "test_profiler_activity_alias", "test_device_type_alias")
@pytest.mark.parametrize("enumeration", [ProfilerActivity, DeviceType])
def test_enumerations_know_the_name(enumeration):
    assert enumeration.PrivateUse1 == enumeration.CHIP
    assert enumeration.CHIP.name == "CHIP"
    assert str(enumeration.CHIP) == f"{enumeration.__name__}.CHIP"
    assert repr(enumeration.CHIP).startswith(f"<{enumeration.__name__}.CHIP: ")


@covers("misc", "test_backend_module_function", "test_backend_module_function_error_handling")
def test_functions_of_the_module():
    assert backend_registration._get_custom_mod_func("device_count")() == 2
    for name in ("func_name_", "non_existent_func"):
        with pytest.raises(RuntimeError, match=r"Try to call torch\.chip"):
            backend_registration._get_custom_mod_func(name)


@covers("misc", "test_backend_generate_methods")
def test_methods_are_generated():
    for owner in (torch.Tensor, torch.TypedStorage, torch.UntypedStorage, PackedSequence):
        assert hasattr(owner, "is_chip") and hasattr(owner, "chip"), owner
    assert hasattr(torch.nn.Module, "chip")


@covers("misc", "test_backend_tensor_methods", "test_backend_tensor_methods_different_devices")
@pytest.mark.parametrize(
    ("device", "index"), [(torch.device("chip"), 0), (torch.device("chip:1"), 1), (0, 0), (1, 1)]
)
def test_tensors_move_by_name(device, index):
    x = torch.ones(4, 4)
    there = x.chip(device)
    assert there.is_chip and not x.is_chip
    assert there.device == torch.device("chip", index)


@covers("misc", "test_backend_module_methods", "test_backend_storage_methods")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_modules_and_storages_move_by_name():
    module = torch.nn.Linear(3, 3)
    assert not module.weight.is_chip
    assert module.chip().weight.is_chip
    x = torch.ones(4)
    for storage in (x.storage(), x.untyped_storage()):
        assert not storage.is_chip
        assert storage.chip().is_chip


@covers("misc", "test_backend_packed_sequence_methods", "test_backend_packed_sequence_properties")
@covers("open_device_registration", "test_open_device_packed_sequence")
def test_packed_sequences_move_by_name():
    packed = PackedSequence(torch.rand(5, 3), torch.tensor([1, 1, 1, 1, 1]))
    assert not packed.is_chip
    assert packed.chip().is_chip
    assert packed.chip().data.is_chip


NAMES = {
    torch.bool: "BoolTensor",
    torch.float64: "DoubleTensor",
    torch.float32: "FloatTensor",
    torch.float16: "HalfTensor",
    torch.int32: "IntTensor",
    torch.int64: "LongTensor",
    torch.int8: "CharTensor",
    torch.int16: "ShortTensor",
    torch.uint8: "ByteTensor",
}


@covers("misc", "test_backend_tensor_type", "test_backend_type_methods")
@covers("open_device_registration", "test_open_device_tensor")
@pytest.mark.parametrize(("dtype", "name"), NAMES.items(), ids=NAMES.values())
def test_types_are_named(dtype, name):
    assert torch.empty(4, dtype=dtype).type() == f"torch.{name}"
    x = torch.empty(4, dtype=dtype, device="chip")
    assert x.type() == f"torch.chip.{name}"
    assert isinstance(x, getattr(torch.chip, name))


@covers("misc", "test_backend_type_methods", "test_backend_storage_type_consistency")
@covers("open_device_registration", "test_open_device_storage_type")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_types_of_storages(monkeypatch):
    """A storage is named after the type of the module, where it has one."""
    storage = torch.randn(4, 4, device="chip").storage()
    assert storage.is_chip and storage.size() == 16
    assert storage.type() == "torch.chip.FloatStorage"
    assert torch.ones(2).storage().type() == "torch.FloatStorage"
    monkeypatch.delattr(torch.chip, "FloatStorage")
    assert storage.type() == "torch.storage.TypedStorage"
