"""Pytest plugin: append each test's begin and outcome to ISTHMUS_RECORD; leave out tests that it names already.

Processes that tests spawn are forked from one that has imported torch_npu: a test may spawn a hundred, and each
import takes seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from multiprocessing import context
from pathlib import Path
from typing import Any

import pytest

from tools.suites import REASON_LENGTH, reason_of

RECORD = Path(os.environ["ISTHMUS_RECORD"])
# torch_npu's words after an error in its queue: it computes nothing more in this process.
UNUSABLE = "The process exits for this inner error"


class _Forked(context.ForkServerProcess):
    """A process with the environment of the one that starts it, as a spawned one has."""

    def start(self) -> None:
        self._environment = dict(os.environ)
        super().start()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        os.environ.update(self._environment)


class _ForkedContext(context.ForkServerContext):
    Process = _Forked


context._concrete_contexts["spawn"] = _ForkedContext()
multiprocessing.set_forkserver_preload(["torch_npu.testing.testcase", "torch_npu.testing.common_distributed"])


def _write(*message: Any) -> None:
    with RECORD.open("a") as file:
        file.write(json.dumps(message) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leave out what an earlier process has begun."""
    begun = {message[1] for message in map(json.loads, RECORD.read_text().splitlines())}
    items[:] = [item for item in items if item.nodeid not in begun]


@pytest.hookimpl
def pytest_collectreport(report: Any) -> None:
    """Record a file that cannot be imported."""
    if report.outcome != "passed":
        _write(
            "not collected" if report.failed else "skipped", report.nodeid, reason_of(report)[:REASON_LENGTH]
        )


@pytest.hookimpl
def pytest_runtest_logstart(nodeid: str) -> None:
    """Record the begin of a test, which is all that is left of one that ends the process."""
    _write("begun", nodeid, "")


@pytest.hookimpl
def pytest_runtest_logreport(report: Any) -> None:
    """Record an outcome; the worst of a test counts. End a process that is unusable: another runs the rest."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.outcome, report.nodeid, "" if report.passed else reason_of(report)[:REASON_LENGTH])
    if report.failed and UNUSABLE in str(report.longrepr):
        os._exit(1)


@pytest.hookimpl
def pytest_sessionfinish() -> None:
    """Record that all tests have run."""
    _write("end", "", "")
