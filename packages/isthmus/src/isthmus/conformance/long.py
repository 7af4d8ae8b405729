"""Calls with more than 2^24 elements, beyond which float32 skips integers: indices and counters kept in it are wrong.

A call is that of a golden case, in its narrowest dtype, with the rows of its batch repeated, or with zeros and a few
marks in place of its tensor (:mod:`isthmus.conformance.long_calls`). What is judged of the results are the
last elements, from before element 2^24 on, and other memory. No reference has the size of the call.
"""

import math
from collections.abc import Iterator

import numpy as np

from isthmus import opset
from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import KernelError
from isthmus.conformance.cases import Case, Expected, named, results_of, tensors_of
from isthmus.conformance.executor import Outcome
from isthmus.conformance.judge import judge
from isthmus.conformance.long_calls import LENGTH, MARKED, TAIL, LongCall, marked_calls
from isthmus.conformance.plan import NotClaimed, Plan
from isthmus.conformance.relation_batches import batches_of, count_rows, has_rows, repeat_rows
from isthmus.conformance.relation_calls import call_problem
from isthmus.conformance.subject import Subject, nbytes_of
from isthmus.drivers.driver import DriverCallError
from isthmus.drivers.interface import Status
from isthmus.opset import dtypes as dt

# Operators without integers whose rows are repeated: one of each kind, as most take a CPU seconds.
_OF_FLOATS = frozenset(
    "aten::exp aten::sigmoid aten::silu aten::div.Tensor aten::_softmax aten::native_layer_norm isthmus::rms_norm "
    "isthmus::swiglu".split()
)
_NARROW = frozenset(("bool", "int8", "uint8"))
_LEAST, _MOST = 64, 64 << 10  # bytes of a case whose rows are repeated


def is_called_long(operator: str) -> bool:
    """Whether an operator is called with more than 2^24 elements."""
    return operator in MARKED or _repeats(operator)


def check_long(subject: Subject) -> Outcome | None:
    """Call with more than 2^24 elements; None where no case can be made so long, or the device lacks the memory."""
    done = False
    for calls in (marked_calls(subject), _repeated(subject)):
        for call in calls:
            try:
                problem = _problem(subject, call)
            except NotClaimed:
                continue
            except KernelError as error:
                if error.unsupported:
                    continue
                problem = str(error)
            except DriverCallError as error:
                if error.status == Status.OUT_OF_MEMORY:
                    return None
                raise
            if problem:
                return Outcome("failed", f"more than 2^24 elements: {call.title}: {problem}")
            done = True
            break
    return Outcome("passed") if done else None


def _problem(subject: Subject, call: LongCall) -> str:
    plan = Plan(subject.kernel, subject.schema, call.case, subject.device.alignment)
    after, problem = subject.executor.call(plan)
    for slot, _ in plan.targets:
        if slot.label in call.judged:
            places, expected = call.judged[slot.label]
            got = np.ascontiguousarray(slot.view(after)).reshape(-1)[places]
            found = judge(got, expected, call.case.tolerance).problem
            if found:
                return f"{slot.label}, elements from {int(np.min(places))} to {int(np.max(places))}: {found}"
    return problem


def _repeated(subject: Subject) -> Iterator[LongCall]:
    """Yield the narrowest cases with a batch, whose rows are repeated."""
    if not _repeats(subject.schema.name):
        return
    for case in sorted(_with_rows(subject), key=_width):
        if not _is_right(subject, case):  # the case itself reports what is wrong
            continue
        rows = next(batches_of(subject.schema, case))
        count = count_rows(rows, named(subject.schema, case))
        longest = max(tensor.array.size for tensor in tensors_of(case.arguments))
        part = np.resize(np.arange(count), count * -(-LENGTH // longest))
        long = repeat_rows(subject.schema, case, rows, part)
        judged = {}
        for result, old, new in zip(subject.schema.outputs, case.outputs, long.outputs, strict=True):
            if isinstance(old, Expected) and isinstance(new, Expected) and old.reference is not None:
                places, within = _last_rows(old, new, rows.results[result.name])
                magnitude = None if old.magnitude is None else old.magnitude.reshape(-1)[within]
                expected = Expected(old.dtype, places.shape, old.reference.reshape(-1)[within], magnitude)
                judged[result.name] = places, expected
        yield LongCall(f"{case.dtype} {case.id}, rows repeated", long, judged)


def _is_right(subject: Subject, case: Case) -> bool:
    try:
        return not call_problem(subject, case)
    except (NotClaimed, KernelError):
        return False


def _repeats(operator: str) -> bool:
    known = opset.operators().get(operator)
    narrow = known is not None and not _NARROW.isdisjoint(known.dtypes)
    return has_rows(operator) and (operator in _OF_FLOATS or narrow)


def _with_rows(subject: Subject) -> Iterator[Case]:
    """Yield cases of a few hundred bytes or more with results by rows."""
    for dtype in subject.dtypes:
        for case in subject.of_dtype(dtype):
            fits = _LEAST <= nbytes_of(case) <= _MOST and not case.written
            if fits and next(batches_of(subject.schema, case), None):
                yield case
                break


def _width(case: Case) -> int:
    """Return the bytes of one element of each tensor."""
    written = sum(dt.DTYPES[each.dtype].numpy.itemsize for each in results_of(case))
    return written + sum(tensor.storage.itemsize for tensor in tensors_of(case.arguments))


def _last_rows(old: Expected, new: Expected, axis: int) -> tuple[Array, Array]:
    """Return the last places of a result with repeated rows, and which places of the case's result these repeat."""
    size = math.prod(new.shape)
    places = np.arange(max(0, size - TAIL), size)
    index = list(np.unravel_index(places, new.shape))
    index[axis] = index[axis] % old.shape[axis]
    return places, np.asarray(np.ravel_multi_index(tuple(index), old.shape))
