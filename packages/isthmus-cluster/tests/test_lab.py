"""``isthmus cluster lab``: namespaces, shaped links, faulty cards, and nothing left behind."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from isthmus_cluster import inventory, remote
from isthmus_cluster.errors import ClusterError
from isthmus_cluster.lab import cards, network, state
from isthmus_cluster.lab.state import Lab
from tests.helpers.cluster import cluster, wait_until

NAME = f"t{os.getpid()}"
HOSTS = 3


lab = partial(cluster, "lab")


# ---- without namespaces


def made(tmp_path: Path, **values: object) -> Lab:
    return Lab(tmp_path, "lab", HOSTS, 2, **values)  # type: ignore[arg-type]


def test_shapes_of_links(tmp_path: Path) -> None:
    assert network.tc_lines(made(tmp_path), "host1") == []
    assert network.tc_lines(made(tmp_path, links={"host1-host2": {"down": ""}}), "host1") == []
    fault = {"host1-host3": {"rate": "1mbit", "loss": "5%"}}
    lines = network.tc_lines(made(tmp_path, rate="1gbit", delay="1ms", links=fault), "host1")
    assert lines[1:] == [
        "class add dev eth0 parent 1: classid 1:1 htb rate 1gbit quantum 60000",
        "class add dev eth0 parent 1:1 classid 1:2 htb rate 1gbit quantum 60000",
        "qdisc add dev eth0 parent 1:2 handle 2: netem delay 1ms",
        "class add dev eth0 parent 1:1 classid 1:12 htb rate 1mbit quantum 60000",
        "qdisc add dev eth0 parent 1:12 handle 12: netem delay 1ms loss 5%",
        "filter add dev eth0 parent 1: protocol ip prio 18 u32 match ip dst 10.78.0.3/32 flowid 1:12",
    ]
    assert len(network.tc_lines(made(tmp_path, rate="1gbit", links=fault), "host2")) == 3


@pytest.mark.parametrize(
    ("name", "value"), [("rate", "1"), ("rate", "0mbit"), ("loss", "101%"), ("loss", "5"), ("delay", "1 ms")]
)
def test_quantities_are_checked(name: str, value: str) -> None:
    with pytest.raises(ClusterError, match=f"{name} {value}: expected"):
        state.quantity(name, value)


def test_root_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status, output = lab("up", "--folder", tmp_path / "lab")
    assert (status, output.count("\n")) == (1, 1) and "needs root; run it with sudo" in output
    assert not (tmp_path / "lab").exists()


def test_a_lab_of_a_name_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "check", lambda: None)
    monkeypatch.setattr(network, "NAMESPACES", tmp_path)
    (tmp_path / "lab-host2").touch()
    status, output = lab("up", "--folder", tmp_path / "lab")
    assert (status, output.count("\n")) == (1, 1) and "lab-host2: this namespace exists" in output
    assert not (tmp_path / "lab").exists()


def test_environment_of_a_host_reaches_its_commands() -> None:
    entry = {"name": "a", "namespace": "n", "cards": 1, "environment": {"A": "b c"}}
    (host,) = inventory.parse({"hosts": [entry]}, "test").hosts
    assert "b c" not in " ".join(remote.command(host, ["true"]))
    assert remote.environment_line(host.environment) == b"export A='b c'\n"
    with pytest.raises(ClusterError, match=r"a b: not a variable"):
        inventory.parse({"hosts": [{**entry, "environment": {"a b": "1"}}]}, "test")


# ---- with namespaces


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root and iproute2")
    if subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces here")
    path = tmp_path_factory.mktemp("lab") / "lab"
    try:
        status, output = lab("up", "--hosts", HOSTS, "--cards", 2, "--name", NAME, "--folder", path)
        assert status == 0, output
        yield path
    finally:
        status, output = lab("down", "--folder", path)
    assert (status, output) == (0, f"{path}: removed {HOSTS} hosts\n")
    assert lab("down", "--folder", path) == (0, f"{path}: no lab\n")
    for place in (network.NAMESPACES, network._ETC):
        assert not list(place.glob(f"{NAME}-*"))


def test_addresses_have_names(folder: Path) -> None:
    """Also the IPv4-mapped ones, which sockets of PyTorch ask for."""
    for address in ("10.78.0.2", "::ffff:10.78.0.2"):
        line = ["ip", "netns", "exec", f"{NAME}-host1", "getent", "hosts", address]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert done.stdout.split()[1] == "host2"


def test_down_removes_what_a_crash_of_up_leaves(folder: Path, tmp_path: Path) -> None:
    partial = Lab(tmp_path, f"{NAME}-crash", HOSTS, 1)
    partial.write()
    subprocess.run(["ip", "netns", "add", partial.namespace("host2")], check=True)
    assert lab("down", "--folder", tmp_path) == (0, f"{tmp_path}: removed {HOSTS} hosts\n")
    assert not (network.NAMESPACES / partial.namespace("host2")).exists()


@pytest.fixture
def started(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a command as the process of a card; faults are healed and processes ended afterwards."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(host: str, rank: int, *command: str) -> subprocess.Popen[bytes]:
        place = inventory.read(folder / "cluster.yaml").host(host)
        process = subprocess.Popen(
            remote.command(place, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "LOCAL_RANK": str(rank)},
        )
        processes.append(process)
        assert process.stdin
        process.stdin.write(remote.environment_line(place.environment))
        process.stdin.flush()
        return process

    yield start
    assert lab("heal", "--folder", folder) == (0, "")
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.close()


def stopped(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def reaches(
    folder: Path, start: Callable[..., subprocess.Popen[bytes]], first: str, second: str, wait: float = 20.0
) -> bool:
    """Whether a datagram arrives within some seconds after it was sent."""
    receive = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 7000));"
        "print('ready', flush=True); s.recv(9); print('received', flush=True)"
    )
    send = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 7000))"
    receiver = start(second, 9, sys.executable, "-S", "-c", receive)
    assert receiver.stdout and receiver.stdout.readline() == b"ready\n"
    address = inventory.read(folder / "cluster.yaml").host(second).address
    assert start(first, 9, sys.executable, "-S", "-c", send, address).wait(20) == 0
    arrived = bool(select.select([receiver.stdout], [], [], wait)[0])
    receiver.kill()
    receiver.wait()
    return arrived


def test_up_refuses_a_second_lab_and_status_shows_the_first(folder: Path) -> None:
    status, output = lab("up", "--folder", folder)
    assert (status, output.count("\n")) == (1, 1) and "has a lab" in output
    assert folder.stat().st_mode & 0o777 == 0o750
    _, output = lab("status", "--folder", folder)
    assert output.splitlines()[1].split("\t") == ["host1", f"{NAME}-host1", "10.78.0.1", "2", "0", ""]


def test_hosts_have_names(folder: Path, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    found = started("host2", 9, "sh", "-c", "uname -n; getent ahosts host1 | head -n 1")
    assert found.communicate(timeout=20)[0].split() == [b"host2", b"10.78.0.1", b"STREAM", b"host1"]


def test_a_link_is_down_until_it_is_healed(
    folder: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    assert lab("fault", "link", "host2-host1", "down", "--folder", folder) == (0, "")
    assert "to host1: down" in lab("status", "--folder", folder)[1]
    assert not reaches(folder, started, "host1", "host2", 0.5)
    assert reaches(folder, started, "host1", "host3")
    assert lab("heal", "link", "host1-host2", "--folder", folder) == (0, "")
    assert reaches(folder, started, "host1", "host2")


def test_a_link_is_slow(folder: Path, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    status, output = lab("fault", "link", "host1-host2", "rate=1mbit", "--folder", folder)
    if status:
        pytest.skip(output)
    shown = subprocess.run(
        ["tc", "-n", f"{NAME}-host1", "class", "show", "dev", "eth0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "class htb 1:11 parent 1:1 prio 0 rate 1Mbit" in shown.stdout
    assert reaches(folder, started, "host1", "host2")


def test_loss_is_refused_where_the_kernel_has_no_netem(
    folder: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    status, output = lab("fault", "link", "host1-host2", "loss=5%", "--folder", folder)
    if status == 0:
        assert "loss=5%" in lab("status", "--folder", folder)[1]
    else:
        assert "need netem, which this kernel lacks" in output and output.count("\n") == 1
        assert "loss" not in lab("status", "--folder", folder)[1]


def test_a_card_is_stopped_and_others_are_not(
    folder: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first, second = (started("host1", rank, "sleep", "60") for rank in (0, 1))
    assert lab("fault", "host1", "card1", "stop", "--folder", folder) == (0, "")
    assert wait_until(lambda: stopped(second))
    later = started("host1", 1, "sleep", "60")
    assert wait_until(lambda: stopped(later)) and not stopped(first)
    assert "card1 stop" in lab("status", "--folder", folder)[1]
    (pid,) = cards.find(f"{NAME}-host1")
    os.kill(pid, signal.SIGKILL)  # a crash leaves processes stopped
    assert lab("heal", "host1", "card1", "--folder", folder) == (0, "")
    assert not stopped(second) and not stopped(later)


def test_a_card_is_slow(folder: Path, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = started("host2", 0, "sleep", "60")
    assert lab("fault", "host2", "card0", "slow=2", "--folder", folder) == (0, "")
    assert (
        wait_until(lambda: stopped(process))
        and wait_until(lambda: not stopped(process))
        and wait_until(lambda: stopped(process))
    )


CORRUPT = """
import sys, time
{0}
print("ready", flush=True)
until = time.monotonic() + 20
while changed() == 0 and time.monotonic() < until:
    time.sleep(0.02)
print("corrupt" if changed() else "same", flush=True)
"""
FILE = """import os
memory = os.memfd_create("isthmus-host")
os.pwrite(memory, bytes(1 << 20), 0)
changed = lambda: sum(os.pread(memory, 1 << 20, 0))
"""
CHIP = """import torch
memory = torch.zeros(1 << 18, dtype=torch.int32, device="chip")
changed = lambda: int((memory != 0).sum())
"""


@pytest.mark.parametrize("program", [FILE, pytest.param(CHIP, marks=pytest.mark.full)], ids=["file", "chip"])
def test_memory_of_a_card_is_corrupted(
    folder: Path, started: Callable[..., subprocess.Popen[bytes]], program: str
) -> None:
    process = started("host3", 1, sys.executable, "-c", CORRUPT.format(program))
    assert process.stdout and process.stdout.readline() == b"ready\n"
    assert lab("fault", "host3", "card1", "corrupt=50", "--folder", folder) == (0, "")
    assert process.stdout.readline() == b"corrupt\n"
    assert f"process {process.pid}: flipped bit" in (folder / "host3" / "faults.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["host9", "card0", "stop"], "host9: unknown host; expected host1 to host3"),
        (["host1", "card2", "stop"], "card2: expected a card of host1, card0 to card1"),
        (["host1", "card0", "stop=2"], "stop=2: expected stop, slow, corrupt"),
        (["host1", "card0", "slow=0"], "slow=0: expected"),
        (["link", "host1-host1", "down"], "host1-host1: expected two of host1 to host3"),
        (["link", "host1-host2", "up"], "up: expected down, or rate=1mbit"),
        (["link", "host1-host2", "rate=fast"], "rate fast: expected a rate such as"),
    ],
)
def test_wrong_faults_are_one_line(folder: Path, arguments: list[str], message: str) -> None:
    status, output = lab("fault", *arguments, "--folder", folder)
    assert (status, output.count("\n")) == (1, 1) and message in output


def test_an_absent_lab_is_one_line(tmp_path: Path) -> None:
    status, output = lab("status", "--folder", tmp_path)
    assert (status, output.count("\n")) == (1, 1) and "no lab; `isthmus cluster lab up" in output
