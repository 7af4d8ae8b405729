"""Inventories from what describes a cluster already: this machine, a hostfile, a Slurm job."""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import Inventory, parse
from isthmus_cluster.ranktable import devices

_SLOTS = re.compile(
    r"(?P<name>[^\s:]+)(?::(?P<short>\d+))?(?:\s+slots\s*=\s*(?P<slots>\d+))?(?:\s+max_slots\s*=\s*\d+)?"
)
_MOST_HOSTS = 65536


def local_inventory(cards: int | None) -> Inventory:
    """Return an inventory of this machine.

    Args:
        cards: number of its cards; None asks PyTorch. Ascend device addresses are read where they are set.

    Raises:
        ClusterError: there is no accelerator and no number is given.
    """
    number = cards or _accelerators()
    ports: dict[str, str] = {}
    if devices.CONFIGURATION.exists():
        ports = devices.addresses([str(index) for index in range(number)])
    found = [{"index": index} | ({"address": ports[str(index)]} if ports else {}) for index in range(number)]
    name = socket.gethostname()
    return parse({"hosts": [{"name": name, "address": _address() or name, "cards": found}]}, "this machine")


def _accelerators() -> int:
    import torch

    number = torch.accelerator.device_count()
    if not number:
        raise ClusterError(
            "this machine: PyTorch finds no accelerator; give the number of cards with --cards"
        )
    return number


def _address() -> str:
    """Return the address of the interface with the default route; connecting a UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: an address for documentation
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def hostfile(path: Path, cards: int | None) -> Inventory:
    """Return an inventory from a hostfile: ``HOST slots=8`` (DeepSpeed, Open MPI) or ``HOST:8`` (MPICH).

    Args:
        path: the hostfile.
        cards: cards of a host without a number of slots.

    Raises:
        ClusterError: it cannot be read, or a line is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ClusterError(f"{path}: {reason}; give a hostfile with lines such as `node0 slots=8`") from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _SLOTS.fullmatch(text)
        if not match:
            raise ClusterError(f"{path}:{number}: {text!r}: not a host; write it as `node0 slots=8`")
        name, slots = match["name"], int(match["slots"] or match["short"] or cards or 0)
        if not slots:
            raise ClusterError(
                f"{path}:{number}: {text!r}: no slots; write `{name} slots=8`, or give --cards"
            )
        if name in hosts:
            raise ClusterError(
                f"{path}:{number}: {name!r}: host occurs twice; list it once, with all its slots"
            )
        hosts[name] = slots
    if not hosts:
        raise ClusterError(f"{path}: no hosts; write lines such as `node0 slots=8`")
    return _inventory_of(hosts, str(path))


def slurm(environment: Mapping[str, str], cards: int | None) -> Inventory:
    """Return an inventory of the nodes of a Slurm job.

    Args:
        environment: variables of the job.
        cards: cards of a node; None reads SLURM_GPUS_ON_NODE, SLURM_GPUS_PER_NODE or SLURM_TASKS_PER_NODE.

    Raises:
        ClusterError: this is no Slurm job, or its variables are invalid.
    """
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not nodes:
        raise ClusterError("SLURM_JOB_NODELIST is not set; run this in a Slurm job, such as `salloc -N 2`")
    names = expand(nodes)
    numbers = [cards] * len(names) if cards else _per_node(environment, len(names))
    return _inventory_of(dict(zip(names, numbers, strict=True)), "SLURM_JOB_NODELIST")


def expand(text: str) -> list[str]:
    """Return the nodes of a Slurm node list: ``n[1-2,08],login`` is n1, n2, n08, login.

    Raises:
        ClusterError: it is not a node list.
    """
    names = []
    for item in re.split(r",(?![^\[]*\])", text):
        parts = re.split(r"\[([^\[\]]+)\]", item)
        if not item or any(set("[] ") & set(part) for part in parts[::2]):
            raise ClusterError(
                f"SLURM_JOB_NODELIST={text}: {item!r}: not a node; expected such as node[01-16,20]"
            )
        choices = [_numbers(part, text) if odd % 2 else [part] for odd, part in enumerate(parts)]
        names += ["".join(each) for each in itertools.product(*choices)]
    if len(set(names)) < len(names):
        raise ClusterError(f"SLURM_JOB_NODELIST={text}: a node occurs twice; list each once")
    return names


def _numbers(ranges: str, text: str) -> list[str]:
    found = []
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not match or not first <= last < first + _MOST_HOSTS:
            raise ClusterError(f"SLURM_JOB_NODELIST={text}: {part!r}: not a range; expected such as 01-16")
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return found


def _per_node(environment: Mapping[str, str], nodes: int) -> list[int]:
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        number = environment.get(name, "").rpartition(":")[2]  # the number in `a100:8`
        if number.isdecimal() and int(number):
            return [int(number)] * nodes
    found: list[int] = []
    text = environment.get("SLURM_TASKS_PER_NODE", "")
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        found += [int(match[1])] * int(match[2] or 1) if match else []
    if len(found) != nodes:
        raise ClusterError(
            f"SLURM_TASKS_PER_NODE={text}: does not give the cards of {nodes} nodes; give them with --cards"
        )
    return found


def _inventory_of(hosts: Mapping[str, int], place: str) -> Inventory:
    found: list[dict[str, Any]] = [{"name": name, "cards": number} for name, number in hosts.items()]
    return parse({"hosts": found}, place)


def from_argument(source: str, cards: int | None) -> Inventory:
    """Return an inventory from ``local``, ``slurm`` or the path of a hostfile."""
    if source == "local":
        return local_inventory(cards)
    return slurm(os.environ, cards) if source == "slurm" else hostfile(Path(source), cards)
