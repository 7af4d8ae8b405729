"""Ranks of the host chip for tests: processes that wait for jobs of host_rank_jobs.py, or threads of this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from tests.helpers import host_fault_jobs  # noqa: F401  its jobs register themselves
from tests.helpers.host_driver import ROOT, Driver
from tests.helpers.host_rank_jobs import JOBS, Rank, new_id

JOB_SECONDS = 60  # a hang fails the test


class Worker:
    """A process that runs one job at a time."""

    def __init__(self, environment: dict[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if name != "LOCAL_WORLD_SIZE"}
        clean |= {"PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.host_rank_jobs"],
            env=clean | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, **message: Any) -> None:
        """Start a job."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the job's result; a killed worker has none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"result": "gone"}
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def close(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.communicate()


class Ranks:
    """Workers that are the ranks of successive communicators."""

    def __init__(self, most: int, **environment: str) -> None:
        self._environment = environment
        self.workers = [Worker(environment) for _ in range(most)]

    def run(self, job: str, world: int, arguments: dict[str, Any] | None = None, **options: Any) -> list[Any]:
        """Results of a job, of each rank; a failure of any fails the test.

        Args:
            job: a key of JOBS.
            world: number of ranks.
            arguments: of the job.
            options: of :class:`host_rank_jobs.Rank`.
        """
        answers = self.answers(job, world, arguments, **options)
        assert all("status" not in found for found in answers), answers
        return [found["result"] for found in answers]

    def answers(
        self, job: str, world: int, arguments: dict[str, Any] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Run a job and return failures as (status, message, seconds) instead of raising."""
        self.start(job, world, arguments, **options)
        return self.finish(world)

    def start(self, job: str, world: int, arguments: dict[str, Any] | None = None, **options: Any) -> None:
        """Start a job on all ranks."""
        self.workers[0].tell(job="new_id")
        identity = self.workers[0].answer()["result"]
        for rank, worker in enumerate(self.workers[:world]):
            message = {"id": identity, "rank": rank, "world": world, "options": options}
            worker.tell(job=job, arguments=arguments or {}, **message)

    def finish(self, world: int) -> list[dict[str, Any]]:
        """Return the results of a started job."""
        timer = threading.Timer(JOB_SECONDS, self.close)
        timer.start()
        try:
            return [worker.answer() for worker in self.workers[:world]]
        finally:
            timer.cancel()

    def replace(self, rank: int) -> None:
        """Replace a killed process."""
        self.workers[rank].close()
        self.workers[rank] = Worker(self._environment)

    def close(self) -> None:
        """Stop all processes."""
        for worker in self.workers:
            worker.close()


def run_threads(
    driver: Driver, job: str, world: int, arguments: dict[str, Any] | None = None, **options: Any
) -> list[Any]:
    """Results of a job whose ranks are threads of this process."""
    identity = new_id(driver)
    results: list[Any] = [None] * world
    failures: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            member = Rank(driver, identity, rank, world, **options)
            results[rank] = JOBS[job](member, **(arguments or {}))
            member.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOB_SECONDS)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results
