"""Cases of ``isthmus conform bench``: the large samples of the golden data, enlarged where possible."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from isthmus.conformance.cases import tensors_of
from isthmus.conformance.golden import Case, Expected, Reader, Tensor
from isthmus.opset import records

POINTWISE_SHAPE = (1024, 1024)
MATMUL_SIZE = 512
DTYPES = ("float32", "bfloat16")

_M, _B = MATMUL_SIZE, 8
# Shapes of the tensors, inputs then output.
_MATMULS: dict[str, tuple[tuple[int, ...], ...]] = {
    "aten::mm": ((_M, _M), (_M, _M), (_M, _M)),
    "aten::addmm": ((_M, _M), (_M, _M), (_M, _M), (_M, _M)),
    "aten::bmm": ((_B, _M // 2, _M // 2),) * 3,
    "aten::baddbmm": ((_B, _M // 2, _M // 2),) * 4,
}


def bench_cases(golden: Reader, names: set[str], dtypes: Sequence[str] = DTYPES) -> list[Case]:
    """Return the largest case of each operator and dtype, in the order of the golden data."""
    best: dict[tuple[str, str], Case] = {}
    for name in sorted(names & golden.operators.keys()):
        for case in golden.cases(name):
            key = (case.operator, case.dtype)
            if case.dtype in dtypes and _rank(case) > _rank(best.get(key)):
                best[key] = case
    return [enlarge(case) for case in best.values()]


def _rank(case: Case | None) -> tuple[int, int]:
    """Rank large contiguous cases before others, and big ones before small ones."""
    if case is None:
        return (-1, 0)
    size = sum(tensor.storage.nbytes for tensor in tensors_of(case.arguments))
    return (1 + (case.layout == "contiguous") + 2 * (case.layout == "large"), size)


def enlarge(case: Case) -> Case:
    """Enlarge the tensors of a case until memory or arithmetic is the limit, where possible.

    Matrix products get matrices of MATMUL_SIZE, pointwise operators without broadcasting POINTWISE_SHAPE; the values
    repeat. Other cases are returned unchanged.
    """
    if case.operator in _MATMULS:
        return _with_shapes(case, _MATMULS[case.operator])
    tensors = [value for value in case.arguments if isinstance(value, Tensor)]
    shapes = {tensor.shape for tensor in tensors if tensor.shape != ()}
    shapes |= {out.shape for out in case.outputs if isinstance(out, Expected)}
    if "pointwise" not in records()[case.operator]["tags"] or len(shapes) != 1:
        return case
    whole = [tensor.shape if tensor.shape == () else POINTWISE_SHAPE for tensor in tensors]
    return _with_shapes(case, [*whole, *[POINTWISE_SHAPE] * len(case.outputs)])


def _with_shapes(case: Case, shapes: Sequence[tuple[int, ...]]) -> Case:
    rest = iter(shapes)
    arguments = [
        _of_shape(value.array, next(rest)) if isinstance(value, Tensor) else value for value in case.arguments
    ]
    outputs = [Expected(out.dtype, next(rest)) if isinstance(out, Expected) else out for out in case.outputs]
    return replace(case, id=f"{case.id}, enlarged", arguments=arguments, outputs=outputs)


def _of_shape(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Tensor:
    return Tensor.contiguous(np.resize(array, shape))


def flops(case: Case) -> int:
    """Return the floating-point operations of a product or convolution; 0 for memory-bound operators."""
    tensors = list(tensors_of(case.arguments))
    base = case.operator.partition("::")[2].partition(".")[0]
    outputs = [out for out in case.outputs if isinstance(out, Expected)]
    if base in ("mm", "bmm", "mv", "dot", "linear"):
        return 2 * prod(outputs[0].shape) * tensors[0].shape[-1]
    if base in ("addmm", "baddbmm", "addmv"):
        return 2 * prod(outputs[0].shape) * tensors[1].shape[-1]
    if base == "convolution":
        return 2 * prod(outputs[0].shape) * prod(tensors[1].shape[1:])
    return 0
