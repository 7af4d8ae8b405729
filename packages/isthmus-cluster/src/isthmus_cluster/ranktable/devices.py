"""Addresses of the Ascend devices of this machine."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import is_ip

CONFIGURATION = Path("/etc/hccn.conf")
_LINE = re.compile(r"\s*address_(\d+)\s*=\s*(\S+)\s*")


def addresses(devices: Sequence[str], configuration: Path = CONFIGURATION) -> dict[str, str]:
    """Return the address of each device: from ``hccn_tool``, else from its configuration file.

    Raises:
        ClusterError: neither has the address of a device, or it is no address.
    """
    found = {device: _from_tool(device) for device in devices}
    source = "hccn_tool"
    if not all(found.values()):
        found, source = _from_file(configuration), str(configuration)
    for device in devices:
        if not found.get(device):
            raise ClusterError(
                f"{source}: no address of device {device}; set it with `hccn_tool -i {device} -ip -s`, or leave "
                "the device out"
            )
        if not is_ip(found[device]):
            raise ClusterError(
                f"{source}: {found[device]!r}: not the address of device {device}; "
                f"`hccn_tool -i {device} -ip -s` sets it"
            )
    return {device: found[device] for device in devices}


def _from_tool(device: str) -> str:
    """Return the address that hccn_tool prints, as ``ipaddr:192.168.100.100``; "" without one."""
    try:
        run = subprocess.run(
            ["hccn_tool", "-i", device, "-ip", "-g"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.partition("\n")[0].partition(":")[2].strip()


def _from_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ClusterError(
            f"{path}: {error.strerror}, and hccn_tool gives no address; run this on a machine with Ascend devices, "
            "or give a copy of the file with --hccn_conf"
        ) from None
    return {match[1]: match[2] for match in map(_LINE.fullmatch, lines) if match}
