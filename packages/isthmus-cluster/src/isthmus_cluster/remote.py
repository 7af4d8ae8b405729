"""Ways to run a command for a host: on this machine, in a network namespace of it, or over ssh.

The only place that knows ssh.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping, Sequence

from isthmus_cluster.inventory import Host

# Options that suppress questions; a connection is lost after a minute of silence.
_SSH = (
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=4".split()
)
_NAMED = 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"'
# The environment comes by standard input: other users can read arguments.
_READ = 'IFS= read -r line && eval "$line" && exec "$@"'


def command(host: Host, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the local command line that runs a command on a host.

    Args:
        host: where.
        arguments: program and arguments; over ssh they are quoted for the shell of the host.
        variables: its environment; that of the host in the inventory if None. If there are any, the first line of
            standard input must be :func:`environment_line` of them.
    """
    if host.environment if variables is None else variables:
        arguments = ["sh", "-c", _READ, "sh", *arguments]
    if host.namespace:
        named = ["unshare", "--uts", "sh", "-c", _NAMED, host.name]
        return ["ip", "netns", "exec", host.namespace, *named, *arguments]
    if is_local(host.address):
        return list(arguments)
    port = ["-p", str(host.port)] if host.port else []
    target = f"{host.user}@{host.address}" if host.user else host.address
    return [*_SSH, *port, "--", target, shlex.join(arguments)]


def environment_line(variables: Mapping[str, str]) -> bytes:
    """Return the first line of standard input: an ``export`` command for the shell; empty without variables."""
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return os.fsencode(f"export {' '.join(words)}\n") if words else b""


def is_local(address: str) -> bool:
    """Whether an address or host name is one of this machine: a socket can be bound to it."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True
