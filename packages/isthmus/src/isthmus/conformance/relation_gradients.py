"""The law of gradients: a backward operator against the difference of two calls of the forward one."""

from dataclasses import replace
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.conformance.arrays import Array
from isthmus.conformance.cases import Case, Expected, Tensor, named
from isthmus.conformance.judge import rounded
from isthmus.conformance.relation_calls import are_moderate, call_results, without_values
from isthmus.conformance.relations import GRADIENTS, Gradient
from isthmus.conformance.subject import Subject
from isthmus.opset.schema import Schema


def gradient_problem(subject: Subject, case: Case) -> str | None:
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
    if not are_moderate(value for name, value in backward.items() if name not in rule.results):
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
        return call_results(Subject(subject.executor, subject.kernels, schema, ()), called)

    here = at(x)
    given = backward | {source: Tensor.contiguous(here[of]) for source, of in rule.results.items()}
    made = replace(
        case, arguments=list(given.values()), outputs=[without_values(each) for each in case.outputs]
    )
    results = call_results(subject, made)
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
