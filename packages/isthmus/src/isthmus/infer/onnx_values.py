"""Values of ONNX files: attributes with the standard's defaults, constants, and descriptions of inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import inliner, numpy_helper
from torch import Tensor

from isthmus.chip.compile.package import Input
from isthmus.infer.model import InferError
from isthmus.infer.onnx_operators import DTYPES


def inline_functions(model: onnx.ModelProto, opset: int, known: Collection[str]) -> onnx.ModelProto:
    """Inline the model's functions, and the standard's but for known operators; adds to the model's attributes.

    Args:
        model: as loaded.
        opset: its version.
        known: operators of the standard that stay.
    """
    for node in model.graph.node:
        if node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type) and node.op_type not in known:
            given = {each.name for each in node.attribute}  # the inliner omits defaults
            attributes = onnx.defs.get_schema(node.op_type, opset).attributes.values()
            defaults = (each.default_value for each in attributes if each.name not in given)
            node.attribute.extend(each for each in defaults if each.name)
    kept = [("", name) for name in known]
    return inliner.inline_selected_functions(model, kept, exclude=True, inline_schema_functions=True)


def defaults(operator: str, opset: int) -> dict[str, Any]:
    """Return the default attributes of an operator of the standard."""
    schema = onnx.defs.get_schema(operator, opset)
    return values(each.default_value for each in schema.attributes.values() if each.default_value.name)


def values(attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
    """Return attributes by name; texts are str, tensors are PyTorch's."""
    return {each.name: _attribute(each) for each in attributes}


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return tensor(value) if isinstance(value, onnx.TensorProto) else value


def constant(node: onnx.NodeProto) -> Tensor:
    """Return the value of a Constant, which is a tensor, numbers, or a number.

    Raises:
        InferError: it is a text, or a sparse tensor.
    """
    (attribute,) = node.attribute
    value = _attribute(attribute)
    if isinstance(value, Tensor):
        return value
    if not attribute.name.startswith(("value_int", "value_float")):
        raise InferError(f"Constant with {attribute.name} is not supported")
    dtype = torch.int64 if attribute.name.startswith("value_int") else torch.float32
    return torch.tensor(value, dtype=dtype)


def tensor(proto: onnx.TensorProto) -> Tensor:
    """Return a tensor on the CPU.

    Raises:
        InferError: PyTorch lacks its dtype.
    """
    dtype = _dtype(proto.data_type)
    array = np.ascontiguousarray(numpy_helper.to_array(proto)).reshape(tuple(proto.dims))
    raw = array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array
    return torch.from_numpy(raw.copy()).view(dtype)


def _dtype(number: int) -> torch.dtype:
    if number not in DTYPES:
        raise InferError(f"dtype {onnx.TensorProto.DataType.Name(number)} is not supported")
    return DTYPES[number]


def declared_input(value: onnx.ValueInfoProto, device: torch.device) -> Input:
    """Return the description of an input; the example size of a dynamic dimension is 1."""
    kind = value.type.tensor_type
    sizes = [
        (each.dim_value, "") if each.HasField("dim_value") else (1, each.dim_param or f"{value.name}_{i}")
        for i, each in enumerate(kind.shape.dim)
    ]
    dtype = str(_dtype(kind.elem_type)).removeprefix("torch.")
    return Input(value.name, device.type, dtype, [n for n, _ in sizes], [symbol for _, symbol in sizes])
