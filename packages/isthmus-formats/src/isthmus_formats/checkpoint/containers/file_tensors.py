"""Tensors in files: read and written one at a time, without mapping the file."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Bounds

# Data types by their names in safetensors files, which are also those of manifests.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "C64": torch.complex64,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Readable(Protocol):
    """A tensor that can be read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the tensor."""

    def read(self) -> torch.Tensor:
        """Return it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor at an offset of a file.

    Attributes:
        path: the file.
        dtype: data type.
        shape: shape.
        parts: offset and number of bytes of its parts, in order.
        stride: stride in elements; None if it is contiguous.
    """

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]
    stride: tuple[int, ...] | None = None

    @property
    def bytes(self) -> int:
        """Number of bytes in the file."""
        return sum(length for _, length in self.parts)

    def read(self) -> torch.Tensor:
        """Return the tensor.

        Raises:
            CheckpointError: the file ends before it.
        """
        buffer = torch.empty(self.bytes, dtype=torch.uint8)
        view = buffer.numpy().data
        with self.path.open("rb", buffering=0) as stream:
            for offset, length in self.parts:
                read_into(stream.fileno(), view[:length], offset, self.path)
                view = view[length:]
        flat = buffer.view(self.dtype)
        if self.stride is not None:
            return flat.as_strided(self.shape, self.stride)
        return flat.reshape(self.shape)

    def write(self, tensor: torch.Tensor) -> str:
        """Write the tensor to its place and return the SHA-256 of its bytes.

        Raises:
            OSError: the file cannot be written.
        """
        data = rest = as_bytes(tensor)
        try:
            with self.path.open("r+b") as stream:
                for offset, length in self.parts:
                    stream.seek(offset)
                    stream.write(rest[:length])
                    rest = rest[length:]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tensor in memory, of a file that can only be read as a whole."""

    tensor: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the tensor."""
        return self.tensor.dtype

    def read(self) -> torch.Tensor:
        """Return it."""
        return self.tensor


@dataclass(frozen=True, slots=True)
class Assembled:
    """A tensor whose parts are stored apart.

    Attributes:
        name: its name, for messages.
        shape: its whole shape.
        dtype: data type.
        parts: rectangles and their tensors; they may overlap if they agree.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: Sequence[tuple[Bounds, Readable]]

    def read(self) -> torch.Tensor:
        """Return the whole tensor.

        Raises:
            CheckpointError: a part has a wrong shape.
        """
        if len(self.parts) == 1 and tuple(self.parts[0][1].shape) == self.shape:
            return self.parts[0][1].read()
        whole = torch.empty(self.shape, dtype=self.dtype)
        for bounds, part in self.parts:
            place = whole[tuple(slice(*each) for each in bounds)]
            if place.numel() != math.prod(part.shape):
                raise CheckpointError(
                    f"{self.name}: a part has the shape {tuple(part.shape)}, its place {tuple(place.shape)}"
                )
            place.copy_(part.read().reshape(place.shape))
        return whole


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A tensor of a data type that PyTorch lacks, or that is sparse or quantized.

    Attributes:
        path: its file.
        name: its name there.
        type: the data type by its name in the file.
        shape: its shape.
    """

    path: Path
    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Raise an error, as :meth:`read` does."""
        raise self._error()

    def read(self) -> torch.Tensor:
        """Raise an error.

        Raises:
            CheckpointError: always.
        """
        raise self._error()

    def _error(self) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: {self.name} has the data type {self.type}, which is not supported; leave it out "
            f"with --ignore '{re.escape(self.name)}'"
        )


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a data type, such as ``"float16"``."""
    return str(dtype).removeprefix("torch.")


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor, without a copy if it is contiguous."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data


def digest(tensor: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    return hashlib.sha256(as_bytes(tensor)).hexdigest()


def size(dtype: torch.dtype, shape: Sequence[int]) -> int:
    """Return the number of bytes of a tensor."""
    return math.prod(shape) * dtype.itemsize


def check_end(path: Path, tensors: dict[str, Stored]) -> None:
    """Check that a file is as long as its tensors say.

    Raises:
        CheckpointError: it is not.
    """
    length = path.stat().st_size
    for name, tensor in tensors.items():
        if any(offset + count > length for offset, count in tensor.parts):
            raise CheckpointError(f"{path}: truncated: {length} bytes end before {name}; copy the file again")


def read_into(file: int, view: memoryview, offset: int, path: Path) -> None:
    """Fill a view with the bytes of a file from an offset on.

    Raises:
        CheckpointError: the file ends before that.
    """
    while view:
        done = os.preadv(file, [view], offset)
        if not done:
            raise CheckpointError(f"{path}: truncated at byte {offset}; copy the file again")
        view, offset = view[done:], offset + done
