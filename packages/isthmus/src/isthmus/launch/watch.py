"""The watch over the ranks of a node: reads their output, detects their end, refreshes the status line."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from isthmus.launch import stacks
from isthmus_common.processes import state
from isthmus_common.training.progress import Progress
from isthmus_common.training.terminal import Terminal

_PERIOD = 0.1  # seconds
_RECENT = 60.0  # seconds
_LONGEST = 1 << 20  # characters of a line that has not ended


@dataclass
class Rank:
    """A rank of this node in one attempt of the job; `stem` is the path of its files without suffixes."""

    rank: int
    local_rank: int
    world_size: int
    attempt: int
    stem: Path
    pid: int = 0

    @property
    def stdout(self) -> Path:
        """The file of its standard output."""
        return self.stem.with_name(f"{self.stem.name}.out")

    @property
    def stderr(self) -> Path:
        """The file of its standard error."""
        return self.stem.with_name(f"{self.stem.name}.err")

    @property
    def failure(self) -> Path:
        """The record of a failed collective."""
        return self.stem.with_name(f"{self.stem.name}.failure.json")

    @property
    def error(self) -> Path:
        """The exception of a program that uses torchrun's ``record`` decorator."""
        return self.stem.with_name(f"{self.stem.name}.error.json")


@dataclass
class Tail:
    """Reader of lines of a file that is still being written; of a progress bar, the last state."""

    rank: Rank
    is_error: bool
    file: BinaryIO
    pending: str = ""
    _in_stack: bool = False

    def is_stack(self, line: str) -> bool:
        """Whether the next line belongs to a stack that the launcher requested, which its summary shows."""
        self._in_stack = line.startswith(stacks.START) or (self._in_stack and line.startswith(stacks.FRAMES))
        return self._in_stack

    def read_lines(self, is_last: bool) -> list[str]:
        """Return new lines; an incomplete one only if `is_last`."""
        data = self.file.read()
        if not data and not (is_last and self.pending):
            return []
        text = self.pending + data.decode("utf-8", "replace")
        *found, self.pending = (_last_state(line) for line in text.split("\n"))
        if self.pending and (is_last or len(self.pending) > _LONGEST):
            found.append(self.pending)
            self.pending = ""
        return found


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


@dataclass
class Watch:
    """A thread that checks ten times a second. Enter it before the ranks start, and leave it after their end.

    Attributes:
        terminal: shows lines and status.
        progress: gets each line, and gives the status.
        shown: local ranks whose output is shown, ``0,1`` or ``all``; "" is rank 0.
        ranks: those of the current attempt.
    """

    terminal: Terminal
    progress: Progress
    shown: str
    ranks: list[Rank] = field(default_factory=list)
    _tails: list[Tail] = field(default_factory=list)
    _running: dict[int, Rank] = field(default_factory=dict)  # keyed by the file descriptor of the process
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

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.drain()
        self.terminal.end()

    def start(self, ranks: list[Rank]) -> None:
        """Watch over these ranks, which have just started, in place of earlier ones."""
        self.drain()
        with self._lock:
            self._forget()
            self.ranks = ranks
            self.progress.start(ranks[0].world_size, [rank.rank for rank in ranks])
            for rank in ranks:
                # Errors are shown first.
                for path, is_error in ((rank.stderr, True), (rank.stdout, False)):
                    self._tails.append(Tail(rank, is_error, path.open("rb")))
                with contextlib.suppress(OSError):  # it has already ended
                    self._running[os.pidfd_open(rank.pid)] = rank

    def drain(self) -> None:
        """Show all output so far."""
        with self._lock:
            self._read(is_last=True)

    def ended_at(self, rank: Rank) -> float | None:
        """The time at which it ended, in seconds since the epoch; None if unknown."""
        with self._lock:
            return self._ended.get(rank.rank)

    def iteration(self) -> int | None:
        """The last reported iteration, if any."""
        return self.progress.iteration

    def was_stopped(self, rank: Rank) -> bool:
        """Whether it was stopped, as by SIGSTOP, when another rank failed."""
        return rank.rank in self._stopped

    def request_stacks(self) -> None:
        """Let the other ranks write their stacks, before they are ended because one has failed."""
        with self._lock:
            alive = list(self._running.values())
        for rank in alive:
            if state(rank.pid) == "T":
                self._stopped.add(rank.rank)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.pid, signal.SIGCONT)
        stacks.ask({rank.pid: rank.stderr for rank in alive})

    def end_all(self) -> None:
        """Kill the remaining ranks and the processes that they started."""
        now = time.time()
        for rank in self.ranks:
            # The id of a process that ended long ago may have been reused.
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
        late = self.progress.late_ranks(now)
        late |= {
            number: f"rank {number} is stopped" for number, rank in alive.items() if state(rank.pid) == "T"
        }
        self.terminal.status(self.progress.text(now, len(alive), late), is_new=False)
        if not self.terminal.is_live:  # no status line is refreshed
            for number in sorted(late.keys() - self._late):
                self.terminal.print_line(late[number])
        self._late = set(late)

    def _wait(self) -> None:
        """Wait until a rank ends or the next check is due."""
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
        """Show new lines, and a new status line for each iteration where it is printed."""
        for tail in self._tails:
            for line in tail.read_lines(is_last):
                now = time.time()
                reported = self.progress.note_line(tail.rank.rank, line, now)
                if reported.is_new and self.terminal.prints_status:
                    text = self.progress.text(now, len(self._running), self.progress.late_ranks(now))
                    self.terminal.status(text, is_new=True)
                # Iterations are shown from any rank: with Megatron the last one reports them.
                is_shown = self._is_shown(tail.rank) or reported.is_new
                if (
                    is_shown
                    and not tail.is_stack(line)
                    and not (reported.is_iteration and self.terminal.prints_status)
                ):
                    self._show(tail, line)
            if tail.pending:
                self.progress.note_bar(tail.rank.rank, tail.pending)

    def _is_shown(self, rank: Rank) -> bool:
        if not self.shown:
            return rank.rank == 0
        return self.shown == "all" or str(rank.local_rank) in self.shown.split(",")

    def _show(self, tail: Tail, line: str) -> None:
        prefix = f"[rank {tail.rank.rank}] " if self.shown not in ("", "0") else ""
        self.terminal.line(tail.is_error, prefix + line)
