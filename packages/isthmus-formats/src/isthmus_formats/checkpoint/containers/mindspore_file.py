"""MindSpore's .ckpt: protocol buffer messages, one or more for each tensor.

Checkpoint{1: Value{1: tag, 2: TensorProto{1: dims, 2: tensor_type, 3: tensor_content}}}; a large tensor is several
messages with the same tag. With ``crc_check``, ``crc_num`` and the CRC-32 of all of that follow, in 10 bytes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast
from zlib import crc32

import torch

from isthmus_formats.checkpoint.containers import protobuf
from isthmus_formats.checkpoint.containers.file_tensors import Stored, Unsupported, check_end, size
from isthmus_formats.checkpoint.errors import CheckpointError

_DTYPES = {
    "Float64": torch.float64,
    "Float32": torch.float32,
    "Float16": torch.float16,
    "BFloat16": torch.bfloat16,
    "Int64": torch.int64,
    "Int32": torch.int32,
    "Int16": torch.int16,
    "Int8": torch.int8,
    "UInt64": torch.uint64,
    "UInt32": torch.uint32,
    "UInt16": torch.uint16,
    "UInt8": torch.uint8,
    "Bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in _DTYPES.items()}  # those that load_checkpoint reads
_DTYPES |= {  # those that save_checkpoint writes all the same
    "Float8E4M3FN": torch.float8_e4m3fn,
    "Float8E5M2": torch.float8_e5m2,
    "Complex64": torch.complex64,
    "Complex128": torch.complex128,
}
_CRC = b"crc_num"
_CRC_BYTES = 10
_LONGEST = 512 << 20  # bytes of a message's content, as MindSpore writes it


def read(path: Path) -> dict[str, Stored | Unsupported]:
    """Return the tensors of a file.

    Raises:
        CheckpointError: it is no .ckpt file, damaged, or does not match its CRC.
    """
    found: dict[str, Stored | Unsupported] = {}
    if not path.stat().st_size:
        raise CheckpointError(f"{path}: empty; copy the file again")
    with path.open("rb") as stream:  # the map is closed with its last view, which an error may hold
        data = _without_crc(memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)), path)
    try:
        for tag, dtype, shape, part in _messages(data):
            if dtype not in _DTYPES:
                found[tag] = Unsupported(path, tag, dtype, shape)
                continue
            before = found.get(tag)
            parts = (*before.parts, part) if isinstance(before, Stored) else (part,)
            found[tag] = Stored(path, _DTYPES[dtype], shape, parts)
    except (protobuf.WireError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: not a .ckpt file of MindSpore, or truncated: {error}") from None
    stored = {name: tensor for name, tensor in found.items() if isinstance(tensor, Stored)}
    for name, tensor in stored.items():
        if tensor.bytes != size(tensor.dtype, tensor.shape):
            raise CheckpointError(f"{path}: damaged: {name} of shape {tensor.shape} has {tensor.bytes} bytes")
    check_end(path, stored)
    return found


def _without_crc(data: memoryview, path: Path) -> memoryview:
    """Return the messages of a file without its CRC, which is checked if it has one."""
    end = len(data) - _CRC_BYTES - len(_CRC)
    if end < 0 or data[end : end + len(_CRC)] != _CRC:
        return data
    if crc32(data[:end]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise CheckpointError(f"{path}: damaged: does not match its CRC; copy the file again")
    return data[:end]


def _messages(view: memoryview) -> list[tuple[str, str, tuple[int, ...], tuple[int, int]]]:
    """Return tag, data type, shape, and the offset and length of the content of each tensor."""
    found = []
    for field, *value in _fields(view, 0, len(view)):
        if field != 1:
            raise protobuf.WireError(f"field {field} is unknown")
        tag, dtype, part = "", "", (0, 0)
        dims: list[int] = []
        for field_of_value, start, stop in _fields(view, *value):
            if field_of_value == 1:
                tag = bytes(view[start:stop]).decode()
            elif field_of_value == 3:
                raise protobuf.WireError("parameters of a hash map are not supported")
            else:
                for field_of_tensor, first, last in _fields(view, start, stop):
                    if field_of_tensor == 1:
                        dims += protobuf.integers(view[first:last])
                    elif field_of_tensor == 2:
                        dtype = bytes(view[first:last]).decode()
                    elif field_of_tensor == 3:
                        part = (first, last - first)
        if dtype != "str" and tag != "crc_num":
            found.append((tag, dtype, () if dims == [0] else tuple(dims), part))
    return found


def _fields(view: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Return number, start and end of the content of each field; an integer is its own content."""
    while at < end:
        tag, at = protobuf.read_varint(view, at)
        length = 0
        if tag & 7 == protobuf.VARINT:
            length = protobuf.read_varint(view, at)[1] - at
        elif tag & 7 == protobuf.BYTES:
            length, at = protobuf.read_varint(view, at)
        else:
            raise protobuf.WireError("a field has an unknown type")
        if at + length > end:
            raise protobuf.WireError("a field reaches beyond the message")
        yield tag >> 3, at, at + length
        at += length


def create(path: Path, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> dict[str, Stored]:
    """Write a file whose data is a hole, and return its tensors."""
    with path.open("wb") as stream:
        for tag, (dtype, shape) in tensors.items():
            length = size(dtype, shape)
            for start in range(0, max(length, 1), _LONGEST):
                content = min(_LONGEST, length - start)
                proto = b"".join(protobuf.encode_integer(1, each) for each in shape or (0,))
                proto += protobuf.encode_bytes(2, NAMES[dtype].encode()) + protobuf.encode_head(3, content)
                value = (
                    protobuf.encode_bytes(1, tag.encode())
                    + protobuf.encode_head(2, len(proto) + content)
                    + proto
                )
                stream.write(protobuf.encode_head(1, len(value) + content) + value)
                stream.seek(content, 1)
        stream.truncate()
    return cast(dict[str, Stored], read(path))
