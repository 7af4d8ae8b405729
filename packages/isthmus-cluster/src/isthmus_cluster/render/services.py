"""Jobs under a scheduler or service manager: Slurm, systemd."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.render.job import TORCHRUN_PORT, File, Job
from isthmus_cluster.render.scripts import script, torchrun, torchrun_options, words


def slurm(job: Job) -> list[File]:
    """Return a batch script for ``sbatch`` that runs torchrun on every node.

    Slurm numbers the nodes, in an order of its own: rank 0 is on its first.

    Raises:
        ClusterError: the hosts have different numbers of cards or different variables, or the inventory chooses
            among their cards, which Slurm does.
    """
    hosts, port = job.inventory.hosts, job.port or TORCHRUN_PORT
    cards = len(hosts[0].cards)
    for host in hosts:
        if len(host.cards) != cards:
            raise ClusterError(
                f"host {host.name}: {len(host.cards)} cards, {hosts[0].name} has {cards}; "
                "a Slurm job needs equal nodes"
            )
        if host.environment != hosts[0].environment:
            raise ClusterError(
                f"host {host.name}: its environment differs from that of {hosts[0].name}; "
                "a Slurm script has one for all nodes"
            )
        indices = [card.index for card in host.cards]
        if indices != list(range(cards)):
            raise ClusterError(
                f"host {host.name}: cards {', '.join(map(str, indices))}: Slurm chooses the cards of a job; "
                f"give their number, `cards: {cards}`"
            )
    options = {
        "job-name": job.inventory.name,
        "nodes": len(hosts),
        "nodelist": ",".join(host.name for host in hosts),
        "ntasks-per-node": 1,
        "gres": f"{'npu' if job.ascend else 'gpu'}:{cards}",
        "output": f"{job.inventory.name}-%j.log",
    }
    lines = [f"#SBATCH --{name}={value}" for name, value in options.items()]
    static = torchrun_options(job, 0, port)
    del static["node_rank"], static["master_addr"]  # the node sets these, see below
    command = shlex.join([*words(static), *job.program])
    run = f'exec torchrun --node_rank="$SLURM_NODEID" --master_addr="$MASTER_ADDR" {command}'
    nodes = 'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'
    variables = {"MASTER_PORT": str(port)} | job.collectives(None)
    if job.rank_table:
        variables["RANK_TABLE_FILE"] = job.rank_table
    variables |= hosts[0].environment | job.given
    last = f"{nodes}\nexport MASTER_ADDR\nexec srun --kill-on-bad-exit=1 bash -c {shlex.quote(run)}"
    about = f"{job.inventory.world_size} ranks on {len(hosts)} nodes"
    text = script(job.origin("slurm"), about, variables, job.directory, last, lines)
    return [File(f"slurm-{job.inventory.name}.sh", text, 0o750)]


def systemd(job: Job) -> list[File]:
    """Return a unit for each host, ``NAME-HOST.service``, that runs torchrun.

    Raises:
        ClusterError: the working directory is not absolute.
    """
    if not Path(job.directory).is_absolute():
        raise ClusterError(f"--directory {job.directory!r}: a unit needs an absolute path")
    files = []
    for number, host in enumerate(job.inventory.hosts):
        port = job.port or TORCHRUN_PORT
        variables = job.environment(host, port)
        command = " ".join(_word(each) for each in torchrun(job, number, port))
        lines = [
            job.origin("systemd"),
            "[Unit]",
            f"Description=Ranks of {job.inventory.name} on {host.name}",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            "Type=exec",
            *([f"User={host.user}"] if host.user else []),
            f"WorkingDirectory={job.directory.replace('%', '%%')}",
            *(f"Environment={_word(f'{name}={value}', dollars=False)}" for name, value in variables.items()),
            f"ExecStart=/usr/bin/env {command}",
            "UMask=0027",
            "NoNewPrivileges=yes",
            "KillMode=control-group",
            "LimitMEMLOCK=infinity",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
        files.append(File(f"{job.inventory.name}-{host.name}.service", "\n".join(lines)))
    return files


def _word(text: str, *, dollars: bool = True) -> str:
    """Quote a word of a unit: backslashes and quotes, specifiers (%), and variables ($) of a command."""
    text = text.replace("%", "%%")
    if dollars:
        text = text.replace("$", "$$")
    if re.fullmatch(r"[\w%$@=+:,./-]+", text, re.ASCII):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
