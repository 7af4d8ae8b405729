"""Dtypes by PyTorch name, with their NumPy dtypes and their codes in DLPack and the driver interface."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


class Dtype(NamedTuple):
    """One dtype.

    Attributes:
        name: PyTorch's name without ``torch.``, such as "bfloat16".
        code: ``isthmus_dtype`` in driver.h.
        numpy: NumPy dtype; bfloat16 and float8 are from ml_dtypes.
        dlpack: DLPack (code, bits).
        kind: "float", "int", "uint", "bool" or "complex".
    """

    name: str
    code: int
    numpy: np.dtype[Any]
    dlpack: tuple[int, int]
    kind: str


def _row(name: str, code: int, scalar: Any, dlpack: tuple[int, int], kind: str) -> Dtype:
    return Dtype(name, code, np.dtype(scalar), dlpack, kind)


DTYPES: dict[str, Dtype] = {
    row.name: row
    for row in (
        _row("int8", 0, np.int8, (0, 8), "int"),
        _row("uint8", 1, np.uint8, (1, 8), "uint"),
        _row("int16", 2, np.int16, (0, 16), "int"),
        _row("int32", 3, np.int32, (0, 32), "int"),
        _row("int64", 4, np.int64, (0, 64), "int"),
        _row("float16", 5, np.float16, (2, 16), "float"),
        _row("bfloat16", 6, ml_dtypes.bfloat16, (4, 16), "float"),
        _row("float32", 7, np.float32, (2, 32), "float"),
        _row("float64", 8, np.float64, (2, 64), "float"),
        _row("bool", 9, np.bool_, (6, 8), "bool"),
        _row("uint16", 10, np.uint16, (1, 16), "uint"),
        _row("uint32", 11, np.uint32, (1, 32), "uint"),
        _row("uint64", 12, np.uint64, (1, 64), "uint"),
        _row("complex64", 13, np.complex64, (5, 64), "complex"),
        _row("complex128", 14, np.complex128, (5, 128), "complex"),
        _row("float8_e4m3fn", 15, ml_dtypes.float8_e4m3fn, (10, 8), "float"),
        _row("float8_e5m2", 16, ml_dtypes.float8_e5m2, (12, 8), "float"),
    )
}

HALVES = ("bfloat16", "float16")
FLOATS = (*HALVES, "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")

_BY_NUMPY = {row.numpy: row.name for row in DTYPES.values()}


def name_of(dtype: np.dtype[Any]) -> str:
    """PyTorch's name of a NumPy (or ml_dtypes) dtype. Raises KeyError for unsupported dtypes."""
    return _BY_NUMPY[np.dtype(dtype)]


def mask(names: tuple[str, ...]) -> int:
    """Bit mask of dtypes, as in operators.h. Raises KeyError."""
    bits = 0
    for name in names:
        bits |= 1 << DTYPES[name].code
    return bits
