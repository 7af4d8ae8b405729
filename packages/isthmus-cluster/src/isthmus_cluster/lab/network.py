"""Namespaces of a lab, the bridge between them, and the shapes of its links.

All devices are inside namespaces and are removed with them. A host shapes what it sends: htb limits rates, netem
delays and drops. A link that is down has a neighbour entry with an address that no device has: packets are lost
without an error, as on a broken cable.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.lab.state import INTERFACE, Lab
from isthmus_common.files import make_folder, write_file

NAMESPACES = Path("/run/netns")
_ETC = Path("/etc/netns")  # files that `ip netns exec` puts in the place of those of /etc
_UNLIMITED = "100gbit"
_NOBODY = "02:00:00:00:00:00"
_FIRST_CLASS = 16  # classes of htb with the faults of links; those below are the lab's own


def check() -> None:
    """Check that namespaces can be made.

    Raises:
        ClusterError: not root, or without iproute2.
    """
    if os.geteuid():
        raise ClusterError("isthmus cluster lab makes network namespaces, which needs root; run it with sudo")
    for program in ("ip", "tc"):
        if not shutil.which(program):
            raise ClusterError(f"{program}: no such program; install the package iproute2")


def make(lab: Lab) -> None:
    """Make the namespaces of a lab and their links.

    Raises:
        ClusterError: the kernel or the permissions do not allow it; what was made is removed.
    """
    try:
        for namespace in (lab.bridge, *map(lab.namespace, lab.names)):
            _ip("netns", "add", namespace)
        _ip("-n", lab.bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", lab.bridge, "link", "set", "bridge", "up")
        # Sockets of PyTorch ask for the name of the IPv4-mapped address.
        addresses = [(prefix + lab.address(host), host) for host in lab.names for prefix in ("", "::ffff:")]
        names = [f"{address} {host}" for address, host in addresses]
        text = "\n".join(["127.0.0.1 localhost", "::1 localhost", *names, ""])
        for host in lab.names:
            own = _ETC / lab.namespace(host)
            make_folder(own)
            write_file(own / "hosts", text.encode())
            inside = ("-n", lab.namespace(host))
            peer = ("peer", "name", INTERFACE, "netns", lab.namespace(host))
            _ip("-n", lab.bridge, "link", "add", host, "type", "veth", *peer)
            _ip("-n", lab.bridge, "link", "set", host, "master", "bridge", "up")
            _ip(*inside, "address", "add", f"{lab.address(host)}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip(*inside, "link", "set", interface, "up")
        if lab.delay:
            need_netem(lab)
        for host in lab.names:
            shape(lab, host)
    except BaseException:
        remove(lab)
        raise


def remove(lab: Lab) -> None:
    """End the processes in a lab and remove its namespaces; absent ones are ignored."""
    for namespace in (*map(lab.namespace, lab.names), lab.bridge):
        if (NAMESPACES / namespace).exists():
            for pid in processes(namespace):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _ip("netns", "delete", namespace)
        shutil.rmtree(_ETC / namespace, ignore_errors=True)


def processes(namespace: str) -> Iterator[int]:
    """Yield the processes in a namespace."""
    try:
        inside = (NAMESPACES / namespace).stat().st_ino
    except FileNotFoundError:
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "ns/net").stat().st_ino == inside:
                    yield int(entry.name)


def need_netem(lab: Lab) -> None:
    """Check that the kernel can delay and drop packets.

    Raises:
        ClusterError: it cannot.
    """
    device = ("-n", lab.bridge, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    if subprocess.run(["tc", *device], capture_output=True, check=False).returncode:
        raise ClusterError(
            "delay and loss need netem, which this kernel lacks (CONFIG_NET_SCH_NETEM); use rate= or down"
        )
    _run(["tc", "-n", lab.bridge, "qdisc", "delete", "dev", "lo", "root"])


def shape(lab: Lab, host: str) -> None:
    """Give the links of a host their rates, delays and faults in the direction from it."""
    namespace, faults = lab.namespace(host), lab.faults(host)
    subprocess.run(
        ["tc", "-n", namespace, "qdisc", "delete", "dev", INTERFACE, "root"], capture_output=True, check=False
    )
    if lines := tc_lines(lab, host):
        _run(["tc", "-n", namespace, "-batch", "-"], "".join(f"{line}\n" for line in lines))
    for other in lab.names:
        entry = [lab.address(other), "dev", INTERFACE]
        if "down" in faults.get(other, {}):
            _ip("-n", namespace, "neigh", "replace", *entry, "lladdr", _NOBODY, "nud", "permanent")
        elif other != host:
            remove = ["ip", "-n", namespace, "neigh", "delete", *entry]
            subprocess.run(remove, capture_output=True, check=False)


def tc_lines(lab: Lab, host: str) -> list[str]:
    """Return the lines for tc that shape the links of a host; none if all are unlimited."""
    faults = {other: fault for other, fault in lab.faults(host).items() if "down" not in fault}
    if not faults and not lab.rate and not lab.delay:
        return []
    whole = lab.rate or _UNLIMITED
    lines = [
        f"qdisc add dev {INTERFACE} root handle 1: htb default 2",
        f"class add dev {INTERFACE} parent 1: classid 1:1 htb rate {whole} quantum 60000",
        *_class(2, whole, lab.delay, ""),
    ]
    for number, other in enumerate(lab.names, _FIRST_CLASS):
        if other in faults:
            fault = faults[other]
            lines += _class(
                number, fault.get("rate", whole), fault.get("delay", lab.delay), fault.get("loss", "")
            )
            lines.append(
                f"filter add dev {INTERFACE} parent 1: protocol ip prio {number} u32 "
                f"match ip dst {lab.address(other)}/32 flowid 1:{number:x}"
            )
    return lines


def _class(number: int, rate: str, delay: str, loss: str) -> list[str]:
    lines = [f"class add dev {INTERFACE} parent 1:1 classid 1:{number:x} htb rate {rate} quantum 60000"]
    if netem := " ".join(f"{name} {value}" for name, value in (("delay", delay), ("loss", loss)) if value):
        lines.append(f"qdisc add dev {INTERFACE} parent 1:{number:x} handle {number:x}: netem {netem}")
    return lines


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        first = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise ClusterError(f"`{' '.join(command)}`: {first}; is the kernel built with what it uses?")
