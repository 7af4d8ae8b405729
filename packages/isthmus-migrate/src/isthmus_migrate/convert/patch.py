"""Unified patches for ``git apply``, reversible by ``git apply -R``."""

import difflib
from collections.abc import Iterator

_NO_NEWLINE = b"\\ No newline at end of file\n"
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')
_ESCAPES = {ord("\n"): b"\\n", ord("\t"): b"\\t", ord('"'): b'\\"', ord("\\"): b"\\\\"}


def unified_patch(name: bytes, before: bytes, after: bytes) -> bytes:
    """Return the patch of one file; empty if nothing changes.

    Args:
        name: path of the file relative to the folder in which the patch is applied, with ``/``.
        before: old bytes.
        after: new bytes.
    """
    old, new = _quote_name(b"a/" + name), _quote_name(b"b/" + name)
    end = b"\t" if b" " in name else b""  # git's mark for the end of a name with spaces
    hunks = b"".join(_hunks(before, after))
    if not hunks:
        return b""
    return b"diff --git %s %s\n--- %s%s\n+++ %s%s\n%s" % (old, new, old, end, new, end, hunks)


def _hunks(before: bytes, after: bytes) -> Iterator[bytes]:
    old, new = ([line.decode("latin-1") for line in _lines(data)] for data in (before, after))
    for line in list(difflib.unified_diff(old, new))[2:]:  # without the names
        data = line.encode("latin-1")
        yield data if data.endswith(b"\n") else data + b"\n" + _NO_NEWLINE


def _lines(data: bytes) -> list[bytes]:
    """Split into lines with their ends; only a line feed ends a line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _quote_name(name: bytes) -> bytes:
    """Return a name as git writes it: quoted and escaped if it has special characters."""
    if _PLAIN.issuperset(name):
        return name
    return b'"%s"' % b"".join(_escape_byte(byte) for byte in name)


def _escape_byte(byte: int) -> bytes:
    if byte in _PLAIN:
        return bytes([byte])
    return _ESCAPES.get(byte, b"\\%03o" % byte)
