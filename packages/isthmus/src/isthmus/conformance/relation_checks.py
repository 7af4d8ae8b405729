"""Checks the laws of :mod:`isthmus.conformance.relations` on the golden cases of an operator, with inputs varied.

Laws need no references, except that those of batches use the references of the cases. The calls use one address, so
that answers cached by address, shape and numbers are wrong.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus import options
from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import KernelError
from isthmus.conformance.cases import named, results_of, tensors_of
from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Case, Expected, Tensor, Tolerance
from isthmus.conformance.judge import FORMATS, differing, rounded, ulp_of
from isthmus.conformance.plan import NotClaimed
from isthmus.conformance.relation_batches import batches_of, count_rows, has_rows, take_rows
from isthmus.conformance.relation_calls import (
    are_moderate,
    call_problem,
    call_results,
    map_tensors,
    without_values,
)
from isthmus.conformance.relation_gradients import gradient_problem
from isthmus.conformance.relations import BATCHES, DIRECT, GRADIENTS, MONOTONIC, REPEATED, SCALED, UNSORTED
from isthmus.conformance.subject import Subject, nbytes_of
from isthmus.opset import dtypes as dt

_CASES = 3  # cases of each dtype
_BYTES = 64 << 10  # most bytes of their tensors
_FACTOR = 4.0
_POINTS, _NEAR = 4099, 4.0  # arguments of a function that is monotonic: among all, and around 0
_ROUNDED_ONCE = Tolerance(0.501, 0, "sums of small integers are exact, and rounded once")

Check = Callable[[Subject, Case], str | None]  # None where the law says nothing about the case


def _permutation(subject: Subject, case: Case) -> str | None:
    return _by_rows(subject, case, lambda n: [np.r_[0, n - 1 : 0 : -1]])


def _split(subject: Subject, case: Case) -> str | None:
    return _by_rows(subject, case, lambda n: [np.arange(n // 2), np.arange(n // 2, n)])


def _by_rows(subject: Subject, case: Case, parts: Callable[[int], list[Array]]) -> str | None:
    """Judge calls with some of the rows of a batch against these rows of the references."""
    batches = list(batches_of(subject.schema, case))
    if batches and call_problem(subject, case):
        return None  # the case itself reports what is wrong
    for rows in batches:
        for part in parts(count_rows(rows, named(subject.schema, case))):
            problem = call_problem(subject, take_rows(subject.schema, case, rows, part))
            if problem:
                return f"rows {part[:8].tolist()}{'...' if len(part) > 8 else ''} of the batch: {problem}"
    return "" if batches else None


def _scaling(subject: Subject, case: Case) -> str | None:
    if case.dtype not in dt.FLOATS or not are_moderate(case.arguments):
        return None
    before = call_results(subject, case)
    for text in SCALED[case.operator]:
        names, _, only = text.partition(" -> ")
        given = named(subject.schema, case)
        scaled = tensors_of(given[name] for name in names.split())
        if any(dt.name_of(tensor.storage.dtype) not in dt.FLOATS for tensor in scaled):
            continue
        arguments = {
            name: map_tensors(value, lambda x: x * _as(x.dtype, _FACTOR)) if name in names.split() else value
            for name, value in given.items()
        }
        after = call_results(subject, replace(case, arguments=list(arguments.values())))
        for name, array in before.items():
            if dt.name_of(array.dtype) not in dt.FLOATS or (only and name != only):
                continue
            least, most = _limits(dt.name_of(array.dtype))
            size = np.abs(array.astype(np.float64))
            expected = array.astype(np.float64) * _FACTOR
            compared = (size == 0) | ((size > least) & (size < most))
            wrong = compared & (after[name].astype(np.float64) != expected)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                return (
                    f"{names} x {_FACTOR:g}: {int(wrong.sum())} of {array.size} elements of {name} are not scaled; "
                    f"{list(at)} is {after[name][at]}, expected {expected[at]}"
                )
    return ""


def _direct(subject: Subject, case: Case) -> str | None:
    """Replace the inputs by small integers, and compare with direct sums of float64."""
    if case.dtype not in dt.FLOATS:
        return None
    exact = case.operator != "aten::_scaled_dot_product_flash_attention_for_cpu"
    given = named(subject.schema, case)
    change = _small_integers if exact else lambda x: x[::-1].copy()
    given = {name: map_tensors(value, change) for name, value in given.items()}
    wide = {
        name: value.array.astype(np.float64) if isinstance(value, Tensor) else value
        for name, value in given.items()
    }
    found = DIRECT[case.operator](**wide)
    if found is None:
        return None
    first = case.outputs[0]
    assert isinstance(first, Expected)
    outputs = [
        replace(first, reference=np.asarray(found).reshape(first.shape)),
        *map(without_values, case.outputs[1:]),
    ]
    tolerance = _ROUNDED_ONCE if exact else case.tolerance
    return call_problem(
        subject,
        replace(case, arguments=list(given.values()), outputs=outputs, tolerance=tolerance),
        "small integers" if exact else "other values",
    )


def _repeated(subject: Subject, case: Case) -> str | None:
    first = call_results(subject, case)
    name, once = next(iter(first.items()))
    given = named(subject.schema, case)
    if once.dtype != given["self"].array.dtype or np.isnan(once.astype(np.float64)).any():
        return None
    given = given | {"self": Tensor.contiguous(once)}
    twice = call_results(subject, replace(case, arguments=list(given.values())))[name]
    expected = (
        once if REPEATED[case.operator] else np.ascontiguousarray(named(subject.schema, case)["self"].array)
    )
    wrong = differing(twice, expected)
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    what = "once" if REPEATED[case.operator] else "not at all"
    return (
        f"applied twice, {int(wrong.sum())} of {once.size} elements differ from it applied {what}; "
        f"element {at} is {twice.flat[at]}, expected {expected.flat[at]}"
    )


def _unsorted(subject: Subject, case: Case) -> str | None:
    """Compare results in any order with those in order, and the values with the elements that the indices name."""
    given = named(subject.schema, case)
    x, dim = given["self"].array, given["dim"]
    if not x.ndim or not x.size:
        return None
    ordered, _ = call_results(subject, case).values()
    unordered = replace(case, arguments=list((given | {"sorted": False}).values()))
    values, places = call_results(subject, unordered).values()
    if ((places < 0) | (places >= x.shape[dim])).any():
        return "unsorted: an index is outside of the dimension"
    got = _as_numbers(values)
    wrong = int((got != _as_numbers(np.take_along_axis(x, places, dim))).sum())
    if wrong:
        return f"unsorted: {wrong} of {values.size} values are not those that the indices name"
    wrong = int((np.sort(got, dim) != np.sort(_as_numbers(ordered), dim)).sum())
    return f"unsorted: {wrong} of {values.size} values are not those in order" if wrong else ""


def _as_numbers(x: Array) -> Array:
    """Return what compares as the elements are ordered: NaN as the largest, and one zero."""
    if dt.name_of(x.dtype) not in dt.FLOATS:
        return x
    wide = x.astype(np.float64) + 0.0
    return np.where(np.isnan(wide), np.inf, wide)


def _monotonic(subject: Subject, case: Case) -> str | None:
    values = next(tensors_of(case.arguments)).array.astype(np.float64)
    values = values[np.isfinite(values)]
    if case.dtype not in dt.FLOATS or not values.size or values.min() == values.max():
        return None
    low, high = values.min(), values.max()
    dense = np.linspace(max(low, -_NEAR), min(high, _NEAR), _POINTS)
    points = np.unique(rounded(np.union1d(dense, np.linspace(low, high, _POINTS)), case.dtype))
    given = named(subject.schema, case) | {"self": Tensor.contiguous(points)}
    made = replace(
        case,
        arguments=list(given.values()),
        outputs=[Expected(case.dtype, points.shape)],
        output_layout="contiguous",
    )
    found = call_results(subject, made)["out"].astype(np.float64) * MONOTONIC[case.operator]
    with np.errstate(all="ignore"):
        steps = np.diff(found)
    allowed = 2 * case.tolerance.ulp * ulp_of(case.dtype, np.nan_to_num(found[1:]))
    wrong = np.isfinite(steps) & (steps < -allowed)
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    kind = "decreases" if MONOTONIC[case.operator] > 0 else "increases"
    return f"{kind} from {points[at]} to {points[at + 1]}: {abs(found[at])} and {abs(found[at + 1])}"


LAWS: dict[str, tuple[Callable[[str], bool], Check]] = {
    "law-permutation": (has_rows, _permutation),
    "law-split": (has_rows, _split),
    "law-scaling": (SCALED.__contains__, _scaling),
    "law-direct": (DIRECT.__contains__, _direct),
    "law-repeated": (REPEATED.__contains__, _repeated),
    "law-unsorted": (UNSORTED.__contains__, _unsorted),
    "law-monotonic": (MONOTONIC.__contains__, _monotonic),
    "law-gradient": (GRADIENTS.__contains__, gradient_problem),
}
INVARIANCE = "property-batch-invariance"


def laws_of(operator: str) -> list[str]:
    """Return the names of the laws and properties of an operator."""
    found = [name for name, (holds, _) in LAWS.items() if holds(operator)]
    return [*found, INVARIANCE] if operator in BATCHES else found


def check_law(name: str, subject: Subject, dtype: str) -> Outcome | None:
    """Check a law on some cases of a dtype, of which a failure names one; None if it says nothing about them."""
    if name == INVARIANCE:
        return _report_invariance(subject, dtype)
    _, check = LAWS[name]
    tried = 0
    for case in _varied(subject, dtype):
        try:
            problem = check(subject, case)
        except NotClaimed:
            continue
        except KernelError as error:
            if error.unsupported:
                continue
            problem = str(error)
        tried += problem is not None
        if problem:
            return Outcome("failed", f"{name}: {case.id}: {problem}")
    return Outcome("passed") if tried else None


def _report_invariance(subject: Subject, dtype: str) -> Outcome | None:
    """Report whether the bits of rows depend on their batch: alone, in part of it, in another order.

    A failure where the driver declares it or ``ISTHMUS_BATCH_INVARIANT`` asks for it.
    """
    tried, varying = 0, []
    for case in _varied(subject, dtype):
        for rows in batches_of(subject.schema, case):
            every = np.arange(count_rows(rows, named(subject.schema, case)))
            try:
                whole = call_results(subject, case)
                for part in (every[:1], every[-1:], every[len(every) // 2 :], every[1:], every[::-1]):
                    found = call_results(subject, take_rows(subject.schema, case, rows, part))
                    for name, axis in rows.results.items():
                        expected = whole[name].take(part, axis) if name in whole else found[name]
                        if differing(found[name], expected).any():
                            varying.append(case.id)
            except (NotClaimed, KernelError):
                continue
            tried += 1
    if not tried:
        return None
    if varying:
        required = subject.device.batch_invariant or options.switch("batch_invariant")
        return Outcome(
            "failed" if required else "passed", f"no: bits of a row depend on its batch, in {varying[0]}"
        )
    return Outcome("passed", "yes: bits of a row do not depend on its batch")


def _varied(subject: Subject, dtype: str) -> Iterator[Case]:
    """Yield cases of a dtype with references and moderate sizes, contiguous ones if there are some."""
    suitable = [
        case
        for case in subject.of_dtype(dtype)
        if 0 < nbytes_of(case) <= _BYTES
        and case.layout in ("contiguous", "strided")
        and "special" not in case.id.split("-")
        and _has_references(case)
    ]
    chosen = [case for case in suitable if case.layout == "contiguous"] or suitable
    step = max(1, len(chosen) // _CASES)
    yield from chosen[::step][:_CASES]


def _has_references(case: Case) -> bool:
    return not case.written and not any(result.law for result in results_of(case))


def _as(kind: Any, number: float) -> Any:
    return np.asarray(number).astype(kind)


def _small_integers(x: Array) -> Array:
    """Return integers from -2 to 2 in the dtype of an array."""
    return (np.arange(x.size) * 7 % 11 % 5 - 2).astype(x.dtype)


def _limits(dtype: str) -> tuple[float, float]:
    """Return magnitudes between which a result scales exactly: normal numbers, with a margin."""
    form = FORMATS[dtype]
    return 2.0 ** (form.lowest + form.precision + 1), form.largest / (2 * _FACTOR)
