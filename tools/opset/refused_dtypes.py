"""Generate ``refused_dtypes.json``, the dtypes that PyTorch's CPU kernels refuse, by calls with the opset's cases."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus import opset
from isthmus.opset import dtypes as dt
from isthmus.opset.operator import Operator
from isthmus.opset.reference import overload, torch_arguments
from isthmus.opset.sampling import Case, Maker

_CALLS = 3  # calls of each base dtype
_CUDA = {"aten::abs": ("bool",), "aten::histc": dt.INTEGERS}  # accepted by the kernels of CUDA only


def files() -> dict[Path, str]:
    """Return refused_dtypes.json with its text."""
    operators = opset.operators()
    table = {name: found for name in sorted(operators) if (found := refused_dtypes(operators[name]))}
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items()]
    return {Path(opset.__file__).parent / "refused_dtypes.json": "{\n" + ",\n".join(rows) + "\n}\n"}


def refused_dtypes(operator: Operator) -> dict[str, Any]:
    """Return the dtypes that no call of an operator of PyTorch accepts.

    ``arguments`` has those of each argument in any call. ``together`` has those of the arguments ``values``, which
    have the dtype of the operation, when all of them have one of these dtypes. What no sample shows is accepted, and
    so are the dtypes that the opset specifies, and half precision beside float32 and float64, as on CUDA.
    """
    if operator.package:
        return {}
    accepted: dict[str, set[str]] = {}
    together: set[str] = set()
    values: set[str] = set()
    others: set[str] = set()
    for case in _samples(operator):
        arguments = torch_arguments(case, upcast=False)
        given = {name: found for name, value in arguments.items() if (found := _dtype(value))}
        if not _accepts(operator.name, arguments, (), ""):
            continue
        same = [name for name in given if given[name] == case.dtype]
        values.update(same)
        others.update(given.keys() - same)
        together |= _accepted_dtypes(operator.name, arguments, same, together)
        for name, dtype in given.items():
            known = accepted.setdefault(name, set())
            known |= {dtype, *_accepted_dtypes(operator.name, arguments, [name], known)}
        for names, reduced in _parts(same) if operator.pointwise else ():
            found = _accepted_dtypes(
                operator.name, arguments | _first_elements(reduced, arguments), names, ()
            )
            for name in names:
                accepted[name] |= found
    values -= others
    for name in values:
        accepted[name] |= _with_accepted(accepted[name] | together, operator)
    together |= _with_accepted(together, operator)
    row = {name: rest for name, found in accepted.items() if (rest := _remaining_dtypes(found))}
    joint = _remaining_dtypes(together) if values and together else []
    covered = any(set(joint) <= set(row.get(name, ())) for name in values)
    result: dict[str, Any] = {"arguments": row} if row else {}
    return result if covered or not joint else result | {"values": sorted(values), "together": joint}


def _parts(names: list[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield arguments that may share another dtype, and those that are 0-dim.

    The dtype of 0-dim tensors counts less in promotion.
    """
    for count in range(1, len(names)):
        for part in itertools.combinations(names, count):
            for reduced in ((), part, tuple(name for name in names if name not in part)):
                yield part, reduced


def _first_elements(names: Sequence[str], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the first element of each tensor, as a 0-dim tensor."""
    given = {name: arguments[name] for name in names if not isinstance(arguments[name], list)}
    return {name: value.reshape(-1)[0] for name, value in given.items() if value.numel()}


def _accepted_dtypes(
    operator: str, arguments: dict[str, Any], names: Sequence[str], known: Collection[str]
) -> set[str]:
    """Return the dtypes, other than those known, in which a call accepts some of its arguments."""
    rest = [each for each in dt.ALL if each not in known]
    return {each for each in rest if names and _accepts(operator, arguments, names, each)}


def _with_accepted(found: set[str], operator: Operator) -> set[str]:
    """Return the dtypes found, and those that are accepted beside them."""
    specified = operator.dtypes if found & {*operator.dtypes} else ()
    return {
        *found,
        *specified,
        *(dt.HALVES if {"float32", "float64"} <= found else ()),
        *_CUDA.get(operator.name, ()),
    }


def _remaining_dtypes(found: set[str]) -> list[str]:
    return [each for each in dt.ALL if each not in found]


def _samples(operator: Operator) -> Iterator[Case]:
    dtypes = [each for each in ("float32", "int64", "bool") if each in operator.dtypes] or operator.dtypes
    for dtype in dtypes:
        for i, case in enumerate(operator.samples(Maker(operator.name, dtype, 0))):
            if i == _CALLS:
                break
            yield case


def _dtype(value: Any) -> str:
    """Return the dtype of a tensor, or of the first one of a list; "" for other values."""
    if isinstance(value, list):
        return next((found for each in value if (found := _dtype(each))), "")
    return str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else ""


def _accepts(operator: str, arguments: dict[str, Any], names: Sequence[str], dtype: str) -> bool:
    """Whether a call with copies of the tensors, those of some arguments in another dtype, succeeds."""
    import torch

    def convert(value: Any, to: str) -> Any:
        if isinstance(value, list):
            return [convert(each, to) for each in value]
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(getattr(torch, to or _dtype(value)), copy=True)

    given = {name: convert(value, dtype if name in names else "") for name, value in arguments.items()}
    try:
        with warnings.catch_warnings(action="ignore"):
            overload(operator)(**given)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    return True
