"""The wire format of protocol buffers, as far as MindSpore's files need it."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not a message."""


def encode_varint(value: int) -> bytes:
    """Encode an integer; a negative one as its 64-bit complement."""
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def encode_integer(field: int, value: int) -> bytes:
    """Encode a field that is an integer."""
    return encode_varint(field << 3 | VARINT) + encode_varint(value)


def encode_head(field: int, length: int) -> bytes:
    """Encode the tag and the length that precede the bytes of a field."""
    return encode_varint(field << 3 | BYTES) + encode_varint(length)


def encode_bytes(field: int, value: bytes) -> bytes:
    """Encode a field that is bytes or a message."""
    return encode_head(field, len(value)) + value


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return an integer and the position after it.

    Raises:
        WireError: the bytes end, or the integer has more than 64 bits.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise WireError("the message ends within an integer")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise WireError("an integer has more than 64 bits")


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field of a message.

    Raises:
        WireError: the bytes are not a message.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        tag, at = read_varint(view, at)
        value: int | memoryview
        if tag & 7 == VARINT:
            value, at = read_varint(view, at)
        else:
            length, at = (
                read_varint(view, at) if tag & 7 == BYTES else ({FIXED64: 8, FIXED32: 4}.get(tag & 7, -1), at)
            )
            if length < 0 or at + length > len(view):
                raise WireError("a field reaches beyond the message")
            value, at = view[at : at + length], at + length
        yield tag >> 3, value


def to_signed(value: int) -> int:
    """Return an integer whose 64-bit complement may have been encoded."""
    return value - (1 << 64) if value >> 63 else value


def integers(value: int | memoryview) -> list[int]:
    """Return the integers of a repeated field, packed or not."""
    if isinstance(value, int):
        return [to_signed(value)]
    found, at = [], 0
    while at < len(value):
        each, at = read_varint(value, at)
        found.append(to_signed(each))
    return found
