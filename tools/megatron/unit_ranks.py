"""Run test files of a Megatron-LM checkout on several ranks; started by :mod:`tools.megatron.unit_tests`.

``isthmus run --megatron megatron_unit_ranks.py CHECKOUT RANKS RESULTS TEST_SECONDS FILE_SECONDS``, reads
file names from standard input, one per line, and appends a line of JSON for each to RESULTS. Megatron is imported
once. Each file runs in forks of this process, one per rank, which are replaced when a test hangs, kills a rank or
fails on some ranks only. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tools.suites import REASON_LENGTH, reason_of

# Seconds for the other ranks to finish a test that one rank has failed.
GRACE_SECONDS = 5.0
DOWNLOAD = "tests.test_utils.python_scripts.download_unit_tests_dataset"
OPTIONS = "-q --no-header --tb=short -p no:cacheprovider -p no:timeout -p no:xdist --assert=plain -W ignore"
Outcome = tuple[str, str]


class Rank(NamedTuple):
    """A forked rank: its process, and the pipe that reports the outcome of each test."""

    process: int
    pipe: int


class Limits(NamedTuple):
    """Seconds that one test and one file may take."""

    test: float
    file: float


class Results(dict[str, Outcome]):
    """Outcome and reason by test name, for one rank or merged over all ranks."""

    def add(self, name: str, outcome: str, reason: str) -> None:
        order = ("passed", "skipped", "failed", "not collected", "timed out", "crashed")
        if name not in self or order.index(outcome) > order.index(self[name][0]):
            self[name] = outcome, reason[:REASON_LENGTH]


class InRank:
    """Pytest plugin inside a rank: run the tests from ``start`` on and send each outcome."""

    def __init__(self, pipe: int, start: int) -> None:
        self.pipe, self.start = pipe, start

    def send(self, kind: str, *message: Any) -> None:
        data = json.dumps([kind, *message]).encode() + b"\n"
        while data:
            data = data[os.write(self.pipe, data) :]

    @pytest.hookimpl
    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.send("not collected" if report.failed else "skipped", report.nodeid, reason_of(report))

    @pytest.hookimpl
    def pytest_runtestloop(self, session: Any) -> bool:
        items = session.items
        self.send("collected", [item.nodeid for item in items])
        for index in range(self.start, len(items)):
            following = items[index + 1] if index + 1 < len(items) else None
            items[index].config.hook.pytest_runtest_protocol(item=items[index], nextitem=following)
            self.send("done")
        return True

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.send(report.outcome, report.nodeid, "" if report.passed else reason_of(report))


def fork(path: str, rank: int, port: int, start: int) -> Rank:
    """Fork a rank that collects a file and runs its tests. Each rank collects: test modules query their rank."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return Rank(process, read)
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
    utilities = sys.modules["tests.unit_tests.test_utilities"]
    utilities.Utils.rank = utilities.Utils.local_rank = rank
    plugin = InRank(write, start)
    pytest.main([*OPTIONS.split(), path], plugins=[plugin])
    plugin.send("end")
    os._exit(0)


class Watch:
    """Follow forked ranks until they finish or have to be replaced.

    Args:
        results: receives the outcomes.
        ranks: the processes.
        start: number of the first test they run.
        limits: time limits of a test and of the file.
        end: deadline of the file, by ``time.monotonic``.
    """

    def __init__(self, results: Results, ranks: list[Rank], start: int, limits: Limits, end: float) -> None:
        self.results, self.ranks, self.limits, self.end = results, ranks, limits, end
        self.names: list[str] = []
        self.done = [start] * len(ranks)
        self.began = time.monotonic()
        self.failed_at = float("inf")
        self.failed_test: int | None = None
        self.said: dict[str, list[Outcome]] = defaultdict(list)
        self.over: set[int] = set()
        self.gone: set[int] = set()
        self.rest = [b""] * len(ranks)

    def run(self) -> int | None:
        """Return the number of the test at which fresh ranks continue; None when the file is finished."""
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self.ranks):
                selector.register(rank.pipe, selectors.EVENT_READ, number)
            while len(self.over) < len(self.ranks):
                for key, _ in selector.select(0.2):
                    self.read(key.data, selector)
                if problem := self.problem():
                    slowest = min(self.done)
                    name = self.names[slowest] if slowest < len(self.names) else ""
                    self.results.add(name or "collection", *problem)
                    return slowest + 1 if name else None
                if not self.agree():
                    return self.again()
        return None

    def read(self, number: int, selector: selectors.BaseSelector) -> None:
        data = os.read(self.ranks[number].pipe, 1 << 16)
        if not data:
            selector.unregister(self.ranks[number].pipe)
            (self.over if number in self.over else self.gone).add(number)
            return
        *lines, self.rest[number] = (self.rest[number] + data).split(b"\n")
        for line in lines:
            kind, *message = json.loads(line)
            slowest = min(self.done)
            if kind == "collected":
                self.names = message[0]
            elif kind == "done":
                self.done[number] += 1
            elif kind == "end":
                self.over.add(number)
            else:
                self.note(number, kind, *message)
            if min(self.done) > slowest:
                self.began = time.monotonic()

    def note(self, number: int, kind: str, name: str, reason: str) -> None:
        self.results.add(name, kind, reason)
        self.said[name].append((kind, reason))
        if kind == "failed" and self.failed_test is None:
            self.failed_test, self.failed_at = self.done[number], time.monotonic()

    def problem(self) -> Outcome | None:
        """Return why these ranks cannot finish their current test, or None."""
        now, limits = time.monotonic(), self.limits
        if self.gone:
            return "crashed", "a rank exited during the test"
        if len(self.ranks) > 1 and now - self.failed_at > GRACE_SECONDS and min(self.done) < max(self.done):
            return "failed", "other ranks waited for one that failed"
        if now - self.began > limits.test:
            return "timed out", f"{limits.test:.0f} seconds"
        if now > self.end:
            return "timed out", f"the file's limit of {limits.file:.0f} s was reached during the test"
        return None

    def agree(self) -> bool:
        """Whether every failure is the same on all ranks, so that they are still in step."""
        if self.failed_test is None or min(self.done) <= self.failed_test:
            return True
        for name in self.names[self.failed_test : min(self.done)]:
            if len(set(self.said[name])) > 1 or len(self.said[name]) not in (0, len(self.ranks)):
                return False
        self.failed_at, self.failed_test = float("inf"), None
        return True

    def again(self) -> int | None:
        """Return where fresh ranks continue; the collectives of the current ones may be out of step."""
        following = min(self.done)
        for name in self.names[following:]:
            self.results.pop(name, None)
        return following if following < len(self.names) else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def limited(make: Callable[..., Any], limit: timedelta) -> Callable[..., Any]:
    """Wrap ``init_process_group`` or ``new_group`` so that its timeout is at most the limit."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return make(*args, **{**kwargs, "timeout": min(kwargs.get("timeout") or limit, limit)})

    return call


def limit_timeouts(seconds: float) -> None:
    """Limit timeouts so that a stuck collective fails within the time limit of a test."""
    import torch.distributed as dist

    limit = timedelta(seconds=seconds)
    dist.init_process_group = limited(dist.init_process_group, limit)
    dist.new_group = limited(dist.new_group, limit)


def describe_devices() -> None:
    """Query device properties in a child process: this process must not use the chip before it forks."""
    import torch

    read, write = os.pipe()
    if os.fork() == 0:
        properties = torch.cuda.get_device_properties(0)
        fields = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
        plain = {name: value for name, value in fields.items() if isinstance(value, (int, str))}
        os.write(write, json.dumps(plain).encode())
        os._exit(0)
    os.wait()
    answer = SimpleNamespace(**json.loads(os.read(read, 1 << 16)))
    torch.cuda.get_device_properties = lambda *_: answer  # type: ignore[assignment,return-value]
    torch.cuda.get_device_name = lambda *_: answer.name  # type: ignore[assignment]


def prepare(checkout: str, world_size: int, limits: Limits) -> None:
    """Import what the tests use, so that forks inherit it."""
    os.chdir(checkout)
    sys.path[0] = checkout
    os.environ |= {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size), "RANK": "0"}
    os.environ |= {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    nothing: dict[str, object] = {"download_and_extract_asset": lambda assets_dir: None}
    sys.modules[DOWNLOAD] = ModuleType(DOWNLOAD)
    vars(sys.modules[DOWNLOAD]).update(nothing)
    limit_timeouts(limits.test / 2)
    describe_devices()
    for name in ("megatron.core.models.gpt", "megatron.training.training", "tests.unit_tests.test_utilities"):
        with contextlib.suppress(ImportError):
            __import__(name)


def run_file(path: str, world_size: int, limits: Limits) -> dict[str, Any]:
    """Run a file; return the outcome and reason of each test."""
    began = time.monotonic()
    results, names, start, end = Results(), [], 0, began + limits.file
    while start is not None and time.monotonic() < end:
        port = free_port()
        ranks = [fork(path, rank, port, start) for rank in range(world_size)]
        watch = Watch(results, ranks, start, limits, end)
        try:
            start = watch.run()
        finally:
            stop(ranks)
        names = watch.names or names
    for name in names:
        results.setdefault(name, ("not run", f"the file's limit of {limits.file:.0f} s was reached"))
    return {"ranks": world_size, "file": path, "seconds": round(time.monotonic() - began), "tests": results}


def stop(ranks: list[Rank]) -> None:
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.process, signal.SIGKILL)
        os.waitpid(rank.process, 0)
        os.close(rank.pipe)


def main(checkout: str, ranks: str, results: str, test_seconds: str, file_seconds: str) -> None:
    world_size, limits = int(ranks), Limits(float(test_seconds), float(file_seconds))
    prepare(checkout, world_size, limits)
    for line in sys.stdin:
        found = run_file(line.strip(), world_size, limits)
        with Path(results).open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
