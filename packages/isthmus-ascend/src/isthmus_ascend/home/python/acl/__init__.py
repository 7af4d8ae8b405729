"""pyACL, the Python interface of AscendCL, on the libascendcl.so of this folder.

It has the functions that public programs call. Functions return pyACL's values: see :mod:`acl._library`.
"""

import ctypes
import math
from typing import Any

from acl import mdl, op, rt, util
from acl._library import (
    INT32,
    INT64,
    LIBRARY,
    POINTER,
    SIZE,
    TEXT,
    UINT32,
    Out,
    convert,
    function,
    integers,
    returning,
    unknown,
)

__all__ = ["mdl", "op", "rt", "util"]

_initialize = function("aclInit", TEXT)
finalize = function("aclFinalize")
get_soc_name = returning("aclrtGetSocName", ctypes.c_char_p)
get_recent_err_msg = returning("aclGetRecentErrMsg", ctypes.c_char_p)
get_device_capability = function("aclGetDeviceCapability", UINT32, INT32, Out(INT64))
get_cann_attribute = function("aclGetCannAttribute", INT32, Out(INT32))

create_data_buffer = returning("aclCreateDataBuffer", ctypes.c_void_p, POINTER, SIZE)
destroy_data_buffer = function("aclDestroyDataBuffer", POINTER)
get_data_buffer_addr = returning("aclGetDataBufferAddr", ctypes.c_void_p, POINTER)
get_data_buffer_size = get_data_buffer_size_v2 = returning("aclGetDataBufferSizeV2", ctypes.c_size_t, POINTER)

destroy_tensor_desc = returning("aclDestroyTensorDesc", None, POINTER)
get_tensor_desc_type = returning("aclGetTensorDescType", ctypes.c_int, POINTER)
get_tensor_desc_format = returning("aclGetTensorDescFormat", ctypes.c_int, POINTER)
get_tensor_desc_num_dims = returning("aclGetTensorDescNumDims", ctypes.c_size_t, POINTER)
get_tensor_desc_dim_v2 = function("aclGetTensorDescDimV2", POINTER, SIZE, Out(INT64))

LIBRARY.aclCreateTensorDesc.restype = ctypes.c_void_p

# Bytes of an element, by aclDataType.
_BYTES = {
    **dict.fromkeys((2, 4, 12, 34, 35, 36, 37), 1),
    **dict.fromkeys((1, 6, 7, 27), 2),
    **dict.fromkeys((0, 3, 8, 33), 4),
    **dict.fromkeys((9, 10, 11, 16), 8),
    17: 16,
}


def init(config: str | None = None) -> int:
    """Initialize AscendCL; the configuration file is not read."""
    status: int = _initialize(config)
    return status


def app_log(level: int, message: str) -> None:
    """Accept a message of the application's log, which the reference runtime does not keep."""


def create_tensor_desc(dtype: int, dims: Any, layout: int) -> int:
    """Return the handle of a description of a tensor, 0 if there are too many dimensions.

    Args:
        dtype: an aclDataType.
        dims: sizes.
        layout: an aclFormat.
    """
    sizes = integers(dims)
    handle = LIBRARY.aclCreateTensorDesc(convert(dtype, INT32), len(sizes), sizes, convert(layout, INT32))
    return handle or 0


def data_type_size(dtype: int) -> int:
    """Return the bytes of an element of an aclDataType, 0 if it has no such size."""
    return _BYTES.get(dtype, 0)


def get_tensor_element_count(description: int) -> int:
    """Return the number of elements of a described tensor."""
    dims = range(get_tensor_desc_num_dims(description))
    return math.prod(get_tensor_desc_dim_v2(description, index)[0] for index in dims)


def get_tensor_desc_size(description: int) -> int:
    """Return the bytes of a described tensor."""
    return get_tensor_element_count(description) * data_type_size(get_tensor_desc_type(description))


__getattr__ = unknown("acl")
