"""Rank tables: bytes of the public tools, versions from an inventory, and tables that HCCL would refuse.

The files in ``golden`` are what hccl_tools.py and merge_hccl.py of MindFormers wrote for the inputs of these tests.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.cluster import cluster

GOLDEN = Path(__file__).parent / "golden"
MADE, OTHER, MERGED = "hccl_4p_0123_10.0.0.1.json", "hccl_2p_23_10.0.0.2.json", "hccl_2s_6p.json"
TOOL = """#!/bin/sh
echo "ipaddr:192.168.10$(($2 % 4)).$((10 + $2))"
echo "netmask:255.255.255.0"
"""
INVENTORY = """
hosts:
- name: node0
  address: 10.0.0.1
  super_pod: 0
  cards:
  - {index: 0, address: 192.168.1.10, super_device_id: 0}
  - {index: 1, address: 192.168.2.10, super_device_id: 1}
- name: node1
  address: 10.0.0.2
  super_pod: 0
  cards:
  - {index: 0, address: 192.168.1.11, super_device_id: 2}
  - {index: 1, address: 192.168.2.11, super_device_id: 3}
"""


ranktable = partial(cluster, "ranktable")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def configuration(folder: Path) -> Path:
    path = folder / "hccn.conf"
    path.write_text(
        "".join(f"address_{i}=10.20.{i % 4}.{i + 10}\nnetmask_{i}=255.255.255.0\n" for i in range(8))
    )
    return path


# ---- make


def test_make_gives_the_bytes_of_hccl_tools(here: Path) -> None:
    (here / "hccn_tool").write_text(TOOL)
    (here / "hccn_tool").chmod(0o755)
    assert ranktable("make", "--device_num", "[0,4)", "--server_ip", "10.0.0.1") == (0, f"{MADE}\n")
    assert (here / MADE).read_bytes() == (GOLDEN / MADE).read_bytes()
    assert (here / MADE).stat().st_mode & 0o777 == 0o640


def test_make_reads_the_configuration_without_hccn_tool(here: Path) -> None:
    arguments = ("--device_num", "[2,4]", "--visible_devices", "4,5,6,7", "--server_ip", "10.0.0.2")
    assert ranktable("make", *arguments, "--hccn_conf", configuration(here))[0] == 0
    assert (here / OTHER).read_bytes() == (GOLDEN / OTHER).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--device_num 0,8", "--device_num 0,8: not a range; write it as [0,8)"),
        ("--device_num [0,9)", "--device_num [0,9): above 8"),
        ("--device_num [4,2)", "--device_num [4,2): no devices"),
        ("--device_num [3,6)", "crosses the groups [0,4) and [4,8)"),
        ("--visible_devices 0,a", "'a' is not a device id"),
        ("--visible_devices 0,0", "an id occurs twice"),
        (
            "--device_num [4,8) --visible_devices 4,5,6,7",
            "4 devices are visible (4,5,6,7)",
        ),  # IndexError there
        ("--device_num_per_node 16 --device_num [0,16) --visible_devices 0,1", "2 devices are visible"),
        ("--server_ip a/b", "--server_ip 'a/b': not an address"),
        ("--server_ip 10.0.0.999", "--server_ip '10.0.0.999': not an address"),
    ],
)
def test_make_refuses(here: Path, arguments: str, message: str) -> None:
    code, output = ranktable("make", "--hccn_conf", configuration(here), *arguments.split())
    assert code == 1 and message in output and len(output.splitlines()) == 1
    assert not list(here.glob("hccl_*"))


def test_make_names_missing_addresses(here: Path) -> None:
    code, output = ranktable("make", "--server_ip", "10.0.0.1", "--hccn_conf", here / "no")
    assert code == 1 and "No such file or directory, and hccn_tool gives no address" in output
    (here / "hccn.conf").write_text("address_0=10.0.0\naddress_1 = 10.20.0.1\n")
    code, output = ranktable("make", "--device_num", "[0,1)", "--server_ip", "a", "--hccn_conf", "hccn.conf")
    assert code == 1 and "hccn.conf: '10.0.0': not the address of device 0" in output
    code, output = ranktable("make", "--device_num", "[2,3)", "--server_ip", "a", "--hccn_conf", "hccn.conf")
    assert code == 1 and "hccn.conf: no address of device 2" in output


# ---- merge


def test_merge_gives_the_bytes_of_merge_hccl(here: Path) -> None:
    assert ranktable("merge", GOLDEN / OTHER, GOLDEN / MADE) == (0, f"{MERGED}\n")
    assert (here / MERGED).read_bytes() == (GOLDEN / MERGED).read_bytes()


def test_merge_refuses_conflicts(here: Path) -> None:
    code, output = ranktable("merge", GOLDEN / MADE, GOLDEN / MADE)
    assert code == 1 and "the file is given twice" in output
    table = base("1.0")
    table["server_list"] = table["server_list"][:1]
    table["server_count"] = "1"
    table["server_list"][0]["device"][0]["device_ip"] = "192.168.100.10"
    (here / "a.json").write_text(json.dumps(table))
    code, output = ranktable("merge", GOLDEN / OTHER, "a.json", GOLDEN / MADE)
    assert code == 1 and 'server_id: "10.0.0.1": also in a.json; merge each server once' in output
    (here / "b.json").write_text(json.dumps(base("1.2")))
    code, output = ranktable("merge", "a.json", "b.json")
    assert code == 1 and 'b.json: version: "1.2": a.json has "1.0"; merge tables of one version' in output
    (here / "c.json").write_text('{"version": "1.0", "status": "completed", "server_count": "1"}')
    code, output = ranktable("merge", "c.json")
    assert code == 1 and "c.json: server_list: is missing; add it" in output


@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_merge_of_other_versions(here: Path, version: str) -> None:
    table = base(version)
    if version == "2.0":
        parts = [{**table, "rank_count": 2, "rank_list": table["rank_list"][i : i + 2]} for i in (0, 2)]
    else:
        parts = [
            {
                **table,
                "server_count": "1",
                "server_list": [server],
                "super_pod_list": [
                    {"super_pod_id": "0", "server_list": [{"server_id": server["server_id"]}]}
                ],
            }
            for server in table["server_list"]
        ]
    for number, part in enumerate(parts):
        (here / f"{number}.json").write_text(json.dumps(part))
    assert ranktable("merge", "0.json", "1.json", "-o", "all.json")[0] == 0
    assert json.loads((here / "all.json").read_text()) == table


# ---- check


def base(version: str) -> dict[str, Any]:
    """Return a valid table of 2 servers with 2 devices each, as the command line makes it."""
    if version not in _BASES:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "cluster.yaml").write_text(INVENTORY)
            options = ["-i", f"{folder}/cluster.yaml", "-o", folder]
            assert cluster("render", *options, f"ranktable-{version}")[0] == 0
            _BASES[version] = Path(folder, f"rank_table_{version}.json").read_text()
    table: dict[str, Any] = json.loads(_BASES[version])
    return table


_BASES: dict[str, str] = {}
REMOVE = object()


@pytest.mark.parametrize("version", ["1.0", "1.2", "2.0"])
def test_rendered_tables_are_valid(tmp_path: Path, version: str) -> None:
    (tmp_path / "cluster.yaml").write_text(INVENTORY)
    (tmp_path / "t.json").write_text(json.dumps(base(version)))
    options = () if version == "2.0" else ("--prefix", 24, "--inventory", tmp_path / "cluster.yaml")
    assert ranktable("check", tmp_path / "t.json", *options) == (0, f"{tmp_path}/t.json: valid\n")


D = "server_list 1 device 0"
R = "rank_list 1"
L = "rank_list 1 level_list 0"
P = "super_pod_list 0"
BROKEN = [
    ("1.0", "version", REMOVE, 'version: is missing; expected one of "1.0", "1.2", "2.0"', "EI0004"),
    ("1.0", "version", "1.1", 'version: "1.1": expected one of', "EI0004"),
    ("1.0", "version", 1.0, "version: 1.0: expected one of", "EI0004"),
    ("1.0", "version", "2.0", 'the table has server_list, an entry of version "1.0" or "1.2"', ""),
    ("2.0", "version", "1.0", 'the table has rank_list, an entry of version "2.0"', "EI0004"),
    ("1.0", "status", REMOVE, "status: is missing; add it", "EI0004"),
    ("1.0", "status", "initializing", "still being written", "EI0004"),
    ("1.0", "status", "done", "status: \"done\": expected 'completed'", "EI0004"),
    ("1.0", "server_count", REMOVE, "server_count: is missing", "EI0004"),
    ("1.0", "server_count", 2, 'server_count: 2: expected a string; write "2"', "EI0004"),
    ("1.0", "server_count", "two", 'server_count: "two": expected digits', "EI0004"),
    ("1.0", "server_count", "3", 'server_count: "3": server_list has 2; write "2"', "EI0004"),
    ("1.0", "server_list", REMOVE, "server_list: is missing", "EI0004"),
    ("1.0", "server_list", [], "server_list: []: has no items", "EI0004"),
    ("1.0", "server_list", {}, "server_list: expected a list", "EI0004"),
    ("1.0", "server_list 1 server_id", REMOVE, "server_list[1].server_id: is missing", "EI0004"),
    ("1.0", "server_list 1 server_id", "", 'server_list[1].server_id: "": ', "EI0004"),
    ("1.0", "server_list 1 server_id", "10.0.0.1", '"10.0.0.1": also server_list[0].server_id', "EI0004"),
    ("1.0", "server_list 1 device", REMOVE, "server_list[1].device: is missing", "EI0004"),
    ("1.0", "server_list 1 device", [], "server_list[1].device: []: has no items", "EI0004"),
    ("1.0", "server_list 1 host_port", "x", 'server_list[1].host_port: "x": expected digits', "EI0004"),
    ("1.0", f"{D} device_id", REMOVE, "server_list[1].device[0].device_id: is missing", "EI0004"),
    ("1.0", f"{D} device_id", 0, 'device[0].device_id: 0: expected a string; write "0"', "EI0004"),
    ("1.0", f"{D} device_id", "npu0", 'device_id: "npu0": expected digits', "EI0004"),
    ("1.0", f"{D} device_id", "1", '"1": also server_list[1].device[0].device_id', "EI0004"),
    ("1.0", f"{D} rank_id", REMOVE, "rank_id: is missing", "EI0004"),
    ("1.0", f"{D} rank_id", 2, 'rank_id: 2: expected a string; write "2"', "EI0004"),
    ("1.0", f"{D} rank_id", "02", 'rank_id: "02": leading zeros; write "2"', "EI0004"),
    ("1.0", f"{D} rank_id", "1", '"1": also server_list[0].device[1].rank_id', "EI0004"),
    ("1.0", f"{D} rank_id", "4", 'rank_id: "4": above 3, the last of 4 ranks', "EI0004"),
    ("1.0", f"{D} device_ip", REMOVE, "device_ip: is missing", "EI0004"),
    ("1.0", f"{D} device_ip", "192.168.1", '"192.168.1": not an IP address; `hccn_tool', "EI0004"),
    ("1.0", f"{D} device_ip", "127.0.0.1", "not the address of a device port", "EI0004"),
    ("1.0", f"{D} device_ip", "192.168.2.10", "also server_list[0].device[1].device_ip", "EJ0004, EI0014"),
    ("1.0", f"{D} device_ip", "fe80::1", "not IPv4 as server_list[0].device[0].device_ip", "EJ0004, EI0014"),
    ("1.0", f"{D} device_ip", "10.0.0.1", "also server_list[0].server_id; give the address of the", "EJ0004"),
    ("1.0", f"{D} device_ip", "192.168.3.11", "not in 192.168.1.0/24 as server_list[0].device[0]", "EJ0004"),
    (
        "1.0",
        f"{D} device_ip",
        "192.168.1.255",
        "the network or broadcast address of 192.168.1.0/24",
        "EI0014",
    ),
    ("1.0", f"{D} device_ip", "192.168.1.99", '"192.168.1.99": the card has 192.168.1.11', "EJ0004, EI0014"),
    ("1.0", f"{D} device_id", "7", '"7": host node1 has no such card', "EI0004"),
    ("1.0", "server_list 1 server_id", "10.0.0.9", '"10.0.0.9": not in the inventory', "EI0004"),
    ("1.2", f"{D} super_device_id", REMOVE, "super_device_id: is missing", "EI0004, EI0014"),
    ("1.2", f"{D} super_device_id", "", 'super_device_id: "": expected digits', "EI0004, EI0014"),
    ("1.2", f"{D} super_device_id", 2, "super_device_id: 2: expected a string", "EI0004, EI0014"),
    ("1.2", f"{D} super_device_id", "0", "also server_list[0].device[0].super_device_id", "EI0004, EI0014"),
    ("1.2", "super_pod_list", REMOVE, "super_pod_list: is missing", "EI0004, EI0014"),
    ("1.2", f"{P} super_pod_id", REMOVE, "super_pod_list[0].super_pod_id: is missing", "EI0004, EI0014"),
    ("1.2", f"{P} super_pod_id", 0, 'super_pod_id: 0: expected a string; write "0"', "EI0004, EI0014"),
    ("1.2", f"{P} server_list 1 server_id", "10.0.0.1", "a server is in one super pod", "EI0004, EI0014"),
    ("1.2", f"{P} server_list 1 server_id", "10.9.9.9", '"10.9.9.9": not in server_list', "EI0004, EI0014"),
    ("1.2", f"{P} server_list 1", REMOVE, '"10.0.0.2": in no super pod', "EI0004, EI0014"),
    ("1.2", f"{D} device_port", "70000", 'expected a port from "1" to "65535"', "EI0004"),
    ("2.0", "rank_count", "4", 'rank_count: "4": expected a number; write 4 without quotes', ""),
    ("2.0", "rank_count", 5, "rank_count: 5: rank_list has 4; write 4", ""),
    ("2.0", f"{R} rank_id", "1", 'rank_list[1].rank_id: "1": expected a number', ""),
    ("2.0", f"{R} rank_id", 0, "rank_list[1].rank_id: 0: also rank_list[0].rank_id", ""),
    ("2.0", f"{R} local_id", REMOVE, "rank_list[1].local_id: is missing", ""),
    ("2.0", f"{R} device_id", -1, "rank_list[1].device_id: -1: ", ""),
    ("2.0", f"{R} level_list", [], "rank_list[1].level_list: []: has no items", ""),
    ("2.0", f"{L} net_type", "CLOSS", "net_type: \"CLOSS\": expected 'TOPO_FILE_DESC' or 'CLOS'", ""),
    ("2.0", f"{L} net_instance_id", "", 'net_instance_id: "": ', ""),
    ("2.0", f"{L} rank_addr_list 0 addr", "192.168.2", "not an address of type IPV4", ""),
    ("2.0", f"{L} rank_addr_list 0 addr_type", "EID", "not an address of type EID", ""),
    ("2.0", f"{L} rank_addr_list 0 addr", "192.168.1.10", "also rank_list[0].level_list[0]", ""),
    ("2.0", f"{L} rank_addr_list 0 ports", [1], 'ports[0]: 1: expected a string; write "1"', ""),
]


@pytest.mark.parametrize(("version", "path", "value", "message", "code"), BROKEN)
def test_broken_tables(
    tmp_path: Path, version: str, path: str, value: object, message: str, code: str
) -> None:
    table: Any = base(version)
    at = table
    *parents, last = [int(part) if part.isdigit() else part for part in path.split()]
    for part in parents:
        at = at[part]
    if value is REMOVE:
        del at[last]
    else:
        at[last] = value
    (tmp_path / "cluster.yaml").write_text(INVENTORY)
    (tmp_path / "t.json").write_text(json.dumps(table))
    status, output = ranktable(
        "check", tmp_path / "t.json", "--prefix", 24, "--inventory", tmp_path / "cluster.yaml"
    )
    lines = [line for line in output.splitlines() if message in line]
    assert status == 1 and lines, output
    assert lines[0].startswith(f"isthmus: {tmp_path}/t.json: ")
    assert code in lines[0].rpartition("(")[2] if code else "EI0" not in lines[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": "1.0",}', ":1:19: not valid JSON"),
        ('{"version": "1.0", "version": "1.0"}', 'key "version" occurs twice'),
        ("[]", "not a rank table: expected a JSON object"),
        ("", ":1:1: not valid JSON"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.json").write_text(text)
    status, output = ranktable("check", tmp_path / "t.json")
    assert status == 1 and message in output and len(output.splitlines()) == 1


def test_missing_file(tmp_path: Path) -> None:
    status, output = ranktable("check", tmp_path / "t.json")
    assert (status, output) == (
        1,
        f"isthmus: {tmp_path}/t.json: No such file or directory; give the path of a rank table\n",
    )
