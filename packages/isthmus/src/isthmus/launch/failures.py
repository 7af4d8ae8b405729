"""Failures of ranks of a job: exit status, traceback and record. Nothing here imports torch."""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.launch import stacks
from isthmus.launch.watch import Rank
from isthmus_common.text import signal_name

_TAIL = 1 << 16  # bytes read from the end of a file
_LINES = 24
_MESSAGE = 12  # lines of an exception's message
_PREFIX = re.compile(r"^\[rank\d+\]:(?: |$)", re.MULTILINE)  # torch.distributed puts it before tracebacks
# Lines that end a message of several lines where no prefix does: C++ stacks, logs and the end of a process.
_NO_MESSAGE = re.compile(
    r"Exception raised from |Stack \(most recent|Fatal Python error|Exception ignored |terminate called |isthmus: |"
    r"\[[WEIFC]\d{3,4}[ :]|\[rank\d+\]|\S+:\d+: \w*Warning: |Terminated$|Aborted|Killed$"
)
# An exception in a destructor is no failure. The name of a callback may have several lines.
_IGNORED = re.compile(r"Exception ignored (?:[^\n]*|in: (?:(?!^\S*Error|^Traceback).)*[>)])\n\Z", re.M | re.S)
_PLACE = "It was executing, innermost call first:"
_TRACEBACK = "Traceback (most recent call last):"

# Messages of gloo, NCCL and torch.distributed's store, which leave no record: the ranks that they name, and the
# errors of a rank whose peer is missing.
_NAMED_BY_GLOO = re.compile(r"Ranks? ([\d, ]*\d) failed to pass monitoredBarrier")
_PEER_ERROR = re.compile(
    r"Connection (?:closed|reset|refused) by peer|Connection reset|Broken pipe|remote process exited|"
    r"failed to recv, got 0 bytes|recvValue failed|sendBytes failed|Timed out waiting \d+ ?ms for|"
    r"collective operation timeout"
)
_PEER_KINDS = ("timeout", "peer_lost", "aborted")


@dataclass(frozen=True)
class Record:
    """The failure of a collective, as Isthmus' collectives write it to the file ISTHMUS_FAILURE_FILE.

    Attributes:
        group: name of the process group.
        kind: timeout, peer_lost, aborted, mismatch or error.
        message: what the operation raised.
        ranks: ranks of the job that are missing or lost, also by the account of the group's first failure.
        processes: processes that are lost, likewise.
    """

    group: str
    kind: str
    message: str
    ranks: frozenset[int] = frozenset()
    processes: frozenset[int] = frozenset()

    @classmethod
    def read_all(cls, path: Path, process: int) -> list[Record]:
        """Read the records of a process, one for each group that failed, in the order of their failures.

        Lines that are malformed, and those of children of the process, are ignored.
        """
        by_group: dict[str, Record] = {}
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:  # the process was killed, or has failed otherwise
            return []
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                found = json.loads(line)
                if found["process"] == process:
                    record = cls._parse(found)
                    by_group[record.group] = record
        return list(by_group.values())

    @classmethod
    def _parse(cls, found: dict[str, Any]) -> Record:
        accounts = [found, *([found["first"]] if "first" in found else [])]
        ranks, processes = (
            frozenset(int(each) for account in accounts for each in account[name])
            for name in ("ranks", "processes")
        )
        return cls(str(found["group"]), str(found["kind"]), str(found["message"]), ranks, processes)

    def explains(self, traceback: str) -> bool:
        """Whether a traceback, or "" for none, is of this failure; a rank may fail by itself after it, or before."""
        raised = next((line for line in traceback.splitlines()[1:] if not line.startswith((" ", "\t"))), "")
        said = raised.partition(": ")[2]
        return (
            not traceback
            or self.message.partition("\n")[0] in traceback
            or bool(said and said in self.message)
        )


@dataclass(frozen=True)
class Failure:
    """The end of a rank.

    Attributes:
        rank: the rank.
        exit_code: its exit status, or minus the number of a signal.
        ended_at: seconds since the epoch; infinite if unknown.
        lines: its traceback, or else the last lines that it wrote.
        missing: ranks that it reports as missing.
        lost_processes: processes that it reports as lost, if it cannot tell their ranks.
        lost_peer: it reports that some rank is missing.
        timed_out: its record is of a timeout.
        was_stopped: it was stopped, as by SIGSTOP, when another rank failed.
    """

    rank: Rank
    exit_code: int
    ended_at: float = math.inf
    lines: tuple[str, ...] = ()
    missing: frozenset[int] = frozenset()
    lost_processes: frozenset[int] = frozenset()
    lost_peer: bool = False
    timed_out: bool = False
    was_stopped: bool = False

    @classmethod
    def read(cls, rank: Rank, failure: Any, ended_at: float | None, was_stopped: bool) -> Failure:
        """Read torchrun's failure, which is None for a rank that succeeded, and the files of the rank."""
        written = _tail(rank.stderr)
        traceback = _last_traceback(written)
        records = Record.read_all(rank.failure, rank.pid)
        record = next((each for each in records if each.explains("\n".join(traceback))), None)
        lines = _last_lines(rank, written, traceback, record)
        text = "\n".join(lines)
        named = " ".join(_NAMED_BY_GLOO.findall(text))
        missing = {int(number) for number in re.findall(r"\d+", named)} | (record.ranks if record else set())
        return cls(
            rank,
            0 if failure is None else failure.exitcode,
            math.inf if ended_at is None else ended_at,
            tuple(lines),
            frozenset(missing - {rank.rank}),
            record.processes if record and not missing else frozenset(),
            _reports_lost_peer(text, record),
            record is not None and record.kind == "timeout",
            was_stopped,
        )

    @property
    def is_consequence(self) -> bool:
        """Whether it failed because another rank was missing, by its own account."""
        return self.lost_peer and self.exit_code not in (0, -signal.SIGKILL)

    @property
    def how(self) -> str:
        """``SIGKILL`` or ``exit status 3``."""
        if self.exit_code >= 0:
            return f"exit status {self.exit_code}"
        return signal_name(-self.exit_code)

    @property
    def message(self) -> str:
        """The last line of the traceback, or ""."""
        if not self.lines or not self.lines[0].startswith(_TRACEBACK):
            return ""
        return next((line for line in self.lines[1:] if not line.startswith(" ")), "")


def _reports_lost_peer(text: str, record: Record | None) -> bool:
    by_record = record is not None and record.kind in _PEER_KINDS
    return by_record or bool(_NAMED_BY_GLOO.search(text) or _PEER_ERROR.search(text))


def _last_lines(rank: Rank, written: str, traceback: list[str], record: Record | None) -> list[str]:
    """The last traceback or stack of a rank, or else the last lines of its standard error, or else of its output."""
    errors = _PREFIX.sub("", written)
    stack = stacks.last_stack(errors)
    # A rank that is ending because a peer is missing may still be running when it is asked for its stack.
    if stack and not (traceback and _reports_lost_peer("\n".join(traceback), record)):
        return _shorten([*traceback, _PLACE, *stack])
    if traceback:
        return _shorten(traceback)
    recorded = _recorded_traceback(rank.error)
    return _shorten(recorded or errors.splitlines() or _tail(rank.stdout).splitlines(), last=True)


def _last_traceback(written: str) -> list[str]:
    """The last traceback with the message of its exception, which may have several lines; [] without one."""
    before, raised, after = written.rpartition(_TRACEBACK)
    while raised and _IGNORED.search(before):
        before, raised, after = before.rpartition(_TRACEBACK)
    if not raised:
        return []
    lines = after.splitlines()[1:]
    prefix = _PREFIX.match(before.rpartition("\n")[2])
    if prefix:  # prefix of each line that is not empty
        others = (i for i, line in enumerate(lines) if line and not line.startswith(prefix[0]))
        lines = [line.removeprefix(prefix[0]) for line in lines[: next(others, len(lines))]]
    start = next((i for i, line in enumerate(lines) if not line.startswith((" ", "\t"))), len(lines))
    ends = (i for i, line in enumerate(lines) if i > start and _NO_MESSAGE.match(line))
    message = "\n".join(lines[start : next(ends, len(lines))]).rstrip().splitlines()
    more = ["..."] if len(message) > _MESSAGE else []
    return [_TRACEBACK, *lines[:start], *message[:_MESSAGE], *more]


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _recorded_traceback(path: Path) -> list[str]:
    """The traceback that torchrun's ``record`` decorator wrote."""
    try:
        message = json.loads(path.read_bytes())["message"]
        text = message if isinstance(message, str) else message["extraInfo"]["py_callstack"]
        return str(text).splitlines()
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _shorten(lines: list[str], last: bool = False) -> list[str]:
    if len(lines) <= _LINES:
        return lines
    return lines[-_LINES:] if last else [*lines[:2], "  ...", *lines[3 - _LINES :]]
