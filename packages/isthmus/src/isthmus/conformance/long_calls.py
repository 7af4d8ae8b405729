"""Calls with more than 2^24 elements of operators that reduce, sort, index or fill: inputs and expected results."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.cases import Case, Expected, Tensor, named
from isthmus.conformance.subject import Subject
from isthmus.opset import dtypes as dt
from isthmus.opset.sampling import PERIOD

FIRST = 1 << 24  # the first integer whose successor float32 does not have
LENGTH = FIRST + PERIOD  # elements
TAIL = 2 * PERIOD  # elements at the end that are judged
_PLANE = 3  # rows and columns of a plane
# Places that float32 rounds to others, beside one that it does not, and the values of marks there.
_PLACES = np.array([7, FIRST + 1, FIRST + 2047, LENGTH - 2])
_VALUES = np.array([1, 2, 3, 4])
_PATTERN = 251  # period of other values, all of them integers of bfloat16

Judged = Mapping[str, tuple[Array, Expected]]
Made = tuple[Mapping[str, Any], Mapping[str, tuple[Any, Array, Array]]]


class LongCall(NamedTuple):
    """A call with more than 2^24 elements.

    Attributes:
        title: for messages.
        case: the call; its results have no expected values.
        judged: places of a result, row-major, and the values expected there, by name of the result.
    """

    title: str
    case: Case
    judged: Judged


def _zeros(dtype: str) -> Array:
    return np.zeros(LENGTH, dt.DTYPES[dtype].numpy)


def _marked(dtype: str) -> Array:
    x = _zeros(dtype)
    x[_PLACES] = _VALUES.astype(x.dtype)
    return x


def _pattern(dtype: str) -> Array:
    period = np.arange(_PATTERN) // (1 if dt.DTYPES[dtype].kind in ("float", "uint") else 2)
    return np.resize(period.astype(dt.DTYPES[dtype].numpy), LENGTH)


def _tail(values: Array) -> tuple[tuple[int, ...], Array, Array]:
    """Return the shape of a result, its last places, and what is expected there."""
    flat = values.reshape(-1)
    places = np.arange(max(0, flat.size - TAIL), flat.size)
    return values.shape, places, flat[places]


def _whole(*values: Any) -> tuple[tuple[int, ...], Array, Array]:
    """Return the shape of a result without dimensions, or of one, its places, and all that is expected."""
    array = np.array(values[0] if len(values) == 1 else values)
    return array.shape, np.arange(array.size), array.reshape(-1)


def _reduced(value: Any, x: Callable[[str], Array], dtype: str, **others: Any) -> Made:
    return {"self": x(dtype), **others}, {"out": _whole(value)}


def _one_false(dtype: str) -> Array:
    x = _zeros(dtype) == 0
    x[FIRST + 1] = False
    return x.astype(dt.DTYPES[dtype].numpy)


def _one_true(dtype: str) -> Array:
    x = _zeros(dtype)
    x[FIRST + 1] = 1
    return x


def _extremum(dtype: str, sign: int = 1, **others: Any) -> Made:
    """Return a call whose extremum is the last mark, with its value and place."""
    x = _marked(dtype) * np.array(sign).astype(dt.DTYPES[dtype].numpy)
    value, place = _whole(sign * _VALUES[-1]), _whole(_PLACES[-1])
    return {"self": x, **others}, {"out": value, "values": value, "indices": place}


def _place_of(dtype: str, sign: int = 1, **others: Any) -> Made:
    inputs, results = _extremum(dtype, sign, **others)
    return inputs, {"out": results["indices"]}


def _running(dtype: str) -> Made:
    sums = np.repeat(np.cumsum(np.r_[0, _VALUES]), np.diff(np.r_[0, _PLACES, LENGTH])).astype(np.uint8)
    return {"self": _marked(dtype), "dim": 0}, {"out": _tail(sums)}


def _sorted(dtype: str, **others: Any) -> Made:
    shape = (LENGTH,)
    last = np.arange(LENGTH - len(_VALUES), LENGTH)
    return (
        {"self": _marked(dtype), "dim": 0, "descending": False, **others},
        {"values": (shape, last, _VALUES), "indices": (shape, last, _PLACES)},
    )


def _largest(dtype: str) -> Made:
    inputs = {"self": _marked(dtype), "k": 3, "dim": 0, "largest": True, "sorted": True}
    return inputs, {"values": _whole(*_VALUES[:0:-1]), "indices": _whole(*_PLACES[:0:-1])}


def _taken(dtype: str, source: str, index: str, **others: Any) -> Made:
    """Return a call that takes elements, or rows of one element."""
    x = _pattern(dtype)
    rows = x[:, None] if source == "weight" else x
    places = [_PLACES] if index == "indices" and source == "self" else _PLACES
    taken = rows[_PLACES]
    return {source: rows, index: places, **others}, {
        "out": (taken.shape, np.arange(taken.size), taken.reshape(-1))
    }


def _put(dtype: str, index: str, source: str, add: bool = False, **others: Any) -> Made:
    """Return a call that writes values at places of a copy of self, or adds them."""
    x, values = _pattern(dtype), _VALUES.astype(dt.DTYPES[dtype].numpy)
    out = x.copy()
    out[_PLACES] = x[_PLACES] + values if add else values
    places = [_PLACES] if index == "indices" else _PLACES
    return {"self": x, index: places, source: values, **others}, {"out": _tail(out)}


def _gradient_of_rows(dtype: str) -> Made:
    values = _VALUES.astype(dt.DTYPES[dtype].numpy)
    out = _marked(dtype)
    inputs = {"grad_output": values[:, None], "indices": _PLACES, "num_weights": LENGTH, "padding_idx": -1}
    return inputs | {"scale_grad_by_freq": False}, {"out": _tail(out[:, None])}


def _moved(move: Callable[[Array], Array], dtype: str, **others: Any) -> Made:
    x = _pattern(dtype)
    return {"self": x, **others}, {"out": _tail(move(x))}


def _joined(dtype: str) -> Made:
    x = _pattern(dtype)
    return {"tensors": [x[:PERIOD], x[PERIOD:]], "dim": 0}, {"out": _tail(x)}


def _triangle(keep: Callable[[Array, int], Array], diagonal: int, dtype: str) -> Made:
    """Return a call with many small planes, in which an element that is placed in another row shows."""
    x = np.ones((-(-LENGTH // _PLANE**2), _PLANE, _PLANE), dt.DTYPES[dtype].numpy)
    return {"self": x, "diagonal": diagonal}, {"out": _tail(keep(x, diagonal))}


def _filled(number: int, dtype: str, **others: Any) -> Made:
    return {"self": _pattern(dtype), **others}, {"self": _tail(np.full_like(_zeros(dtype), number))}


def _copied(dtype: str) -> Made:
    x = _pattern(dtype)
    return {"self": np.zeros_like(x), "src": x}, {"self": _tail(x)}


def _counted(dtype: str) -> Made:
    return {"start": 0, "end": LENGTH, "step": 1}, {"out": _tail(np.arange(LENGTH, dtype=np.int32))}


_TOTAL = int(_VALUES.sum())
_Maker = Callable[[str], Made]
_MAKERS: dict[str, _Maker] = {
    "sum": partial(_reduced, _TOTAL, _marked),
    "sum.dim_IntList": partial(_reduced, _TOTAL, _marked, dim=[0], keepdim=False),
    "mean": partial(_reduced, _TOTAL / LENGTH, _marked),
    "mean.dim": partial(_reduced, _TOTAL / LENGTH, _marked, dim=[0], keepdim=False),
    "any": partial(_reduced, True, _one_true),
    "any.dim": partial(_reduced, True, _one_true, dim=0, keepdim=False),
    "all": partial(_reduced, False, _one_false),
    "max": _extremum,
    "amax": partial(_extremum, dim=[0], keepdim=False),
    "max.dim": partial(_extremum, dim=0, keepdim=False),
    "argmax": partial(_place_of, dim=None, keepdim=False),
    "min": partial(_extremum, sign=-1),
    "amin": partial(_extremum, sign=-1, dim=[0], keepdim=False),
    "min.dim": partial(_extremum, sign=-1, dim=0, keepdim=False),
    "argmin": partial(_place_of, sign=-1, dim=None, keepdim=False),
    "cumsum": _running,
    "sort.stable": partial(_sorted, stable=True),
    "topk": _largest,
    "embedding": partial(_taken, source="weight", index="indices"),
    "index_select": partial(_taken, source="self", index="index", dim=0),
    "gather": partial(_taken, source="self", index="index", dim=0),
    "index.Tensor": partial(_taken, source="self", index="indices"),
    "scatter.src": partial(_put, index="index", source="src", dim=0),
    "scatter_add": partial(_put, index="index", source="src", add=True, dim=0),
    "index_add": partial(_put, index="index", source="source", add=True, dim=0, alpha=1),
    "index_put": partial(_put, index="indices", source="values", accumulate=False),
    "embedding_dense_backward": _gradient_of_rows,
    "flip": partial(_moved, lambda x: x[::-1], dims=[0]),
    "roll": partial(_moved, lambda x: np.roll(x, 1), shifts=[1], dims=[0]),
    "cat": _joined,
    "tril": partial(_triangle, np.tril, -1),
    "triu": partial(_triangle, np.triu, 0),
    "fill_.Scalar": partial(_filled, 3, value=3),
    "zero_": partial(_filled, 0),
    "copy_": _copied,
    "arange.start_step": _counted,
}
MARKED = frozenset(f"aten::{name}" for name in _MAKERS)
_ONLY: dict[str, tuple[str, ...]] = {"aten::arange.start_step": ("int32", "int64")}
# Marks of which a signed dtype is the narrowest.
_SIGNED = ("int8", "bfloat16", "float16", "int16", "float32", "int32")


def marked_calls(subject: Subject) -> Iterator[LongCall]:
    """Yield calls with marks or a pattern in place of the tensors of a case, the narrowest dtype first."""
    name = subject.schema.name
    make = _MAKERS.get(name.removeprefix("aten::"))
    for dtype in _ONLY.get(name, _SIGNED) if make else ():
        case = next(_plain(subject.of_dtype(dtype)), None)
        if case is not None and make is not None:
            yield _call(subject, case, *make(dtype))


def _plain(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield cases whose results have values, for the dtypes of the results and numbers that are not replaced."""
    return (
        case
        for case in cases
        if case.layout in ("contiguous", "large")
        and all(_has_values(each) for each in (*case.outputs, *case.written.values()))
    )


def _has_values(result: Any) -> bool:
    return isinstance(result, Expected) and result.reference is not None


def _call(
    subject: Subject, case: Case, inputs: Mapping[str, Any], results: Mapping[str, tuple[Any, Array, Array]]
) -> LongCall:
    given = {**named(subject.schema, case), **{name: _as_tensor(value) for name, value in inputs.items()}}
    judged = {}

    def expect(name: str, old: Any) -> Expected:
        shape, places, values = results[name]
        reference = values.astype(np.float64 if old.dtype in dt.FLOATS else dt.DTYPES[old.dtype].numpy)
        magnitude = None if old.magnitude is None else np.abs(reference)
        judged[name] = places, Expected(old.dtype, places.shape, reference, magnitude)
        return Expected(old.dtype, tuple(shape))

    outputs = [expect(r.name, old) for r, old in zip(subject.schema.outputs, case.outputs, strict=True)]
    written = {name: expect(name, old) for name, old in case.written.items()}
    made = replace(
        case, arguments=list(given.values()), outputs=outputs, written=written, output_layout="contiguous"
    )
    return LongCall(f"{case.dtype}, {', '.join(inputs)}", made, judged)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [_as_tensor(each) for each in value]
    return Tensor.contiguous(value) if isinstance(value, np.ndarray) else value
