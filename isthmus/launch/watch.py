"""Watches over the ranks of a node: reads what they write, sees when they end, refreshes the status line."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from isthmus.launch import stacks
from isthmus.launch.progress import Progress
from isthmus.launch.terminal import Terminal

_PERIOD = 0.1  # seconds
_RECENT = 60.0  # seconds
_LONGEST = 1 << 20  # characters of a line that has not ended


@dataclass
class Rank:
    """A rank of this node in one attempt of the job; `stem` is the path of its files without their endings."""

    rank: int
    local_rank: int
    world_size: int
    attempt: int
    stem: Path
    pid: int = 0

    @property
    def stdout(self) -> Path:
        """What it writes to standard output."""
        return self.stem.with_name(f"{self.stem.name}.out")

    @property
    def stderr(self) -> Path:
        """What it writes to standard error."""
        return self.stem.with_name(f"{self.stem.name}.err")

    @property
    def error(self) -> Path:
        """Where a program that uses torchrun's ``record`` leaves its exception."""
        return self.stem.with_name(f"{self.stem.name}.error.json")


@dataclass
class Tail:
    """Lines of a file that is still written to; of a bar that redraws itself, the last state."""

    rank: Rank
    is_error: bool
    file: BinaryIO
    pending: str = ""
    _in_stack: bool = False

    def is_stack(self, line: str) -> bool:
        """Whether this line, the next, belongs to a stack that the launcher has asked for: it tells of it itself."""
        self._in_stack = line.startswith(stacks.START) or (self._in_stack and line.startswith(stacks.FRAMES))
        return self._in_stack

    def lines(self, is_last: bool) -> list[str]:
        """Lines that have come; the beginning of one only if `is_last`."""
        data = self.file.read()
        if not data and not (is_last and self.pending):
            return []
        text = self.pending + data.decode("utf-8", "replace")
        *found, self.pending = (_last_state(line) for line in text.split("\n"))
        if self.pending and (is_last or len(self.pending) > _LONGEST):
            found.append(self.pending)
            self.pending = ""
        return found


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


@dataclass
class Watch:
    """A thread that looks ten times a second. To be entered before the ranks start, and left after their end.

    Attributes:
        terminal: where lines and status go.
        progress: told of each line, asked for the status.
        shown: local ranks whose output is shown, ``0,1`` or ``all``; "" is rank 0.
        ranks: those of the present attempt.
    """

    terminal: Terminal
    progress: Progress
    shown: str
    ranks: list[Rank] = field(default_factory=list)
    _tails: list[Tail] = field(default_factory=list)
    _running: dict[int, Rank] = field(default_factory=dict)  # by the file descriptor of the process
    _ended: dict[int, float] = field(default_factory=dict)  # rank: seconds since the epoch
    _late: set[int] = field(default_factory=set)
    _stopped: set[int] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._run, name="isthmus watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: TracebackType | type[BaseException] | BaseException | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.drain()
        self.terminal.end()

    def start(self, ranks: list[Rank]) -> None:
        """Watch over these, which have just been started, and no longer over those before them."""
        self.drain()
        with self._lock:
            self._forget()
            self.ranks = ranks
            self.progress.start(ranks[0].world_size, [rank.rank for rank in ranks])
            for rank in ranks:
                # An error that is read late is shown late: standard error first.
                for path, is_error in ((rank.stderr, True), (rank.stdout, False)):
                    self._tails.append(Tail(rank, is_error, path.open("rb")))
                with contextlib.suppress(OSError):  # it has ended already
                    self._running[os.pidfd_open(rank.pid)] = rank

    def drain(self) -> None:
        """Show what has been written by now."""
        with self._lock:
            self._read(is_last=True)

    def ended_at(self, rank: Rank) -> float | None:
        """When it ended, in seconds since the epoch; None if that was not seen."""
        with self._lock:
            return self._ended.get(rank.rank)

    def iteration(self) -> int | None:
        """The last iteration that was reported."""
        return self.progress.iteration

    def was_stopped(self, rank: Rank) -> bool:
        """Whether it was stopped, as by SIGSTOP, when another rank failed."""
        return rank.rank in self._stopped

    def before_end(self) -> None:
        """A rank has failed, and the others are about to be ended: let them write where they are."""
        with self._lock:
            alive = list(self._running.values())
        for rank in alive:
            if _is_stopped(rank.pid):
                self._stopped.add(rank.rank)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.pid, signal.SIGCONT)
        stacks.ask({rank.pid: rank.stderr for rank in alive})

    def end_all(self) -> None:
        """End what is left of the ranks and of the processes that they have started."""
        now = time.time()
        for rank in self.ranks:
            # The number of a process that ended long ago may be another's by now.
            if now - self._ended.get(rank.rank, now) < _RECENT:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.pid, signal.SIGKILL)

    def _forget(self) -> None:
        for tail in self._tails:
            tail.file.close()
        for descriptor in self._running:
            os.close(descriptor)
        self._tails, self._running, self._ended, self._stopped = [], {}, {}, set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wait()
            with self._lock:
                self._read(is_last=False)
                self._refresh(time.time())

    def _refresh(self, now: float) -> None:
        alive = {rank.rank: rank for rank in self._running.values()}
        late = self.progress.late(now)
        late |= {
            number: f"rank {number} is stopped" for number, rank in alive.items() if _is_stopped(rank.pid)
        }
        self.terminal.status(self.progress.text(now, len(alive), late), is_new=False)
        if not self.terminal.is_live:  # where no status line is refreshed
            for number in sorted(late.keys() - self._late):
                self.terminal.tell(late[number])
        self._late = set(late)

    def _wait(self) -> None:
        """Wait for a rank to end, and for no longer than until it is time to look again."""
        poll = select.poll()
        with self._lock:
            for descriptor in self._running:
                poll.register(descriptor, select.POLLIN)
        ended = poll.poll(int(1000 * _PERIOD))
        now = time.time()
        with self._lock:
            for descriptor, _ in ended:
                if descriptor in self._running:
                    self._ended[self._running.pop(descriptor).rank] = now
                    os.close(descriptor)

    def _read(self, is_last: bool) -> None:
        """Show the lines that have come, and where the status line is printed, a new one for each iteration."""
        for tail in self._tails:
            for line in tail.lines(is_last):
                now = time.time()
                reported = self.progress.line(tail.rank.rank, line, now)
                if reported.is_new and self.terminal.prints_status:
                    text = self.progress.text(now, len(self._running), self.progress.late(now))
                    self.terminal.status(text, is_new=True)
                # Iterations are shown whichever rank reports them: with Megatron it is the last.
                is_shown = self._is_shown(tail.rank) or reported.is_new
                if (
                    is_shown
                    and not tail.is_stack(line)
                    and not (reported.is_iteration and self.terminal.prints_status)
                ):
                    self._show(tail, line)
            if tail.pending:
                self.progress.bar(tail.rank.rank, tail.pending, time.time())

    def _is_shown(self, rank: Rank) -> bool:
        if not self.shown:
            return rank.rank == 0
        return self.shown == "all" or str(rank.local_rank) in self.shown.split(",")

    def _show(self, tail: Tail, line: str) -> None:
        prefix = f"[rank {tail.rank.rank}] " if self.shown not in ("", "0") else ""
        self.terminal.line(tail.is_error, prefix + line)
