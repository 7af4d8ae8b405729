"""The inventory: reading, writing, errors; ``isthmus cluster init`` from its sources."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from isthmus_cluster import inventory
from isthmus_cluster.errors import ClusterError
from isthmus_cluster.sources import expand
from tests.helpers.cluster import cluster

WHOLE = """
name: lab
hosts:
- {name: node0, address: 10.0.0.1, user: train, port: 2222, rack: r0, super_pod: 0, cards: 8}
- name: node1
  namespace: lab1
  cards:
  - {index: 4, address: 192.168.0.5, super_device_id: 4, rail: 1}
  - index: 5
    levels:
    - {layer: 0, instance: rack0, endpoints: [{address: 192.168.0.6, ports: [0/1], plane: a}]}
switches:
- {name: leaf0, rack: r0, rail: 1}
links:
- {ends: [node0, leaf0], rate: 200, rail: 1}
"""


def init(folder: Path, *arguments: str) -> tuple[int, str]:
    return cluster("init", *arguments, "--output", folder / "out.yaml")


def test_an_inventory_is_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(WHOLE)
    found = inventory.read(tmp_path / "a.yaml")
    assert (
        found.world_size == 10 and found.host("node1").address == "node1" and found.host("node1").rails == [1]
    )
    assert [(each.rank, each.local, each.host.name, each.card.index) for each in found.ranks[7:]] == [
        (7, 7, "node0", 7),
        (8, 0, "node1", 4),
        (9, 1, "node1", 5),
    ]
    assert list(found.racks) == ["r0", ""] and list(found.super_pods) == ["0", ""]
    inventory.write(found, tmp_path / "new" / "b.yaml")
    assert inventory.read(tmp_path / "new" / "b.yaml") == found
    assert stat.S_IMODE((tmp_path / "new" / "b.yaml").stat().st_mode) == 0o640
    assert "cards: 8" in (tmp_path / "new" / "b.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; `isthmus cluster init` writes an inventory"),
        ("[]", "[]: not an inventory; begin with `hosts:`"),
        ("hosts: [", ":1:9: not valid YAML: "),
        ("hosts: []", "hosts: []: has no items; add at least one"),
        ("name: x", "hosts: is missing; add it"),
        ("hosts: [{cards: 1}]", "hosts[0].name: is missing; add it"),
        ("hosts: [{name: a b, cards: 1}]", 'hosts[0].name: "a b": not a name; use letters'),
        ("hosts: [{name: a, cards: 0}]", "hosts[0]: cards: 0: give a number from 1 to 1024"),
        ("hosts: [{name: a, cards: yes}]", "hosts[0]: cards: true: give a number"),
        ("hosts: [{name: a, cards: x}]", 'hosts[0]: cards: "x": give a number from 1 to 1024, or a list'),
        ("hosts: [{name: a, cards: [{index: -1}]}]", "hosts[0].cards[0].index: -1: "),
        ("hosts: [{name: a, cards: [{index: 0}, {index: 0}]}]", "card index 0 occurs 2 times"),
        ("hosts: [{name: a, address: 10.0.0, cards: 1}]", '"10.0.0": not an address'),
        ("hosts: [{name: a, cards: [{index: 0, address: x}]}]", 'cards[0].address: "x": not an address'),
        ("hosts: [{name: a, cards: 1}, {name: a, cards: 1}]", "name a occurs 2 times"),
        ("hosts: [{name: a, cards: 1}, {name: b, address: a, cards: 1}]", "host address a occurs 2 times"),
        ("hosts: [{name: a, name: b, cards: 1}]", ":1:19: not valid YAML: key 'name' occurs twice"),
        (
            "hosts: [{name: a, cards: 1, rak: r}]",
            "hosts[0].rak: unknown entry; remove it or correct its name",
        ),
        ("hosts: [{name: a, card: 8}]", "hosts[0].card: unknown entry"),
        ("hosts: [{name: a, cards: 1, port: 70000}]", "hosts[0].port: 70000: "),
        (
            "hosts: [{name: a, cards: 1}]\nlinks: [{ends: [a, b]}]",
            "links[0].ends: 'b' is not a host or switch",
        ),
        ("hosts: [{name: a, cards: 1}]\nlinks: [{ends: [a, a]}]", "both ends are 'a'; name two"),
        ("hosts: [a]", 'hosts[0]: "a": expected a mapping'),
        ("hosts: [{name: '-oProxyCommand=x', cards: 1}]", "not a name"),
    ],
)
def test_an_invalid_inventory_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ClusterError) as error:
        inventory.read(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_inventory_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"No such file or directory; `isthmus cluster init` writes"):
        inventory.read(tmp_path / "no.yaml")


def test_init_from_this_machine(tmp_path: Path) -> None:
    assert init(tmp_path, "local", "--cards", "2") == (0, f"{tmp_path}/out.yaml: 1 host, 2 cards\n")
    (host,) = inventory.read(tmp_path / "out.yaml").hosts
    assert host.name == socket.gethostname() and len(host.cards) == 2
    assert init(tmp_path, "local")[0] == 1  # exists


def test_init_from_a_hostfile(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(
        "# ours\nnode0 slots=8\n\nnode1 slots=4 max_slots=4 # old\nnode2:2\nnode3\n"
    )
    code, output = init(tmp_path, str(tmp_path / "hosts"), "--cards", "1")
    assert code == 0 and "4 hosts, 15 cards" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no hosts"),
        ("node0", ":1: 'node0': no slots; write `node0 slots=8`, or give --cards"),
        ("a slots=2\na slots=2", ":2: 'a': host occurs twice"),
        ("a slots=x", ":1: 'a slots=x': not a host"),
        ("$(reboot) slots=1", "not a name"),
    ],
)
def test_an_invalid_hostfile(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "hosts").write_text(text)
    code, output = init(tmp_path, str(tmp_path / "hosts"))
    assert code == 1 and message in output


def test_init_from_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_NODELIST", raising=False)
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    code, output = init(tmp_path, "slurm")
    assert code == 1 and "SLURM_JOB_NODELIST is not set" in output
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2,08],login")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "8(x3),1")
    assert init(tmp_path, "slurm")[0] == 0
    hosts = inventory.read(tmp_path / "out.yaml").hosts
    assert [(host.name, len(host.cards)) for host in hosts] == [
        ("n1", 8),
        ("n2", 8),
        ("n08", 8),
        ("login", 1),
    ]
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    init(tmp_path, "slurm", "--force")
    assert inventory.read(tmp_path / "out.yaml").world_size == 16
    monkeypatch.delenv("SLURM_GPUS_ON_NODE")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "8")
    assert "give them with --cards" in init(tmp_path, "slurm", "--force")[1]


def test_slurm_node_lists() -> None:
    assert expand("a") == ["a"]
    assert expand("r[1-2]n[09-10]") == ["r1n09", "r1n10", "r2n09", "r2n10"]
    for text in ("n[2-1]", "n[a]", "n[1", "n1,n1", "n[1-999999]", "a,,b"):
        with pytest.raises(ClusterError, match="SLURM_JOB_NODELIST="):
            expand(text)
