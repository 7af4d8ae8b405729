"""Checks the laws of :mod:`isthmus.conformance.relations` on the golden cases of an operator, with inputs varied.

Laws need no references, except that those of batches use the references of the cases. The calls use one address, so
that answers cached by address, shape and numbers are wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import KernelError
from isthmus.conformance.cases import named, results_of, tensors_of
from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Case, Expected, Tensor, Tolerance, Value
from isthmus.conformance.judge import FORMATS, differing, judge, rounded, ulp_of
from isthmus.conformance.plan import NotClaimed, Plan
from isthmus.conformance.relations import (
    ALONG,
    BATCHES,
    DIRECT,
    GRADIENTS,
    MONOTONIC,
    REPEATED,
    SCALED,
    Gradient,
    Rows,
)
from isthmus.conformance.subject import Subject, nbytes_of
from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema

_CASES = 3  # cases of each dtype
_BYTES = 64 << 10  # most bytes of their tensors
# Magnitudes of inputs whose results neither overflow nor underflow when scaled.
_MODERATE = (2.0**-12, 2.0**12)
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
    batches = list(_batches(subject.schema, case))
    if batches and _judge(subject, case):
        return None  # the case itself reports what is wrong
    for rows in batches:
        for part in parts(_count(rows, named(subject.schema, case))):
            problem = _judge(subject, _take(subject.schema, case, rows, part))
            if problem:
                return f"rows {part[:8].tolist()}{'...' if len(part) > 8 else ''} of the batch: {problem}"
    return "" if batches else None


def _scaling(subject: Subject, case: Case) -> str | None:
    if case.dtype not in dt.FLOATS or not _are_moderate(case.arguments):
        return None
    before = _results(subject, case)
    for text in SCALED[case.operator]:
        names, _, only = text.partition(" -> ")
        given = named(subject.schema, case)
        scaled = tensors_of(given[name] for name in names.split())
        if any(dt.name_of(tensor.storage.dtype) not in dt.FLOATS for tensor in scaled):
            continue
        arguments = {
            name: _map_tensors(value, lambda x: x * _as(x.dtype, _FACTOR)) if name in names.split() else value
            for name, value in given.items()
        }
        after = _results(subject, replace(case, arguments=list(arguments.values())))
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
    given = {name: _map_tensors(value, change) for name, value in given.items()}
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
        *map(_unknown, case.outputs[1:]),
    ]
    tolerance = _ROUNDED_ONCE if exact else case.tolerance
    return _judge(
        subject,
        replace(case, arguments=list(given.values()), outputs=outputs, tolerance=tolerance),
        "small integers" if exact else "other values",
    )


def _repeated(subject: Subject, case: Case) -> str | None:
    first = _results(subject, case)
    name, once = next(iter(first.items()))
    given = named(subject.schema, case)
    if once.dtype != given["self"].array.dtype or np.isnan(once.astype(np.float64)).any():
        return None
    given = given | {"self": Tensor.contiguous(once)}
    twice = _results(subject, replace(case, arguments=list(given.values())))[name]
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
    found = _results(subject, made)["out"].astype(np.float64) * MONOTONIC[case.operator]
    with np.errstate(all="ignore"):
        steps = np.diff(found)
    allowed = 2 * case.tolerance.ulp * ulp_of(case.dtype, np.nan_to_num(found[1:]))
    wrong = np.isfinite(steps) & (steps < -allowed)
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    kind = "decreases" if MONOTONIC[case.operator] > 0 else "increases"
    return f"{kind} from {points[at]} to {points[at + 1]}: {abs(found[at])} and {abs(found[at + 1])}"


def _gradient(subject: Subject, case: Case) -> str | None:
    """Compare the derivative along a direction with the difference of two forward calls."""
    rule = GRADIENTS[case.operator]
    kernel = subject.kernels.get(rule.forward)
    double = case.dtype == "float64"
    if kernel is None or case.dtype not in ("float64", "float32"):
        return None
    schema = opset.schema_of(rule.forward)
    backward = named(subject.schema, case)
    if rule.other:
        backward[rule.other] = None
    if not _are_moderate(value for name, value in backward.items() if name not in rule.results):
        return None
    forward = _forward_arguments(rule, schema, backward, case)
    if forward is None:
        return None
    x = np.ascontiguousarray(forward[rule.of].array)
    weights = backward[rule.gradient].array.astype(np.float64)
    if opset.operators()[rule.forward].pointwise and weights.shape != x.shape:
        return None

    def at(moved_x: Array) -> dict[str, Array]:
        moved = forward | {rule.of: Tensor.contiguous(moved_x.astype(x.dtype))}
        outputs: list[Any] = [Expected(case.dtype, weights.shape)]
        for result in schema.outputs[1:]:
            source = next(name for name, of in rule.results.items() if of == result.name)
            outputs.append(Expected(case.dtype, backward[source].shape))
        called = Case(
            case.id, rule.forward, case.dtype, case.layout, list(moved.values()), outputs, case.tolerance
        )
        return _results(Subject(subject.executor, subject.kernels, schema, ()), called)

    here = at(x)
    given = backward | {source: Tensor.contiguous(here[of]) for source, of in rule.results.items()}
    made = replace(case, arguments=list(given.values()), outputs=[_unknown(each) for each in case.outputs])
    results = _results(subject, made)
    if rule.result not in results:
        return None
    gradient = results[rule.result].astype(np.float64)
    step = np.sign(gradient) * (2.0**-16 if double else 2.0**-6)  # all terms of the derivative are positive
    name = schema.outputs[0].name
    change = at(x + step)[name].astype(np.float64) - at(x - step)[name].astype(np.float64)
    found, expected = float((gradient * step).sum()), float((change * weights).sum() / 2)
    rounding = (2.0**-52 if double else 2.0**-23) * float(np.abs(here[name] * weights).sum())
    allowed = (2e-7 if double else 4e-3) * found + rounding
    if not np.isfinite(found + expected) or abs(found - expected) <= allowed:
        return ""
    return f"along the signs of the gradient it changes by {found:.6g}, {rule.forward} by {expected:.6g}"


def _forward_arguments(
    rule: Gradient, schema: Schema, backward: dict[str, Any], case: Case
) -> dict[str, Any] | None:
    """Return the arguments of the forward call of a backward case; None if they do not follow from it."""
    defaults: dict[str, Any] = {
        "eps": 1e-5,
        "half_to_float": False,
        "bias": None,
        "mask": None,
        "sparse": False,
    }
    forward: dict[str, Any] = {}
    for argument in schema.inputs:
        if argument.name in backward:
            forward[argument.name] = backward[argument.name]
        elif argument.name == rule.of:
            shape = next(e.shape for e in case.outputs if isinstance(e, Expected))
            if "scale_grad_by_freq" in backward and (
                backward["scale_grad_by_freq"] or backward["padding_idx"] >= 0
            ):
                return None
            values = np.sin(np.arange(np.prod(shape, dtype=int)) * 0.7).reshape(shape)
            forward[argument.name] = Tensor.contiguous(rounded(values, case.dtype))
        elif argument.name in defaults:
            forward[argument.name] = defaults[argument.name]
        else:
            return None
    tensors = [value for value in forward.values() if isinstance(value, Tensor)]
    return forward if all(t.array.size for t in tensors) else None


def _has_rows(name: str) -> bool:
    if name in BATCHES or name in ALONG:
        return True
    known = opset.operators().get(name)
    return known is not None and known.pointwise and known.shape.startswith(("like", "broadcast"))


LAWS: dict[str, tuple[Callable[[str], bool], Check]] = {
    "law-permutation": (_has_rows, _permutation),
    "law-split": (_has_rows, _split),
    "law-scaling": (SCALED.__contains__, _scaling),
    "law-direct": (DIRECT.__contains__, _direct),
    "law-repeated": (REPEATED.__contains__, _repeated),
    "law-monotonic": (MONOTONIC.__contains__, _monotonic),
    "law-gradient": (GRADIENTS.__contains__, _gradient),
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
    """Report whether the bits of rows change when the batch is split."""
    tried, varying = 0, []
    for case in _varied(subject, dtype):
        for rows in _batches(subject.schema, case):
            count = _count(rows, named(subject.schema, case))
            try:
                whole = _results(subject, case)
                part = _results(subject, _take(subject.schema, case, rows, np.arange(count // 2, count)))
            except (NotClaimed, KernelError):
                continue
            tried += 1
            for name, axis in rows.results.items():
                alone = whole[name].take(np.arange(count // 2, count), axis) if name in whole else part[name]
                if differing(part[name], alone).any():
                    varying.append(case.id)
    if not tried:
        return None
    if varying:
        return Outcome("passed", f"no: bits of a row depend on its batch, in {varying[0]}")
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


def _batches(schema: Schema, case: Case) -> Iterator[Rows]:
    """Yield the batches of a case with more than one row."""
    given = named(schema, case)
    if case.operator in BATCHES:
        found: Sequence[Rows] = BATCHES[case.operator]
    elif case.operator in ALONG:
        found = _beside_dim(schema, given)
    else:
        shapes = {value.shape for value in given.values() if isinstance(value, Tensor)}
        same = len(shapes) == 1 and shapes == {e.shape for e in case.outputs if isinstance(e, Expected)}
        rows = Rows({n: 0 for n, v in given.items() if isinstance(v, Tensor)}, {schema.outputs[0].name: 0})
        found = [rows] if same and () not in shapes else []
    shapes_of = {
        result.name: expected.shape
        for result, expected in zip(schema.outputs, case.outputs, strict=True)
        if isinstance(expected, Expected)
    }
    for rows in found:
        count = _count(rows, given)
        fits = all(shapes_of.get(n, ())[axis : axis + 1] == (count,) for n, axis in rows.results.items())
        if count > 1 and fits and not (case.operator.endswith("group_norm") and given["N"] != count):
            yield rows


def _beside_dim(schema: Schema, given: dict[str, Any]) -> list[Rows]:
    """Return the first dimension that is not reduced."""
    rank = max(len(value.shape) for value in given.values() if isinstance(value, Tensor))
    dim = given.get("dim")
    if dim in (None, []) or not rank:
        return []
    dims = {d % rank for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    axis = next((axis for axis in range(rank) if axis not in dims), None)
    if axis is None:
        return []
    gone = 0 if given.get("keepdim", True) else sum(d < axis for d in dims)
    names = [name for name, value in given.items() if isinstance(value, Tensor)]
    return [Rows(dict.fromkeys(names, axis), {o.name: axis - gone for o in schema.outputs})]


def _count(rows: Rows, given: dict[str, Any]) -> int:
    """Return the number of rows, that of the first argument."""
    name, axis = next(iter(rows.arguments.items()))
    shape = given[name].shape
    return int(shape[axis]) if axis < len(shape) else 0


def _take(schema: Schema, case: Case, rows: Rows, part: Array) -> Case:
    """Return the case with some of its rows."""
    given = named(schema, case)
    count = _count(rows, given)
    for name, axis in rows.arguments.items():
        value = given[name]
        if isinstance(value, Tensor) and len(value.shape) > axis and value.shape[axis] == count:
            given[name] = Tensor.contiguous(value.array.take(part, axis))
    if rows.size:
        given[rows.size] = len(part)
    outputs = [
        _part(expected, rows.results.get(result.name), part)
        for result, expected in zip(schema.outputs, case.outputs, strict=True)
    ]
    return replace(case, arguments=list(given.values()), outputs=outputs, output_layout="contiguous")


def _part(expected: Any, axis: int | None, part: Array) -> Any:
    if axis is None or not isinstance(expected, Expected) or expected.reference is None:
        return expected
    reference = expected.reference.take(part, axis)
    magnitude = None if expected.magnitude is None else expected.magnitude.take(part, axis)
    return Expected(expected.dtype, reference.shape, reference, magnitude)


def _unknown(expected: Any) -> Any:
    return Expected(expected.dtype, expected.shape) if isinstance(expected, Expected) else expected


def _plan(subject: Subject, case: Case) -> Plan:
    return Plan(subject.kernels[case.operator], subject.schema, case, subject.device.alignment)


def _judge(subject: Subject, case: Case, what: str = "") -> str:
    """Call a case; return its first problem, or ""."""
    plan = _plan(subject, case)
    after, problem = subject.executor.call(plan)
    found = [judge(slot.view(after), expected, case.tolerance).problem for slot, expected in plan.targets]
    text = next(filter(None, [*found, problem]), "")
    return f"{what}: {text}" if text and what else text


def _results(subject: Subject, case: Case) -> dict[str, Array]:
    """Call a case; return its results by name."""
    plan = _plan(subject, case)
    after, _ = subject.executor.call(plan)
    return {slot.label: slot.view(after).copy() for slot, _ in plan.targets}


def _map_tensors(value: Any, change: Callable[[Array], Array]) -> Any:
    """Change the storage of floating-point tensors."""
    if isinstance(value, (list, tuple)):
        return [_map_tensors(item, change) for item in value]
    if not isinstance(value, Tensor) or dt.name_of(value.storage.dtype) not in dt.FLOATS:
        return value
    return replace(value, storage=change(value.storage))


def _as(kind: Any, number: float) -> Any:
    return np.asarray(number).astype(kind)


def _small_integers(x: Array) -> Array:
    """Return integers from -2 to 2 in the dtype of an array."""
    return (np.arange(x.size) * 7 % 11 % 5 - 2).astype(x.dtype)


def _are_moderate(arguments: Iterable[Value]) -> bool:
    """Whether all floating-point inputs are finite and neither very small nor very large."""
    for tensor in tensors_of(arguments):
        if dt.name_of(tensor.storage.dtype) not in dt.FLOATS:
            continue
        size = np.abs(tensor.array.astype(np.float64))
        if not ((size == 0) | ((size >= _MODERATE[0]) & (size <= _MODERATE[1]))).all():
            return False
    return True


def _limits(dtype: str) -> tuple[float, float]:
    """Return magnitudes between which a result scales exactly: normal numbers, with a margin."""
    form = FORMATS[dtype]
    return 2.0 ** (form.lowest + form.precision + 1), form.largest / (2 * _FACTOR)
