"""Interleaved timing: every round measures each peer once, and the result is a ratio within rounds.

Absolute times on a shared machine vary by tens of percent within minutes; ratios within a round do not.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from isthmus_common.tables import align_columns

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of a peer, one entry per round."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


def interleave(peers: dict[str, Callable[[], float]], *, rounds: int, warm_up: int = 2) -> dict[str, Timing]:
    """Measure every peer once per round, in turn.

    Args:
        peers: name -> function that does the work and returns its time in seconds.
        rounds: measured rounds.
        warm_up: discarded rounds at the start.
    """
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for index in range(warm_up + rounds):
        for name, measure in peers.items():
            taken = measure()
            if index >= warm_up:
                seconds[name].append(taken)
    return {name: Timing(seconds=taken) for name, taken in seconds.items()}


def ratio(ours: Timing, theirs: Timing) -> float:
    """Return the median over the rounds of ours / theirs."""
    return statistics.median(a / b for a, b in zip(ours.seconds, theirs.seconds, strict=True))


def difference(ours: Timing, theirs: Timing) -> float:
    """Return the median over the rounds of ours - theirs, in seconds."""
    return statistics.median(a - b for a, b in zip(ours.seconds, theirs.seconds, strict=True))


def per_call(
    function: Callable[[], object], calls: int = 1, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Make a peer that calls function `calls` times and returns seconds of a clock per call."""

    def measure() -> float:
        repeat = range(calls)
        start = clock()
        for _ in repeat:
            function()
        return (clock() - start) / calls

    return measure


def in_process(*arguments: str, **environment: str) -> Callable[[], float]:
    """Make a peer that runs Python in a fresh process and returns the seconds that it prints last."""

    def measure() -> float:
        variables = os.environ | environment
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
        return float(done.stdout.split()[-1])

    return measure


def machine() -> dict[str, Any]:
    """Return the facts that make results comparable: processor, threads, versions, commit."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }


def save(
    name: str, rows: list[dict[str, Any]], *, unfair: str, settings: dict[str, Any] | None = None
) -> Path:
    """Write benchmarks/results/<name>.json (the newest run) and return its path.

    Args:
        name: name of the benchmark.
        rows: one dictionary per line of the result table.
        unfair: what could make the comparison unfair, and the countermeasure.
        settings: sizes and repetitions.
    """
    RESULTS.mkdir(mode=0o750, exist_ok=True)
    path = RESULTS / f"{name}.json"
    beside = path.with_suffix(".json.tmp")
    content = {"machine": machine(), "settings": settings or {}, "unfair": unfair, "rows": rows}
    beside.write_text(json.dumps(content, indent=2) + "\n")
    beside.chmod(0o640)
    beside.replace(path)
    return path


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a plain table, columns in the order of the first row."""
    columns = list(rows[0])
    texts = [[_text(row[column]) for column in columns] for row in rows]
    print(align_columns([columns, *texts]))


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


@cache  # a saved result makes the tree dirty for the next one
def commit() -> str:
    """Return the commit of the code, with "-dirty" if it was changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return found.stdout.strip() or "unknown"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
