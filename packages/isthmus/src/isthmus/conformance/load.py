"""Load cases of an operator: calls from several threads on several streams, and many calls one after another.

Each call is the call of a golden case, in memory of its own. Its results must have the bits of the same call made
alone, which is judged first; other memory must not change. Every other thread has other inputs of the same shapes,
whose results are not judged. A check is None if no case can be called.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import FrameType
from typing import NamedTuple

import numpy as np

from isthmus import conformance, opset
from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import KernelError
from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import allocated
from isthmus.conformance.executor import SEED, Outcome
from isthmus.conformance.judge import judge
from isthmus.conformance.long import check_long
from isthmus.conformance.memory import POISONS
from isthmus.conformance.plan import NotClaimed, Plan
from isthmus.conformance.repetition import count_different
from isthmus.conformance.subject import Subject
from isthmus.conformance.workspace import Workspace
from isthmus.drivers.driver import DriverCallError

_THREADS, _STREAMS = 8, 4
_CALLS = 6  # calls of a thread
# Seconds that a kernel written in Python waits after each of its first lines, then after every so many of the most.
_PAUSE, _EACH_LINE, _EVERY, _MOST_LINES = 2e-5, 24, 5, 512
_NOT_KERNELS = tuple(path for module in (conformance, opset) for path in module.__path__)
_MANY = 1024  # calls of a kernel one after another
_BASES = 4  # addresses of a call
_SIZES = 3  # sizes of each dtype
_PARALLEL_BYTES, _SERIAL_BYTES = 512 << 10, 64 << 10  # most bytes of a case's tensors


class _Call(NamedTuple):
    """A call: its plan, a title, and the image before and after the call made alone."""

    plan: Plan
    title: str
    before: Array
    after: Array

    def problem(self, seen: Array) -> str:
        """Return how an image after the call differs from that of the call made alone, or ""."""
        if np.array_equal(seen, self.after):
            return ""
        for slot, expected in self.plan.targets:
            specified = not (expected.law and expected.law.get("name") == "any")
            wrong = count_different(slot.view(self.after), slot.view(seen)) if specified else 0
            if wrong:
                count = slot.view(seen).size
                return (
                    f"{self.title}: {wrong} of {count} elements of {slot.label} differ from a call made alone"
                )
        intruded = self.plan.image.describe_intrusion(self.before, seen)
        return f"{self.title}: {intruded}" if intruded else ""


def check_threads(subject: Subject) -> Outcome | None:
    """Call from 8 threads on 4 streams at once, each with inputs of its own."""
    tried = 0
    for dtype in dict.fromkeys((*subject.dtypes[:1], *subject.dtypes[-1:])):
        calls = _judged(subject, [dtype], _THREADS // 2, _PARALLEL_BYTES)
        tried += len(calls)
        pairs = [each for call in calls for each in (call, _with_other_inputs(subject, call))]
        if calls and (problem := _in_parallel(subject, pairs)):
            return Outcome("failed", f"{_THREADS} threads on {_STREAMS} streams: {problem}")
    return Outcome("passed") if tried else None


def check_calls(subject: Subject) -> Outcome | None:
    """Call a thousand times: sizes up and down, dtypes, numbers and addresses changed between calls."""
    per_dtype = [_judged(subject, [dtype], _SIZES, _SERIAL_BYTES) for dtype in subject.dtypes]
    calls = [call for row in zip_longest(*per_dtype) for call in row if call]
    if not calls:
        return None
    device, executor = subject.device, subject.executor
    largest = max(call.plan.image.nbytes for call in calls)
    with allocated(device, largest + _BASES * device.alignment) as start:
        for n, call in enumerate(_in_order(calls)):
            base = start + n // 2 % _BASES * device.alignment
            device.write(base, call.before)
            workspace = Workspace(device, POISONS[0])
            try:
                executor.launch(call.plan, base, 0, SEED, workspace)
                problem = ""
            except (KernelError, DriverCallError) as error:
                problem = f"{call.title}: {error}"
            device.synchronize()
            if executor.progress:
                executor.progress()
            problem = problem or workspace.release() or call.problem(_image(device, base, call))
            if problem:
                return Outcome("failed", f"call {n + 1} of {_MANY} in a row: {problem}")
    return Outcome("passed")


LOADS = {"load-threads": check_threads, "load-calls": check_calls, "load-long": check_long}


def _in_order(calls: Sequence[_Call]) -> Iterator[_Call]:
    """Yield calls by size, up and down, and in an order that brings each of them after each other."""
    by_size = sorted(calls, key=lambda call: call.plan.image.nbytes)
    count = len(calls)
    yield from (*by_size, *reversed(by_size))
    for n in range(_MANY - 2 * count):
        yield calls[(n + n // count * (n // count)) % count]


def _judged(subject: Subject, dtypes: Sequence[str], most: int, nbytes: int) -> list[_Call]:
    """Return calls of different sizes that are right when made alone, the largest of at most so many bytes first."""
    found: list[_Call] = []
    for case in subject.spread(dtypes, nbytes, most):
        try:
            plan = Plan(subject.kernel, subject.schema, case, subject.device.alignment)
            after, problem = subject.executor.call(plan)
        except (NotClaimed, KernelError):
            continue
        right = all(not judge(slot.view(after), e, case.tolerance).problem for slot, e in plan.targets)
        if right and not problem:  # the case itself reports what is wrong
            found.append(_Call(plan, f"{case.dtype} {case.id}", plan.image.bytes(POISONS[0]), after))
    return found


def _with_other_inputs(subject: Subject, call: _Call) -> _Call:
    """Return a call of the same shapes; the call itself if its inputs cannot be changed."""
    try:
        after, problem = subject.executor.call(call.plan, roll=True)
    except KernelError:
        return call
    before = call.plan.image.bytes(POISONS[0], roll=True)
    return call if problem else _Call(call.plan, f"{call.title} with other inputs", before, after)


def _in_parallel(subject: Subject, calls: Sequence[_Call]) -> str:
    """Make calls from threads, each on its share of the streams; return the first problem, or ""."""
    device = subject.device
    nbytes = -(-max(call.plan.image.nbytes for call in calls) // device.alignment) * device.alignment
    streams = [device.new_stream() for _ in range(_STREAMS)]
    try:
        with allocated(device, _THREADS * _CALLS * nbytes) as start:
            parts = [
                _Thread(
                    subject,
                    calls[i % len(calls)],
                    [start + (i * _CALLS + n) * nbytes for n in range(_CALLS)],
                    streams[i % _STREAMS],
                )
                for i in range(_THREADS)
            ]
            _Thread.run_all(parts)
            device.synchronize_all()
            problems = [part.finish() for part in parts]
    finally:
        for stream in streams:
            device.destroy_stream(stream)
    return next(filter(None, problems), "")


class _Thread(threading.Thread):
    """Makes one call at several addresses on a stream."""

    def __init__(self, subject: Subject, call: _Call, bases: Sequence[int], stream: int) -> None:
        super().__init__(daemon=True)
        self._subject, self._call, self._bases, self._stream = subject, call, bases, stream
        self._workspace = Workspace(subject.device, POISONS[0])
        self._start_together: threading.Barrier | None = None
        self._problem = ""
        for base in bases:
            subject.device.write(base, call.before)

    @classmethod
    def run_all(cls, threads: "Sequence[_Thread]") -> None:
        """Run threads that make their first calls at the same time."""
        together = threading.Barrier(len(threads))
        for thread in threads:
            thread._start_together = together
            thread.start()
        for thread in threads:
            thread.join()

    def run(self) -> None:
        """Make the calls."""
        device, executor = self._subject.device, self._subject.executor
        assert self._start_together
        try:
            device.synchronize(self._stream)  # makes the device current on this thread
            self._start_together.wait()
            for base in self._bases:
                sys.settrace(_Pauses())
                executor.launch(self._call.plan, base, self._stream, SEED, self._workspace)
        except (KernelError, DriverCallError) as error:
            self._problem = f"{self._call.title}: {error}"
        except threading.BrokenBarrierError:
            pass  # another thread reports why
        except BaseException:
            self._start_together.abort()
            raise
        finally:
            sys.settrace(None)

    def finish(self) -> str:
        """Compare the results, once all work is done; return the first problem, or ""."""
        device = self._subject.device
        problem = self._workspace.release()
        self._problem = self._problem or problem
        for base in self._bases:
            self._problem = self._problem or self._call.problem(_image(device, base, self._call))
        return self._problem


def _image(device: Device, base: int, call: _Call) -> Array:
    image = call.before.copy()
    device.read_into(image, base)
    return image


class _Pauses:
    """A trace function that lets other threads run between the lines of a kernel written in Python."""

    def __init__(self) -> None:
        self._lines = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> "_Pauses | None":
        if frame.f_code.co_filename.startswith(_NOT_KERNELS):
            return None
        if event == "line":
            self._lines += 1
            if self._lines < _EACH_LINE or self._lines % _EVERY == 0:
                time.sleep(_PAUSE)
        if self._lines >= _MOST_LINES:
            sys.settrace(None)
            return None
        return self
