"""Reports over the statuses of all ranks: what each is doing when the job hangs, and which one is slow."""

import shutil
import socket
import statistics
import subprocess
import time
from pathlib import Path

from isthmus_common.files import lock_file, write_file
from isthmus_common.outliers import outliers
from isthmus_common.processes import state
from isthmus_common.progress import say
from isthmus_diagnostics.health.status import Status, read

SILENT = 3.0  # seconds without a report of a rank's thread
_DEVIATIONS, _LEAST = 6.0, 0.2
_ENOUGH = 3  # ranks, for a median that one of them cannot move


def report_hang(folder: Path, own: Status, period: float = SILENT) -> str:
    """Return the report of a hang, and write it to ``hang-step-<step>.txt`` unless another rank has done so.

    It names each rank, the collective that it waits in, and its Python line. A rank whose status does not change for
    `period` seconds has stopped reporting, and is described by its last report; clocks of hosts are not compared.
    The report is "" if this rank goes on, or was stopped, in this period.
    """
    target = folder / f"hang-step-{own.step}.txt"
    with lock_file(folder) as is_first:
        if not is_first or (target.exists() and target.stat().st_mtime >= own.since):
            return ""
        before = {each.rank: each.time for each in read(folder)}
        time.sleep(period)
        # Skips the statuses of an earlier, larger job.
        statuses = [each for each in read(folder) if each.rank < own.ranks]
        latest = next((each for each in statuses if each.rank == own.rank), None)
        if latest is None or _position(latest) != _position(own) or latest.time - own.time < period / 2:
            return ""
        own = latest
        silent = {each.rank for each in statuses if before.get(each.rank) == each.time} - {own.rank}
        missing = sorted(set(range(own.ranks)) - {each.rank for each in statuses})
        text = "\n".join(
            [
                _headline(own, statuses, silent),
                *(_describe(own, each, each.rank in silent) for each in statuses),
                *(f"  rank {each}: no status (ended, or not started)" for each in missing),
                *_native(own, statuses, silent),
            ]
        )
        write_file(target, f"{text}\n".encode())
    say(f"health: {text}")
    return text


def _position(status: Status) -> tuple[int, str, float]:
    return status.step, status.collective, status.since


def suspects(own: Status, statuses: list[Status], silent: set[int]) -> list[int]:
    """Return the ranks that others wait for.

    The first of these sets that is not empty: ranks that do not report; those in no collective; those in another
    collective than most ranks of its group.

    Args:
        silent: ranks whose status does not change.
    """
    absent = set(range(own.ranks)) - {each.rank for each in statuses}
    outside = [each.rank for each in statuses if not each.collective]
    members = [each for each in statuses if _group(each) == _group(own)]
    usual = statistics.multimode(each.collective for each in members)
    apart = [each.rank for each in members if each.collective != usual[0]] if len(usual) == 1 else []
    return sorted(absent | silent) or outside or apart


def _group(status: Status) -> str:
    return status.collective.rpartition(" in group ")[2]


def _headline(own: Status, statuses: list[Status], silent: set[int]) -> str:
    found = suspects(own, statuses, silent)
    guilty = f"; suspected: {', '.join(f'rank {each}' for each in found)}" if found else ""
    seconds = f"{own.time - own.since:.0f} s"
    return f"step {own.step}: rank {own.rank} has been in {own.collective} for {seconds}{guilty}"


def _describe(own: Status, status: Status, is_silent: bool) -> str:
    age = max(SILENT, own.time - status.time)
    silent = f", no report for {age:.0f} s ({_why_silent(status)}), last" if is_silent else ""
    doing = f"in {status.collective}" if status.collective else "in no collective"
    who = f"rank {status.rank} ({status.host}, process {status.process})"
    return f"  {who}{silent}: step {status.step}, {doing}, at {status.line}"


def _why_silent(status: Status) -> str:
    """Return why a rank does not report, as far as its process can be seen from here."""
    if status.host != socket.gethostname():
        return "stopped or dead"
    kinds = {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead", "": "dead"}
    return kinds.get(state(status.process), "alive, but does not release Python's interpreter lock")


def _native(own: Status, statuses: list[Status], silent: set[int]) -> list[str]:
    """Return the stacks of this host's suspected ranks by py-spy, if it is installed."""
    spy = shutil.which("py-spy")
    found = suspects(own, statuses, silent)
    lines = []
    for each in statuses if spy else []:
        if each.rank in found and each.host == socket.gethostname():
            command = [str(spy), "dump", "--nonblocking", "--pid", str(each.process)]
            try:
                text = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
            except (OSError, subprocess.TimeoutExpired) as error:
                text = str(error)
            lines += [f"  py-spy of rank {each.rank}:", *(f"    {line}" for line in text.splitlines())]
    return lines


def stragglers(statuses: list[Status]) -> dict[int, float]:
    """Return the slow ranks, with their own time as a multiple of the median.

    Own time is step time less the part in which a collective was in flight: the ranks that wait for a slow one have
    its step time, and little time of their own.
    """
    own = {each.rank: each.step_time * (1 - each.waiting) for each in statuses if each.step_time > 0}
    return outliers(own, _DEVIATIONS, _LEAST) if len(own) >= _ENOUGH else {}
