"""Judge operators in worker processes, so that a crash or hang affects one operator only and is attributed to it."""

from __future__ import annotations

import math
import multiprocessing
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from isthmus_common.text import signal_name

from . import compiled_judge
from .runner import judge, short_name
from .verdict import Verdict

Job = tuple[int, torch.dtype]  # position in the list of operators, dtype


def operators(layouts: bool) -> list[Any]:
    """Return op_db, or its entries on sparse and nested tensors; the import takes seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    from .layouts import entries

    return list(entries() if layouts else op_db)


def _work(asked: Namespace, pipe: Connection) -> None:
    """Worker: receive jobs, send progress and verdicts, until None is received."""
    torch.set_num_threads(asked.threads)
    known = operators(asked.layouts)
    while (job := pipe.recv()) is not None:
        op, dtype = known[job[0]], job[1]
        if asked.compiled:
            pipe.send(compiled_judge.judge(op, dtype, asked.cap, pipe.send, asked.compiled))
        else:
            pipe.send(judge(op, dtype, asked.cap, pipe.send, asked.reference, asked.forward))


class Worker:
    """A worker process and its current job."""

    def __init__(self, start: Callable[[Connection], Any]) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = start(theirs)
        theirs.close()
        self.job: Job | None = None
        self.doing = "start"
        self.deadline = 0.0
        self.ended = False

    def give(self, job: Job, seconds: float) -> None:
        self.job, self.doing, self.deadline = job, "start", time.monotonic() + seconds
        self.pipe.send(job)

    def stop(self) -> None:
        self.ended = True
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _end_of(process: Any) -> str:
    """Describe how a process ended."""
    process.join(5)
    code = process.exitcode
    if code is None:
        return "closed its pipe"
    return f"died of {signal_name(-code)}" if code < 0 else f"exited with code {code}"


class Pool:
    """Worker processes; ``names`` are the full names of the operators of op_db, in order."""

    def __init__(self, names: list[str], asked: Namespace) -> None:
        self.names, self.asked, self.seconds = names, asked, asked.seconds
        self.end = time.monotonic() + 60 * asked.minutes if asked.minutes else math.inf
        self.context = multiprocessing.get_context("spawn")
        self.workers = [self._worker() for _ in range(asked.workers)]

    def _worker(self) -> Worker:
        def start(pipe: Connection) -> Any:
            process = self.context.Process(target=_work, args=(self.asked, pipe), daemon=True)
            process.start()
            return process

        return Worker(start)

    def run(self, jobs: list[Job]) -> Iterator[Verdict]:
        """Yield a verdict for every job as it finishes; none is begun when the time of the run is over."""
        waiting = list(reversed(jobs))
        for worker in self.workers:
            if waiting:
                worker.give(waiting.pop(), self.seconds)
        while any(worker.job for worker in self.workers):
            for index, worker in enumerate(self.workers):
                verdict = self._poll(worker) if worker.job else None
                if verdict is None:
                    continue
                worker.job = None
                if worker.ended:
                    self.workers[index] = self._worker()
                if waiting and time.monotonic() < self.end:
                    self.workers[index].give(waiting.pop(), self.seconds)
                yield verdict
            wait([worker.pipe for worker in self.workers if worker.job], timeout=1)
        for worker in self.workers:
            worker.stop()

    def _poll(self, worker: Worker) -> Verdict | None:
        """Read the worker's messages; return its verdict, or one that reports how it ended."""
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if isinstance(message, Verdict):
                    return message
                worker.doing = message
        except (EOFError, OSError):
            return self._ended(worker, _end_of(worker.process))
        if time.monotonic() < worker.deadline:
            return None
        return self._ended(worker, f"took more than {self.seconds:g} s")

    def _ended(self, worker: Worker, how: str) -> Verdict:
        assert worker.job is not None
        position, dtype = worker.job
        verdict = Verdict(self.names[position], short_name(dtype))
        verdict.part("crash").fail(f"the process {how} during: {worker.doing}")
        worker.stop()
        return verdict
