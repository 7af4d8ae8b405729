"""Optional arguments absent and present, flags, masks of outputs, dtypes of indices, layouts of every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.calls import (
    Arguments,
    Change,
    Scope,
    all_in,
    arrays,
    change_tensors,
    given_names,
    in_layouts,
    rank_of,
    resize,
)
from isthmus.opset.derivation.layouts import ALL, PACKED, laid
from isthmus.opset.derivation.lists import is_list, settings
from isthmus.opset.derivation.shapes import is_free, same_shaped
from isthmus.opset.derivation.values import SETTINGS, marked
from isthmus.opset.sampling import Array, Case, place

# Flags that change what is specified, such as the order of ties, or nothing that a kernel sees.
FIXED = (
    "sorted",
    "stable",
    "sparse",
    "sparse_grad",
    "half_to_float",
    "non_blocking",
    "pin_memory",
    "amsgrad",
)
DIMENSIONS = ("dim", "dims", "size", "normalized_shape", "output_size", "input_size", "self_size")
_ADDED = ("pad", "padding", "output_padding")  # sizes that may be 0
_FACTORS = ("alpha", "beta", "value")
_SETTINGS = 6  # most settings of the other arguments beside which optional ones are absent
_ALIKE = 16  # most settings of an operator that meet dense tensors in one order
_UNLIKE = ("step contiguous", "contiguous step", "reversed unaligned")  # layouts of the outputs in turn


def layouts(scope: Scope) -> Iterator[Case]:
    """Derive a case for each layout of the first tensor; the other tensors have others, so has the output.

    The calls are those with the most optional tensors, so that each tensor gets each layout.
    """
    bases = scope.bases(deepest=True)
    if not bases:
        return
    names = list(ALL if scope.operator.strided else PACKED)
    rank = max(rank_of(base) for base in bases)
    deep = [base for base in bases if rank_of(base) == rank]
    full = [base for base in deep if not any(given_names(base) < given_names(other) for other in deep)]
    rows = [(full[i % len(full)], name) for i, name in enumerate(names)]
    # Those with tensors that no call of the highest rank has, such as the offsets of sequences.
    others = {frozenset(given_names(base) - set().union(*map(given_names, full))): base for base in bases}
    rows += [(base, name) for more, base in others.items() if more for name in names]
    rows += [(base, name) for base in _rare_cases(scope, bases) for name in names]
    if scope.pairs:
        rows = [(base, name) for base in bases for name in names]
    for i, (base, name) in enumerate(scope.shared(iter(rows))):
        output = (
            ("contiguous", "unaligned", "step", "reversed")[i % 4] if scope.operator.strided else "unaligned"
        )
        change = in_layouts(name) if scope.operator.strided else _packed_values(name)
        yield scope.case(change_tensors(base.arguments, change), f"{name}-out-{output}", output)
    if scope.operator.strided:
        yield from _single_rows(scope)
        yield from _alike(scope)


def _rare_cases(scope: Scope, bases: list[Case]) -> Iterator[Case]:
    """Yield special own cases with tensors that no other case has."""
    found = set().union(*map(given_names, bases))
    for case in sorted(scope.own, key=lambda case: -len(given_names(case))):
        if case.kind == "special" and not given_names(case) <= found:
            found |= given_names(case)
            yield case


def _single_rows(scope: Scope) -> Iterator[Case]:
    """Derive cases of tensors with one row that has gaps, which look like a column by their first stride."""
    found: set[str] = set()
    for base in [case for case in scope.own if case.kind == "contiguous"]:
        names = {
            name
            for name, array in arrays(base.arguments)
            if len(array.shape) > 1 and array.shape[-2] == 1 < array.shape[-1]
        }
        if not names <= found:
            found |= names
            arguments = change_tensors(base.arguments, lambda _, i, array: laid(array.view, "swapped"))
            yield scope.case(arguments, "single-rows")


def _alike(scope: Scope) -> Iterator[Case]:
    """Derive calls, of each setting of the other arguments, whose tensors and output are dense in one order."""
    bases = [base for base in scope.bases(deepest=True) if rank_of(base) > 2][:_ALIKE]
    for i, base in enumerate(scope.shared(iter(bases))):
        name = ("channels_last", "heads")[i % 4 == 3]
        yield scope.case(change_tensors(base.arguments, all_in(name)), f"alike-{name}", name)


def mixed_outputs(scope: Scope) -> Iterator[Case]:
    """Derive calls whose outputs have different layouts."""
    tensors = [a for a in scope.maker.schema.outputs if a.is_tensor and not a.is_list]
    if len(tensors) < 2 or not scope.operator.strided:
        return
    own = [case for case in scope.own if case.kind in ("contiguous", "large") and rank_of(case) > 1]
    for name in scope.shared(iter(_UNLIKE if own else ())):
        yield scope.case(own[0].arguments, f"out-{name.replace(' ', '-')}", name)


def mixed_dtypes(scope: Scope) -> Iterator[Case]:
    """Derive calls of promoting operators with one tensor of integers, none of them 0, beside floating-point ones."""
    bases = [base for base in scope.bases() if base.kind == "contiguous"][:1]
    if not scope.operator.dtype.startswith("promote") or not scope.maker.is_float or not bases:
        return
    names = [name for name, array in arrays(bases[0].arguments) if array.dtype == scope.maker.dtype]
    for name, dtype in scope.shared(
        iter([(name, dtype) for name in names for dtype in ("int64", "int32")]), 2
    ):
        values = np.rint(np.abs(bases[0].arguments[name].view.astype(np.float64))) + 1
        changed = {**bases[0].arguments, name: place(values.astype(dtype))}
        yield scope.case(changed, f"{dtype}-{name}")


def outputs(scope: Scope) -> Iterator[Case]:
    """Derive a case for each layout of the output of operators without tensors."""
    own = [case for case in scope.own if case.kind == "contiguous"]
    if any(True for case in own for _ in arrays(case.arguments)) or not own:
        return
    for i, name in enumerate(scope.shared(iter(ALL))):
        yield scope.case(own[i % len(own)].arguments, f"out-{name}", name, kind="contiguous")


def _packed_values(first: str) -> Any:
    names = list(PACKED)
    start = names.index(first)
    return lambda _, i, array: laid(array.view, names[(start + i) % len(names)])


def options(scope: Scope) -> Iterator[Case]:
    """Derive a case for each set of absent optional arguments, each flag inverted, and each mask of outputs."""
    schema = scope.maker.schema
    bases = settings(scope) if is_list(scope) else scope.bases()
    if not bases or scope.operator.paired:
        return
    base = max(bases, key=lambda case: sum(1 for _ in arrays(case.arguments)))
    given = change_tensors(base.arguments, marked(scope)) if scope.operator.pointwise else base.arguments
    optional = [
        a.name
        for a in schema.inputs
        if a.optional and given[a.name] is not None and a.base != "str" and a.name not in FIXED
    ]
    changes: list[Arguments] = [
        {**dict.fromkeys(names), **_mask_without_absent(given, names)}
        for n in range(1, len(optional) + 1 if len(optional) <= 4 else 2)
        for names in combinations(optional, n)
    ]
    for a in schema.inputs:
        value = given[a.name]
        if a.base == "bool" and isinstance(value, bool) and a.name not in FIXED:
            changes.append({a.name: not value})
        elif a.base == "bool" and isinstance(value, list):
            if len(schema.outputs) > len(value):
                changes.append({a.name: [False] * len(value)})
            for i in range(len(value)):
                only = [j == i for j in range(len(value))]
                changes += [{a.name: only}, {a.name: [not each for each in only]}]
        elif a.base == "int" and isinstance(value, list) and a.name not in DIMENSIONS:
            changes += [{a.name: other} for other in _reorder(value)]
            if a.name in _ADDED and len(value) > 1:
                alone = [[n * (i == j) for j, n in enumerate(value)] for i in range(len(value)) if value[i]]
                changes += [{a.name: other} for other in alone if other != value]
        elif a.base == "Scalar" and a.name in _FACTORS and scope.maker.is_float and value is not None:
            changes.append({a.name: _fraction(scope)})
    for other, name in scope.shared(iter(_other_settings(bases, base, optional))):
        absent = {name: None, **_mask_without_absent(other.arguments, (name,))}
        yield scope.case({**other.arguments, **absent}, f"no-{name}-elsewhere")
    for change in scope.shared(iter(changes)):
        words = [f"{'no' if value is None else ''}{_word(value)}-{name}" for name, value in change.items()]
        yield scope.case({**given, **change}, "-".join(words).replace(" ", ""))


def _other_settings(bases: list[Case], base: Case, optional: list[str]) -> list[tuple[Case, str]]:
    """Return calls with other numbers and flags than one has, each with an optional argument that it gives."""
    found: dict[str, Case] = {}
    for case in bases:
        numbers = {k: v for k, v in case.arguments.items() if isinstance(v, bool | int | float | str)}
        found.setdefault(repr(numbers), case)
    others = [case for case in found.values() if case is not base][:_SETTINGS]
    return [(case, name) for case in others for name in optional if case.arguments[name] is not None]


def _reorder(values: list[int]) -> list[list[int]]:
    """Return the values in reverse order and with each two swapped, which leaves the sizes of padded tensors."""
    swapped = [n for i in range(0, len(values), 2) for n in values[i : i + 2][::-1]]
    return [other for other in (values[::-1], swapped) if other != values]


def _mask_without_absent(given: Arguments, names: tuple[str, ...]) -> Arguments:
    """Return the mask of outputs without the gradients of absent arguments."""
    if "output_mask" not in given:
        return {}
    of = ("input", "weight", "bias")
    return {
        "output_mask": [
            wanted and name not in names for name, wanted in zip(of, given["output_mask"], strict=True)
        ]
    }


def _fraction(scope: Scope) -> float:
    """A negative factor; one that no product rounds, where rounding the product first is not within the tolerance."""
    dtype = scope.maker.dtype
    rounds = dtype in ("float64", *dt.HALVES) or not scope.operator.tolerance[dtype].accumulate
    return -0.25 if rounds else -0.3


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "".join(str(int(each)) for each in value)
    return "" if value is None else str(value).lower()


def derive_repeated(scope: Scope) -> Iterator[Case]:
    """Derive calls that pass one tensor for all arguments of its shape that are only read, special values too."""
    inputs = [a for a in scope.maker.schema.inputs if a.is_tensor and not a.written and not a.is_list]
    read = [a.name for a in inputs if a.name not in SETTINGS]
    bases = [] if scope.operator.paired else scope.bases()
    groups = [(base, _of_one_shape(base, read, scope.maker.dtype)) for base in bases]
    groups = [(base, same) for base, same in groups if len(same) > 1]
    special = scope.operator.special if scope.maker.is_float else ()
    for base, same in groups[:1] + groups[1:][-1:]:
        for value in scope.shared(iter((None, *special))):
            values = np.array(next(iter(same.values())).view)
            values.reshape(-1)[::3] = values.reshape(-1)[::3] if value is None else value
            changes = dict.fromkeys(same, place(values))
            label = "repeated" if value is None else f"repeated-{value}"
            yield scope.case({**base.arguments, **changes}, label, kind="special")


def derive_shared(scope: Scope) -> Iterator[Case]:
    """Derive calls of new shapes that pass one tensor twice, each followed by a call with tensors of their own.

    A kernel that was made for the first call must not read one tensor for two in the second.
    """
    bases = [] if scope.operator.paired or is_list(scope) or not is_free(scope) else same_shaped(scope)[:1]
    inputs = [a for a in scope.maker.schema.inputs if a.is_tensor and not a.written and not a.is_list]
    same = [*_of_one_shape(bases[0], [a.name for a in inputs], scope.maker.dtype)] if bases else []
    patterns = [p for p in dict.fromkeys([tuple(same), *combinations(same, 2)]) if len(p) > 1]
    for i, pattern in scope.shared(enumerate(patterns)):
        apart = change_tensors(bases[0].arguments, _longer(20 + i))
        one = dict.fromkeys(pattern, apart[pattern[0]])
        yield scope.case(apart | one, f"shared-{'-'.join(pattern)}")
        yield scope.case(apart, f"not-shared-{'-'.join(pattern)}")


def _longer(more: int) -> Change:
    """Add rows to each tensor, whose other dimensions become small."""

    def change(_: str, i: int, array: Array) -> Array:
        return place(resize(array.view, (array.shape[0] + more, *[min(n, 3) for n in array.shape[1:]])))

    return change


def _of_one_shape(base: Case, names: list[str], dtype: str) -> Arguments:
    """Return the largest set of tensors of one shape, among those of a dtype."""
    groups: dict[tuple[int, ...], Arguments] = {}
    for name in names:
        array = base.arguments[name]
        if array is not None and array.dtype == dtype:
            groups.setdefault(array.shape, {})[name] = array
    return max(groups.values(), key=len, default={})


def narrow_indices(scope: Scope) -> Iterator[Case]:
    """Derive cases whose 64-bit indices have 32 bits."""
    if scope.maker.dtype == "int64" or not scope.operator.name.startswith("aten::"):
        return

    def narrow(_: str, i: int, array: Array) -> Array:
        return place(array.view.astype(np.int32)) if array.dtype == "int64" else array

    for base in scope.shared(iter(scope.bases()[:2])):
        if any(array.dtype == "int64" for _, array in arrays(base.arguments)):
            yield scope.case(change_tensors(base.arguments, narrow), "int32-indices")
