"""Worker processes that run cases; after a crash, a new worker continues."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from isthmus.conformance.results import CRASHED, CaseResult
from isthmus_common.text import signal_name

CASE_SECONDS = 120.0  # time limit of a case, or of each of the many calls of a check
START_SECONDS = 120.0
_LOOKING = 0.5  # seconds between two looks at whether a silent worker lives
_GATHERING = 0.02  # seconds in which answers gather: each read takes processor time from the workers
_LAST_WORDS = 300  # characters of standard error


class WorkerError(RuntimeError):
    """A worker cannot be started; the message is one line."""


class _Died(Exception):
    """The worker process died.

    Attributes:
        fault: whether it accessed memory that it may not.
        case: index of the running case in the message sent; -1 for none.
        library: library of the running kernel.
    """

    def __init__(self, reason: str, fault: bool = False, case: int = -1, library: str = "") -> None:
        super().__init__(reason)
        self.fault, self.case, self.library = fault, case, library


class Job(NamedTuple):
    """Cases for a worker.

    Attributes:
        cases: identifiers of the cases.
        blank: makes the empty result of a case.
        operator: the operator; "" for driver cases.
        golden: folder of the golden data of an operator.
    """

    cases: Sequence[Any]
    blank: Callable[[Any], CaseResult]
    operator: str = ""
    golden: str = ""

    def message(self, start: int, after: str) -> dict[str, Any]:
        """Return the message to the worker: the cases from start on; for the first, libraries after `after`."""
        cases = list(self.cases[start:])
        if not self.operator:
            return {"driver_cases": cases}
        return {"golden": self.golden, "operator": self.operator, "cases": cases, "after": after}


class WorkerProcess:
    """A worker process, which starts while its creator goes on.

    Args:
        setup: see :mod:`isthmus.conformance.worker`.
        threads: threads of linear algebra libraries in it.

    Raises:
        WorkerError: it ended at once.
    """

    def __init__(self, setup: dict[str, Any], threads: int) -> None:
        reading, writing = os.pipe()
        # The files live as long as the process.
        self._errors, self._running = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        descriptors = [writing, self._running.fileno()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", *map(str, descriptors), setup["through"]],
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=descriptors,
            process_group=0,  # Ctrl-C is for the command; a worker that it ended would count as crashed
            env={**dict.fromkeys(names, str(threads)), **os.environ, "ISTHMUS_DRIVER": setup["driver"]},
        )
        os.close(writing)
        self._reading, self._rest = reading, b""
        self._lines: deque[bytes] = deque()
        try:
            self._send(setup)
        except _Died as error:
            raise WorkerError(f"the worker {error}") from None

    @cached_property
    def hello(self) -> dict[str, Any]:
        """Description of its driver and libraries, once it has started.

        Raises:
            WorkerError: it cannot load the driver, a library or the golden data.
        """
        try:
            answer = self._receive(START_SECONDS)
        except _Died as error:
            raise WorkerError(f"the worker {error}") from None
        if "error" in answer:
            self.close()
            raise WorkerError(answer["error"])
        found: dict[str, Any] = answer["hello"]
        return found

    def run(self, job: Job, start: int, after: str) -> Iterator[CaseResult]:
        """Yield the results of a job, from a case and after a library on. Raises _Died, WorkerError."""
        assert self.hello
        self._send(job.message(start, after))
        while True:
            try:
                answer = self._receive(CASE_SECONDS)
            except _Died as error:
                self._running.seek(0)
                at = json.loads(self._running.readline() or "{}")
                reason = f"{error} {at['note']}" if error.fault and at.get("note") else str(error)
                raise _Died(reason, error.fault, at.get("start", -1), at.get("library", "")) from None
            if "error" in answer:
                raise WorkerError(answer["error"])
            if "progress" in answer:
                continue
            if "result" not in answer:
                return
            yield CaseResult(**answer["result"])

    def close(self) -> None:
        """Close its input and wait for its exit; kill it after a timeout."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it may have died
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._reading)
        self._errors.close()
        self._running.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def _receive(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while not self._lines:
            ended = self._process.poll() is not None
            ready, _, _ = select.select([self._reading], [], [], 0 if ended else _LOOKING)
            if ready:
                time.sleep(_GATHERING)
            received = os.read(self._reading, 1 << 20) if ready else b""
            *lines, self._rest = (self._rest + received).split(b"\n")
            self._lines.extend(lines)
            if ended and not received:  # its children may hold the other end open
                raise self._death()
            if not self._lines and not ended and time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise _Died(f"did not answer within {seconds:.0f} s")
        answer: dict[str, Any] = json.loads(self._lines.popleft())
        return answer

    def _death(self) -> _Died:
        code = self._process.wait()
        how = _how_it_ended(code)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        fault = -code in (signal.SIGSEGV, signal.SIGBUS)
        return _Died(f"{how}{f' ({words[-_LAST_WORDS:]})' if words else ''}", fault)


def serve(
    jobs: Iterator[Job],
    first: WorkerProcess,
    again: Callable[[], WorkerProcess],
    done: Callable[[CaseResult], None],
) -> None:
    """Process jobs with one worker, restarted after a crash.

    Args:
        jobs: the jobs; shared with other workers.
        first: the first worker; closed at the end.
        again: starts another worker.
        done: called with each result.
    """
    worker: WorkerProcess | None = first
    try:
        for job in jobs:
            start, after, in_vain = 0, "", False
            while start < len(job.cases):
                worker = worker or again()
                try:
                    for result in worker.run(job, start, after):
                        done(result)
                    break
                except _Died as error:
                    worker.close()
                    worker = None
                    if error.case < 0:
                        if in_vain:
                            raise WorkerError(f"the worker {error}, twice before a case") from None
                        in_vain = True
                        continue
                    in_vain = False
                    start += error.case
                    after = error.library
                    done(_crash_result(job.blank(job.cases[start]), error))
                    start += not after
    finally:
        if worker:
            worker.close()


def serve_all(
    jobs: Iterator[Job],
    workers: Sequence[WorkerProcess],
    again: Callable[[], WorkerProcess],
    done: Callable[[CaseResult], None],
) -> None:
    """Process jobs with several workers, one thread each; calls of ``done`` do not overlap.

    Raises:
        Exception: a worker could not be started, or ``jobs`` raised.
    """
    lock, making = threading.Lock(), threading.Lock()
    failures: list[Exception] = []

    def shared() -> Iterator[Job]:
        while True:
            with making:
                job = next(jobs, None)
            if job is None:
                return
            yield job

    def one_at_a_time(result: CaseResult) -> None:
        with lock:
            done(result)

    def watch(worker: WorkerProcess) -> None:
        try:
            serve(shared(), worker, again, one_at_a_time)
        except Exception as error:
            failures.append(error)

    # Daemon threads: an interrupt ends the command, and the workers end with it.
    threads = [threading.Thread(target=watch, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _how_it_ended(code: int) -> str:
    """Describe the exit status of a process, negative for a signal."""
    return f"exited with status {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


def _crash_result(result: CaseResult, error: _Died) -> CaseResult:
    result.status, result.message = CRASHED, f"the process {error}"
    result.library = error.library or result.library
    return result
