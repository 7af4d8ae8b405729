"""Run functions as another Unix user, and find what the processes of a job listen on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")


def as_nobody(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a child process of the user nobody, or its error as text."""
    return in_child(function, *arguments, user=NOBODY)


def in_child(function: Callable[..., Any], *arguments: Any, user: int = -1) -> Any:
    """Return what a function returns in a forked process, or its error as text; both pass through JSON."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            if user >= 0:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            result = function(*arguments)
        except BaseException as error:
            result = traceback.format_exception_only(error)[-1].strip()
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def processes(pid: int) -> Iterator[int]:
    """A process and all that it has started."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes(int(child))


def listening_addresses(pid: int) -> set[tuple[str, int]]:
    """Addresses, as /proc/net writes them, and ports that a process and its descendants listen on, TCP and UDP."""
    own = set()
    for each in processes(pid):
        for descriptor in Path(f"/proc/{each}/fd").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # closed since
                if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                    own.add(match[1])
    found = set()
    for name, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in own:
                address, _, port = fields[1].partition(":")
                found.add((address, int(port, 16)))
    return found


def is_loopback(address: str) -> bool:
    """Whether an address of /proc/net is in 127.0.0.0/8 or ::1, on a little-endian machine."""
    return address[-2:] == "7F" if len(address) == 8 else address == "0" * 24 + "01000000"
