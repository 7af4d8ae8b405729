"""Cases of golden data as JSON with separate arrays; :mod:`isthmus.conformance.golden` defines the format."""

from typing import Any

import numpy as np

from isthmus.conformance import arrays
from isthmus.conformance.cases import Case, Expected, Result, Tensor, Tolerance, Value
from isthmus.opset import dtypes as dt

_SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _number_to_json(value: float) -> Any:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and not np.isfinite(number):
        return str(number)
    return number


def _number_from_json(value: Any) -> Any:
    return _SPECIAL[value] if isinstance(value, str) else value


def _value_to_json(value: Value, store: arrays.Store) -> Any:
    if isinstance(value, Tensor):
        return {
            "tensor": store.add(value.storage),
            "dtype": dt.name_of(value.storage.dtype),
            "shape": list(value.shape),
            "strides": list(value.strides),
            "offset": value.offset,
        }
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, Tensor) for item in value) or (value and value[0] is None):
            return {"tensors": [None if item is None else _value_to_json(item, store) for item in value]}
        return {"numbers": [_number_to_json(item) for item in value]}
    return None if value is None else {"number": _number_to_json(value)}  # type: ignore[arg-type]


def _value_from_json(row: Any, store: arrays.Loaded) -> Value:
    if row is None:
        return None
    if "tensor" in row:
        return Tensor(store.get(row["tensor"]), tuple(row["shape"]), tuple(row["strides"]), row["offset"])
    if "tensors" in row:
        return [_value_from_json(item, store) for item in row["tensors"]]  # type: ignore[return-value]
    if "numbers" in row:
        return [_number_from_json(item) for item in row["numbers"]]
    return row["text"] if "text" in row else _number_from_json(row["number"])


def _result_to_json(result: Result, store: arrays.Store) -> Any:
    if result is None:
        return None
    if not isinstance(result, Expected):
        return [_result_to_json(item, store) for item in result]
    row: dict[str, Any] = {"dtype": result.dtype, "shape": list(result.shape)}
    if result.reference is not None:
        row["tensor"] = store.add(np.ascontiguousarray(result.reference).reshape(-1))
    if result.magnitude is not None:
        row["magnitude"] = store.add(np.ascontiguousarray(result.magnitude).reshape(-1))
    if result.law is not None:
        row["law"] = dict(result.law)
    return row


def _result_from_json(row: Any, store: arrays.Loaded) -> Result:
    if row is None:
        return None
    if isinstance(row, list):
        return [_result_from_json(item, store) for item in row]  # type: ignore[misc]
    shape = tuple(row["shape"])
    reference, magnitude = (
        store.get(row[key]).reshape(shape) if key in row else None for key in ("tensor", "magnitude")
    )
    return Expected(row["dtype"], shape, reference, magnitude, row.get("law"))


def case_to_json(case: Case, store: arrays.Store) -> dict[str, Any]:
    """Encode a case as JSON; its arrays go into the store."""
    return {
        "id": case.id,
        "operator": case.operator,
        "dtype": case.dtype,
        "layout": case.layout,
        "arguments": [_value_to_json(value, store) for value in case.arguments],
        "outputs": [_result_to_json(result, store) for result in case.outputs],
        "written": {name: _result_to_json(result, store) for name, result in case.written.items()},
        "tolerance": case.tolerance._asdict(),
        "output_layout": case.output_layout,
    }


def case_from_json(row: dict[str, Any], store: arrays.Loaded) -> Case:
    """Decode a case; its arrays are views of the store."""
    return Case(
        id=row["id"],
        operator=row["operator"],
        dtype=row["dtype"],
        layout=row["layout"],
        arguments=[_value_from_json(value, store) for value in row["arguments"]],
        outputs=[_result_from_json(result, store) for result in row["outputs"]],
        tolerance=Tolerance(**row["tolerance"]),
        written={name: _result_from_json(result, store) for name, result in row["written"].items()},
        output_layout=row["output_layout"],
    )
