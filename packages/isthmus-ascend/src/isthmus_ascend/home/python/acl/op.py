"""Single operators and their attributes: the functions ``aclop*``.

Operators that were compiled into offline models are not supported. torch_npu's aclnn functions replace them.
"""

import ctypes
from pathlib import Path
from typing import Any

from acl._library import (
    FEATURE_UNSUPPORTED,
    FLOAT,
    INT32,
    INT64,
    INVALID_FILE,
    LIBRARY,
    OPERATOR_NOT_FOUND,
    POINTER,
    TEXT,
    convert,
    function,
    integers,
    refuse,
    returning,
    unknown,
)

create_attr = returning("aclopCreateAttr", ctypes.c_void_p)
destroy_attr = returning("aclopDestroyAttr", None, POINTER)
set_attr_bool = function("aclopSetAttrBool", POINTER, TEXT, ctypes.c_uint8)
set_attr_int = function("aclopSetAttrInt", POINTER, TEXT, INT64)
set_attr_float = function("aclopSetAttrFloat", POINTER, TEXT, FLOAT)
set_attr_string = function("aclopSetAttrString", POINTER, TEXT, TEXT)
set_attr_data_type = function("aclopSetAttrDataType", POINTER, TEXT, INT32)


def set_attr_list_int(attributes: int, name: str, values: Any) -> int:
    """Set an attribute to a list of integers."""
    return _set_list(LIBRARY.aclopSetAttrListInt, attributes, name, integers(values))


def set_attr_list_float(attributes: int, name: str, values: Any) -> int:
    """Set an attribute to a list of numbers."""
    return _set_list(LIBRARY.aclopSetAttrListFloat, attributes, name, (ctypes.c_float * len(values))(*values))


def set_attr_list_bool(attributes: int, name: str, values: Any) -> int:
    """Set an attribute to a list of truth values."""
    return _set_list(
        LIBRARY.aclopSetAttrListBool, attributes, name, integers(map(bool, values), ctypes.c_uint8)
    )


def _set_list(native: Any, attributes: int, name: str, values: Any) -> int:
    status: int = native(convert(attributes, POINTER), convert(name, TEXT), len(values), values)
    return status


def set_model_dir(path: str) -> int:
    """Return the aclError: offline models of operators are not loaded."""
    if not Path(path).is_dir():
        return refuse("op.set_model_dir", INVALID_FILE, f"no such folder: {path}")
    problem = "offline models of operators are not supported by the reference runtime of AscendCL"
    return refuse("op.set_model_dir", FEATURE_UNSUPPORTED, problem)


def execute_v2(name: str, *arguments: Any) -> int:
    """Return the aclError of an operator of which no offline model is loaded."""
    return refuse("op.execute_v2", OPERATOR_NOT_FOUND, f"no offline model of operator {name} is loaded")


__getattr__ = unknown("acl.op")
