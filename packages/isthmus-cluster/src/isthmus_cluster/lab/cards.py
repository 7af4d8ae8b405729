"""``python -m isthmus_cluster.lab.cards KIND NAMESPACE CARD VALUE``: a card that is faulty until this process ends.

It acts on the processes in the namespace whose LOCAL_RANK is the card, also on those that start later: ``stop`` stops
them (SIGSTOP), ``slow`` lets them run a fraction of the time, ``corrupt`` flips bits in memory of the host chip that
they have written to. SIGTERM, or the end of the namespace, ends the fault. Imports no torch, no pydantic.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from isthmus_cluster.lab.network import NAMESPACES, processes
from isthmus_common.files import make_file

KINDS = {"stop": 1.0, "slow": 4.0, "corrupt": 10.0}  # with the value: times as slow, bit flips per second
_MODULE = "isthmus_cluster.lab.cards"
_PERIOD_S = 0.1
_PATIENCE_S = 5.0
_MEMORY = "/memfd:isthmus-host "


def start(kind: str, namespace: str, card: int, value: float, log: Path) -> None:
    """Start a fault; its log has a line for each bit flip."""
    make_file(log)
    with log.open("ab") as stream:
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, kind, namespace, str(card), str(value)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def find(namespace: str, card: int | None = None) -> dict[int, tuple[str, int]]:
    """Return the faults in a namespace: kind and card, by process."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            at = words.index(_MODULE) + 1 if entry.name.isdecimal() else len(words)
            kind, place, index = words[at : at + 3]
            if place == namespace and card in (None, int(index)):
                found[int(entry.name)] = kind, int(index)
    return found


def end(namespace: str, cards: int, card: int | None = None) -> None:
    """End the faults of a card, or of all cards of a host, and let their processes go on."""
    for pid in find(namespace, card):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE_S
    while (left := find(namespace, card)) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for each in range(cards) if card is None else [card]:
        _send(ranks(namespace, each), signal.SIGCONT)


def ranks(namespace: str, card: int) -> list[int]:
    """Return the processes of a card: those of the namespace with its LOCAL_RANK."""
    found = []
    for pid in processes(namespace):
        with contextlib.suppress(OSError):
            if f"LOCAL_RANK={card}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def main(kind: str, namespace: str, card: int, value: float) -> None:
    """Be faulty until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while (NAMESPACES / namespace).exists():
            pids = ranks(namespace, card)
            if kind == "corrupt":
                for pid in pids:
                    _flip(pid)
                time.sleep(1 / value)
                continue
            _send(pids, signal.SIGSTOP)
            if kind == "slow":
                time.sleep(_PERIOD_S * (1 - 1 / value))
                _send(pids, signal.SIGCONT)
            time.sleep(_PERIOD_S / value)
    finally:
        _send(ranks(namespace, card), signal.SIGCONT)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _flip(pid: int) -> None:
    """Flip a bit of the host chip's memory in a process, of a page that has been written to."""
    with contextlib.suppress(OSError):  # it ended
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if not str(entry.readlink()).startswith(_MEMORY):
                continue
            with entry.open("r+b", buffering=0) as memory:
                extents = list(_data(memory.fileno()))
                if not extents:
                    continue
                sizes = [last - first for first, last in extents]
                first, last = random.choices(extents, sizes)[0]
                offset, bit = random.randrange(first, last), random.randrange(8)
                byte = os.pread(memory.fileno(), 1, offset)[0]
                os.pwrite(memory.fileno(), bytes([byte ^ 1 << bit]), offset)
                print(f"{time.time():.3f} process {pid}: flipped bit {bit} of byte {offset:#x}", flush=True)


def _data(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a memory file that are in use."""
    end = os.fstat(descriptor).st_size
    last = 0
    while last < end:
        try:
            first = os.lseek(descriptor, last, os.SEEK_DATA)
        except OSError:  # ENXIO: no more
            return
        last = os.lseek(descriptor, first, os.SEEK_HOLE)
        yield first, last


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
