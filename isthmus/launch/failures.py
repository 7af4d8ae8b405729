"""Which rank of a job failed first, and what there is to say of it. Nothing here imports torch."""

from __future__ import annotations

import json
import math
import re
import signal
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.launch import stacks
from isthmus.launch.watch import Rank

_TAIL = 1 << 16  # bytes of a file that are looked at
_LINES = 24
_AT_ONCE = 5.0  # seconds
_OTHERS = 8
_MESSAGE = 12  # lines of an exception's message
_PREFIX = re.compile(r"^\[rank\d+\]:(?: |$)", re.MULTILINE)  # torch.distributed puts it before tracebacks
# What is not of a message of several lines, where no prefix says so: C++ stacks, logs and what ends a process.
_NO_MESSAGE = re.compile(
    r"Exception raised from |Stack \(most recent|Fatal Python error|Exception ignored |terminate called |isthmus: |"
    r"\[[WEIFC]\d{3,4}[ :]|\[rank\d+\]|\S+:\d+: \w*Warning: |Terminated$|Aborted|Killed$"
)
_PLACE = "It was here, innermost call first:"
_TRACEBACK = "Traceback (most recent call last):"

# What collectives say of a rank that is missing: by its process, which is sure, or by its number in the group.
_ENDED = re.compile(r"rank (\d+) \(process (\d+)\) (?:has ended|destroyed its communicator)")
_ABSENT = re.compile(
    r"\brank (\d+) (?:did not arrive|is silent|has enqueued nothing)"
    r"|ranks did not come: ([\d, ]*\d)"
    r"|Ranks? ([\d, ]*\d) failed to pass monitoredBarrier"
)
# And what they, and the store, say where they know no more than that somebody is.
_LOST = re.compile(
    r"Connection (?:closed|reset|refused) by peer|Connection reset|Broken pipe|remote process exited|"
    r"store does not answer|failed to recv, got 0 bytes|recvValue failed|sendBytes failed|"
    r"Timed out waiting \d+ ?ms for|collective operation timeout|was aborted|has ended|destroyed its communicator"
)


@dataclass(frozen=True)
class Failure:
    """How a rank ended.

    Attributes:
        rank: the rank.
        exit_code: its exit status, or minus the number of a signal.
        ended_at: seconds since the epoch; infinite if that was not seen.
        lines: its traceback, or else the last lines that it wrote.
        absent: numbers of ranks that it says were missing.
        ended: ranks and their processes that it says have ended.
        lost: it says that some rank is missing.
        was_stopped: it was stopped, as by SIGSTOP, when another rank failed.
    """

    rank: Rank
    exit_code: int
    ended_at: float = math.inf
    lines: tuple[str, ...] = ()
    absent: frozenset[int] = frozenset()
    ended: frozenset[tuple[int, int]] = frozenset()
    lost: bool = False
    was_stopped: bool = False

    @classmethod
    def read(cls, rank: Rank, failure: Any, ended_at: float | None, was_stopped: bool) -> Failure:
        """From torchrun's failure, which is None if the rank ended well, and from the files of the rank."""
        lines = _last_lines(rank)
        text = "\n".join(lines)
        absent = {
            int(number)
            for found in _ABSENT.findall(text)
            for number in re.findall(r"\d+", " ".join(filter(None, found)))
        }
        return cls(
            rank,
            0 if failure is None else failure.exitcode,
            math.inf if ended_at is None else ended_at,
            tuple(lines),
            frozenset(absent - {rank.rank}),
            frozenset((int(number), int(process)) for number, process in _ENDED.findall(text)),
            bool(_LOST.search(text)),
            was_stopped,
        )

    @property
    def is_consequence(self) -> bool:
        """It failed because another rank was missing, by its own account."""
        return bool(self.absent or self.ended or self.lost) and self.exit_code not in (0, -signal.SIGKILL)

    @property
    def how(self) -> str:
        """``SIGKILL`` or ``exit status 3``."""
        if self.exit_code >= 0:
            return f"exit status {self.exit_code}"
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"

    @property
    def message(self) -> str:
        """The last line of the traceback, if there is one."""
        if not self.lines or not self.lines[0].startswith(_TRACEBACK):
            return ""
        return next((line for line in self.lines[1:] if not line.startswith(" ")), "")


def _last_lines(rank: Rank) -> list[str]:
    """The last traceback or stack of a rank, or else the last lines of its standard error, or else of its output."""
    written = _tail(rank.stderr)
    traceback = _last_traceback(written)
    errors = _PREFIX.sub("", written)
    stack = stacks.last(errors)
    # A rank that ends because another is missing may still be about it when it is asked where it is.
    if stack and not _names_others("\n".join(traceback)):
        return _shortened([*traceback, _PLACE, *stack])
    if traceback:
        return _shortened(traceback)
    recorded = _recorded(rank.error)
    return _shortened(recorded or errors.splitlines() or _tail(rank.stdout).splitlines(), last=True)


def _names_others(text: str) -> bool:
    return any(pattern.search(text) for pattern in (_ENDED, _ABSENT, _LOST))


def _last_traceback(written: str) -> list[str]:
    """The last traceback with the message of its exception, which may have several lines; [] if there is none."""
    before, raised, after = written.rpartition(_TRACEBACK)
    if not raised:
        return []
    lines = after.splitlines()[1:]
    prefix = _PREFIX.match(before.rpartition("\n")[2])
    if prefix:  # each line has it, but for those that are empty
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


def _recorded(path: Path) -> list[str]:
    """The traceback that a program that uses torchrun's ``record`` has left."""
    try:
        message = json.loads(path.read_bytes())["message"]
        text = message if isinstance(message, str) else message["extraInfo"]["py_callstack"]
        return str(text).splitlines()
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _shortened(lines: list[str], last: bool = False) -> list[str]:
    if len(lines) <= _LINES:
        return lines
    return lines[-_LINES:] if last else [*lines[:2], "  ...", *lines[3 - _LINES :]]


@dataclass(frozen=True)
class Verdict:
    """The rank that failed first: one of this node, or the number of one that is not, or of none."""

    failure: Failure | None
    elsewhere: int | None = None


def judge(failures: list[Failure]) -> Verdict:
    """Find the rank that failed first among those of this node, of which at least one has failed."""
    by_number = {each.rank.rank: each for each in failures}
    accused = _accused(failures)
    own = [each for each in failures if _is_own(each, failures)]
    causes = [each for each in own if not each.is_consequence]
    if causes:
        return Verdict(min(causes, key=lambda each: (each.rank.rank not in accused, each.ended_at)))
    for number, _ in accused.most_common():
        named = by_number.get(number)
        if named is None:
            return Verdict(None, number)
        if named not in own:
            return Verdict(named)
    failed = own or [each for each in failures if each.exit_code]
    return Verdict(min(failed, key=lambda each: each.ended_at))


def _is_own(failure: Failure, failures: list[Failure]) -> bool:
    """It failed by itself: the launcher has not ended it, which it does as soon as another rank has failed."""
    first = min((each.ended_at for each in failures if each.exit_code), default=math.inf)
    if failure.exit_code == -signal.SIGKILL:  # the launcher's comes late, after SIGTERM has had no effect
        return not failure.ended_at > first + _AT_ONCE
    if failure.exit_code == -signal.SIGTERM:
        return failure.ended_at == first < math.inf
    return failure.exit_code != 0


def _accused(failures: list[Failure]) -> Counter[int]:
    """How many ranks name a rank as missing."""
    processes = {each.rank.pid: each.rank.rank for each in failures}
    numbers = set(processes.values())
    counted: Counter[int] = Counter()
    for each in failures:
        if each.exit_code:
            counted.update(each.absent)
            for number, process in each.ended:
                # A number may be one within a group of some ranks; a process is sure, but may be another node's.
                if process in processes or number not in numbers:
                    counted[processes.get(process, number)] += 1
    return counted


def summary(failures: list[Failure], iteration: int | None, seconds: float) -> tuple[str, int]:
    """What to print, and the exit status of the job.

    Args:
        failures: how each rank of this node ended.
        iteration: the last that was reported.
        seconds: how long the job has run.
    """
    verdict = judge(failures)
    guilty = verdict.failure
    others = [each for each in failures if each is not guilty and each.exit_code]
    status = next((each.exit_code for each in [guilty, *others] if each and _is_own(each, failures)), 1)
    shown = guilty or others[0]
    rank = shown.rank
    place = [f"attempt {rank.attempt}", f"after {seconds:.0f} s"]
    if guilty is not None:
        place.insert(0, _process(rank))
    place += [] if iteration is None else [f"at iteration {iteration}"]
    lines = [
        f"{_what(verdict, failures)} ({', '.join(place)})",
        *(f"  {hint}" for hint in _hints(verdict, shown)),
        *(f"  | {line}" for line in shown.lines),
        f"  all that it wrote: {rank.stderr}, {rank.stdout.name}",
        *_consequences([each for each in others if each is not shown], failures),
    ]
    return "\n".join(lines), 128 - status if status < 0 else status


def _process(rank: Rank) -> str:
    return f"process {rank.pid} on {socket.gethostname()}"


def _what(verdict: Verdict, failures: list[Failure]) -> str:
    guilty = verdict.failure
    if guilty is None:
        return f"rank {verdict.elsewhere}, on another node, failed first, as ranks of this node say"
    name = f"rank {guilty.rank.rank}"
    if guilty.exit_code == 0:
        return f"{name} ended, with exit status 0, while others waited for it"
    if not _is_own(guilty, failures) and any(_is_own(each, failures) for each in failures):
        why = "was stopped" if guilty.was_stopped else "was elsewhere"
        return f"{name} did not come to a collective in time: it {why} when the others gave up"
    return f"{name} failed first: {guilty.how}"


def _hints(verdict: Verdict, shown: Failure) -> list[str]:
    found = []
    if verdict.failure is None:
        found.append(f"rank {shown.rank.rank}, of this node ({_process(shown.rank)}):")
    elif shown.exit_code == -signal.SIGKILL and not shown.was_stopped:
        found.append(
            "SIGKILL comes from outside: perhaps the kernel ran out of memory; `dmesg | grep -i oom` would say so"
        )
    elif shown.is_consequence and shown.exit_code != -signal.SIGTERM:
        found.append("its own error says that another rank was missing; see what ranks of other nodes say")
    return found


def _consequences(others: list[Failure], failures: list[Failure]) -> list[str]:
    if not others:
        return []
    lines = ["  because of that:"]
    for each in others[:_OTHERS]:
        how = each.how if _is_own(each, failures) else "ended by the launcher"
        lines.append(f"    rank {each.rank.rank}: {how} {each.message[:160]}".rstrip())
    if len(others) > _OTHERS:
        lines.append(f"    and {len(others) - _OTHERS} others")
    return lines
