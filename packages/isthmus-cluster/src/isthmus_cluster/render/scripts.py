"""Shell scripts that start the ranks of one host, for each launcher."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from isthmus_cluster.inventory import Host
from isthmus_cluster.render.job import MSRUN_PORT, TORCHRUN_PORT, File, Job

Command = Callable[[Job, int, int], list[str]]
_MSRUN_TIMEOUT = 7200  # seconds, as MindFormers's msrun_launcher.sh
_LOGS = "output/msrun_log"


def script(
    origin: str,
    about: str,
    variables: Mapping[str, str],
    directory: str,
    command: str,
    options: Sequence[str] = (),
) -> str:
    """Return a script.

    Args:
        origin: comment of :meth:`Job.origin`.
        about: comment at its head.
        variables: environment, each value any text.
        directory: working directory; "" is where it is started.
        command: last line, in the language of the shell.
        options: lines below the first, such as those of Slurm.
    """
    lines = ["#!/usr/bin/env bash", *options, origin, f"# {about}", "set -euo pipefail", "umask 027"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines += [f"cd -- {shlex.quote(directory)}"] if directory else []
    return "\n".join([*lines, command, ""])


def per_host(kind: str, job: Job) -> list[File]:
    """Return the script of each host for ``torchrun``, ``megatron``, ``msrun`` or ``mindformers``."""
    command, default, extra = _LAUNCHERS[kind]
    port = job.port or default
    files, first = [], 0
    for number, host in enumerate(job.inventory.hosts):
        about = f"{host.name}: {_ranks(first, host)} of {job.inventory.world_size}"
        variables = extra | job.environment(host, port)
        line = f"exec {shlex.join(command(job, number, port))}"
        text = script(job.origin(kind), about, variables, job.directory, line)
        files.append(File(f"{kind}-{host.name}.sh", text, 0o750))
        first += len(host.cards)
    return files


def _ranks(first: int, host: Host) -> str:
    last = first + len(host.cards) - 1
    return f"rank {first}" if first == last else f"ranks {first} to {last}"


def torchrun_options(job: Job, number: int, port: int) -> dict[str, object]:
    """Return the options of torchrun for a host, by its number."""
    hosts = job.inventory.hosts
    return {
        "nnodes": len(hosts),
        "node_rank": number,
        "nproc_per_node": len(hosts[number].cards),
        "master_addr": job.master,
        "master_port": port,
    }


def torchrun(job: Job, number: int, port: int) -> list[str]:
    """Return the command of a host, by its number."""
    return ["torchrun", *words(torchrun_options(job, number, port)), *job.program]


def _msrun(job: Job, number: int, port: int) -> list[str]:
    options = {
        "worker_num": job.inventory.world_size,
        "local_worker_num": len(job.inventory.hosts[number].cards),
        "master_addr": job.master,
        "master_port": port,
        "node_rank": number,
        "log_dir": _LOGS,
        "join": True,
        "cluster_time_out": _MSRUN_TIMEOUT,
    }
    return ["msrun", *words(options), *job.program]


def _mindformers(job: Job, number: int, port: int) -> list[str]:
    """Return the call of msrun_launcher.sh, which has the shell parse its first argument again."""
    world, local = job.inventory.world_size, len(job.inventory.hosts[number].cards)
    positions = (world, local, job.master, port, number, _LOGS, True, _MSRUN_TIMEOUT)
    return ["bash", "scripts/msrun_launcher.sh", shlex.join(job.program), *map(str, positions)]


def words(options: Mapping[str, object]) -> list[str]:
    """Return options as words of a command line, ``--name=value``."""
    return [f"--{name}={value}" for name, value in options.items()]


# For each launcher: command, default port, environment.
_LAUNCHERS: dict[str, tuple[Command, int, dict[str, str]]] = {
    "torchrun": (torchrun, TORCHRUN_PORT, {}),
    # Megatron overlaps communication with compute only if kernels start in the order of their calls.
    "megatron": (torchrun, TORCHRUN_PORT, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    "msrun": (_msrun, MSRUN_PORT, {}),
    "mindformers": (_mindformers, MSRUN_PORT, {}),
}
