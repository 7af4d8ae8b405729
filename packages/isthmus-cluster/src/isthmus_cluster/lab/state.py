"""The lab's folder: its state, the inventory, and for each host a folder of its own."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from isthmus_cluster import inventory
from isthmus_cluster.errors import ClusterError
from isthmus_common.files import make_folder, write_file

INTERFACE = "eth0"
_UNITS = {
    "rate": (r"\d+(\.\d+)?(bit|kbit|mbit|gbit)", "a rate such as 100kbit, 1mbit or 1gbit"),
    "delay": (r"\d+(\.\d+)?(us|ms|s)", "a time such as 500us or 1ms"),
    "loss": (r"(100|\d{1,2}(\.\d+)?)%", "a percentage such as 5%"),
}


def quantity(name: str, value: str) -> str:
    """Return a valid rate, delay or loss in the notation of tc(8).

    Raises:
        ClusterError: it is not one.
    """
    pattern, expected = _UNITS[name]
    if not re.fullmatch(pattern, value) or (name == "rate" and not float(re.split("[a-z]", value)[0])):
        raise ClusterError(f"{name} {value}: expected {expected}")
    return value


@dataclass
class Lab:
    """A lab as its state file describes it.

    Attributes:
        folder: where its files are.
        name: its namespaces are ``NAME-host1`` and so on, and ``NAME-bridge``.
        hosts, cards: number of hosts, and of cards of each.
        rate, delay: of all links, in the notation of tc(8); "" for unlimited and none.
        links: faults of links by their name, ``host1-host3``: ``down``, or values of rate, delay and loss.
    """

    folder: Path
    name: str
    hosts: int
    cards: int
    rate: str = ""
    delay: str = ""
    links: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of its hosts."""
        return [f"host{number}" for number in range(1, self.hosts + 1)]

    @property
    def bridge(self) -> str:
        """Namespace of the bridge."""
        return f"{self.name}-bridge"

    def namespace(self, host: str) -> str:
        """Return the namespace of a host."""
        return f"{self.name}-{host}"

    def address(self, host: str) -> str:
        """Return the address of a host; other labs have the same ones, in networks of their own."""
        return f"10.78.0.{host.removeprefix('host')}"

    def faults(self, host: str) -> dict[str, dict[str, str]]:
        """Return the faults of a host's links, by the other host."""
        ends = {name: name.split("-") for name in self.links}
        return {
            next(end for end in ends[name] if end != host): fault
            for name, fault in self.links.items()
            if host in ends[name]
        }

    @property
    def inventory(self) -> Path:
        """Path of the inventory."""
        return self.folder / "cluster.yaml"

    def write(self) -> None:
        """Write the state."""
        values = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_file(_state(self.folder), json.dumps(values, indent=1).encode() + b"\n")

    def write_inventory(self) -> None:
        """Make the hosts' folders and write the inventory.

        A folder of its own for run-time files gives each host a device account of its own: host chips with the same
        index do not share memory between hosts.
        """
        hosts = []
        for name in self.names:
            own = self.folder.absolute() / name
            make_folder(own)
            own.chmod(0o700)  # XDG_RUNTIME_DIR
            variables = {"ISTHMUS_HOST_DEVICES": str(self.cards), "XDG_RUNTIME_DIR": str(own)}
            hosts.append(
                {
                    "name": name,
                    "address": self.address(name),
                    "namespace": self.namespace(name),
                    "environment": variables,
                    "cards": self.cards,
                }
            )
        found = inventory.parse({"name": self.name, "hosts": hosts}, str(self.inventory))
        inventory.write(found, self.inventory)


def _state(folder: Path) -> Path:
    return folder / "lab.json"


def find(folder: Path) -> Lab | None:
    """Return the lab of a folder; None if there is none.

    Raises:
        ClusterError: its state file is invalid.
    """
    path = _state(folder)
    if not path.exists():
        return None
    try:
        return Lab(folder, **json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise ClusterError(f"{path}: not a state file of a lab; remove it, and see `ip netns list`") from None


def forget(lab: Lab) -> None:
    """Remove the state file; logs and inventory remain."""
    _state(lab.folder).unlink(missing_ok=True)
