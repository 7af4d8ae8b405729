"""The worker process that runs cases, so that a crash of a kernel becomes a result.

It reads jobs as lines of JSON from standard input and writes answers as lines of JSON to the file descriptor given as
the first argument; standard output belongs to the kernels. The first job is ``{"driver", "libraries",
"through", "keep"}``, answered by ``{"hello": ...}`` or ``{"error": ...}``. Jobs ``{"golden": folder, "operator",
"cases": [index or name of a check]}`` (:mod:`isthmus.conformance.checks`) or ``{"driver_cases": [name]}`` follow.
Each call is answered by ``{"result": ...}``, unless a check has nothing to call, and each job by ``{"done": true}``.
A check of many calls that takes long says once a second that it goes on: ``{"progress": true}``.
``"after": name`` skips, for the first case, the libraries up to the one that crashed the previous worker.

The file of the second argument says in one line of JSON what runs, to be read if the process dies: ``start`` is the
position of the case in its job, ``library`` that of the kernel, and ``note`` how the call may end the process.
"""

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

if __name__ == "__main__" and "pytorch" not in sys.argv:
    sys.modules["torch"] = None  # type: ignore[assignment]  # a kernel that imports it fails with a clear error

from isthmus.conformance.driver_cases import DriverCase
from isthmus.conformance.driver_cases import cases as driver_cases
from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Case, GoldenError, Reader
from isthmus.conformance.kept import keep
from isthmus.conformance.results import (
    BAD,
    CRASHED,
    DRIVER_FAMILY,
    FAILED,
    NOT_CLAIMED,
    PASSED,
    CaseResult,
    of_outcome,
)
from isthmus.drivers import find
from isthmus.opset.schema import parse
from isthmus_common.parent import end_with_parent

# A library, the call of its kernel, and the function that makes a result of outcome and time.
_Row: TypeAlias = tuple[str, Callable[[], Outcome | None], Callable[[Outcome, float], CaseResult]]


_PROGRESS_SECONDS = 1.0


class Worker:
    """Runs cases on the driver of the first job (``setup``).

    Args:
        record: records what runs.
        progress: says that a check of many calls goes on.
    """

    def __init__(
        self, setup: dict[str, Any], record: Callable[..., None], progress: Callable[[], None]
    ) -> None:
        self._record, self._keep = record, setup["keep"]
        self._golden: Reader | None = None
        self._operator, self._cases = "", cast(Sequence[Case], ())
        if setup["through"] == "pytorch":
            from isthmus.conformance.through_pytorch import PyTorchTarget

            self._target: Any = PyTorchTarget()
        else:
            from isthmus.conformance.libraries_target import LibrariesTarget

            self._target = LibrariesTarget(
                find(setup["driver"]).candidates[0],
                setup["libraries"],
                lambda text: record(note=text),
                progress,
            )

    def hello(self) -> dict[str, Any]:
        """Describe driver, device, and libraries with their operators."""
        description: dict[str, Any] = self._target.describe()
        return description

    def run(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the answers to a job."""
        if "driver_cases" in job:
            named = {case.name: case for case in driver_cases()}
            for n, name in enumerate(job["driver_cases"]):
                self._record(start=n, library="")
                yield {"result": self._driver_case(named[name]).to_json()}
        else:
            self._open(job["golden"], job["operator"])
            for n, each in enumerate(job["cases"]):
                rows = self._check(each) if isinstance(each, str) else self._case(self._cases[each])
                yield from self._run_calls(n, rows, "" if n else job["after"])
        self._record(start=-1, library="")
        yield {"done": True}

    def _driver_case(self, case: DriverCase) -> CaseResult:
        result = CaseResult(DRIVER_FAMILY, "", f"driver::{case.function}", "", case.name)
        start = time.perf_counter()
        try:
            skipped = case.check(self._target.device)
            result.status, result.message = (NOT_CLAIMED, skipped) if skipped else (PASSED, "")
        except Exception as error:
            result.status = FAILED
            result.message = f"{case.text}: {' '.join(str(error).split()) or type(error).__name__}"
        result.seconds = time.perf_counter() - start
        return result

    def _open(self, folder: str, operator: str) -> None:
        self._golden = self._golden or Reader(Path(folder), checked=True)
        if operator != self._operator:
            self._operator, self._cases = operator, self._golden.cases(operator)
            self._entry = self._golden.operators[operator]
            if len(self._cases) != self._entry.cases:
                raise GoldenError(
                    f"{folder}: {operator} has {len(self._cases)} cases, not {self._entry.cases}"
                )
            self._schema = parse(self._entry.schema)
            gc.freeze()  # the collector need not go through the rows of the cases again and again

    def _case(self, case: Case) -> Iterator[_Row]:
        """Yield the call of a golden case on each library."""
        for library, call in self._target.calls(self._schema, case):
            yield library, call, partial(self._of_case, library, case)

    def _check(self, name: str) -> Iterator[_Row]:
        """Yield a check on each library, for each dtype if it has results by dtype."""
        for library, dtype, call in self._target.checks(self._schema, self._cases, name):
            blank = CaseResult(self._entry.family, library, self._operator, dtype, name)
            yield library, call, partial(_of_check, blank)

    def _run_calls(self, n: int, rows: Iterable[_Row], after: str) -> Iterator[dict[str, Any]]:
        """Yield the results of the n-th case of a job, on the libraries after one."""
        found = not after
        for library, call, result in rows:
            if library == after or not found:
                found = found or library == after
                continue
            self._record(start=n, library=library)
            start = time.perf_counter()
            try:
                outcome = call()
            except Exception as error:  # an error of the driver or of the suite, not of the kernel
                outcome = Outcome(CRASHED, f"{type(error).__name__}: {' '.join(str(error).split())}")
            if outcome:
                yield {"result": result(outcome, time.perf_counter() - start).to_json()}

    def _of_case(self, library: str, case: Case, outcome: Outcome, seconds: float) -> CaseResult:
        result = of_outcome(self._entry.family, library, case, outcome, seconds)
        if self._keep and result.status in BAD:
            keep(Path(self._keep), self._schema, case, result, outcome.seen)
        return result


def _of_check(blank: CaseResult, outcome: Outcome, seconds: float) -> CaseResult:
    return replace(blank, status=outcome.status, message=outcome.message, seconds=seconds)


def main() -> None:
    """Serve jobs until standard input ends."""
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8", buffering=1)
    running: dict[str, Any] = {}

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    last = time.monotonic()

    def progress() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _PROGRESS_SECONDS:
            last = now
            answer({"progress": True})

    def record(**entries: Any) -> None:
        running.update(entries)
        os.pwrite(int(sys.argv[2]), json.dumps(running).encode() + b"\n", 0)

    end_with_parent(signal.SIGKILL)  # a kernel may never return
    try:
        worker = Worker(json.loads(sys.stdin.readline()), record, progress)
        answer({"hello": worker.hello()})
    except Exception as error:
        answer({"error": " ".join(str(error).split()) or type(error).__name__})
        return
    for line in sys.stdin:
        try:
            for message in worker.run(json.loads(line)):
                answer(message)
        except Exception as error:  # not of a kernel: golden data that changed meanwhile, for example
            answer({"error": " ".join(str(error).split()) or type(error).__name__})


if __name__ == "__main__":
    main()
