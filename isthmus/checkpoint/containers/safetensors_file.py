"""safetensors: a length, a JSON header, data."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch

from isthmus.checkpoint.containers.stored import DTYPE_NAMES, DTYPES, Stored, check_end, size
from isthmus.checkpoint.errors import CheckpointError

_LONGEST = 100_000_000  # bytes of a header, as in the reference implementation


def read(path: Path) -> dict[str, Stored]:
    """Return the tensors of a file.

    Raises:
        CheckpointError: it is not a safetensors file, or truncated.
    """
    with path.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else _LONGEST + 1
        if length > _LONGEST:
            raise CheckpointError(f"{path}: not a safetensors file, or truncated")
        text = stream.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        tensors = {
            name: Stored(
                path,
                DTYPES[each["dtype"]],
                tuple(each["shape"]),
                ((8 + length + each["data_offsets"][0], each["data_offsets"][1] - each["data_offsets"][0]),),
            )
            for name, each in header.items()
        }
    except KeyError as error:
        raise CheckpointError(
            f"{path}: entry or data type {error} of the safetensors header is not supported"
        ) from None
    except (ValueError, TypeError, AttributeError, IndexError):
        raise CheckpointError(f"{path}: the header is damaged; copy the file again") from None
    for name, tensor in tensors.items():
        if tensor.bytes != size(tensor.dtype, tensor.shape) or tensor.parts[0][0] < 8 + length:
            raise CheckpointError(
                f"{path}: the header is damaged: shape and bytes of {name} differ; copy the file again"
            )
    check_end(path, tensors)
    return tensors


def create(path: Path, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> dict[str, Stored]:
    """Write a file whose data is a hole, and return its tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + size(dtype, shape)
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + at)
    return read(path)
