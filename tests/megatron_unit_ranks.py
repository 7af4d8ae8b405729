"""Runs test files of a checkout of Megatron-LM on some ranks: ``isthmus run --megatron THIS CHECKOUT RANKS RESULTS``.

The names of the files come by standard input, one in a line; for each a line of JSON is appended to RESULTS. Megatron
is imported once; each file is collected in a fork of this process, and its tests run in forks of that, one per rank.
These are replaced, and go on with the next test, when a test hangs, takes a rank along, or fails where other ranks
would wait for it. Nothing is downloaded.
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
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

TEST_SECONDS = 60.0
FILE_SECONDS = float(os.environ.get("MEGATRON_TESTS_FILE_SECONDS", "600"))
# After one rank has failed a test, the others have this long to end it as well.
GRACE_SECONDS = 5.0
DOWNLOAD = "tests.test_utils.python_scripts.download_unit_tests_dataset"
OPTIONS = "-q --no-header --tb=short -p no:cacheprovider -p no:timeout -p no:xdist --assert=plain -W ignore"
REASON_LENGTH = 300
Outcome = tuple[str, str]


class Rank(NamedTuple):
    """A forked rank: its process, and the end of the pipe on which it says what came of each test."""

    process: int
    pipe: int


class Results(dict[str, Outcome]):
    """Outcome and reason by name of a test, for one rank or, merged, for all."""

    def add(self, name: str, outcome: str, reason: str) -> None:
        order = ("passed", "skipped", "failed", "timed out", "crashed")
        if name not in self or order.index(outcome) > order.index(self[name][0]):
            self[name] = outcome, reason[:REASON_LENGTH]


def reason_of(report: Any) -> str:
    """The last error of a traceback, with the place if it is a bare assertion; why a test was skipped."""
    if report.skipped:
        found = report.longrepr
        text = found[2] if isinstance(found, tuple) else getattr(report, "wasxfail", "") or str(found)
        return str(text).removeprefix("Skipped: ")
    lines = str(report.longrepr).splitlines()
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    heads = [
        line for line in errors if line.partition(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))
    ]
    error = (heads or errors or lines or ["?"])[-1 if heads else 0]
    if error.rstrip(": ") == "AssertionError":
        source = [line.strip() for line in lines if line.startswith("    ")]
        error = f"AssertionError: {source[-1] if source else ''}"
    return error


class InRank:
    """The plugin inside a rank: sends what came of each test."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def send(self, *message: str) -> None:
        os.write(self.pipe, json.dumps(message).encode() + b"\n")

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.send(report.outcome, report.nodeid, "" if report.passed else reason_of(report))


class FileRun:
    """The plugin that collects a file and runs its tests on forked ranks."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.results = Results()
        self.names: list[str] = []

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            kind = "not collected" if report.failed else "skipped"
            self.results[report.nodeid] = kind, reason_of(report)[:REASON_LENGTH]

    @pytest.hookimpl
    def pytest_runtestloop(self, session: Any) -> bool:
        self.names = [item.nodeid for item in session.items]
        end, start = time.monotonic() + FILE_SECONDS, 0
        while start < len(self.names) and time.monotonic() < end:
            start = self.run_from(session, start, end)
        for name in self.names:
            self.results.setdefault(name, ("not run", f"the file's {FILE_SECONDS:.0f} seconds were over"))
        return True

    def run_from(self, session: Any, start: int, end: float) -> int:
        """Run tests on fresh ranks from that one on; the first that these ranks have not finished."""
        port = free_port()
        ranks = [self.fork(session, start, rank, port) for rank in range(self.world_size)]
        try:
            return Watch(self, ranks, start, end).run()
        finally:
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank.process, signal.SIGKILL)
                os.waitpid(rank.process, 0)
                os.close(rank.pipe)

    def fork(self, session: Any, start: int, rank: int, port: int) -> Rank:
        read, write = os.pipe()
        process = os.fork()
        if process:
            os.close(write)
            return Rank(process, read)
        os.setpgid(0, 0)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
        utilities = sys.modules["tests.unit_tests.test_utilities"]
        utilities.Utils.rank = utilities.Utils.local_rank = rank
        plugin = InRank(write)
        session.config.pluginmanager.register(plugin)
        for index in range(start, len(session.items)):
            item = session.items[index]
            plugin.send("started", item.nodeid, "")
            following = session.items[index + 1] if index + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            plugin.send("done", item.nodeid, "")
        os._exit(0)


class Watch:
    """Follows forked ranks until they are through, or until a test makes it necessary to replace them."""

    def __init__(self, run: FileRun, ranks: list[Rank], start: int, end: float) -> None:
        self.run_, self.ranks, self.start, self.end = run, ranks, start, end
        self.done = [start] * len(ranks)
        self.began = time.monotonic()
        self.failed_at = float("inf")
        self.ended: set[int] = set()
        self.rest = [b""] * len(ranks)

    @property
    def name(self) -> str:
        """The test that the slowest rank is in."""
        return self.run_.names[min(self.done)]

    def run(self) -> int:
        last = len(self.run_.names)
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self.ranks):
                selector.register(rank.pipe, selectors.EVENT_READ, number)
            while min(self.done) < last:
                for key, _ in selector.select(0.2):
                    self.read(key.data, selector)
                if min(self.done) < last and (problem := self.problem()):
                    self.run_.results.add(self.name, *problem)
                    return min(self.done) + 1
                if len(self.ranks) > 1 and self.failed_at < float("inf") and min(self.done) == max(self.done):
                    return min(self.done)  # the group of ranks may be out of step
        return last

    def read(self, number: int, selector: selectors.BaseSelector) -> None:
        data = os.read(self.ranks[number].pipe, 1 << 16)
        if not data:
            self.ended.add(number)
            selector.unregister(self.ranks[number].pipe)
            return
        *lines, self.rest[number] = (self.rest[number] + data).split(b"\n")
        for line in lines:
            kind, name, reason = json.loads(line)
            slowest = min(self.done)
            if kind == "done":
                self.done[number] += 1
            elif kind != "started":
                self.run_.results.add(name, kind, reason)
                if kind == "failed":
                    self.failed_at = min(self.failed_at, time.monotonic())
            if min(self.done) > slowest:
                self.began = time.monotonic()

    def problem(self) -> Outcome | None:
        """Why these ranks will not finish the test that they are in."""
        now = time.monotonic()
        if any(self.done[number] < len(self.run_.names) for number in self.ended):
            return "crashed", "a rank ended in the middle of the test"
        if len(self.ranks) > 1 and now - self.failed_at > GRACE_SECONDS:
            return "failed", "other ranks waited for one that failed"
        if now - self.began > TEST_SECONDS:
            return "timed out", f"{TEST_SECONDS:.0f} seconds"
        if now > self.end:
            return "timed out", f"the file's {FILE_SECONDS:.0f} seconds were over in it"
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def limit_timeouts() -> None:
    """Let a collective that is waited for in vain fail within the time of a test."""
    import torch.distributed as dist

    limit = timedelta(seconds=TEST_SECONDS / 2)
    for name in ("init_process_group", "new_group"):

        def limited(*args: Any, original: Any = getattr(dist, name), **kwargs: Any) -> Any:
            return original(*args, **{**kwargs, "timeout": min(kwargs.get("timeout") or limit, limit)})

        setattr(dist, name, limited)


def describe_devices() -> None:
    """Ask a child for what can be asked only by using the chip, which a fork of this process could not use then."""
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


def prepare(checkout: str, world_size: int) -> None:
    """Import what the tests use; a fork has it then."""
    os.chdir(checkout)
    sys.path[0] = checkout
    os.environ |= {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size), "RANK": "0"}
    os.environ |= {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    nothing: dict[str, object] = {"download_and_extract_asset": lambda assets_dir: None}
    sys.modules[DOWNLOAD] = ModuleType(DOWNLOAD)
    vars(sys.modules[DOWNLOAD]).update(nothing)
    limit_timeouts()
    describe_devices()
    for name in ("megatron.core.models.gpt", "megatron.training.training", "tests.unit_tests.test_utilities"):
        with contextlib.suppress(ImportError):
            __import__(name)


def run_file(path: str, world_size: int) -> dict[str, Any]:
    """Outcome and reason of each test of a file."""
    run = FileRun(world_size)
    began = time.monotonic()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        status = pytest.main([*OPTIONS.split(), path], plugins=[run])
    if not run.results and status not in (0, 5):
        run.results[path] = "not collected", f"pytest ended with {int(status)}"
    return {
        "ranks": world_size,
        "file": path,
        "seconds": round(time.monotonic() - began),
        "tests": run.results,
    }


def in_fork(path: str, world_size: int, results: Path) -> None:
    process = os.fork()
    if process == 0:
        try:
            line = json.dumps(run_file(path, world_size))
            with results.open("a") as file:
                file.write(line + "\n")
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    if status:
        tests = {path: ("crashed", f"the process ended with status {status}")}
        with results.open("a") as file:
            file.write(json.dumps({"ranks": world_size, "file": path, "seconds": 0, "tests": tests}) + "\n")


def main(checkout: str, ranks: str, results: str) -> None:
    prepare(checkout, int(ranks))
    for line in sys.stdin:
        began = time.monotonic()
        in_fork(line.strip(), int(ranks), Path(results))
        print(f"{ranks} ranks, {time.monotonic() - began:4.0f} s: {line.strip()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
