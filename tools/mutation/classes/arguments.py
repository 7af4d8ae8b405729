"""An argument is ignored or read as another value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset.schema import Argument
from tools.mutation.kernel import Call, Invocation, Target, is_read, mapped
from tools.mutation.mutant import Made, Mutation, Wrong, mutate_with_state, per_input

_WORDS = {"True": True, "False": False, "None": None, "Mean": 1}
_DIMS = ("dim", "dims", "dim0", "dim1", "seq_dim")


def _default(argument: Argument, value: Any) -> Any:
    """Return the value assumed by a kernel that ignores the argument: its default, or the most common value."""
    text = argument.default
    if argument.is_list:
        return [0] * len(value)
    if text in _WORDS:
        return _WORDS[text]
    if text is not None:
        return text.strip("'\"") if argument.base == "str" else type(value)(float(text))
    if argument.base == "bool":
        return False
    return type(value)(value != 1) if argument.base in ("Scalar", "float") else 0


def _per_argument(
    applies: Callable[[Argument], bool], change: Callable[[Argument, Any], Any], absent: Any = None
) -> Callable[[Target], Made]:
    """Make one mutant for each argument that is no tensor: its value is changed, or replaced where it is absent."""
    return per_input(
        lambda _, argument: not argument.is_tensor and applies(argument),
        lambda argument, value: absent if value is None else change(argument, value),
    )


def _is_number(argument: Argument) -> bool:
    return argument.base in ("Scalar", "float") and not argument.is_list


def _is_single(argument: Argument) -> bool:
    return not argument.is_list or argument.base == "int"


def _is_dim(argument: Argument) -> bool:
    return argument.name in _DIMS


def _is_list(argument: Argument) -> bool:
    return argument.is_list


def _is_signed(argument: Argument) -> bool:
    """Whether negative values are in the argument's domain: those of rates, probabilities and eps are not."""
    return argument.base == "Scalar" or argument.name in ("diagonal", "shifts", "pad", "scale", "logit_scale")


def _real(change: Callable[[float], Any]) -> Callable[[Argument, Any], Any]:
    """Change the finite real numbers of an argument."""

    def changed(value: Any) -> Any:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)
        return change(value) if plain else value

    return lambda _, value: mapped(changed, value)


def _of_dims(change: Callable[[int], int]) -> Callable[[Argument, Any], Any]:
    return lambda _, dim: mapped(change, dim)


def _optional_for_optional(target: Target) -> Made:
    """Ignore an optional tensor where the one before it is absent: a bias without its weight."""

    def without(index: int, other: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            right(call.with_input(index, None) if call.inputs[other] is None else call)

        return wrong

    given = [i for i in target.tensors() if target.schema.inputs[i].optional]
    for other, index in pairwise(given):
        yield (
            f"{target.schema.inputs[index].name} without {target.schema.inputs[other].name}",
            partial(without, index, other),
        )


def _seeded(seed: Callable[[int], int]) -> Wrong:
    def wrong(right: Call, call: Invocation) -> None:
        given = call.context.seed
        call.context.seed = seed(given)
        try:
            right(call)
        finally:
            call.context.seed = given

    return wrong


def _counting() -> Wrong:
    calls = iter(range(1, 1 << 30))
    return _seeded(lambda seed: seed + next(calls))


def _random(target: Target) -> bool:
    return target.random


MUTATIONS = (
    Mutation("replaced by its default", _per_argument(_is_single, _default)),
    Mutation("integer part", _per_argument(_is_number, _real(lambda x: type(x)(int(x))))),
    Mutation("absolute value", _per_argument(_is_signed, _real(abs))),
    Mutation(
        "number in bfloat16", _per_argument(_is_number, _real(lambda x: type(x)(ml_dtypes.bfloat16(x))))
    ),
    Mutation(
        "absent number read as zero",
        _per_argument(
            lambda a: a.optional and a.base in ("Scalar", "float") and not a.is_list,
            lambda _, value: value,
            0,
        ),
    ),
    Mutation("negative dimension is the last", _per_argument(_is_dim, _of_dims(lambda d: max(d, -1)))),
    Mutation(
        "negative dimension off by one", _per_argument(_is_dim, _of_dims(lambda d: d - 1 if d < -1 else d))
    ),
    Mutation(
        "dimension is the last",
        _per_argument(lambda a: a.name in _DIMS and not a.is_list, lambda _, value: -1),
    ),
    Mutation(
        "only the first of a list",
        _per_argument(_is_list, lambda _, values: [values[0]] * len(values) if values else values),
    ),
    Mutation(
        "last list item ignored", _per_argument(_is_list, lambda _, v: [*v[:-1], v[-2]] if len(v) > 1 else v)
    ),
    Mutation(
        "empty list read as the last",
        _per_argument(lambda a: a.name == "dim" and a.is_list, lambda _, v: v or [-1], [-1]),
    ),
    Mutation(
        "flag inverted",
        _per_argument(lambda a: a.base == "bool" and not a.is_list, lambda _, value: not value, True),
    ),
    Mutation(
        "optional tensor ignored", per_input(lambda _, a: is_read(a) and a.optional, lambda _, value: None)
    ),
    Mutation("optional tensor needs another", _optional_for_optional),
    Mutation("seed ignored", mutate_with_state(lambda: _seeded(lambda seed: 1234), _random)),
    Mutation(
        "high word of the seed ignored",
        mutate_with_state(lambda: _seeded(lambda seed: seed & 0xFFFFFFFF), _random),
    ),
    Mutation("seed of its own", mutate_with_state(_counting, _random)),
)
