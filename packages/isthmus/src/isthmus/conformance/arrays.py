"""Arrays in a safetensors file, deduplicated.

The format is eight bytes with the length of a JSON header, the header, and the bytes of the arrays. Of a large array
that repeats with :data:`isthmus.opset.sampling.PERIOD` only the start is stored; ``__metadata__`` has its full size.
``safetensors.numpy`` is not used: it does not support bfloat16 and holds every array in memory twice.
"""

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.sampling import PERIOD
from isthmus_common.files import write_file

Array = np.ndarray[Any, np.dtype[Any]]

_CODES = {
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "bool": "BOOL",
    "complex64": "C64",
    "complex128": "F64",  # not in the format: stored as pairs of float64, marked by the key
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_PAIRS = "complex128-"
_PRESET = 0  # of xz, the fastest; values of cases repeat in other layouts beyond the window of gzip
_HEAD = 8  # elements before the first period: those before an offset
_DTYPES = {code: dt.DTYPES[name].numpy for name, code in _CODES.items() if name != "complex128"}


class Store:
    """Arrays to be written to a file."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._sizes: dict[str, str] = {}

    def add(self, array: Array) -> str:
        """Add a 1-D array and return its key, which depends only on dtype and bytes."""
        flat = np.ascontiguousarray(array).reshape(-1)
        name = dt.name_of(flat.dtype)
        stored = _start(flat)
        digest = hashlib.sha256(f"{name}:{flat.size}:".encode())
        digest.update(stored.view(np.uint8).data)
        key = (_PAIRS if name == "complex128" else "") + digest.hexdigest()[:20]
        self._arrays.setdefault(key, stored)
        if stored.size < flat.size:
            self._sizes[key] = str(flat.size)
        return key

    def write(self, path: Path) -> str:
        """Write the compressed file and return its SHA-256."""
        return write_compressed(path, _encode(self._arrays, self._sizes))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays as safetensors."""
    write_file(path, _encode(arrays, {}))


def write_compressed(path: Path, parts: Iterable[bytes | memoryview]) -> str:
    """Write an xz file, the same for the same bytes, and return its SHA-256."""
    return write_file(path, _compress(parts))


def read_compressed(path: Path) -> bytes:
    """Return the content of an xz file."""
    return lzma.decompress(path.read_bytes())


def _compress(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    stream = lzma.LZMACompressor(preset=_PRESET)
    yield from map(stream.compress, parts)
    yield stream.flush()


def _encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Return the parts of a safetensors file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset, chunks = 0, list[memoryview]()
    for key, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1)
        end, pairs = offset + flat.nbytes, array.dtype == np.complex128
        name = _PAIRS + key if pairs and not key.startswith(_PAIRS) else key
        shape = (
            [*array.shape[:-1], 2 * array.shape[-1]] if pairs and array.ndim else [*array.shape, *[2] * pairs]
        )
        code = _CODES[dt.name_of(array.dtype)]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [offset, end]}
        chunks.append(flat.view(np.uint8).data)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *chunks]


def _start(flat: Array) -> Array:
    """Return the start of an array from which :func:`_repeat` makes the whole."""
    if flat.size <= 2 * PERIOD:
        return flat
    start = flat[: _HEAD + PERIOD].copy()
    same = np.array_equal(_repeat(start, flat.size).view(np.uint8), flat.view(np.uint8))
    return start if same else flat


def _repeat(start: Array, size: int) -> Array:
    return np.concatenate([start[:_HEAD], np.resize(start[_HEAD:], size - _HEAD)])


class Loaded:
    """The arrays of a compressed file, read-only."""

    def __init__(self, path: Path) -> None:
        self._bytes = np.frombuffer(read_compressed(path), np.uint8)
        length = int.from_bytes(self._bytes[:8].tobytes(), "little")
        self._start, self._address = 8 + length, self._bytes.ctypes.data
        self._header: dict[str, Any] = json.loads(self._bytes[8 : self._start].tobytes())
        self._sizes: dict[str, str] = self._header.get("__metadata__", {})

    def get(self, key: str) -> Array:
        """Return the 1-D array of a key. Raises KeyError."""
        row = self._header[key]
        start, end = (self._start + offset for offset in row["data_offsets"])
        dtype = np.dtype(np.complex128) if key.startswith(_PAIRS) else _DTYPES[row["dtype"]]
        raw = self._bytes[start:end]
        aligned = raw if (self._address + start) % dtype.itemsize == 0 else raw.copy()
        array = aligned.view(dtype)
        return _repeat(array, int(self._sizes[key])) if key in self._sizes else array
