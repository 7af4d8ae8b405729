"""Files of failed cases, of ``conform run --keep``: inputs, expected and seen results, for a debugger or a notebook.

A case has ``<library>-<operator>-<dtype>-<case>.safetensors`` with the arrays ``input.self``, ``expected.out``,
``magnitude.out`` and ``seen.out``, and the same name ``.json`` with the other arguments, the strides of the inputs,
the tolerance and the verdict. complex128 is stored as pairs of float64 whose name begins with ``complex128-``.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus.conformance.arrays import Array, write_arrays
from isthmus.conformance.diagnosis import Seen
from isthmus.conformance.golden import Case, Expected, Result, Tensor, Value
from isthmus.conformance.results import CaseResult
from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema
from isthmus_common.files import make_folder, write_file


def keep(folder: Path, schema: Schema, case: Case, result: CaseResult, seen: Sequence[Seen] = ()) -> None:
    """Write the files of a failed case.

    Args:
        folder: created if absent, mode 0750; the files have 0640.
        schema: schema of the operator.
        case: the case.
        result: its verdict.
        seen: its results; empty after a crash.
    """
    make_folder(folder)
    stem = "-".join((result.library, case.operator, case.dtype, case.id)).replace("::", ".").replace(" ", "_")
    arrays: dict[str, Array] = {}
    arguments = {
        argument.name: _argument(f"input.{argument.name}", value, arrays)
        for argument, value in zip(schema.inputs, case.arguments, strict=True)
    }
    named = [(output.name, result) for output, result in zip(schema.outputs, case.outputs, strict=True)]
    for name, expected in [*named, *case.written.items()]:
        for label, each in _expected(name, expected):
            found = {"expected": each.reference, "magnitude": each.magnitude}
            arrays |= {f"{kind}.{label}": values for kind, values in found.items() if values is not None}
    arrays |= {f"seen.{each.label}": each.got for each in seen}
    write_arrays(folder / f"{stem}.safetensors", arrays)
    about = {
        "case": result.id,
        "library": result.library,
        "schema": schema.text,
        "arguments": arguments,
        "tolerance": case.tolerance._asdict(),
        "status": result.status,
        "message": result.message,
        "first": result.first,
        "guess": result.guess,
    }
    write_file(folder / f"{stem}.json", [json.dumps(about, indent=1, default=str).encode(), b"\n"])


def _argument(label: str, value: Value, arrays: dict[str, Array]) -> Any:
    """Add the tensors of an argument to the arrays; return what the JSON has of it."""
    if isinstance(value, Tensor):
        arrays[label] = value.array
        if not value.is_contiguous:
            arrays[f"storage.{label}"] = value.storage
        layout = {"shape": value.shape, "strides": value.strides, "offset": value.offset}
        return {"tensor": label, "dtype": dt.name_of(value.storage.dtype), **layout}
    if isinstance(value, (list, tuple)):
        return [_argument(f"{label}[{i}]", item, arrays) for i, item in enumerate(value)]
    return value


def _expected(label: str, result: Result) -> Iterator[tuple[str, Expected]]:
    if isinstance(result, Expected):
        yield label, result
    elif result is not None:
        for i, item in enumerate(result):
            yield from _expected(f"{label}[{i}]", item)
