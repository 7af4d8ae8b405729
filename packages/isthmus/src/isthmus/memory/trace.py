"""Traces: every allocation of a training run, in order, as columns.

A file NAME.trace is a safetensors file compressed with xz. Its tensors are the columns of :class:`Trace`, all of the
same length. ``id`` is stored as an age (the number of allocations since, 1 for the newest; 0 for an allocation and a
step), so that equal steps have equal bytes. Its metadata is ``format`` "isthmus-trace", ``version`` "1", ``name``,
``made``, ``model`` and ``steps`` (their number).
"""

from __future__ import annotations

import errno
import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isthmus_common.files import write_file

ALLOC, FREE, STEP, USE = range(4)  # values of the column `kind`
FORMAT, VERSION = "isthmus-trace", "1"

_CODES = {"U8": np.uint8, "I16": np.int16, "I32": np.int32, "I64": np.int64}
_COLUMNS = {"kind": "U8", "id": "I32", "size": "I64", "stream": "I16"}
_LARGEST = 1 << 31  # bytes of a decompressed file: 140 million events
_AGAIN = "make or record the trace again"

Column = np.ndarray[Any, np.dtype[Any]]


class TraceError(ValueError):
    """A trace or a request for one is invalid; the message is one line."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The events of a run.

    Attributes:
        kind: uint8; 0 allocation, 1 free, 2 end of an optimizer step, 3 use on another stream.
        id: int32; the allocation, numbered from 0 in order; 0 for a step.
        size: int64; bytes of an allocation, the stream of a use, 0 otherwise.
        stream: int16; the stream of an allocation, 0 otherwise.
        name: name of the trace.
        made: how it was made, such as the command.
        model: the trained model.
    """

    kind: Column
    id: Column
    size: Column
    stream: Column
    name: str
    made: str
    model: str

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, int, int, int]], *, name: str, made: str, model: str) -> Trace:
        """Make a trace of rows (kind, id, size, stream)."""
        kind, ids, size, stream = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(
            kind=kind.astype(np.uint8),
            id=ids.astype(np.int32),
            size=np.ascontiguousarray(size),
            stream=stream.astype(np.int16),
            name=name,
            made=made,
            model=model,
        )

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def steps(self) -> int:
        """Number of complete optimizer steps."""
        return int(np.count_nonzero(self.kind == STEP))

    @property
    def sizes(self) -> Column:
        """Bytes of every allocation by id, int64."""
        sizes: Column = self.size[self.kind == ALLOC]
        return sizes

    def live(self, stream: int | None = None) -> Column:
        """Return the bytes in use after every event, int64, of one stream or all."""
        change = np.where(self.kind == ALLOC, self.size, 0)
        freed = np.flatnonzero(self.kind == FREE)
        change[freed] = -self.sizes[self.id[freed]]
        if stream is not None:
            owner = self.stream.copy()
            owner[freed] = self.stream[self.kind == ALLOC][self.id[freed]]
            change[owner != stream] = 0
        return np.cumsum(change)

    def live_peaks(self) -> Column:
        """Return the peak of bytes in use of each step, int64."""
        ends = np.flatnonzero(self.kind == STEP)
        live = self.live()
        return np.array(
            [live[start : end + 1].max() for start, end in zip([0, *ends[:-1]], ends, strict=False)], np.int64
        )

    def separate_peak(self) -> int:
        """Return the sum of the streams' live peaks: the need of an allocator with separate memory per stream."""
        return sum(int(self.live(stream).max()) for stream in np.unique(self.stream[self.kind == ALLOC]))

    def repeated(self, times: int) -> Trace:
        """Return a longer trace, in which the steps after the first are repeated.

        Raises TraceError if these steps free earlier blocks or leave blocks allocated, or if the result has too many
        allocations.
        """
        ends = np.flatnonzero(self.kind == STEP)
        if len(ends) < 2 or ends[-1] != len(self) - 1:
            raise TraceError(
                f"{self.name}: cannot be repeated; it needs two or more steps, and must end with one"
            )
        start = int(ends[0]) + 1
        before = int(np.count_nonzero(self.kind[:start] == ALLOC))
        again, live = slice(start, None), self.live()
        ids = self.id[again]
        if (ids[self.kind[again] == FREE] < before).any() or live[-1] != live[start - 1]:
            raise TraceError(
                f"{self.name}: cannot be repeated; its steps after the first free or keep blocks of other steps"
            )
        made = len(self.sizes) + times * (len(self.sizes) - before)
        if made > np.iinfo(np.int32).max or times * len(ids) > _LARGEST:
            raise TraceError(f"{self.name}: {times} repetitions make the trace too long; give fewer")
        moves = (ids >= before) * (len(self.sizes) - before)  # ids of the first step do not change
        kind, size, stream = (
            np.concatenate([column, *[column[again]] * times])
            for column in (self.kind, self.size, self.stream)
        )
        ids = np.concatenate([self.id, *(ids + number * moves for number in range(1, times + 1))])
        return replace(self, kind=kind, id=ids.astype(np.int32), size=size, stream=stream)


def write(trace: Trace, path: Path) -> int:
    """Write the file (mode 0640) and return its size in bytes.

    Raises TraceError for an invalid trace, OSError if the file cannot be written.
    """
    check(trace, str(path))
    check_output(path)
    packed = lzma.compress(encode(trace), preset=9 | lzma.PRESET_EXTREME)
    write_file(path, [packed])
    return len(packed)


def check_output(path: Path) -> None:
    """Raise OSError if a path is a folder, or its folder does not exist."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder; give the name of a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"no such folder: {path.parent}; create it first", str(path))


def read(path: Path) -> Trace:
    """Read a file and check it. Raises TraceError, OSError."""
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    packed = path.read_bytes()
    if packed[:6] != b"\xfd7zXZ\0"[: len(packed)]:  # lzma accepts a truncated header of another format
        raise TraceError(f"{path}: not a trace; {_AGAIN}")
    try:
        content = unpacker.decompress(packed, max_length=_LARGEST)
    except lzma.LZMAError as error:
        raise TraceError(f"{path}: damaged ({error}); {_AGAIN}") from None
    if not unpacker.eof:
        why = "larger than 2 GiB when decompressed" if len(content) >= _LARGEST else "truncated"
        raise TraceError(f"{path}: {why}; {_AGAIN}")
    trace = _decode(content, str(path))
    check(trace, str(path))
    return trace


def encode(trace: Trace) -> bytes:
    """Return the uncompressed safetensors file; equal traces give equal bytes."""
    columns: dict[str, Column] = {
        name: np.ascontiguousarray(getattr(trace, name), _CODES[code]) for name, code in _COLUMNS.items()
    }
    columns["id"] = _ages(trace.kind, columns["id"])
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "name": trace.name,
        "made": trace.made,
        "model": trace.model,
        "steps": str(trace.steps),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    # Widest first, so that every column is aligned in a memory-mapped file.
    order = sorted(columns, key=lambda name: -columns[name].itemsize)
    for name in order:
        end = offset + columns[name].nbytes
        header[name] = {"dtype": _COLUMNS[name], "shape": [len(trace)], "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(columns[name].tobytes() for name in order)])


def _ages(kind: Column, ids: Column) -> Column:
    """Convert ids to ages, and ages to ids: the function is its own inverse."""
    made = np.cumsum(kind == ALLOC)
    ages = np.where((kind == FREE) | (kind == USE), made - ids, 0)
    return ages.astype(np.int32)


def _decode(content: bytes, path: str) -> Trace:
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        metadata = header.pop("__metadata__")
        columns = {name: _column(content, 8 + length, header[name], name) for name in _COLUMNS}
        texts = {
            key: _printable(str(metadata[key]))
            for key in ("format", "version", "name", "made", "model", "steps")
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(
            f"{path}: not a trace ({type(error).__name__}: {_printable(str(error))}); {_AGAIN}"
        ) from None
    if (texts["format"], texts["version"]) != (FORMAT, VERSION):
        found = f"{texts['format']} version {texts['version']}"
        raise TraceError(f"{path}: {found}, expected {FORMAT} version {VERSION}; {_AGAIN}")
    if len({len(column) for column in columns.values()}) != 1:
        raise TraceError(f"{path}: columns of different lengths; {_AGAIN}")
    kind = columns["kind"]
    columns["id"] = np.where(kind == ALLOC, np.cumsum(kind == ALLOC) - 1, _ages(kind, columns["id"]))
    columns["id"] = columns["id"].astype(np.int32)
    trace = Trace(**columns, name=texts["name"], made=texts["made"], model=texts["model"])
    if texts["steps"] != str(trace.steps):
        raise TraceError(f"{path}: declares {texts['steps']} steps but has {trace.steps}; {_AGAIN}")
    return trace


def _printable(text: str) -> str:
    """Escape control characters: text of an unknown file must not control the terminal."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def _column(content: bytes, start: int, row: dict[str, Any], name: str) -> Column:
    if row["dtype"] != _COLUMNS[name]:
        raise ValueError(f"column {name} is {row['dtype']}, not {_COLUMNS[name]}")
    begin, end = (start + int(offset) for offset in row["data_offsets"])
    if not start <= begin <= end <= len(content):
        raise ValueError(f"column {name} is truncated")
    return np.frombuffer(content[begin:end], _CODES[row["dtype"]])


def check(trace: Trace, path: str) -> None:
    """Raise TraceError with the first invalid event."""
    kind, ids = trace.kind, trace.id.astype(np.int64)
    made = np.cumsum(kind == ALLOC)
    refers = (kind == FREE) | (kind == USE)
    _first(path, kind > USE, "has an unknown kind; expected 0, 1, 2 or 3")
    _first(path, (kind == ALLOC) & (trace.size <= 0), "allocates less than 1 byte")
    _first(path, (kind == ALLOC) & (ids != made - 1), "has an id that is not the next in order")
    _first(path, (kind == USE) & ((trace.size < 0) | (trace.size >= 1 << 15)), "uses a stream out of range")
    _first(path, trace.stream < 0, "has a negative stream")
    _first(path, refers & ((ids < 0) | (ids >= made)), "refers to an unknown allocation")
    freed = np.full(int(made[-1]) if len(made) else 0, len(trace), np.int64)
    frees = np.flatnonzero(kind == FREE)
    freed[ids[frees][::-1]] = frees[::-1]  # the first free of each
    events = np.flatnonzero(refers)
    late = np.zeros(len(trace), bool)
    late[events] = freed[ids[events]] < events
    _first(path, late & (kind == FREE), "frees an allocation twice")
    _first(path, late & (kind == USE), "uses a freed allocation")


def _first(path: str, wrong: Column, what: str) -> None:
    if wrong.any():
        raise TraceError(f"{path}: event {int(np.argmax(wrong))} {what}; {_AGAIN}")
