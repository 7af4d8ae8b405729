"""``torch.distributed.rpc`` with chip tensors and device maps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch.distributed import rpc

from tests.helpers.children import finish, start_module
from tests.helpers.free_port import free_port


def run(kind: str) -> tuple[dict[str, Any], str]:
    """Return the answers that worker 0 got, and its messages."""
    port = str(free_port())
    workers = [
        start_module("tests.helpers.rpc_rank", str(rank), port, kind, ISTHMUS_HOST_DEVICES="2")
        for rank in (0, 1)
    ]
    outputs = finish(workers, 120)
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    return json.loads(outputs[0][0].splitlines()[-1]), outputs[0][1]


@pytest.fixture(scope="module")
def answers() -> tuple[dict[str, Any], str]:
    """Answers of workers that name the chip."""
    return run("chip")


@pytest.mark.parametrize(
    ("case", "value", "devices"),
    [
        ("function", 2, ["chip:0", "chip:1"]),
        ("remote", 2, ["chip:0", "chip:1"]),
        ("operator", 2, ["chip:0", ""]),
        ("asynchronous", 2, ["chip:0", ""]),
        ("object", 4, ["chip:0", ""]),
        ("reference", 4, ["chip:0", ""]),
        ("cpu", 2, ["cpu", "cpu"]),
        ("gradient", 3, ["chip:0", ""]),
    ],
)
def test_tensors_follow_the_device_map_there_and_back(answers, case, value, devices):
    assert answers[0][case] == [[value] * 3, *devices]


def test_tensors_without_a_device_map_raise_one_line(answers):
    told, messages = answers
    assert told["unmapped"].startswith(
        "RPC has no device map from chip:1 to worker 'w1'; call set_device_map("
    )
    assert "no device map for a reply on chip:0 of worker 'w1'; map one of" in told["unmapped reply"]
    assert messages.count("isthmus: RPC moves chip tensors through the CPU") == 1


@pytest.mark.full
def test_names_of_cuda_under_the_shim(answers):
    assert run("cuda")[0] == answers[0]


@pytest.mark.parametrize(
    ("maps", "text"),
    [
        ([{"chip:0": "cpu"}], "a chip is mapped to a chip"),
        ([{"chip:0": "chip:1"}, {"chip:0": "chip:0"}], "chip:0 is mapped to chip:1 of 'w1' already"),
        ([{"chip:0": "chip:1", "chip:1": "chip:1"}], "1-to-1"),
    ],
)
def test_wrong_device_maps(maps, text):
    options = rpc.TensorPipeRpcBackendOptions()
    with pytest.raises(ValueError, match=text):
        for each in maps:
            options.set_device_map("w1", each)
