"""Ranks on two machines, each a network namespace with its end of a virtual cable: TCP through gloo between them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.helpers.children import finish
from tools.repository import ROOT

SIZE = 4  # two ranks on each machine
LIMIT = 240.0
WARNING = "uses gloo instead of the driver"
PORT = 29_500  # port in a network of its own
pytestmark = pytest.mark.full  # tests/launch/test_jobs.py runs two nodes on one machine


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Machine:
    """A network namespace with one interface."""

    def __init__(self, number: int) -> None:
        self.name = f"isthmus-test-{os.getpid()}-{number}"
        self.interface = "cable"
        self.address = f"10.71.0.{number}"
        ip("netns", "add", self.name)

    def plug(self, end: str) -> None:
        inside = ("-n", self.name)
        ip("link", "set", end, "netns", self.name, "name", self.interface)
        ip(*inside, "address", "add", f"{self.address}/24", "dev", self.interface)
        for interface in ("lo", self.interface):
            ip(*inside, "link", "set", interface, "up")

    def start(self, *command: str) -> subprocess.Popen[str]:
        settings = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "1GiB"}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **settings, "GLOO_SOCKET_IFNAME": self.interface},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def remove(self) -> None:
        ip("netns", "delete", self.name)


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces take root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces take the program ip (package iproute2)")
    with ExitStack() as stack:
        made = []
        try:
            for number in (1, 2):
                made.append(Machine(number))
                stack.callback(made[-1].remove)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
        ends = [f"is{os.getpid()}x{number}" for number in (1, 2)]
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for machine, end in zip(made, ends, strict=True):
            machine.plug(end)
        yield made


@pytest.fixture(scope="module")
def told(machines: list[Machine]) -> list[dict[str, Any]]:
    """Return the output of each rank."""
    processes = [
        machines[rank // 2].start(
            *("-m", "tests.helpers.machine_cases", str(rank), str(SIZE), machines[0].address, str(PORT))
        )
        for rank in range(SIZE)
    ]
    outputs = finish(processes, LIMIT)
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [
        {
            **json.loads(output.splitlines()[-1]),
            "warnings": [line for line in errors.splitlines() if WARNING in line],
        }
        for output, errors in outputs
    ]


def test_the_first_collective_does_not_wait_for_the_timeout(told: list[dict[str, Any]]) -> None:
    assert all(found["first_seconds"] < 60 for found in told), told  # the timeout is 120


def test_one_warning_for_each_group_across_machines(told: list[dict[str, Any]]) -> None:
    """No warning is printed for the two groups of one machine, which the driver serves."""
    for found in told:
        assert len(found["warnings"]) == 2, found["warnings"]
        assert all("another machine" in warning for warning in found["warnings"]), found


def test_every_operation_across_machines(told: list[dict[str, Any]]) -> None:
    for found in told:
        assert found["wrong"] == {}
        assert found["ran"] > 200


def test_data_parallel_training_across_machines(told: list[dict[str, Any]]) -> None:
    """Results in float64 differ by the order of additions only."""
    assert all(found["distance"] < 1e-14 for found in told), told
