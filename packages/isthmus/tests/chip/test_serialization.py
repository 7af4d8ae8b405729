"""torch.save and torch.load, copies, storages, pickling."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

from tests.helpers.children import output


def saved(thing) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


def test_round_trip_keeps_the_device():
    tensor = torch.randn(5, 7, device="chip:1")
    loaded = torch.load(saved(tensor))
    assert loaded.device == torch.device("chip:1")
    assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize("where", ["cpu", "chip:0", torch.device("chip", 1), {"chip:1": "chip:0"}])
def test_map_location_of_a_chip_file(where):
    tensor = torch.arange(10, device="chip:1")
    loaded = torch.load(saved(tensor), map_location=where)
    expected = torch.device("chip:0") if isinstance(where, dict) else torch.device(where)
    assert loaded.device == expected
    assert loaded.tolist() == list(range(10))


def test_map_location_of_a_cpu_file():
    assert torch.load(saved(torch.arange(4)), map_location="chip").device == torch.device("chip:0")


def test_map_location_function():
    loaded = torch.load(saved(torch.arange(4)), map_location=lambda storage, _: storage.chip(1))
    assert loaded.device == torch.device("chip:1")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.complex64, torch.int8])
def test_dtypes(dtype):
    tensor = torch.ones(3, device="chip").to(dtype)
    loaded = torch.load(saved(tensor))
    assert loaded.dtype == dtype
    assert torch.equal(loaded.cpu(), tensor.cpu())


def test_views_share_their_storage_after_loading():
    base = torch.zeros(6, device="chip")
    loaded_base, loaded_view = torch.load(saved([base, base[2:4]]))
    loaded_view.fill_(1)
    assert loaded_base.tolist() == [0, 0, 1, 1, 0, 0]


def test_module_and_optimizer_state():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).chip()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4, device="chip")).sum().backward()
    optimizer.step()
    loaded = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    assert loaded["model"]["weight"].device.type == "chip"
    other = torch.nn.Linear(4, 4).chip()
    other.load_state_dict(loaded["model"])
    assert torch.equal(other.weight.cpu(), model.weight.cpu())
    fresh = torch.optim.AdamW(other.parameters())
    fresh.load_state_dict(loaded["optimizer"])
    assert fresh.state[other.weight]["exp_avg"].device.type == "chip"


def test_rng_state_in_a_checkpoint():
    state = torch.load(saved(torch.chip.get_rng_state()))
    first = torch.rand(3, device="chip").cpu()
    torch.chip.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="chip").cpu(), first)


def test_deepcopy_and_pickle():
    parameter = torch.nn.Parameter(torch.randn(3, device="chip"))
    twin = copy.deepcopy(parameter)
    assert isinstance(twin, torch.nn.Parameter)
    assert twin.device == parameter.device
    assert twin.data_ptr() != parameter.data_ptr()
    again = pickle.loads(pickle.dumps(parameter))
    assert torch.equal(again.cpu(), parameter.cpu())


def test_storage_resize():
    tensor = torch.arange(8, device="chip")
    storage = tensor.untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(64)
    tensor.copy_(torch.arange(8))
    assert tensor.tolist() == list(range(8))


def test_typed_storage_names():
    storage = torch.ones(3, device="chip").storage()
    assert isinstance(storage, torch.chip.FloatStorage)
    assert storage.type() == "torch.chip.FloatStorage"


@pytest.mark.parametrize("storage", ["ByteStorage", "FloatStorage", "ComplexDoubleStorage"])
@pytest.mark.parametrize("method", ["from_buffer", "_new_with_weak_ptr", "_new_shared_filename"])
def test_storages_of_the_host_are_not_made_by_types_of_the_chip(storage: str, method: str) -> None:
    with pytest.raises(RuntimeError, match=f"^{method}: Not available for chip storage"):
        getattr(getattr(torch.chip, storage), method)(bytes(16), byte_order="native")


def test_numpy_is_refused():
    with pytest.raises(TypeError, match="chip"):
        torch.ones(3, device="chip").numpy()


@pytest.mark.host("a child has another number of its devices")
def test_a_file_of_an_absent_device_raises_with_a_remedy(tmp_path):
    path = str(tmp_path / "two.pt")
    torch.save(torch.ones(2, device="chip:1"), path)
    found = output(
        f"""
        import torch
        try:
            torch.load({path!r})
        except RuntimeError as error:
            print(str(error))
        """,
        ISTHMUS_HOST_DEVICES="1",
    )
    assert "device_count() is 1" in found
    assert "map_location" in found
