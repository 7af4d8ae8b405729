"""``isthmus cluster run``: commands for hosts, merged output, the guilty rank, signals, nothing left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from isthmus_cluster import arguments as common_arguments
from isthmus_cluster import inventory, remote, run
from isthmus_cluster.inventory import Inventory
from isthmus_cluster.render.job import Job
from isthmus_common.training.terminal import Terminal
from tests.helpers.cluster import cluster, lab, wait_until
from tests.helpers.command import isthmus
from tests.helpers.sshd import hosts_over_ssh

NODE = [sys.executable, "-m", "isthmus_cluster.node"]
TRAIN = """
import sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for i in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        print(f"iteration {i + 1}/{sys.argv[1]} loss 1.0", flush=True)
    if i == 2 and dist.get_rank() == int(sys.argv[2]):
        raise ValueError("planted")
    time.sleep(0.1)
"""


def hosts(*entries: dict[str, object]) -> Inventory:
    return inventory.parse({"hosts": [{"cards": 1, **each} for each in entries]}, "test")


TWO = hosts({"name": "a", "address": "127.0.0.1"}, {"name": "b", "address": "127.0.0.2"})


def supervised(*scripts: str, prints_status: bool = False) -> tuple[int, str, str]:
    """Supervise a shell script on each of two hosts; return status and output."""
    out, err = io.StringIO(), io.StringIO()
    lines = [[*NODE, "--", "sh", "-c", script] for script in scripts]
    status = run.supervise(Job(TWO, ["train.py"]), lines, [b""] * 2, Terminal(prints_status, out, err))
    return status, out.getvalue(), err.getvalue()


def gone(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    return bool(wait_until(lambda: not Path(f"/proc/{pid}").exists()))


def appears(path: Path) -> None:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))


# ---- where commands run


def test_commands_of_hosts() -> None:
    remote_host, namespace, local = hosts(
        {"name": "far", "address": "192.0.2.77", "user": "train", "port": 2222},
        {"name": "lab", "address": "10.77.0.1", "namespace": "lab1"},
        {"name": "here", "address": "127.0.0.1"},
    ).hosts
    command = ["python", "a b", "$HOME"]
    assert remote.command(local, command) == command
    found = remote.command(namespace, command)
    assert found[:4] == ["ip", "netns", "exec", "lab1"] and found[-4:] == ["lab", *command]
    found = remote.command(remote_host, command)
    assert found[0] == "ssh" and found[-5:] == [
        "-p",
        "2222",
        "--",
        "train@192.0.2.77",
        "python 'a b' '$HOME'",
    ]
    assert "BatchMode=yes" in found


def test_command_of_a_host(tmp_path: Path) -> None:
    job = Job(TWO, ["train.py", "--lr", "1"], 6000, "eth0", "/work dir", variables=["A=b c"])
    lines = run.commands(job, "py", ["--log-dir", "logs"])
    assert lines[1][:2] == ["sh", "-c"]
    assert lines[1][4:8] == ["py", "-m", "isthmus_cluster.node", "--directory=/work dir"]
    environment = run.environments(job)[1].decode()
    assert environment.startswith("export ") and environment.endswith(" A='b c'\n")
    assert {"NCCL_SOCKET_IFNAME=eth0", "MASTER_PORT=6000"} < set(environment.split())
    expected = "--nproc 1 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port 6000 --log-dir logs train.py"
    assert lines[1][lines[1].index("--") + 1 :] == [
        *"py -m isthmus run".split(),
        *expected.split(),
        "--lr",
        "1",
    ]


def test_hosts_of_a_run_share_a_name_that_no_other_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts that find another job at the port do not join it."""
    monkeypatch.setattr(run, "supervise", lambda job, lines, *_: found.extend(lines) or 0)
    found: list[list[str]] = []
    for _ in range(2):
        assert run.run(Job(TWO, ["train.py"]), "py", []) == 0
    first, second, third, fourth = (line[line.index("--rdzv-id") + 1] for line in found)
    assert first == second != third == fourth


def test_arguments_survive_the_shell_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (host,) = hosts({"name": "far", "address": "192.0.2.77"}).hosts
    odd = ["it's", "$HOME `id`; *", "\\", ""]
    done = subprocess.run(
        remote.command(host, ["printf", "%s|", *odd]), capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(f"{each}|" for each in odd)


ODD = {"TOKEN": "s3cr3t $HOME `id` 'quoted' \\n", "EMPTY": "", "UMLAUT": "\u00e4\udcff"}


@pytest.mark.parametrize("where", ["local", "namespace", "ssh"])
def test_an_environment_is_not_in_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The command gets the variables and what else is on its standard input."""
    (tmp_path / "ssh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (tmp_path / "ip").write_text('#!/bin/sh\nshift 9\nexec "$@"\n')  # up to the name of the host
    for each in ("ssh", "ip"):
        (tmp_path / each).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    place = {"local": "127.0.0.1", "namespace": "10.77.0.1", "ssh": "192.0.2.77"}[where]
    space = {"namespace": "lab1"} if where == "namespace" else {}
    (host,) = hosts({"name": "a", "address": place, **space}).hosts
    code = "import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()]))"
    line = remote.command(host, [sys.executable, "-c", code], ODD)
    assert "s3cr3t" not in " ".join(line)
    data = remote.environment_line(ODD) + b"SIGTERM\n"
    done = subprocess.run(line, input=data, capture_output=True, check=True)
    environment, rest = json.loads(done.stdout)
    assert {name: environment[name] for name in ODD} == ODD
    assert rest == "SIGTERM\n"


def test_values_of_env_are_hidden_in_the_arguments_of_the_command(tmp_path: Path) -> None:
    """Neither it nor the processes that it starts show them; the ranks get them."""
    (tmp_path / "c.yaml").write_text(
        "hosts: [{name: a, address: 127.0.0.1, cards: 1, environment: {OF_HOST: s3cr3t-0}}]"
    )
    code = (
        "import os, pathlib\n"
        "of_all = [path.read_bytes() for path in pathlib.Path('/proc').glob('[0-9]*/cmdline')]\n"
        "values = [os.environ[name] for name in ('A', 'B', 'C', 'OF_HOST')]\n"
        "print(values, sum(b's3' b'cr3t' in each for each in of_all))"
    )
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "isthmus", "cluster", "run", "-i", str(tmp_path / "c.yaml")),
            *("--env", "A=s3cr3t-1", "--env=B=s3cr3t-2", "--env", "C"),
            *("--python", str(tmp_path / "python"), "train.py"),
        ],
        env={**os.environ, "C": "s3cr3t-3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['s3cr3t-1', 's3cr3t-2', 's3cr3t-3', 's3cr3t-0'] 0\n", done.stderr


@pytest.mark.parametrize("state", ["unused", "without /proc", "hidden", "shown"])
def test_values_are_hidden_only_where_the_kernel_shows_them(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = []

    class Files:
        def __init__(self, path: str) -> None:
            if state in ("unused", "without /proc"):
                raise FileNotFoundError(path)

        def read_bytes(self) -> bytes:
            return b"isthmus\0--env\0A=s3cr3t\0"

        def read_text(self) -> str:
            return "7 (a b) " + " ".join(map(str, range(3, 48))) + (" 0" if state == "hidden" else " 4096")

    monkeypatch.setattr(common_arguments, "Path", Files)
    monkeypatch.setattr(common_arguments.ctypes, "memset", lambda *call: hidden.append(call))
    values = None if state == "unused" else ["A=s3cr3t"]
    assert common_arguments._variables(values) == (values or [])
    assert hidden == ([(4096 + len("isthmus\0--env\0A="), ord("*"), 6)] if state == "shown" else [])


# ---- supervision


def test_output_is_merged_with_one_progress_line() -> None:
    status, out, err = supervised(
        "echo '[rank 0] iteration 1/ 2 | lm loss: 1.0E+00 |'; echo '[rank 0] hello'; echo 'isthmus: started' >&2",
        "echo '[rank 1] hello'; echo '[rank 1] bad' >&2; printf last",
        prints_status=True,
    )
    assert status == 0
    assert {"[rank 0] hello", "[rank 1] hello", "last"} == set(out.splitlines())
    assert {"isthmus: a: started", "[rank 1] bad"} <= set(err.splitlines())
    assert "isthmus: iteration 1/2 · loss 1 · 2 of 2 ranks" in err.splitlines()


def test_the_rank_that_failed_first_is_named_and_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consequence = (
        "isthmus: rank 0 failed as a rank of another node did: exit status 1 (process 7 on x, attempt 0)"
    )
    cause = "isthmus: rank 1 failed first: exit status 7 (process 8 on y, attempt 0)"
    for first in (
        f"echo '{consequence}' >&2; echo '  its own error says that another rank was missing' >&2",
        f"echo '{cause}; ending the ranks of this node' >&2",  # same text as the other host has told
    ):
        status, _, err = supervised(f"{first}; exit 1", f"sleep 0.2; echo '{cause}' >&2; exit 7")
        assert status == 7
        said = f"isthmus: b: {cause.removeprefix('isthmus: ')}"
        assert said.replace(" first", "") in err.splitlines() and err.splitlines()[-1] == said
    monkeypatch.setattr(run, "_START_GRACE", 0.2)
    status, _, err = supervised("exit 3", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    assert status == 3
    assert "isthmus: a failed; ending the ranks on all hosts" in err.splitlines()
    assert err.splitlines()[-1] == "isthmus: a: failed first, with exit status 3; see its output above"
    assert gone(tmp_path / "pid")


def test_errors_before_the_launcher_speaks_name_their_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_START_GRACE", 0.2)
    status, _, err = supervised(
        "echo 'isthmus: waiting' >&2; echo mine >&2; sleep 9", "echo refused >&2; exit 255"
    )
    assert status == 255 and {"isthmus: a: waiting", "mine", "b: refused"} <= set(err.splitlines())
    assert err.splitlines()[-1] == "isthmus: b: failed first, with exit status 255: refused"
    status, _, err = supervised("echo 'isthmus: port 1 is in use' >&2; exit 1", "sleep 9")
    assert err.splitlines()[-1] == "isthmus: a: failed first, with exit status 1: port 1 is in use"
    monkeypatch.setattr(run, "_GRACE", 0.2)
    status, _, err = supervised("echo 'isthmus: rank 0 of 2' >&2; exit 1", "sleep 9")
    assert err.splitlines()[-1] == "isthmus: a: failed first, with exit status 1; see its output above"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_all_hosts(tmp_path: Path, number: signal.Signals) -> None:
    script = "trap 'echo got; exit 0' {}; echo $$ > {}; while :; do sleep 0.05; done"
    name = number.name.removeprefix("SIG")

    def send() -> None:
        for each in ("a", "b"):
            appears(tmp_path / each)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()
    status, out, err = supervised(*(script.format(name, tmp_path / each) for each in ("a", "b")))
    assert (status, out) == (128 + number, "got\ngot\n")
    again = "; Ctrl-C again kills them" if number == signal.SIGINT else ""
    assert err.splitlines()[0] == f"isthmus: {number.name}: ending the ranks on 2 hosts{again}"
    assert err.splitlines()[-1] == f"isthmus: {number.name}: ended the ranks on 2 hosts"
    assert gone(tmp_path / "a") and gone(tmp_path / "b")


@pytest.mark.parametrize("how", ["connection", "node"])
def test_nothing_is_left_when_the_supervisor_or_the_node_dies(tmp_path: Path, how: str) -> None:
    process = subprocess.Popen(
        [*NODE, "--", "sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    appears(tmp_path / "pid")
    if how == "connection":
        process.stdin.close()
    else:
        process.kill()
    assert gone(tmp_path / "pid")
    process.wait(10)
    process.stdin.close()


def test_a_command_that_cannot_start() -> None:
    done = subprocess.run(
        [*NODE, "--", "/no/such"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127 and done.stderr == "isthmus: /no/such: No such file or directory\n"


def test_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("hosts: [{name: a, address: 127.0.0.1, cards: 1}]")
    for arguments, message in (
        (["-i", str(tmp_path / "no.yaml"), "a.py"], "No such file or directory"),
        (["--interfce", "eth0", "a.py"], "--interfce: unknown option; did you mean --interface?"),
        (["--xyz=1", "a.py"], "--xyz: unknown option; see --help"),
        (["-i", str(tmp_path / "c.yaml"), "--port", "1", "a.py"], "--port 1: expected 1024 to 65535"),
    ):
        code, output = cluster("run", *arguments)
        assert code == 1 and message in output and len(output.splitlines()) == 1


# ---- real jobs


@pytest.mark.full
def test_a_job_in_two_network_namespaces(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with lab(tmp_path / "lab", 2, 2, "r") as folder:
        options = ["-i", folder / "cluster.yaml", "--interface", "eth0", "--directory", tmp_path]
        done = isthmus("cluster", "run", *options, "--local-ranks-filter", "all", "train.py", 5, -1)
        assert done.returncode == 0, done.stderr
        assert "[rank 0] iteration 5/5 loss 1.0" in done.stdout
        done = isthmus("cluster", "run", *options, "train.py", 50, 2)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("isthmus: host2: rank 2 failed first: exit status 1 (process "), done.stderr


@pytest.mark.full
def test_a_job_runs_over_ssh_and_its_first_failed_rank_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with hosts_over_ssh(tmp_path, monkeypatch) as found:
        path = tmp_path / "cluster.yaml"
        inventory.write(found, path)
        for arguments, status in ((["3", "-1"], 0), (["30", "1"], 1)):
            line = ["run", "-i", path, "--interface", "lo", "--progress", tmp_path / "train.py", *arguments]
            code, output = cluster(*line)
            assert code == status, output
    assert "rank 1 failed first" in output and "s1" in output
