"""``python -m isthmus_cluster.preflight.probe``: answers for a host. Imports torch only in the processes of cards."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import isthmus_common
from isthmus_cluster.agents import Agents, serve
from isthmus_common import hardening
from isthmus_common import limits as machine_limits
from isthmus_common.finding import Finding, State, fail, run_check
from isthmus_common.folders import folders

# Packages that a job computes or communicates with.
_PACKAGES = (
    "torch numpy triton apache-tvm-ffi torch-npu nvidia-nccl-cu12 nvidia-nccl-cu13 transformers tokenizers "
    "safetensors accelerate deepspeed megatron-core flash-attn apex transformer-engine mindspore"
).split()
_DRIVERS = {  # files with the version of a driver or its toolkit
    "NVIDIA driver": "/sys/module/nvidia/version",
    "AMD driver": "/sys/module/amdgpu/version",
    "Ascend driver": "/usr/local/Ascend/driver/version.info",
    "CANN": "/usr/local/Ascend/ascend-toolkit/latest/version.cfg",
}
_LIMITS = {
    "ulimit -n": resource.RLIMIT_NOFILE,
    "ulimit -u": resource.RLIMIT_NPROC,
    "ulimit -l": resource.RLIMIT_MEMLOCK,
    "ulimit -c": resource.RLIMIT_CORE,
}


def clock() -> dict[str, Any]:
    """Return the time of this host, in seconds since the epoch."""
    return {"time": time.time()}


def facts(*, checks: list[str], ports: list[int], paths: list[str]) -> dict[str, Any]:
    """Return what can be said without load.

    Args:
        checks: what is wanted.
        ports: that a job will listen on here.
        paths: folders that a job will use.

    Returns:
        ``versions`` and ``limits`` by name; ``space``: bytes free by place; ``findings`` about this host alone.
    """
    here: dict[str, Callable[[], Iterator[Finding]]] = {
        "limits": machine_limits.examine,
        "space": lambda: _absent_paths([] if "permissions" in checks else paths),
        "permissions": lambda: _permissions(paths),
        "ports": lambda: _ports(ports),
    }
    return {
        "versions": versions() if "versions" in checks else {},
        "limits": limits() if "limits" in checks else {},
        "space": space(paths) if "space" in checks else {},
        "findings": [
            [name, *finding[1:]]
            for name, examine in here.items()
            if name in checks
            for finding in run_check(examine, name, "run `isthmus doctor` on this host")
            if finding.state is not State.OK
        ],
    }


def versions() -> dict[str, str]:
    """Return versions of what is installed, by name."""
    found: dict[str, str] = {
        "Python": platform.python_version(),
        "Linux": platform.release(),
        "isthmus": isthmus_common.__version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for name, file in _DRIVERS.items():
        path = Path(file)
        if path.is_file():
            found[name] = " ".join(path.read_text(encoding="utf-8", errors="replace").split())[:80]
    return found


def limits() -> dict[str, str]:
    """Return soft limits of this process, in the units of setrlimit(2), by option of ulimit."""
    soft = {name: resource.getrlimit(which)[0] for name, which in _LIMITS.items()}
    return {
        name: "unlimited" if value == resource.RLIM_INFINITY else str(value) for name, value in soft.items()
    }


def space(paths: list[str]) -> dict[str, int]:
    """Return the free bytes of memory, of /dev/shm, and of the disks of some folders."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    found = {"memory": int(available) * 1024}
    for path in ["/dev/shm", tempfile.gettempdir(), *paths]:
        if Path(path).exists():
            found[path] = shutil.disk_usage(path).free
    return found


def _absent_paths(paths: list[str]) -> Iterator[Finding]:
    for path in paths:
        if not Path(path).exists():
            yield fail("", f"{path}: no such file or directory", "mount or copy it, or correct --path")


def _permissions(paths: list[str]) -> Iterator[Finding]:
    from isthmus_cluster import permissions

    yield from hardening.umask()
    yield from hardening.user()
    yield from folders()
    for path in filter(Path.exists, map(Path, paths)):
        if not os.access(path, os.R_OK | os.W_OK):
            yield fail("", f"{path}: this user cannot write to it", "give it to the user who runs jobs")
        yield from permissions.findings(
            path, list(permissions.open_files(path, shared=False, deployed=False))
        )
    yield from _absent_paths(paths)


def _ports(ports: list[int]) -> Iterator[Finding]:
    for port in ports:
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            remedy = f"`ss -ltnp 'sport = {port}'` names its process; end it, or give another --port"
            yield fail("", f"port {port}: {error.strerror}", remedy)


_listeners: list[socket.socket] = []


def listen(*, port: int) -> dict[str, Any]:
    """Listen on a port until this process ends."""
    _listeners.append(socket.create_server(("", port), backlog=1024))
    return {}


def reach(*, address: str, port: int, seconds: float) -> dict[str, Any]:
    """Connect to a port of another host."""
    socket.create_connection((address, port), seconds).close()
    return {}


_started: list[Agents] = []


def on_cards(*, what: str, cards: list[int], limit: float, **load: Any) -> dict[str, Any]:
    """Call a function of :mod:`isthmus_cluster.preflight.card` for each card, in a process of its own.

    Args:
        what: name of the function.
        cards: device index of each card.
        limit: seconds for an answer.
        load: further arguments of the function.

    Returns:
        ``answers`` and ``errors`` by local rank; a card with an error is not asked again.
    """
    if not _started:
        ranks = list(map(str, range(len(cards))))
        threads = os.environ.get("OMP_NUM_THREADS", "1")  # torchrun does the same
        shared = {"LOCAL_WORLD_SIZE": str(len(cards)), "OMP_NUM_THREADS": threads}
        environments = {rank: {"LOCAL_RANK": rank, **shared} for rank in ranks}
        command = [sys.executable, "-m", "isthmus_cluster.preflight.card"]
        _started.append(Agents(dict.fromkeys(ranks, command), environments))
    (agents,) = _started
    with tempfile.TemporaryDirectory() if what == "collectives" else nullcontext("") as folder:
        each = {"ask": what, "size": len(agents.alive), "folder": folder, **load}
        requests = {
            local: {**each, "rank": rank, "index": cards[int(local)]}
            for rank, local in enumerate(agents.alive)
        }
        found = agents.ask(requests, limit)
    for local, answer in found.items():
        if answer.error:
            agents.drop(local, answer.error)
    return {
        "answers": {local: answer.value for local, answer in found.items() if not answer.error},
        "errors": {local: agents.lost[local] for local in requests if local in agents.lost},
    }


if __name__ == "__main__":
    serve({each.__name__: each for each in (clock, facts, listen, reach, on_cards)})
