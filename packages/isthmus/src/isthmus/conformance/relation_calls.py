"""Calls that laws make of a kernel, and changes of their inputs."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.cases import Case, Expected, Tensor, Value, tensors_of
from isthmus.conformance.judge import judge
from isthmus.conformance.plan import Plan
from isthmus.conformance.subject import Subject
from isthmus.opset import dtypes as dt

# Magnitudes of inputs whose results neither overflow nor underflow when scaled.
_MODERATE = (2.0**-12, 2.0**12)


def call_problem(subject: Subject, case: Case, what: str = "") -> str:
    """Call a case; return its first problem, or ""."""
    plan = _plan(subject, case)
    after, problem = subject.executor.call(plan)
    found = [judge(slot.view(after), expected, case.tolerance).problem for slot, expected in plan.targets]
    text = next(filter(None, [*found, problem]), "")
    return f"{what}: {text}" if text and what else text


def call_results(subject: Subject, case: Case) -> dict[str, Array]:
    """Call a case; return its results by name."""
    plan = _plan(subject, case)
    after, _ = subject.executor.call(plan)
    return {slot.label: slot.view(after).copy() for slot, _ in plan.targets}


def _plan(subject: Subject, case: Case) -> Plan:
    return Plan(subject.kernels[case.operator], subject.schema, case, subject.device.alignment)


def without_values(expected: Any) -> Any:
    """Return an expected result without its values; others unchanged."""
    return Expected(expected.dtype, expected.shape) if isinstance(expected, Expected) else expected


def map_tensors(value: Any, change: Callable[[Array], Array]) -> Any:
    """Change the storage of floating-point tensors."""
    if isinstance(value, (list, tuple)):
        return [map_tensors(item, change) for item in value]
    if not isinstance(value, Tensor) or dt.name_of(value.storage.dtype) not in dt.FLOATS:
        return value
    return replace(value, storage=change(value.storage))


def are_moderate(arguments: Iterable[Value]) -> bool:
    """Whether all floating-point inputs are finite and neither very small nor very large."""
    for tensor in tensors_of(arguments):
        if dt.name_of(tensor.storage.dtype) not in dt.FLOATS:
            continue
        size = np.abs(tensor.array.astype(np.float64))
        if not ((size == 0) | ((size >= _MODERATE[0]) & (size <= _MODERATE[1]))).all():
            return False
    return True
