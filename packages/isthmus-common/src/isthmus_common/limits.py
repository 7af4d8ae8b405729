"""Check system limits of this process: processes, files, memory, CPUs; and address randomisation."""

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isthmus_common import hardening
from isthmus_common.finding import Finding, ok, run_checks, warning
from isthmus_common.units import GIB

_SUBJECT = "limits"


class _Limit(NamedTuple):
    """A limit of setrlimit(2); ``need`` is in the units of ``ulimit``, for memory ``unit`` bytes."""

    option: str
    resource: int
    what: str
    need: int
    why: str
    unit: int = 1


_LIMITS = (
    _Limit("u", resource.RLIMIT_NPROC, "processes and threads", 4096, "each rank starts one thread per core"),
    _Limit("n", resource.RLIMIT_NOFILE, "open files", 4096, "DataLoader workers share tensors as files"),
    _Limit(
        "v",
        resource.RLIMIT_AS,
        "KiB of address space",
        256 << 20,
        "the address range of device memory is reserved",
        1024,
    ),
)


def examine() -> Iterator[Finding]:
    """Check limits of the process, its control group and shared memory, and address randomisation."""
    yield from run_checks(_SUBJECT, _process, _memory, _groups_here, hardening.random_addresses)


def _process() -> Iterator[Finding]:
    yield from map(_limit, _LIMITS)


def _memory() -> Iterator[Finding]:
    yield _locked_memory(Path("/sys/class/infiniband"))
    yield _shared_memory(Path("/dev/shm"))


def _groups_here() -> Iterator[Finding]:
    yield from _control_group(Path("/"))


def _limit(limit: _Limit) -> Finding:
    soft, hard = (_in_units(value, limit.unit) for value in resource.getrlimit(limit.resource))
    text = f"{_amount(soft)} {limit.what} (ulimit -{limit.option})"
    if soft is None or soft >= limit.need:
        return ok(_SUBJECT, text)
    if hard is None or hard >= limit.need:
        remedy = f"`ulimit -{limit.option} {limit.need}` before the job"
    else:
        remedy = f"allow {limit.need} in /etc/security/limits.conf, or with the container's --ulimit"
    return warning(_SUBJECT, f"{text} may not be enough: {limit.why}", remedy)


def _in_units(value: int, unit: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value // unit


def _amount(value: int | None) -> str:
    return "unlimited" if value is None else str(value)


def _locked_memory(adapters: Path) -> Finding:
    """Check the limit of locked memory, which includes pinned buffers of network adapters."""
    kib = _in_units(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], 1024)
    text = f"{_amount(kib)} KiB of locked memory (ulimit -l)"
    if kib is None or not adapters.is_dir() or not any(adapters.iterdir()):
        return ok(_SUBJECT, text)
    remedy = "`ulimit -l unlimited`, or the container's --ulimit memlock=-1"
    return warning(_SUBJECT, f"{text}: transfers over the RDMA adapters may fail", remedy)


def _shared_memory(folder: Path) -> Finding:
    remedy = "start the container with --ipc=host or --shm-size=8g"
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        text = f"{folder} is not writable; DataLoader workers and ranks share memory there"
        return warning(_SUBJECT, text, remedy)
    total, _, free = shutil.disk_usage(folder)
    text = f"{folder}: {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= GIB:
        return ok(_SUBJECT, text)
    return warning(_SUBJECT, f"{text}: a DataLoader worker is killed by SIGBUS when it is full", remedy)


def _control_group(root: Path) -> Iterator[Finding]:
    """Check the limits of control groups, versions 1 and 2."""
    memory = _lowest_limit(root, "memory", ("memory.max", "memory.limit_in_bytes"))
    if memory is not None and memory < 1 << 60:  # version 1 has a huge number for no limit
        yield _group_memory(memory)
    processes = _lowest_limit(root, "pids", ("pids.max",))
    if processes is not None and processes < _LIMITS[0].need:
        text = f"the control group allows {processes} processes and threads"
        yield warning(_SUBJECT, f"{text}: {_LIMITS[0].why}", "raise the container's --pids-limit")
    yield _cpus(_quota(root))


def _group_memory(limit: int) -> Finding:
    text = f"the control group allows {limit / GIB:.1f} GiB of memory"
    if limit >= 2 * GIB:
        return ok(_SUBJECT, text)
    return warning(_SUBJECT, f"{text}: PyTorch alone uses much of it", "raise the container's --memory")


def _lowest_limit(root: Path, controller: str, names: tuple[str, ...]) -> int | None:
    """Return the lowest limit of this process's group and its ancestors."""
    files = [folder / name for folder in _group_folders(root, controller) for name in names]
    numbers = [_number(_text(file)) for file in files]
    return min((number for number in numbers if number is not None), default=None)


def _quota(root: Path) -> float | None:
    """Return the number of CPUs that the control groups allow, or None without a limit."""
    quotas = []
    for folder in _group_folders(root, "cpu"):
        version_1 = [_text(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        quota, period = map(_number, _text(folder / "cpu.max").split() or version_1)
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _group_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group and its ancestors, for both versions."""
    lines = [line.split(":", 2) for line in _text(root / "proc/self/cgroup").splitlines()]
    groups = {name: path for _, names, path in lines for name in names.split(",")}  # "" is version 2
    base = root / "sys/fs/cgroup"
    for top, group in ((base, groups.get("", "/")), (base / controller, groups.get(controller, "/"))):
        folder = top / group.lstrip("/")
        yield from (above for above in (folder, *folder.parents) if above.is_relative_to(top))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _cpus(quota: float | None) -> Finding:
    """Check the CPU quota: PyTorch ignores it and starts a thread for each CPU of its affinity mask."""
    here = len(os.sched_getaffinity(0))
    if quota is None or quota >= here:
        return ok(_SUBJECT, f"{here} CPUs")
    text = f"{here} CPUs; the control group allows {quota:.1f}"
    if os.environ.get("OMP_NUM_THREADS"):
        return ok(_SUBJECT, text)
    remedy = f"OMP_NUM_THREADS={max(1, int(quota))}"
    return warning(_SUBJECT, f"{text}: PyTorch starts {here} threads, which compete for CPU time", remedy)
