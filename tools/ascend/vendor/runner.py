"""Run files of tests in processes of their own over the reference runtime, and keep the results.

After a test that ends or blocks the process, the rest of its file runs in another one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.repository import ROOT
from tools.stopwatch import Stopwatch, session
from tools.suites import Row, counts, earlier_results

COMMAND = [sys.executable, "-m", "isthmus", "ascend", "run", "-m", "pytest"]
OPTIONS = (
    "-q --no-header --tb=short --continue-on-collection-errors "
    "-p no:cacheprovider -p no:timeout -p no:xdist -p tools.ascend.vendor.record"
)
RESTARTS = 20  # for each file


@dataclass
class Suite:
    """Tests of another project.

    Args:
        sources: folder of its files.
        folder: returns the folder in which pytest runs a file, below ``sources``.
        devices: number of NPUs for a file.
        group: names the process in which a file runs; by default each has its own.
        packages: folders on PYTHONPATH; with them, the root of this repository.
        settings: further environment variables.
        results: a file to which results are appended.
        command: starts pytest.
        again: a file of a group runs again alone unless all of its tests pass or are skipped.
    """

    sources: Path
    folder: Callable[[str], Path]
    packages: Callable[[str], Sequence[Path]]
    results: Path
    devices: Callable[[str], int] = lambda file: 2
    group: Callable[[str], str] = str
    settings: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = tuple(COMMAND)
    again: bool = False

    def files(self, parts: Sequence[str]) -> Iterator[str]:
        """Yield the names of the test files of some files and folders.

        Raises:
            FileNotFoundError: a file or folder does not exist.
        """
        for part in parts:
            path = self.sources / part
            if not path.exists():
                raise FileNotFoundError(f"{path}: no such file or folder")
            paths = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
            yield from (str(each.relative_to(self.sources)) for each in paths)

    def environment(self, file: str, record: Path) -> dict[str, str]:
        """Return the environment of a file's tests."""
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [*map(str, self.packages(file)), str(ROOT), *given]
        changes = {"ISTHMUS_ASCEND_DEVICES": str(self.devices(file)), "OMP_NUM_THREADS": "1"}
        changes |= {"ISTHMUS_RECORD": str(record), "PYTHONPATH": os.pathsep.join(paths), **self.settings}
        return {**os.environ, **changes}


def add_options(parser: argparse.ArgumentParser, test_seconds: int, file_seconds: int) -> None:
    """Add the options that say what is run, and for how long."""
    add = parser.add_argument
    add("--every", type=int, default=1, help="run one file in so many (default: all)")
    add("--anew", action="store_true", help="delete earlier results first")
    add("--report", action="store_true", help="run nothing; write the page from earlier results")
    limit = "time limit of one %s in seconds (default: %%(default)s)"
    add("--test-seconds", type=float, default=test_seconds, help=limit % "test")
    add("--file-seconds", type=float, default=file_seconds, help=limit % "file")


def run(suite: Suite, asked: argparse.Namespace) -> list[Row]:
    """Run the files that have no result yet; return all results."""
    files = list(suite.files(asked.parts))[:: asked.every]
    suite.results.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if asked.anew:
        suite.results.unlink(missing_ok=True)
    rows = {row["file"]: row for row in earlier_results(suite.results)}
    if rows:
        print(f"reusing {len(rows)} results of {suite.results}; --anew deletes them", flush=True)
    left: dict[str, list[str]] = {}
    for file in [] if asked.report else files:
        if file not in rows:
            left.setdefault(suite.group(file), []).append(file)
    with os.fdopen(os.open(suite.results, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o640), "a") as log:
        os.fchmod(log.fileno(), 0o640)
        for i, (name, group) in enumerate(left.items()):
            start = time.time()
            found = _run_group(suite, group, asked)
            for row in found:
                rows[row["file"]] = row
                log.write(json.dumps(row) + "\n")
            log.flush()
            said = ", ".join(f"{number} {outcome}" for outcome, number in counts(found).items())
            print(
                f"{i + 1}/{len(left)} {time.time() - start:4.0f} s  {name}: {said or 'no tests'}", flush=True
            )
    return list(rows.values())


def _run_group(suite: Suite, group: Sequence[str], asked: argparse.Namespace) -> list[Row]:
    """Return the results of a group; settings that a file leaves behind may have made others fail."""
    found = run_files(suite, group, asked.test_seconds, asked.file_seconds * len(group))
    if not suite.again or len(group) == 1:
        return found
    return [
        row
        if set(counts([row])) <= {"passed", "skipped"}
        else run_files(suite, [row["file"]], asked.test_seconds, asked.file_seconds)[0]
        for row in found
    ]


def run_files(suite: Suite, files: Sequence[str], test_seconds: float, seconds: float) -> list[Row]:
    """Return the results of files that run in one process."""
    start, watch = time.time(), Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.touch()
        causes: dict[str, str] = {}
        for _ in range(RESTARTS * len(files)):
            before = record.read_text()
            cause = _run_once(suite, files, record, watch, test_seconds, seconds)
            messages = list(map(json.loads, record.read_text().splitlines()))
            tests = _outcomes(messages, causes, cause)
            if not cause or cause == "not run" or record.read_text() == before:
                break
    if not tests and cause:
        tests = {file: [cause, "before its first test"] for file in files}
    by_file: dict[str, dict[str, list[str]]] = {file: {} for file in files}
    for name, outcome in tests.items():
        by_file.get(name.partition("::")[0], by_file[files[0]])[name] = outcome
    took = round((time.time() - start) / len(files))
    return [{"ranks": 1, "file": file, "seconds": took, "tests": found} for file, found in by_file.items()]


def _run_once(
    suite: Suite, files: Sequence[str], record: Path, watch: Stopwatch, test_seconds: float, end: float
) -> str:
    """Run what is left of files; return how the process ended: "", "timed out", "crashed" or "not run"."""
    config = suite.sources / "pytest.ini"  # empty: the project's own is not meant for these tests
    config.write_text("[pytest]\n")
    folder = suite.folder(files[0])
    names = [str((suite.sources / file).relative_to(folder)) for file in files]
    process = subprocess.Popen(
        [*suite.command, *OPTIONS.split(), "-c", str(config), *names],
        cwd=folder,
        env=suite.environment(files[0], record),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cause = "crashed"
    recorded, begin = record.stat().st_size, watch.tick()
    try:
        while process.poll() is None:
            time.sleep(0.3)
            if watch.tick(session(process.pid)) > end:
                cause = "not run"
                break
            if record.stat().st_size != recorded:
                recorded, begin = record.stat().st_size, watch.seconds
            if watch.seconds - begin > test_seconds:
                cause = "timed out"
                break
    finally:  # with the processes that its tests have started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return "" if '["end"' in record.read_text() else cause


def _outcomes(messages: list[list[str]], causes: dict[str, str], cause: str) -> dict[str, list[str]]:
    """Return outcome and reason of each test; a test without an outcome has the cause for which its process ended."""
    tests: dict[str, list[str]] = {}
    for outcome, name, reason in messages:
        if outcome not in ("begun", "end") and tests.get(name, ["passed"])[0] in ("passed", "skipped"):
            tests[name] = [outcome, reason]
    for outcome, name, _ in messages:
        if outcome == "begun" and name not in tests:
            causes.setdefault(name, cause or "crashed")
            tests[name] = [causes[name], causes[name]]
    return tests
