"""The probable mistake behind a wrong result: hypotheses that are tested on its values.

Most look at the arrays alone. Some call the kernel again with one thing changed: a kernel that ignores the strides of
an input gives the same result for the elements that are contiguous in its storage, for example.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.golden import Case, Expected, Tensor
from isthmus.conformance.judge import (
    EPS,
    EPS_OF_FLOAT32,
    FORMATS,
    differing,
    filled_elements,
    judge,
    rounded,
    ulp_of,
)
from isthmus.conformance.memory import POISONS
from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema

# Calls the kernel with another case; returns its results by label, or none if it refuses.
Rerun = Callable[[Case], Mapping[str, Array]]
_BLOCKS = tuple(1 << n for n in range(20, 1, -1))
_SHIFTS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_ENOUGH = 3  # wrong elements from which values cannot agree by chance


class Seen(NamedTuple):
    """A result of a failed case.

    Attributes:
        label: the output's name.
        got: its values.
        expected: what they should be.
        wrong: which elements are wrong; None if none are.
        again: values of a second call, whose output was filled with other bytes before; None without one.
        earlier: values of a call with other inputs at the same addresses; None without one.
    """

    label: str
    got: Array
    expected: Expected
    wrong: Array | None
    again: Array | None = None
    earlier: Array | None = None


@dataclass(frozen=True)
class _Wrong:
    """A wrong result: values, expected values, flat positions of the wrong elements."""

    schema: Schema
    case: Case
    seen: Seen
    got: Array
    want: Array
    at: Array

    @property
    def pair(self) -> tuple[Array, Array]:
        """Values and expected values of the wrong elements, flat."""
        return self.got.reshape(-1)[self.at], self.want.reshape(-1)[self.at]

    def like(self, values: Array, got: Array | None = None) -> bool:
        """Return whether results are these values, within a few tolerances."""
        given = self.got.reshape(-1)[self.at] if got is None else got
        if given.dtype.kind in "biu":
            return bool(np.array_equal(given, values))
        name = dt.name_of(self.got.dtype)
        slack = (8 + 2 * self.case.tolerance.ulp) * 2.0 ** -FORMATS[name].precision
        kind = np.complex128 if np.iscomplexobj(given) else np.float64
        return bool(np.allclose(given.astype(kind), values.astype(kind), slack, 0, equal_nan=True))


def diagnose(schema: Schema, case: Case, results: Sequence[Seen], rerun: Rerun) -> str:
    """Return the probable mistake of the first wrong result in a few words, or "".

    Args:
        schema: schema of the operator.
        case: the failed case.
        results: all results.
        rerun: calls the kernel again.
    """
    seen = next((each for each in results if each.wrong is not None), None)
    if seen is None or seen.expected.reference is None:
        return ""
    reference = seen.expected.reference
    floating = seen.expected.dtype in FORMATS
    want = rounded(reference, seen.expected.dtype) if floating else reference
    assert seen.wrong is not None
    wrong = _Wrong(schema, case, seen, seen.got, want, np.flatnonzero(seen.wrong))
    with np.errstate(all="ignore"):
        places = next(filter(None, _about_places(wrong)), "")
        inaccurate = floating and wrong.like(wrong.pair[1])
        hypotheses = () if inaccurate else (_about_values(wrong), _about_calls(wrong, rerun))
        values = next(filter(None, chain(_about_kinds(wrong), *hypotheses, _about_precision(wrong))), "")
        return "; ".join(filter(None, (places, values)))


# ---- Values --------------------------------------------------------------------------------------------


def _about_kinds(wrong: _Wrong) -> Iterator[str]:
    yield _unwritten(wrong)
    yield _special(wrong)


def _about_values(wrong: _Wrong) -> Iterator[str]:
    yield _nothing(wrong)
    yield _copied(wrong)
    yield _stale(wrong)
    yield _sign(wrong)
    yield _moved(wrong)
    yield _narrow_integers(wrong)


def _unwritten(wrong: _Wrong) -> str:
    if wrong.seen.again is None:
        return ""
    left = filled_elements(wrong.got, POISONS[0]) & filled_elements(wrong.seen.again, POISONS[1])
    return "they are not written" if left[wrong.at].all() else ""


def _special(wrong: _Wrong) -> str:
    got, want = wrong.pair
    if got.dtype.kind in "biu" or np.iscomplexobj(got):
        return ""
    found, should = got.astype(np.float64), want.astype(np.float64)
    tiny = 2.0 ** FORMATS[wrong.seen.expected.dtype].lowest
    rules = (
        (np.isnan(should) & ~np.isnan(found), "NaN is lost, as in a comparison or a maximum"),
        (
            np.isnan(found) & ~np.isnan(should),
            "NaN where none is expected: inf - inf, 0 * inf or 0 / 0 on the way, or memory that was not written",
        ),
        (np.isinf(found) & np.isfinite(should), "an intermediate result overflows"),
        (np.isinf(should) & np.isfinite(found), "infinity is lost"),
        (
            (found == 0) & (should == 0) & (np.signbit(found) != np.signbit(should)),
            "the sign of zero is wrong",
        ),
        ((found == 0) & (should != 0) & (np.abs(should) < tiny), "denormal results are flushed to zero"),
    )
    return next((text for holds, text in rules if holds.all()), "")


def _nothing(wrong: _Wrong) -> str:
    got, want = wrong.pair
    if not got.any() and want.any():
        return "all zeros"
    same = len(got) >= _ENOUGH and not differing(got, got[0]).any() and differing(want, want[0]).any()
    return f"all {got[0]}" if same else ""


def _copied(wrong: _Wrong) -> str:
    for name, tensor in _tensors(wrong):
        if tensor.shape == wrong.got.shape and wrong.got.size > 1:
            values = tensor.array.reshape(-1)[wrong.at]
            if wrong.like(values.astype(wrong.got.dtype)):
                return f"a copy of {name}"
    return ""


def _stale(wrong: _Wrong) -> str:
    earlier = wrong.seen.earlier
    if not any(tensor.array.size for _, tensor in _tensors(wrong)):
        return ""  # the earlier call was the same
    if earlier is None or differing(earlier, wrong.got)[wrong.at].any():
        return ""
    return "the result of an earlier call with other values at the same addresses: a stale cache"


def _sign(wrong: _Wrong) -> str:
    got, want = wrong.pair
    if got.dtype.kind in "bu" or not want.any():
        return ""
    if not wrong.like(-want):
        return ""
    return "the sign is lost" if len(got) < wrong.got.size and (got > 0).all() else "the sign is wrong"


def _moved(wrong: _Wrong) -> str:
    """Find the expected values at other places."""
    if len(np.unique(_words(wrong.pair[1]))) < 2 or len(wrong.at) < _ENOUGH:
        return ""
    got, want = wrong.got, wrong.want
    for a, b in combinations(range(want.ndim), 2):
        turned = np.swapaxes(want, a, b).reshape(-1)
        if wrong.like(turned[wrong.at]):
            return f"dimensions {a} and {b} are exchanged"
    for dim in range(want.ndim):
        if wrong.like(np.flip(want, dim).reshape(-1)[wrong.at]):
            return f"the order of dimension {dim} is reversed"
    row = want.shape[-1] if want.ndim > 1 else 1
    flat, values = want.reshape(-1), got.reshape(-1)
    for shift in dict.fromkeys(each * size for size in (1, row) for each in _SHIFTS):
        for signed in (shift, -shift):
            at = wrong.at[(wrong.at + signed >= 0) & (wrong.at + signed < flat.size)]
            several = len(at) >= max(_ENOUGH, len(wrong.at) // 2) and len(np.unique(_words(flat[at]))) > 1
            if several and wrong.like(flat[at + signed], values[at]):
                whole = signed % row == 0 and row > 1
                unit, n = ("row", abs(signed) // row) if whole else ("element", abs(signed))
                where = "after" if signed > 0 else "before"
                return f"each is the value of {n} {unit}{'s' * (n > 1)} {where}: an index is off by {n}"
    return ""


def _narrow_integers(wrong: _Wrong) -> str:
    got, want = wrong.pair
    if got.dtype.kind not in "iu" or got.dtype.itemsize == 1:
        return ""
    difference = got.astype(np.int64) - want.astype(np.int64)
    for bits in (32, 16, 8):
        if bits < 8 * got.dtype.itemsize and not (difference % (1 << bits)).any():
            return f"computed in {bits} bits, which overflow"
    for kind, name in ((np.float32, "float32"), (np.float64, "float64")):
        if (np.abs(want) > 1 << 20).all() and np.array_equal(want.astype(kind).astype(got.dtype), got):
            return f"computed in {name}, which rounds integers"
    return "rounded in the other direction" if (np.abs(difference) == 1).all() else ""


# ---- Other calls ---------------------------------------------------------------------------------------


def _about_calls(wrong: _Wrong, rerun: Rerun) -> Iterator[str]:
    """Call the kernel with one thing changed. A changed case keeps its expected results, for their shapes."""
    schema, case, label = wrong.schema, wrong.case, wrong.seen.label

    def result(changes: Mapping[int, Any]) -> Array | None:
        arguments = [changes.get(i, value) for i, value in enumerate(case.arguments)]
        return rerun(replace(case, arguments=arguments)).get(label)

    def same(changes: Mapping[int, Any]) -> bool:
        found = result(changes)
        return found is not None and not differing(found, wrong.got).any()

    tensors = {i: value for i, value in enumerate(case.arguments) if isinstance(value, Tensor)}
    for what, change in (("strides", _packed), ("offset", _from_start)):
        changed = {i: other for i, value in tensors.items() if (other := change(value))}
        for chosen in [{i: value} for i, value in changed.items()] + [changed] * (len(changed) > 1):
            if same(chosen):
                names = " and ".join(schema.inputs[i].name for i in chosen)
                yield f"the {what} of {names} {'is' if what == 'offset' else 'are'} ignored"
    for (i, x), (j, y) in combinations(tensors.items(), 2):
        if (x.shape, x.storage.dtype) == (y.shape, y.storage.dtype):
            found = result({i: y, j: x})
            if found is not None and not judge(found, wrong.seen.expected, case.tolerance).problem:
                yield f"{schema.inputs[i].name} and {schema.inputs[j].name} are exchanged"
    for i, (argument, value) in enumerate(zip(schema.inputs, case.arguments, strict=True)):
        if argument.base in ("Scalar", "float") and isinstance(value, (int, float)) and not argument.is_list:
            another = value + 1 if isinstance(value, int) else value / 2 + 1
            if value != 1 and not isinstance(value, bool) and same({i: another}):
                yield f"{argument.name} is ignored"


def _packed(tensor: Tensor) -> Tensor | None:
    """Return the elements that a kernel reads that ignores strides; None if they lie outside the storage."""
    count = int(np.prod(tensor.shape, dtype=np.int64))
    if tensor.is_contiguous or tensor.offset + count > tensor.storage.size:
        return None
    return Tensor.contiguous(tensor.storage[tensor.offset : tensor.offset + count].reshape(tensor.shape))


def _from_start(tensor: Tensor) -> Tensor | None:
    return replace(tensor, offset=0) if tensor.offset else None


# ---- Places --------------------------------------------------------------------------------------------


def _about_places(wrong: _Wrong) -> Iterator[str]:
    """Describe where the wrong elements are, if only some are wrong."""
    size, at = wrong.got.size, wrong.at
    if len(at) == size:
        return
    yield _repeated(wrong)
    for dim, length in enumerate(wrong.got.shape):
        if wrong.got.ndim > 1:
            yield _tail(np.unique(np.unravel_index(at, wrong.got.shape)[dim]), length, f" of dimension {dim}")
    yield _tail(at, size, "")
    if at[0] >= 1024 and at[0] % 1024 == 0 and at[-1] == size - 1:
        yield f"only from element {at[0]:,} on"
    yield _block(at)
    for dim, length in enumerate(wrong.got.shape):
        places = np.unique(np.unravel_index(at, wrong.got.shape)[dim])
        if length > 2 and set(places.tolist()) <= {0, length - 1}:
            ends = "both ends" if len(places) == 2 else "the start" if places[0] == 0 else "the end"
            yield f"only at {ends} of dimension {dim}"


def _tail(places: Array, length: int, what: str) -> str:
    """Describe places that all lie beyond the last multiple of a block, the smallest such rest."""
    rests = {length % block: block for block in _BLOCKS if block < length and length % block}
    fitting = [(rest, block) for rest, block in rests.items() if places[0] >= length - rest]
    if not fitting:
        return ""
    rest, block = min(fitting)
    return f"only in the last {rest}{what or ' elements'}, beyond the last multiple of {block}: a tail"


def _block(at: Array) -> str:
    count, first = len(at), int(at[0])
    if count < 4 or count & (count - 1) or first % count or at[-1] - first != count - 1:
        return ""
    return f"only block {first // count} of {count} elements"


def _repeated(wrong: _Wrong) -> str:
    """Find whether only results of repeated indices are wrong."""
    for name, tensor in _tensors(wrong):
        if tensor.storage.dtype.kind != "i" or not tensor.array.size:
            continue
        values, counts = np.unique(tensor.array, return_counts=True)
        if (counts == 1).all() or (counts > 1).all():
            continue
        for dim in range(wrong.got.ndim):
            places = np.unique(np.unravel_index(wrong.at, wrong.got.shape)[dim])
            if np.isin(places, values[counts > 1]).all():
                return f"only where {name} repeats an index: of several values one is lost"
    return ""


# ---- Precision -----------------------------------------------------------------------------------------


def _about_precision(wrong: _Wrong) -> Iterator[str]:
    got, want = wrong.pair
    dtype, reference = wrong.seen.expected.dtype, wrong.seen.expected.reference
    if dtype not in FORMATS or np.iscomplexobj(got) or reference is None:
        return
    found, exact = got.astype(np.float64), reference.reshape(-1)[wrong.at]
    if not (np.isfinite(found).all() and np.isfinite(exact).all()):
        return
    yield _factor(found, want.astype(np.float64), 4 * 2.0 ** -FORMATS[dtype].precision)
    yield _narrow_floats(wrong, dtype)
    error, ulp = np.abs(found - exact), ulp_of(dtype, exact)
    if dtype in dt.HALVES and (error < 1.01 * ulp).all():
        short = (np.abs(found) <= np.abs(exact)).all() and len(found) >= _ENOUGH
        yield "truncated instead of rounded to nearest" if short else "rounded twice"
    if wrong.seen.expected.magnitude is not None:
        magnitude = np.abs(wrong.seen.expected.magnitude).reshape(-1)[wrong.at]
        eps = 2.0 ** (1 - FORMATS[dtype].precision)
        if dtype in dt.HALVES and (error <= 64 * eps * magnitude).all():
            yield f"accumulation in 16 bits: partial results are rounded to {dtype}"
        exact = magnitude
    relative = float(np.max(error / np.maximum(np.abs(exact), np.finfo(np.float64).tiny)))
    for name, eps in (("float32", EPS_OF_FLOAT32), ("float16 or TF32", 2.0**-10), ("bfloat16", 2.0**-7)):
        if relative <= eps and eps > 4 * EPS.get(dtype, 2.0 ** (1 - FORMATS[dtype].precision)):
            yield f"the precision of {name}, of an operand or a partial result"


def _factor(found: Array, want: Array, slack: float) -> str:
    ratios = found[want != 0] / want[want != 0]
    several = len(ratios) >= _ENOUGH and len(np.unique(want)) > 1
    if not several or not np.isfinite(ratios).all() or np.ptp(ratios) > slack * abs(ratios[0]):
        return ""
    return f"{ratios[0]:.5g} times the expected values" if abs(ratios[0] - 1) > 8 * slack else ""


def _narrow_floats(wrong: _Wrong, dtype: str) -> str:
    """Find whether all values fit a narrower dtype, although those expected do not."""
    for name in ("bfloat16", "float16", "float32"):
        if FORMATS[name].precision >= FORMATS[dtype].precision or dtype in dt.HALVES:
            continue
        got, want = (values.astype(np.float64) for values in wrong.pair)
        fits = [np.array_equal(rounded(values, name).astype(np.float64), values) for values in (got, want)]
        if fits == [True, False]:
            return f"results are rounded to {name} on the way"
    return ""


def _tensors(wrong: _Wrong) -> Iterator[tuple[str, Tensor]]:
    for argument, value in zip(wrong.schema.inputs, wrong.case.arguments, strict=True):
        if isinstance(value, Tensor):
            yield argument.name, value


def _words(values: Array) -> Array:
    """Return the bits of elements, so that NaN are equal; those of complex numbers side by side."""
    return values.view(np.uint8).reshape(values.size, -1) @ (
        251 ** np.arange(values.itemsize, dtype=np.uint64)
    )
