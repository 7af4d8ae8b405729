"""``isthmus cluster render``: what the launchers receive when the rendered files are run."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.helpers.cluster import cluster

CLUSTER = """
name: lab
hosts:
- {name: node0, address: 10.0.0.1, cards: 2}
- {name: node1, address: 10.0.0.2, user: train, cards: [{index: 4}, {index: 5}]}
"""
ASCEND = """
hosts:
- {name: node0, address: 10.0.0.1, cards: [{index: 0, address: 192.168.1.10}]}
- {name: node1, address: 10.0.0.2, cards: [{index: 0, address: 192.168.1.11}]}
"""
PROGRAM = ["train.py", "--name", 'it\'s "50%" $HOME `id`; rm -rf \\ *', "--lr=1e-4"]
# Stands for a launcher: prints its arguments and environment.
LAUNCHER = """#!/usr/bin/env python3
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))
"""
# Same quoting as msrun_launcher.sh of MindFormers: its first argument is parsed again by the shell.
MINDFORMERS = 'eval "torchrun $1" "${@:2}"\n'


def render(folder: Path, *arguments: str, hosts: str = CLUSTER) -> list[Path]:
    (folder / "cluster.yaml").write_text(hosts)
    options = ["-i", str(folder / "cluster.yaml"), "-o", str(folder / "launch")]
    code, output = cluster("render", *options, *arguments)
    assert code == 0, output
    return [Path(line) for line in output.splitlines()]


def launched(script: Path, **environment: str) -> tuple[list[str], dict[str, str], str]:
    """Run a script with stand-ins for the launchers; return arguments, environment, folder of the launcher."""
    tools = script.parent.parent / "tools"
    tools.mkdir(exist_ok=True)
    stand_ins = {
        "torchrun": LAUNCHER,
        "msrun": LAUNCHER,
        "srun": '#!/bin/sh\nshift\nexec "$@"\n',
        "scontrol": "#!/bin/sh\nprintf 'node0\\nnode1\\n'\n",
    }
    for name, text in stand_ins.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    subprocess.run(["bash", "-n", script], check=True)
    run = subprocess.run(
        [script],
        env={"PATH": f"{tools}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=True,
        cwd=script.parent.parent,
        timeout=60,
    )
    return tuple(json.loads(run.stdout))


def test_torchrun_on_each_host(tmp_path: Path) -> None:
    work = tmp_path / "my $work"
    work.mkdir()
    paths = render(tmp_path, "--directory", str(work), "--env", "A=b 'c' $d", "torchrun", *PROGRAM)
    assert [path.name for path in paths] == ["torchrun-node0.sh", "torchrun-node1.sh"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o750 for path in paths)
    for rank, path in enumerate(paths):
        arguments, environment, folder = launched(path)
        assert arguments == [
            "--nnodes=2",
            f"--node_rank={rank}",
            "--nproc_per_node=2",
            "--master_addr=10.0.0.1",
            "--master_port=29500",
            *PROGRAM,
        ]
        assert environment["MASTER_ADDR"] == "10.0.0.1" and environment["MASTER_PORT"] == "29500"
        assert environment["A"] == "b 'c' $d" and folder == str(work)
        assert environment.get("CUDA_VISIBLE_DEVICES") == (None, "4,5")[rank]


def test_environment_of_each_vendor(tmp_path: Path) -> None:
    (path, _) = render(tmp_path, "--interface", "eth0", "--port", "6000", "megatron", *PROGRAM)
    _, environment, _ = launched(path)
    assert environment["NCCL_SOCKET_IFNAME"] == "eth0" and environment["MASTER_PORT"] == "6000"
    assert environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    options = ("--rank-table", "/etc/ranks.json", "torchrun", *PROGRAM)
    _, environment, _ = launched(render(tmp_path, *options, hosts=ASCEND)[1])
    assert environment["RANK_TABLE_FILE"] == "/etc/ranks.json" and environment["HCCL_IF_IP"] == "10.0.0.2"
    assert environment["HCCL_CONNECT_TIMEOUT"] == "1200" and environment["HCCL_IF_BASE_PORT"] == "60000"
    (path, _) = render(tmp_path, "--interface", "eth0", "torchrun", *PROGRAM, hosts=ASCEND)
    environment = launched(path)[1]
    assert environment["HCCL_SOCKET_IFNAME"] == "eth0" and "HCCL_IF_IP" not in environment


def test_environment_of_a_host(tmp_path: Path) -> None:
    entry = 'environment: {OWN: "it\'s $d %d", NCCL_SOCKET_IFNAME: ib0, A: x}, cards'
    one = CLUSTER.replace("user: train, cards", f"user: train, {entry}")
    options = ("--interface", "eth0", "--env", "A=b", "--directory", "/")
    for kind in ("torchrun", "msrun"):
        environments = [launched(path)[1] for path in render(tmp_path, *options, kind, *PROGRAM, hosts=one)]
        assert [each.get("OWN") for each in environments] == [None, "it's $d %d"]
        assert [each["NCCL_SOCKET_IFNAME"] for each in environments] == ["eth0", "ib0"]
        assert [each["A"] for each in environments] == ["b", "b"]
    text = render(tmp_path, *options, "systemd", *PROGRAM, hosts=one)[1].read_text()
    assert 'Environment="OWN=it\'s $d %%d"' in text
    all_hosts = ASCEND.replace("cards", "environment: {OWN: c d}, cards")
    (path,) = render(tmp_path, "slurm", *PROGRAM, hosts=all_hosts)
    assert launched(path, SLURM_NODEID="0", SLURM_JOB_NODELIST="x")[1]["OWN"] == "c d"


@pytest.mark.parametrize(
    ("kind", "entry", "message"),
    [
        ("slurm", "environment: {A: b}, cards: 1", "host b: its environment differs from that of a"),
        ("slurm", "cards: [{index: 4}]", "host b: cards 4: Slurm chooses the cards of a job"),
        ("hostfile", "environment: {A: b}, cards: 1", "host b: a hostfile cannot set its environment (A)"),
        ("mpich", "environment: {A: b}, cards: 1", "host b: a hostfile cannot set its environment (A)"),
    ],
)
def test_what_a_kind_cannot_express_is_refused(tmp_path: Path, kind: str, entry: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(f"hosts: [{{name: a, cards: 1}}, {{name: b, {entry}}}]")
    code, output = cluster("render", "-i", str(tmp_path / "c.yaml"), kind, "a.py")
    assert code == 1 and message in output and len(output.splitlines()) == 1


def test_msrun_and_mindformers(tmp_path: Path) -> None:
    arguments, _, _ = launched(render(tmp_path, "msrun", *PROGRAM)[1])
    expected = "--worker_num=4 --local_worker_num=2 --master_addr=10.0.0.1 --master_port=8118 --node_rank=1"
    assert arguments[:5] == expected.split() and arguments[-4:] == PROGRAM
    assert "--join=True" in arguments and "--cluster_time_out=7200" in arguments
    path = render(tmp_path, "mindformers", *PROGRAM)[1]
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "msrun_launcher.sh").write_text(MINDFORMERS)
    arguments, _, _ = launched(path)
    assert arguments == [*PROGRAM, *"4 2 10.0.0.1 8118 1 output/msrun_log True 7200".split()]


def test_slurm(tmp_path: Path) -> None:
    program = [*PROGRAM, "--node_rank", "3", "--master_addr", "x"]
    (path,) = render(tmp_path, "slurm", *program, hosts=ASCEND)
    head = [line for line in path.read_text().splitlines() if line.startswith("#SBATCH")]
    assert head[1:5] == [
        "#SBATCH --nodes=2",
        "#SBATCH --nodelist=node0,node1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gres=npu:1",
    ]
    arguments, environment, _ = launched(path, SLURM_NODEID="1", SLURM_JOB_NODELIST="node[0-1]")
    assert (
        arguments[:3] == ["--node_rank=1", "--master_addr=node0", "--nnodes=2"] and arguments[-8:] == program
    )
    assert environment["HCCL_CONNECT_TIMEOUT"] == "1200" and environment["MASTER_PORT"] == "29500"


def test_systemd(tmp_path: Path) -> None:
    paths = render(tmp_path, "--directory", "/", "--env", 'A=b "c" %d $e', "systemd", *PROGRAM)
    text = paths[1].read_text()
    assert 'Environment="A=b \\"c\\" %%d $e"' in text and "User=train" in text and "UMask=0027" in text
    assert '"it\'s \\"50%%\\" $$HOME `id`; rm -rf \\\\ *"' in text
    assert stat.S_IMODE(paths[0].stat().st_mode) == 0o640
    if shutil.which("systemd-analyze"):
        run = subprocess.run(
            ["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False
        )
        assert str(tmp_path) not in run.stderr and "lab-node" not in run.stderr


def test_files_of_hosts_that_were_removed_do_not_stay(tmp_path: Path) -> None:
    own = tmp_path / "launch/torchrun-mine.sh"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    render(tmp_path, "megatron", *PROGRAM)
    render(tmp_path, "torchrun", *PROGRAM)
    one = CLUSTER[: CLUSTER.index("- {name: node1")]
    (tmp_path / "cluster.yaml").write_text(one)
    options = ["-i", str(tmp_path / "cluster.yaml"), "-o", str(own.parent)]
    _, output = cluster("render", *options, "torchrun", *PROGRAM)
    assert f"isthmus: {own.parent}/torchrun-node1.sh: removed, from an earlier render" in output
    names = ["megatron-node0.sh", "megatron-node1.sh", "torchrun-mine.sh", "torchrun-node0.sh"]
    assert sorted(path.name for path in own.parent.iterdir()) == names


def test_hostfiles(tmp_path: Path) -> None:
    (path,) = render(tmp_path, "hostfile")
    assert path.read_text() == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n"
    (path,) = render(tmp_path, "mpich")
    assert path.read_text() == "10.0.0.1:2\n10.0.0.2:2\n"
    code, output = cluster("init", tmp_path / "launch/hostfile", "-o", tmp_path / "new.yaml")
    assert code == 0 and "2 hosts, 4 cards" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("slum train.py", "slum: unknown; expected hostfile, mpich, torchrun"),
        ("torchrun --interface eth0 a.py", "--interface: options stand before all other arguments"),
        ("torchrun --max-restarts 3 a.py", "--max-restarts: unknown option; see --help"),
        ("--interfce eth0 torchrun a.py", "--interfce: unknown option; did you mean --interface?"),
        ("torchrun", "torchrun: no program; give it after the options"),
        ("--port 22 torchrun a.py", "--port 22: expected 1024 to 65535"),
        ("--interface a;b torchrun a.py", "--interface 'a;b': not a network interface"),
        ("--env A torchrun a.py", "--env 'A': expected NAME=VALUE"),
        ("--env A-B=1 torchrun a.py", "--env 'A-B=1': expected NAME=VALUE"),
        ("systemd a.py", "--directory '': a unit needs an absolute path"),
        ("slurm a.py", "host b: 2 cards, a has 1; a Slurm job needs equal nodes"),
        ("ranktable-1.0", "host a, card 0: the inventory lacks its address"),
        ("ranktable-1.2", "host a, card 0: the inventory lacks its address"),
        ("ranktable-2.0", "host a, card 0: the inventory lacks its address, or its levels"),
    ],
)
def test_errors_are_one_line_and_write_nothing(tmp_path: Path, arguments: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text("hosts: [{name: a, cards: 1}, {name: b, cards: 2}]")
    options = ["-i", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "launch")]
    code, output = cluster("render", *options, *arguments.split())
    assert code == 1 and message in output and len(output.splitlines()) == 1
    assert not (tmp_path / "launch").exists()


def test_super_pods_are_needed_for_version_1_2(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(ASCEND)
    code, output = cluster("render", "-i", str(tmp_path / "c.yaml"), "ranktable-1.2")
    assert code == 1 and "host node0, card 0: the inventory lacks its super_device_id" in output
    (tmp_path / "c.yaml").write_text(ASCEND.replace("address: 192", "super_device_id: 1, address: 192", 1))
    code, output = cluster("render", "-i", str(tmp_path / "c.yaml"), "ranktable-1.2")
    assert code == 1 and "host node1, card 0" in output
