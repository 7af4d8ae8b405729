"""Ports of a job: the communication matrix of an inventory, and what listens on this machine."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isthmus_cluster.inventory import Inventory
from isthmus_cluster.render.job import HCCL_BASE_PORT, MSRUN_PORT, TORCHRUN_PORT
from isthmus_common.finding import Finding, ok, warning

_LISTEN = "0A"  # code of /proc/net/tcp for TCP_LISTEN
_HCCL_PORTS = 32  # from HCCL_IF_BASE_PORT, for the exchange of addresses (CANN's HCCL_IF_BASE_PORT)
_SSH = 22
Ports = tuple[int, int]


class Flow(NamedTuple):
    """A row of the communication matrix.

    Attributes:
        source, destination: hosts.
        ports: first and last port that the destination listens on.
        purpose: what for.
    """

    source: str
    destination: str
    ports: Ports
    purpose: str


def matrix(inventory: Inventory, port: int | None, ephemeral: Ports) -> list[Flow]:
    """Return who connects to whom in a job over all hosts, all over TCP.

    Args:
        inventory: the cluster.
        port: of rank 0; None for the launchers' defaults.
        ephemeral: ports that the kernel assigns, which NCCL and Gloo listen on.
    """
    hosts = inventory.hosts
    flows = [Flow("administrator", host.name, (host.port or _SSH,) * 2, "ssh") for host in hosts]
    masters = {port: "rendezvous"} if port else {TORCHRUN_PORT: "torchrun", MSRUN_PORT: "msrun"}
    for number, purpose in masters.items():
        flows += [Flow(host.name, hosts[0].name, (number, number), purpose) for host in hosts[1:]]
    ascend = any(card.address for host in hosts for card in host.cards)
    between = (HCCL_BASE_PORT, HCCL_BASE_PORT + _HCCL_PORTS - 1) if ascend else ephemeral
    what = "HCCL" if ascend else "NCCL and Gloo"
    for host in hosts if len(hosts) > 1 else ():
        flows.append(Flow("all hosts", host.name, between, what))
        if ascend:
            flows.append(Flow("all hosts", host.name, ephemeral, "Gloo"))
    return flows


def ephemeral_ports(root: Path = Path("/")) -> Ports:
    """Return the first and last port that the kernel assigns."""
    first, last = (root / "proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()
    return int(first), int(last)


class Listener(NamedTuple):
    """A socket that listens: address, port, and user id of its process."""

    address: str
    port: int
    user: int


def listeners(root: Path = Path("/")) -> Iterator[Listener]:
    """Yield the TCP sockets that listen on addresses other machines can reach (proc(5))."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (root / "proc/net" / name).read_text(encoding="utf-8").splitlines()[1:]
        except FileNotFoundError:  # no IPv6
            continue
        for fields in map(str.split, lines):
            host, _, port = fields[1].partition(":")
            address = _address(host)
            if fields[3] == _LISTEN and not address.is_loopback:
                yield Listener(str(address), int(port, 16), int(fields[7]))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address of /proc/net: 32-bit words in the byte order of the machine."""
    words = [int(text[index : index + 8], 16).to_bytes(4, sys.byteorder) for index in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return getattr(address, "ipv4_mapped", None) or address


def examine(flows: list[Flow], allowed: list[int], root: Path = Path("/")) -> Iterator[Finding]:
    """Compare what listens here with the communication matrix."""
    ranges = [flow.ports for flow in flows] + [(port, port) for port in allowed]
    unexpected = 0
    for socket in sorted(set(listeners(root))):
        if not any(first <= socket.port <= last for first, last in ranges):
            unexpected += 1
            where = f"port {socket.port} is open on {socket.address} (user {socket.user})"
            text = f"{where}, not in the communication matrix"
            yield warning("ports", text, f"bind it to 127.0.0.1, close it, or give --allow {socket.port}")
    if not unexpected:
        yield ok("ports", "every open port is in the communication matrix")
