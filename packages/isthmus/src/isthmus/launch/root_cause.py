"""The choice of the rank that made a job fail, and the summary that names it. Nothing here imports torch."""

import math
import signal
import socket
from collections import Counter
from dataclasses import dataclass

from isthmus import options
from isthmus.launch.failures import Failure
from isthmus.launch.watch import Rank

_AT_ONCE = 5.0  # seconds
_OTHERS = 8


@dataclass(frozen=True)
class RootCause:
    """The rank that failed first: one of this node, or the number of a rank of another node."""

    failure: Failure | None
    elsewhere: int | None = None


def find_root_cause(failures: list[Failure]) -> RootCause:
    """Find the rank that failed first among the ranks of this node, of which at least one has failed."""
    by_number = {each.rank.rank: each for each in failures}
    accused = Counter(
        number for each in failures if each.exit_code for number in _accused_ranks(each, failures)
    )
    own = [each for each in failures if _is_own(each, failures)]
    causes = [each for each in own if not each.is_consequence]
    if causes:
        return RootCause(min(causes, key=lambda each: (each.rank.rank not in accused, each.ended_at)))
    for number, _ in accused.most_common():
        named = by_number.get(number)
        if named is None:
            return RootCause(None, number)
        if named not in own:
            return RootCause(named)
    failed = own or [each for each in failures if each.exit_code]
    return RootCause(min(failed, key=lambda each: each.ended_at))


def _accused_ranks(failure: Failure, failures: list[Failure]) -> frozenset[int]:
    """Numbers of the ranks that it reports as missing."""
    lost = {each.rank.rank for each in failures if each.rank.pid in failure.lost_processes}
    return (failure.missing | lost) - {failure.rank.rank}


def _is_own(failure: Failure, failures: list[Failure]) -> bool:
    """Whether it failed by itself; the launcher ends the other ranks as soon as one has failed."""
    first = min((each.ended_at for each in failures if each.exit_code), default=math.inf)
    if failure.exit_code == -signal.SIGKILL:  # the launcher's comes late, after SIGTERM has had no effect
        return not failure.ended_at > first + _AT_ONCE
    if failure.exit_code == -signal.SIGTERM:
        return failure.ended_at == first < math.inf
    return failure.exit_code != 0


def summary(failures: list[Failure], iteration: int | None, seconds: float) -> tuple[str, int]:
    """Summarize a failed job in the text to print and the exit status of the job.

    Args:
        failures: how each rank of this node ended.
        iteration: the last that was reported, if any.
        seconds: run time of the job.
    """
    cause = find_root_cause(failures)
    guilty = cause.failure
    others = [each for each in failures if each is not guilty and each.exit_code]
    status = next((each.exit_code for each in [guilty, *others] if each and _is_own(each, failures)), 1)
    shown = guilty or others[0]
    rank = shown.rank
    place = [f"attempt {rank.attempt}", f"after {seconds:.0f} s"]
    if guilty is not None:
        place.insert(0, _process(rank))
    place += [] if iteration is None else [f"at iteration {iteration}"]
    lines = [
        f"{_describe_cause(cause, failures)} ({', '.join(place)})",
        *(f"  {hint}" for hint in _hints(cause, shown, failures)),
        *(f"  | {line}" for line in shown.lines),
        f"  complete output: {rank.stderr}, {rank.stdout.name}",
        *_consequences([each for each in others if each is not shown], failures),
    ]
    return "\n".join(lines), 128 - status if status < 0 else status


def _process(rank: Rank) -> str:
    return f"process {rank.pid} on {socket.gethostname()}"


def _describe_cause(cause: RootCause, failures: list[Failure]) -> str:
    guilty = cause.failure
    if guilty is None:
        return f"rank {cause.elsewhere}, on another node, failed first, according to the ranks of this node"
    name = f"rank {guilty.rank.rank}"
    if guilty.exit_code == 0:
        return f"{name} ended with exit status 0 while others waited for it"
    if not _is_own(guilty, failures) and any(_is_own(each, failures) for each in failures):
        why = "was stopped" if guilty.was_stopped else "was executing other code"
        return f"{name} did not reach a collective in time: it {why} when the other ranks timed out"
    unnamed = guilty.is_consequence and not guilty.missing and not guilty.timed_out
    if unnamed and _has_other_nodes(guilty, failures):
        return f"{name} failed as a rank of another node did: {guilty.how}"
    return f"{name} failed first: {guilty.how}"


def _hints(cause: RootCause, shown: Failure, failures: list[Failure]) -> list[str]:
    found = []
    if cause.failure is None:
        found.append(f"rank {shown.rank.rank} of this node ({_process(shown.rank)}):")
    elif shown.exit_code == -signal.SIGKILL and not shown.was_stopped:
        found.append(
            "SIGKILL comes from outside, often from the kernel out of memory; check `dmesg | grep -i oom`"
        )
    elif shown.is_consequence and shown.exit_code != -signal.SIGTERM:
        found.append(_why_late(shown, failures))
    return found


def _why_late(shown: Failure, failures: list[Failure]) -> str:
    """Return the cause by other ranks, none of which has failed by itself on this node, that a rank's error shows."""
    if shown.missing:
        return f"its own error says that ranks {sorted(shown.missing)} were missing; see their output"
    if shown.timed_out:
        return (
            "its operation timed out, and its error names no missing rank; compare the last operations of the "
            f"ranks (set {options.variable('flight_recorder_folder')}), or raise the timeout of the group"
        )
    where = "ranks of other nodes" if _has_other_nodes(shown, failures) else "the other ranks"
    return f"its own error says that another rank was missing; see the output of {where}"


def _has_other_nodes(failure: Failure, failures: list[Failure]) -> bool:
    return len(failures) < failure.rank.world_size


def _consequences(others: list[Failure], failures: list[Failure]) -> list[str]:
    if not others:
        return []
    lines = ["  as a consequence:"]
    for each in others[:_OTHERS]:
        how = each.how if _is_own(each, failures) else "ended by the launcher"
        lines.append(f"    rank {each.rank.rank}: {how}{each.message and f': {each.message[:160]}'}")
    if len(others) > _OTHERS:
        lines.append(f"    and {len(others) - _OTHERS} others")
    return lines
