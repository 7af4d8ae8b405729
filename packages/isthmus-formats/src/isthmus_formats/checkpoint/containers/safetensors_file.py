"""Files of safetensors: the length of a JSON header, the header, data."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from zlib import crc32

import torch

from isthmus_formats.checkpoint.containers.file_tensors import (
    DTYPE_NAMES,
    DTYPES,
    Stored,
    Unsupported,
    as_bytes,
    check_end,
    size,
)
from isthmus_formats.checkpoint.errors import CheckpointError

_LONGEST = 100_000_000  # bytes of a header, as in the reference implementation


def read(path: Path) -> dict[str, Stored | Unsupported]:
    """Return the tensors of a file.

    Raises:
        CheckpointError: it is not a safetensors file, truncated, or does not match the CRC that MindSpore adds.
    """
    with path.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else _LONGEST + 1
        if length > _LONGEST:
            raise CheckpointError(f"{path}: not a safetensors file, or truncated")
        text = stream.read(length)
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", None) or {}
        found: dict[str, Stored | Unsupported] = {}
        for name, each in header.items():
            start, end = each["data_offsets"]
            # MindSpore notes a type that the format lacks, such as Int4, under the name of the tensor
            kind, shape = metadata.get(name, each["dtype"]), tuple(each["shape"])
            place = (8 + length + start, end - start)
            if kind in DTYPES:
                found[name] = Stored(path, DTYPES[kind], shape, (place,))
            else:
                found[name] = Unsupported(path, name, str(kind), shape)
    except KeyError as error:
        raise CheckpointError(f"{path}: the safetensors header lacks {error}; copy the file again") from None
    except (ValueError, TypeError, AttributeError, IndexError):
        raise CheckpointError(f"{path}: the header is damaged; copy the file again") from None
    tensors = {name: tensor for name, tensor in found.items() if isinstance(tensor, Stored)}
    for name, tensor in tensors.items():
        if tensor.bytes != size(tensor.dtype, tensor.shape) or tensor.parts[0][0] < 8 + length:
            raise CheckpointError(
                f"{path}: the header is damaged: shape and bytes of {name} differ; copy the file again"
            )
    check_end(path, tensors)
    if (expected := metadata.get("crc_num")) and len(tensors) == len(found) and _crc(tensors) != expected:
        raise CheckpointError(f"{path}: damaged: does not match its CRC; copy the file again")
    return found


def _crc(tensors: Mapping[str, Stored]) -> str:
    """Return the CRC-32 of names and data, as MindSpore's save_checkpoint computes it with ``crc_check``."""
    crc = 0
    for name, tensor in sorted(tensors.items()):
        crc = crc32(as_bytes(tensor.read()), crc32(name.encode(), crc))
    return str(crc)


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
    return cast(dict[str, Stored], read(path))
