"""Checkpoints under the shim: those of CUDA load, and those written load in PyTorch without Isthmus."""

from __future__ import annotations

import argparse
import copy
import io
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from isthmus import shim
from tests.helpers import children


@pytest.fixture
def cuda():
    with shim.enter() as scope:
        yield scope


def _saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return lambda: io.BytesIO(buffer.getvalue())


def test_map_location_in_every_form(cuda):
    load = _saved({"x": torch.ones(2, device="cuda:0")})
    seen = []

    def function(storage, location):
        seen.append(location)
        return storage.cuda(1)

    for location, expected in (
        (None, "cuda:0"),
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda:1"), "cuda:1"),
        ({"cuda:0": "cuda:1"}, "cuda:1"),
        ({"cuda:0": "cpu"}, "cpu"),
        (function, "cuda:1"),
        (lambda storage, location: storage, "cpu"),
    ):
        assert str(torch.load(load(), map_location=location)["x"].device) == expected
    assert seen == ["cuda:0"]


def test_a_checkpoint_written_on_cuda_loads(cuda, monkeypatch):
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
    load = _saved({"x": torch.arange(3), "device": "kept"})
    monkeypatch.undo()
    found = torch.load(load())
    assert str(found["x"].device) == "cuda:1" and found["x"].tolist() == [0, 1, 2]
    assert str(torch.load(load(), map_location={"cuda:1": "cuda:0"})["x"].device) == "cuda:0"


# ---- in PyTorch without Isthmus --------------------------------------------------------------------------------
def _trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 2, device="cuda")).sum().backward()
    optimizer.step()
    return model, optimizer


def _state(model, optimizer):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "arguments": argparse.Namespace(device=torch.device("cuda")),
        "device": model[0].weight.device,
        "sparse": torch.eye(2).to_sparse().cuda(),
        "rng": torch.cuda.get_rng_state(),
    }


PLAIN = """
    import pickle, sys, torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file

    assert not hasattr(torch, "chip") and "isthmus" not in sys.modules
    for name in ("zip", "legacy"):
        found = torch.load(FOLDER + "/" + name, map_location="cpu", weights_only=False)
        moment = found["optimizer"]["state"][0]["exp_avg"].device
        print(found["model"]["0.weight"].tolist(), moment, found["arguments"].device, found["device"])
        print(found["sparse"].to_dense().tolist())
    print(torch.load(FOLDER + "/weights", map_location="cpu")["0.weight"].tolist())
    print(torch.load(FOLDER + "/module", map_location={"cuda:0": "cpu"}, weights_only=False)[0].weight.tolist())
    print(load_file(FOLDER + "/safetensors")["0.weight"].tolist())
    loaded = {"model": {"0.weight": torch.zeros(2, 2)}}
    dcp.load(loaded, checkpoint_id=FOLDER + "/distributed", no_dist=True)
    print(loaded["model"]["0.weight"].tolist())
    try:
        torch.load(FOLDER + "/zip", weights_only=False)
    except RuntimeError as error:
        print("on a CUDA device but" in str(error))
"""


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:TypedStorage")
def test_checkpoints_load_without_isthmus(cuda, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, optimizer = _trained()
    state = _state(model, optimizer)
    torch.save(state, tmp_path / "zip")
    torch.save(state, tmp_path / "legacy", _use_new_zipfile_serialization=False)
    torch.save(model.state_dict(), tmp_path / "weights")
    torch.save(model, tmp_path / "module")
    safetensors.save_file(model.state_dict(), tmp_path / "safetensors")
    dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "distributed", no_dist=True)
    code = PLAIN.replace("FOLDER", repr(str(tmp_path)))
    lines = children.output(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()
    weight = str(model[0].weight.tolist())
    both = [f"{weight} cpu cuda cuda:0", "[[1.0, 0.0], [0.0, 1.0]]"]
    assert lines == [*both, *both, *[weight] * 4, "True"]


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_checkpoints_load_back_onto_the_accelerator(cuda, tmp_path):
    state = _state(*_trained())
    for zipped in (True, False):
        torch.save(state, tmp_path / "state", _use_new_zipfile_serialization=zipped)
        found = torch.load(tmp_path / "state", weights_only=False)
        devices = [found["model"]["0.weight"].device, found["optimizer"]["state"][0]["exp_avg"].device]
        assert devices == [torch.device("chip", 0)] * 2 and found["sparse"].device == torch.device("chip", 0)
        assert found["device"] == torch.device("chip", 0) and found["arguments"].device == torch.device(
            "chip"
        )
    pickled = pickle.loads(pickle.dumps(state["model"]))["0.weight"]
    assert pickled.device == copy.deepcopy(pickled).device == torch.device("chip", 0)
    assert torch.device("chip", 1) == pickle.loads(pickle.dumps(torch.device("cuda:1")))


def test_devices_pickle_as_before_after_the_scope():
    with shim.enter():
        pass
    assert b"chip" in pickle.dumps(torch.device("chip", 0))
