"""Calls the functions of the runtime's libraries with wrong arguments: an error code, never a crash or a hang.

Usage: python -m tools.ascend.fuzz [--seed N] [--calls N] [--only TEXT] [--every N]

Each function is called in a forked process of its own, with arguments drawn from null, live, destroyed and foreign
handles, views of any dtype, shape and stride, and numbers up to the ends of their types. Each function of
functions.table is also called as its tests call it, but for one argument or one size that is empty or degenerate. A
process that dies, does not end, or takes a large part of the host's memory is a failure, reported with the arguments
of its last call.
"""

import argparse
import mmap
import os
import random
import resource
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isthmus_ascend.generate.table import rows
from isthmus_common.text import signal_name
from tools.ascend.prototypes import prototypes
from tools.stopwatch import Stopwatch

SECONDS = 30  # time for one function
MOST_BYTES = 768 << 20  # that a process may take on top of what it starts with
ENVIRONMENT = {
    "ISTHMUS_ASCEND_DEVICES": "2",
    "ISTHMUS_ASCEND_MEMORY": "64MiB",
    "ISTHMUS_ASCEND_STRICT": "0",  # so that calls get as far as the kernels
    "HCCL_EXEC_TIMEOUT": "1",
    "HCCL_CONNECT_TIMEOUT": "1",
}
# Functions that affect the calling thread or the runtime's own, or have no end.
NOT_CALLED = ("isthmus_ascend_enqueue",)


@dataclass(frozen=True)
class Target:
    """One function to call: its name, and what makes `calls` calls of it, noting each before it is made."""

    name: str
    run: Callable[[random.Random, int, Callable[[str], None]], None]


def targets() -> Iterator[Target]:
    """Return every exported function: of the sources, then of functions.table; then each older operator."""
    from tools.ascend import fuzz_degenerate, fuzz_older, fuzz_operators, fuzz_runtime  # they import torch

    for prototype in prototypes():
        if prototype.name not in NOT_CALLED:
            yield Target(prototype.name, fuzz_runtime.caller(prototype))
    for row in rows():
        yield Target(f"aclnn{row.name}", fuzz_operators.caller(row))
        yield Target(f"degenerate aclnn{row.name}", fuzz_degenerate.caller(row))
    for name in fuzz_older.names():
        yield Target(f"older {name}", fuzz_older.caller(name))


def fuzz(target: Target, seed: int, calls: int) -> str | None:
    """Call one function in a forked process; return what went wrong, or None."""
    note = mmap.mmap(-1, 1 << 14)
    process = os.fork()
    if process == 0:
        os._exit(_in_child(target, seed, calls, note))
    status = _wait(process, SECONDS)
    text = note[:].split(b"\0", 1)[0].decode(errors="replace")
    if status == 0:
        return None
    what = f"killed by {signal_name(-status)}" if status < 0 else f"exited with {status}"
    return f"{target.name}: {what} (seed {seed}) in {text}"


def _wait(process: int, limit: float) -> int:
    """Return the exit status; of a process that does not end, that of its end by SIGALRM."""
    watch = Stopwatch()
    while watch.tick([process]) < limit:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return -signal.SIGALRM


def _in_child(target: Target, seed: int, calls: int, note: mmap.mmap) -> int:
    os.environ.update(ENVIRONMENT)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def write(text: str) -> None:
        data = text.encode()[: len(note) - 1]
        note[: len(data) + 1] = data + b"\0"

    try:
        target.run(random.Random(zlib.crc32(f"{seed} {target.name}".encode())), calls, write)
    except BaseException as error:
        write(f"{note[:].split(bytes(1), 1)[0].decode(errors='replace')}: {type(error).__name__}: {error}")
        return 3
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if taken > MOST_BYTES:
        write(f"one of its calls, which took {taken >> 20} MiB")
        return 4
    return 0


def failures(seed: int, calls: int, only: str = "", every: int = 1) -> Iterator[str]:
    """Fuzz functions whose names contain a text, one in `every`, one after another; yield what went wrong."""
    chosen = [target for target in targets() if only in target.name]
    for target in chosen[seed % every :: every]:
        failure = fuzz(target, seed, calls)
        if failure is not None:
            yield failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.ascend.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--calls", type=int, default=100, help="of each function (default: 100)")
    parser.add_argument("--only", default="", help="functions whose names contain this text")
    parser.add_argument("--every", type=int, default=1, help="one function in so many (default: all)")
    given = parser.parse_args()
    count = 0
    for failure in failures(given.seed, given.calls, given.only, given.every):
        count += 1
        print(failure, flush=True)
    print(f"fuzz: {count} functions failed" if count else "fuzz: all functions passed")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
