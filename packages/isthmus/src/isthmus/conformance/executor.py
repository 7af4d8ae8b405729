"""Runs a case on a device several times and reports every problem.

1. A call with other inputs and numbers at the same addresses, to reveal stale caches. At the end it must give the
   same bits again: a kernel may be tuned by its first call, and then change its arguments several times.
2. The call itself, with outputs and workspace poisoned with NaN: results are compared, and other memory must not
   change, the inputs not even during the call.
3. The same call on another stream, with another poison, after the inputs are copied on that stream and before they
   and the workspace are overwritten on it: the results must have the same bits, and must not change after the stream
   has read them. An element that equals the poison both times was not written. A kernel that computes on the CPU gets
   read-only inputs.
4. For kernels that declare in_place, the output in the memory of each matching input.
5. For random operators, seeds that differ in the low word or in the high one, which must give other numbers; for few
   numbers, many seeds, over which the last one must follow the law and not be an earlier one.
6. The first call again, if its dtypes and shapes were new to the kernel or it changes arguments: a kernel that tunes
   itself in that call must give the same bits in it.
7. For the first cases, calls that must fail and leave other memory alone, such as with an index out of range; the
   call itself must then still give the same bits.

:mod:`isthmus.conformance.load` and :mod:`isthmus.conformance.relation_checks` call kernels through the same executor.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import KernelError, make_context
from isthmus.conformance.device import Device
from isthmus.conformance.diagnosis import Seen
from isthmus.conformance.golden import Case
from isthmus.conformance.inputs import read_only, watch
from isthmus.conformance.invalid import invalid_calls
from isthmus.conformance.judge import Verdict, judge
from isthmus.conformance.laws import broken_law
from isthmus.conformance.memory import POISONS, Slot
from isthmus.conformance.plan import NotClaimed, Plan
from isthmus.conformance.repetition import (
    changed_later,
    count_different,
    describe_differences,
    describe_unwritten,
)
from isthmus.conformance.workspace import Workspace
from isthmus.drivers.driver import DriverCallError
from isthmus.drivers.interface import CopyKind
from isthmus.drivers.libraries import LoadedOperator
from isthmus.opset.library import HOST, memory_at
from isthmus.opset.schema import Schema

SEED = 0x5EED0001
_SEEDS = (SEED, 0x5EED0002)
_OTHER_SEEDS = (_SEEDS[1], SEED + (1 << 32))  # which differ in the low word, and in the high one
_DELAYED_CASES = 2  # cases per kernel that keep the second stream busy before the call
_DELAY_BYTES = 32 << 20
_SURELY_RANDOM = 16  # elements from which two seeds cannot agree by chance
_FEW, _MANY_SEEDS = 5, 64
_FEW_LAWS = ("normal", "uniform", "permutation")  # judged over many seeds where there are few numbers
_WITH_PLACES = {"index", "indices", "rows"}  # places to write to, which must not be those of another call
_SURELY_COPIED = 0.25  # share of equal numbers, which those of 16 bits are by chance in one of hundreds
_INVALID_CASES = 3  # cases per kernel from which calls that must fail are made
_OVERWRITTEN = 0xFF  # byte that successors write to the inputs: NaN in every floating dtype
_INVALID = "in a call that must fail"
_READ_ONLY = "with read-only inputs: it writes to an input during the call"


@dataclass
class Outcome:
    """The outcome of a case.

    Attributes:
        status: "passed", "failed" or "not claimed".
        message: the reason, in one line.
        verdicts: (label, verdict) of each result.
        seen: the results of a failed case.
        guess: the probable mistake, or "".
    """

    status: str
    message: str = ""
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    guess: str = ""


class _Called(NamedTuple):
    """The image after a call, and what else the call did wrong, in one line, or ""."""

    image: Array
    problem: str


class Executor:
    """Runs cases on a device.

    Attributes:
        device: the device.

    Args:
        note: receives how the next call may end this process, "" after it. Without it inputs are never read-only,
            so that a kernel that writes to them does not end the process.
        progress: called after each of many calls, each of which may compile something.
    """

    def __init__(
        self,
        device: Device,
        note: Callable[[str], None] | None = None,
        progress: Callable[[], None] | None = None,
    ) -> None:
        self.device, self._note, self.progress = device, note, progress
        self._base, self._capacity = 0, 0
        self._staging, self._staged = 0, 0
        self._delay = 0
        self._stream = device.new_stream()
        self._delayed: Counter[LoadedOperator] = Counter()
        self._refused: Counter[LoadedOperator] = Counter()
        self._shapes: set[Any] = set()  # with which kernels have been called

    def forget_kernels(self) -> None:
        """Treat the next cases of each kernel as its first, which are examined more closely."""
        self._delayed.clear()
        self._refused.clear()
        self._shapes.clear()

    def run(self, kernel: LoadedOperator, schema: Schema, case: Case) -> Outcome:
        """Run a case and judge it."""
        try:
            if kernel.flags & HOST and not self.device.host_addressable:
                raise NotClaimed(
                    "it computes on the CPU (HOST), and the driver has no host_window to its memory"
                )
            plan = Plan(kernel, schema, case, self.device.alignment)
            self._reserve(plan.image.nbytes)
            earlier = self._overwrite_inputs(plan)
            outcome = self._examine(plan, schema, case, earlier)
            if outcome.status == "passed":
                self._examine_refusals(plan, schema, case, outcome)
            return outcome
        except NotClaimed as reason:
            return Outcome("not claimed", str(reason))
        except KernelError as error:
            return Outcome("not claimed" if error.unsupported else "failed", f"{case.operator} {error}")

    def call(self, plan: Plan, roll: bool = False) -> tuple[Array, str]:
        """Call on the default stream; return the image after the call, and what is wrong beside its results, or "".

        Args:
            plan: the call.
            roll: with other inputs (see :meth:`~isthmus.conformance.memory.Image.bytes`).

        Raises:
            KernelError: the kernel failed.
        """
        self._reserve(plan.image.nbytes)
        before = plan.image.bytes(POISONS[0], roll)
        after, problem = self._call(plan, before, _SEEDS[0])
        return after, _join_problems([problem, plan.image.describe_intrusion(before, after)])

    def results(self, kernel: LoadedOperator, schema: Schema, case: Case) -> dict[str, Array]:
        """Return the results of one call, by label; none if the kernel refuses it."""
        try:
            plan = Plan(kernel, schema, case, self.device.alignment)
            image, _ = self.call(plan)
        except (NotClaimed, KernelError, DriverCallError):
            return {}
        return {slot.label: slot.view(image) for slot, _ in plan.targets}

    def _examine_refusals(self, plan: Plan, schema: Schema, case: Case, outcome: Outcome) -> None:
        """Fail the outcome if an invalid call does not fail, or has other effects."""
        kernel = plan.kernel
        calls = list(invalid_calls(schema, case)) if self._refused[kernel] < _INVALID_CASES else []
        if not calls:
            return
        self._refused[kernel] += 1
        right, _ = self._call(plan, plan.image.bytes(POISONS[0]), _SEEDS[0])
        problems = [self._refusal_problem(kernel, schema, each, text) for text, each in calls]
        if not any(problems):
            again, problem = self._call(plan, plan.image.bytes(POISONS[1]), _SEEDS[0])
            fixed = [slot for slot, expected in plan.targets if (expected.law or {}).get("name") != "any"]
            changed = any(count_different(slot.view(right), slot.view(again)) for slot in fixed)
            problems = [problem, "other results after calls that failed" if changed else ""]
        outcome.message = next(filter(None, problems), "")
        outcome.status = "failed" if outcome.message else outcome.status

    def _refusal_problem(self, kernel: LoadedOperator, schema: Schema, invalid: Case, text: str) -> str:
        """Return what is wrong with a call that must fail, or ""."""
        try:
            plan = Plan(kernel, schema, invalid, self.device.alignment)
        except NotClaimed:  # of a dtype that never reaches the kernel
            return ""
        self._reserve(plan.image.nbytes)
        before = plan.image.bytes(POISONS[0])
        if self._note:
            self._note(_INVALID)
        try:
            self._call(plan, before, _SEEDS[0])
        except (KernelError, DriverCallError):
            intruded = plan.image.describe_intrusion(before, self._read(len(before)))
            return f"{text}: {intruded}" if intruded else ""
        finally:
            if self._note:
                self._note("")
        return f"{text}: accepted, expected an error"

    def _overwrite_inputs(self, plan: Plan) -> dict[bool, Array]:
        """Call with other inputs and another number, then with other inputs and the numbers of the case.

        Return the images after the calls, by whether a number was another, without calls that the kernel refuses.
        """
        images = {}
        for disturb in (True, False) if plan.has_number else (False,):
            with suppress(KernelError):
                images[disturb] = self._call_with_others(plan, disturb)
        return images

    def _call_with_others(self, plan: Plan, disturb: bool) -> Array:
        """Call with other inputs, and with ``disturb`` another number; return the image after the call."""
        return self._call(plan, plan.image.bytes(POISONS[1], roll=True), _SEEDS[1], disturb=disturb).image

    def _examine(self, plan: Plan, schema: Schema, case: Case, earlier: dict[bool, Array]) -> Outcome:
        before = plan.image.bytes(POISONS[0])
        first, problem = self._call(plan, before, _SEEDS[0])
        verdicts = [
            (slot.label, judge(slot.view(first), expected, case.tolerance)) for slot, expected in plan.targets
        ]
        intruded = plan.image.describe_intrusion(before, first)
        problems = [problem, intruded]
        second, problem = self._call_on_stream(
            plan, plan.image.bytes(POISONS[1]), _SEEDS[0], protect=not intruded
        )
        problems.append(problem)
        for (slot, expected), (label, verdict) in zip(plan.targets, verdicts, strict=True):
            left = describe_unwritten(slot, first, second)
            if left:
                problems.append(f"{label}: {left}")
            elif verdict.problem:
                problems.append(f"{label}: {verdict.problem}")
            elif not (expected.law and expected.law.get("name") == "any"):
                problems.append(describe_differences(slot, first, second))
        if not any(problems):
            problems += self._examine_shared(plan, first)
            problems += self._examine_seed(plan, first)
            problems += self._examine_last(plan)
            problems += self._examine_first(plan, schema, earlier)
        message = _join_problems(problems)
        if not message:
            return Outcome("passed", "", verdicts)
        seen = [
            Seen(
                slot.label,
                slot.view(first),
                expected,
                verdict.mask,
                slot.view(second),
                slot.view(earlier[False]) if False in earlier else None,
            )
            for (slot, expected), (_, verdict) in zip(plan.targets, verdicts, strict=True)
        ]
        return Outcome("failed", message, verdicts, seen)

    def _examine_shared(self, plan: Plan, first: Array) -> list[str]:
        problems = []
        for source, out in plan.shareable:
            before = plan.image.bytes(POISONS[0])
            after, problem = self._call(plan, before, _SEEDS[0], (source, out))
            problems.append(problem)
            wrong = count_different(out.view(first), source.view(after))
            if wrong:
                problems.append(
                    f"{out.label} in the memory of {source.label}: {wrong} elements differ from a call with separate "
                    "memory, although the library declares in_place"
                )
            for slot, _ in plan.targets:
                wrong = 0 if slot is out else count_different(slot.view(first), slot.view(after))
                if wrong:
                    problems.append(
                        f"{slot.label}, with {out.label} in the memory of {source.label}: {wrong} elements differ "
                        "from a call with separate memory"
                    )
            problems.append(plan.image.describe_intrusion(before, after, source))
        return problems

    def _examine_seed(self, plan: Plan, first: Array) -> list[str]:
        drawn = [
            slot
            for slot, expected in plan.targets
            if expected.law and expected.law.get("name") != "any" and slot.view(first).size >= _SURELY_RANDOM
        ]
        varied = [slot for slot in drawn if count_different(slot.view(first), slot.view(first).flat[0])]
        if not varied:
            return []
        problems = []
        for seed in _OTHER_SEEDS:
            other, problem = self._call(plan, plan.image.bytes(POISONS[0]), seed)
            same = [slot.label for slot in varied if not count_different(slot.view(first), slot.view(other))]
            text = f"another seed gave the same numbers: {seed:#x} instead of {SEED:#x}"
            problems += [problem, *(f"{label}: {text}" for label in same)]
        return problems

    def _examine_last(self, plan: Plan) -> list[str]:
        """Judge the last number of few over many seeds.

        Kernels that draw pairs may end with half a pair; a shuffle may never leave a number in its place.
        """
        drawn = [
            (slot, _of_last(expected.law, size))
            for slot, expected in plan.targets
            if expected.law
            and expected.law.get("name") in _FEW_LAWS
            and 0 < (size := slot.view(plan.image.bytes(0)).size) <= _FEW
        ]
        if not drawn:
            return []
        images = [self._call(plan, plan.image.bytes(POISONS[0]), seed).image for seed in range(_MANY_SEEDS)]
        found = [
            (slot.label, np.stack([slot.view(each).reshape(-1) for each in images]), law)
            for slot, law in drawn
        ]
        problems = [
            (label, broken_law(rows[:, -1], law) or _constant(rows[:, -1]) or _copied(rows, law))
            for label, rows, law in found
        ]
        return [
            f"{label}, last elements with {_MANY_SEEDS} seeds: {text}" for label, text in problems if text
        ]

    def _examine_first(self, plan: Plan, schema: Schema, earlier: Mapping[bool, Array]) -> list[str]:
        """Repeat the first of the earlier calls: its dtypes and shapes were new, or the kernel changes arguments."""
        if not earlier or any(each.name in _WITH_PLACES for each in schema.inputs):
            return []
        key = (plan.kernel, *((slot.dtype, slot.shape) for slot in plan.image.slots))
        if key in self._shapes and not any(each.is_tensor and each.written for each in schema.inputs):
            return []
        self._shapes.add(key)
        disturb, first = next(iter(earlier.items()))
        again = self._call_with_others(plan, disturb)
        wrong = {
            slot.label: count_different(slot.view(first), slot.view(again))
            for slot, expected in plan.targets
            if (expected.law or {}).get("name") != "any"
        }
        return [
            f"{label}: the first call with these shapes gave different bits in {count} elements"
            for label, count in wrong.items()
            if count
        ]

    def _call(
        self,
        plan: Plan,
        before: Array,
        seed: int,
        share: tuple[Slot, Slot] | None = None,
        disturb: bool = False,
    ) -> _Called:
        """Call on the default stream."""
        device = self.device
        device.write(self._base, before)
        workspace = Workspace(device, POISONS[0])
        changed = ""
        try:
            self.launch(plan, self._base, 0, seed, workspace, share, disturb)
            if not plan.kernel.flags & HOST and not share:
                changed = watch(device, plan.image, self._base, before)
        finally:
            device.synchronize_all()
            overrun = workspace.release()
        return _Called(self._read(len(before)), _join_problems([changed, overrun]))

    def _call_on_stream(self, plan: Plan, before: Array, seed: int, protect: bool) -> _Called:
        """Call with inputs copied, overwritten, and outputs read on the second stream only.

        Args:
            protect: make the inputs of a kernel that computes on the CPU read-only.
        """
        device, driver = self.device, self.device.driver
        stale = np.full(len(before), POISONS[0], np.uint8)
        device.write(self._base, stale)
        staged = self._stage(len(before))
        staged[:] = before
        self._keep_busy(plan)
        driver.copy_async(self._base, self._staging, len(before), CopyKind.HOST_TO_DEVICE, self._stream)
        workspace = Workspace(device, POISONS[1])
        try:
            if plan.kernel.flags & HOST:
                device.synchronize(self._stream)
                self._launch_on_cpu(plan, seed, workspace, protect)
            else:
                self.launch(plan, self._base, self._stream, seed, workspace)
            inputs = plan.image.inputs
            device.fill(self._base + inputs.start, _OVERWRITTEN, len(inputs), self._stream)
            workspace.overwrite(_OVERWRITTEN, self._stream)
            driver.copy_async(self._staging, self._base, len(before), CopyKind.DEVICE_TO_HOST, self._stream)
        finally:
            device.synchronize_all()
            overrun = workspace.release()
        problems = [overrun]
        if not plan.kernel.flags & HOST:
            last = self._read(len(before))
            problems += [changed_later(slot, staged, last) for slot, _ in plan.targets]
        return _Called(staged.copy(), _join_problems(problems))

    def _launch_on_cpu(self, plan: Plan, seed: int, workspace: Workspace, protect: bool) -> None:
        if not protect or self._note is None:
            self.launch(plan, self._base, 0, seed, workspace)
            return
        self._note(_READ_ONLY)
        try:
            with read_only(plan.image, self._base + self.device.host_offset):
                self.launch(plan, self._base, 0, seed, workspace)
        finally:
            self._note("")

    def _keep_busy(self, plan: Plan) -> None:
        """Enqueue work before the first calls of a kernel: one that ignores its stream then runs too early."""
        empty = all(0 in slot.shape for slot, _ in plan.targets)
        if empty or plan.kernel.flags & HOST or self._delayed[plan.kernel] == _DELAYED_CASES:
            return
        self._delayed[plan.kernel] += 1
        if not self._delay:
            self._delay = self.device.allocate(_DELAY_BYTES)
        self.device.fill(self._delay, 0, _DELAY_BYTES, self._stream)

    def launch(
        self,
        plan: Plan,
        base: int,
        stream: int,
        seed: int,
        workspace: Workspace,
        share: tuple[Slot, Slot] | None = None,
        disturb: bool = False,
    ) -> None:
        """Call a kernel on an image at a device address; arguments as of :meth:`Plan.frame`. Raises KernelError."""
        explained: list[str] = []
        # A kernel that computes in the calling thread gets addresses of the CPU.
        shift = self.device.host_offset if plan.kernel.flags & HOST else 0
        context, kept = make_context(
            self.device.index, stream, seed, lambda nbytes: workspace.allocate(nbytes) + shift, explained
        )
        frame = plan.frame(base + shift, self.device.dlpack_device, share, disturb)
        frame.call(plan.kernel, context, explained)
        del kept

    def _read(self, nbytes: int) -> Array:
        image = np.empty(nbytes, np.uint8)
        self.device.read_into(image, self._base)
        return image

    def _reserve(self, nbytes: int) -> None:
        if nbytes > self._capacity:
            if self._base:
                self.device.free(self._base)
            self._base, self._capacity = 0, 0
            capacity = max(nbytes, 1 << 20)
            self._base, self._capacity = self.device.allocate(capacity), capacity

    def _stage(self, nbytes: int) -> Array:
        """Return pinned host memory."""
        driver: Any = self.device.driver
        if nbytes > self._staged:
            if self._staging:
                driver.host_free(self._staging)
            self._staged = max(nbytes, 1 << 20)
            self._staging = driver.result_of("host_allocate", self._staged)
        return np.frombuffer(memory_at(self._staging, nbytes), np.uint8)


def _join_problems(problems: Iterable[str]) -> str:
    """Join problems in one line, each once."""
    return "; ".join(dict.fromkeys(filter(None, problems)))


def _of_last(law: Mapping[str, Any], size: int) -> Mapping[str, Any]:
    """Return the law of the last number alone."""
    return {"name": "integers", "low": 0, "high": size} if law["name"] == "permutation" else law


def _constant(values: Array) -> str:
    return "" if count_different(values, values.flat[0]) else "the number is always the same"


def _copied(rows: Array, law: Mapping[str, Any]) -> str:
    """Whether the last number of each row is an earlier one, or its negative: half of a pair is drawn twice."""
    if law.get("name") == "permutation" or rows.shape[1] == 1:
        return ""
    sizes = np.abs(rows.astype(np.float64))
    share = (sizes[:, :-1] == sizes[:, -1:]).mean(0).max()
    return f"with {share:.0%} of the seeds it is an earlier number again" if share > _SURELY_COPIED else ""
