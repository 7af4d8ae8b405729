"""A job to launch on a cluster: its program, ports and environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import Host, Inventory, is_ip

TORCHRUN_PORT = 29500
MSRUN_PORT = 8118
# Seconds that HCCL waits for the other ranks to start (its default is 120), and its first port on the host.
_CONNECT_TIMEOUT = 1200
HCCL_BASE_PORT = 60000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")


class File(NamedTuple):
    """A file to write.

    Attributes:
        name: its name.
        text: its text.
        mode: 0640, or 0750 for a script.
    """

    name: str
    text: str
    mode: int = 0o640


@dataclass(frozen=True)
class Job:
    """A job on all cards of an inventory.

    Attributes:
        inventory: the cluster.
        program: script and its arguments, as after ``torchrun``.
        port: of rank 0, where the others find it; None is the launcher's default.
        interface: network interface of the hosts for collectives; "" lets the library choose.
        directory: working directory on every host.
        rank_table: path of the rank table on every host; "" if there is none.
        variables: further variables of the environment, ``NAME=VALUE``.
    """

    inventory: Inventory
    program: list[str] = field(default_factory=list)
    port: int | None = None
    interface: str = ""
    directory: str = ""
    rank_table: str = ""
    variables: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Check the options.

        Raises:
            ClusterError: one is invalid.
        """
        if self.port is not None and not 1024 <= self.port <= 65535:
            raise ClusterError(f"--port {self.port}: expected 1024 to 65535, ports that need no privileges")
        if self.interface and not _INTERFACE.fullmatch(self.interface):
            raise ClusterError(
                f"--interface {self.interface!r}: not a network interface; `ip link` lists them"
            )
        for each in self.variables:
            name, equals, value = each.partition("=")
            if not equals or not _VARIABLE.fullmatch(name) or "\n" in value:
                raise ClusterError(
                    f"--env {each!r}: expected NAME=VALUE on one line, or the NAME of a variable of this environment"
                )
        if any("\n" in each or "\0" in each for each in (*self.program, self.directory, self.rank_table)):
            raise ClusterError("arguments with line breaks cannot be launched; put the text in a file")

    def origin(self, kind: str) -> str:
        """Return the comment in each script and unit of a kind, by which a later render recognizes it."""
        return f"# Made by isthmus cluster render {kind} for {self.inventory.name}"

    @property
    def master(self) -> str:
        """Address of rank 0."""
        return self.inventory.hosts[0].address

    @property
    def ascend(self) -> bool:
        """Whether the cards have network ports of their own, which HCCL uses."""
        return any(card.address for host in self.inventory.hosts for card in host.cards)

    def environment(self, host: Host, port: int) -> dict[str, str]:
        """Return the environment of the ranks of a host; its own variables replace ours, ``--env`` replaces both."""
        found = {"MASTER_ADDR": self.master, "MASTER_PORT": str(port)}
        indices = [card.index for card in host.cards]
        if indices != list(range(len(indices))):
            name = "ASCEND_RT_VISIBLE_DEVICES" if self.ascend else "CUDA_VISIBLE_DEVICES"
            found[name] = ",".join(map(str, indices))
        found |= self.collectives(host)
        if self.rank_table:
            found["RANK_TABLE_FILE"] = self.rank_table
        return found | host.environment | self.given

    def collectives(self, host: Host | None) -> dict[str, str]:
        """Return what HCCL or NCCL, and Gloo, need to know on a host; on any host for None."""
        library = "HCCL" if self.ascend else "NCCL"
        names = (f"{library}_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if self.interface else ()
        found = dict.fromkeys(names, self.interface)
        if self.ascend:
            found |= {"HCCL_CONNECT_TIMEOUT": str(_CONNECT_TIMEOUT), "HCCL_IF_BASE_PORT": str(HCCL_BASE_PORT)}
        if self.ascend and not self.interface and host and is_ip(host.address):
            found["HCCL_IF_IP"] = host.address
        return found

    @property
    def given(self) -> dict[str, str]:
        """The further variables."""
        return dict(each.split("=", 1) for each in self.variables)
