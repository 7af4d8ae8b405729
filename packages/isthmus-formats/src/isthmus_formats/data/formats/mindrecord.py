"""MindRecord, as MindSpore 2 writes it, in one file without MindSpore.

``FILE`` begins with a header: its length and JSON, in 16 MiB. Pages of 32 MiB follow; the last one is not filled up.
Pages of blobs hold rows: the length of the rest, then each field, with its length in front if there are several.
Integers are stored in as few bytes as each needs, see :func:`_pack_integers`. Pages of raw data hold the other fields
of rows, as MessagePack; here only the number of the schema. ``FILE.db`` is an SQLite index of the rows.

Fields: ``input_ids``; ``labels``, with -100 where a token is not trained on; ``seq_lengths`` of packed records, with
zeros at the end where all samples have one length, so that they can be batched.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from isthmus_formats.data.formats import Plan
from isthmus_formats.data.records import DataError
from isthmus_formats.data.samples import Sample, of_labels
from isthmus_formats.data.work import Work

_HEADER = 16 << 20
_PAGE = 32 << 20
_RAW = struct.pack("<Q", 5) + b"\x81\xa2id\x00"  # the raw data of a row: {"id": 0}
_FIELD_SIZE = struct.Struct(">Q")
_ROW_SIZE = struct.Struct("<Q")
_COUNT = struct.Struct(">I")
_SIZES = (1, 2, 4, 8)
_TABLE = (
    "CREATE TABLE INDEXES(ROW_ID INT NOT NULL, PAGE_ID_RAW INT NOT NULL, PAGE_OFFSET_RAW INT NOT NULL, "
    "PAGE_OFFSET_RAW_END INT NOT NULL, ROW_GROUP_ID INT NOT NULL, PAGE_ID_BLOB INT NOT NULL, "
    "PAGE_OFFSET_BLOB INT NOT NULL, PAGE_OFFSET_BLOB_END INT NOT NULL, PRIMARY KEY(ROW_ID))"
)

Integers = npt.NDArray[np.signedinteger[Any]]


class _Pages:
    """The pages of a file that is written.

    Attributes:
        header: entries of the header.
        ends: for each page of blobs, the end of each of its rows.
        saved: bytes by which the packed integers are shorter.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.header: list[dict[str, Any]] = []
        self.ends: list[array[int]] = []
        self.saved = 0

    def add(self, kind: str, number: int, size: int, groups: list[tuple[int, int]], rows: range) -> None:
        """Note a page, of these row groups with their offsets."""
        self.header.append(
            {
                "end_row_id": rows.stop,
                "page_id": len(self.header),
                "page_size": size,
                "page_type": kind,
                "page_type_id": number,
                "row_group_ids": [{"id": group, "offset": offset} for group, offset in groups],
                "shard_id": 0,
                "start_row_id": rows.start,
            }
        )

    def begin(self) -> None:
        """Go to the place of the next page."""
        self._stream.seek(_HEADER + _PAGE * len(self.header))

    def write_blobs(self, rows: Iterator[Sequence[Integers]], path: Path) -> None:
        """Write a row group into each page of blobs."""
        first, ends = 0, array("Q")
        self.begin()
        for values in rows:
            packed = [_pack_integers(each) for each in values]
            self.saved += sum(each.nbytes for each in values) - sum(map(len, packed))
            if len(packed) > 1:
                packed = [_FIELD_SIZE.pack(len(each)) + each for each in packed]
            body = b"".join(packed)
            size = _ROW_SIZE.size + len(body)
            if size > _PAGE:
                raise DataError(
                    f"{path}: a sample of {size} bytes, a page has {_PAGE}; give a lower --seq-length"
                )
            if ends and ends[-1] + size > _PAGE:
                first += self._end_blobs(first, ends)
                ends = array("Q")
            self._stream.write(_ROW_SIZE.pack(len(body)) + body)
            ends.append((ends[-1] if ends else 0) + size)
        if ends:
            self._end_blobs(first, ends)

    def _end_blobs(self, first: int, ends: array[int]) -> int:
        number = len(self.ends)
        self.add("BLOB_DATA", number, ends[-1], [(0, 0)], range(first, first + len(ends)))
        self.ends.append(ends)
        self.begin()
        return len(ends)

    def write_raw(self) -> Iterator[tuple[int, ...]]:
        """Write the raw data of all row groups; yield the index of each row."""
        groups, size, number, row = list[tuple[int, int]](), 0, 0, 0
        for group, ends in enumerate(self.ends):
            if size + len(_RAW) * len(ends) > _PAGE:
                self.add("RAW_DATA", number, size, groups, range(0))
                groups, size, number = [], 0, number + 1
                self.begin()
            groups.append((group, size))
            self._stream.write(_RAW * len(ends))
            for start, end in itertools.pairwise([0, *ends]):
                yield row, len(self.header), size, size + len(_RAW), group, group, start, end
                row, size = row + 1, size + len(_RAW)
        self.add("RAW_DATA", number, size, groups, range(0))

    def write_header(self, name: str, fields: Sequence[str]) -> None:
        """Write the header of the file."""
        schema = {field: {"shape": [-1], "type": "int32"} for field in sorted(fields)}
        header = {
            "header_size": _HEADER,
            "index_fields": None,
            "page": self.header,
            "page_size": _PAGE,
            "compression_size": max(0, self.saved),
            "schema": [{"blob_fields": fields, "desc": "samples", "schema": schema}],
            "shard_addresses": [name],
            "shard_id": 0,
            "statistics": None,
            "version": "3.0",
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        if _ROW_SIZE.size + len(text) > _HEADER:
            raise DataError(f"{name}: more pages than the header holds; divide the input")
        self._stream.seek(0)
        self._stream.write(_ROW_SIZE.pack(len(text)) + text)


def write(work: Work, target: Path, plan: Plan) -> dict[str, Path]:
    """Write samples into the folder; return its files and where they belong.

    Raises:
        DataError: a sample does not fit into a page, or the index cannot be written.
    """
    fields = ["input_ids"] + ["labels"] * plan.masked + ["seq_lengths"] * plan.packed
    index = f"{target.name}.db"
    work.create(index).close()  # an empty file is an empty data base
    with work.create(target.name) as stream:
        pages = _Pages(stream)
        pages.write_blobs((_values(sample, plan) for sample in plan.samples()), target)
        try:
            with contextlib.closing(sqlite3.connect(work.folder / index)) as base, base:
                base.execute("PRAGMA journal_mode = OFF")
                base.execute(_TABLE)
                base.executemany("INSERT INTO INDEXES VALUES (?, ?, ?, ?, ?, ?, ?, ?)", pages.write_raw())
                base.execute("CREATE TABLE SHARD_NAME(NAME TEXT NOT NULL)")
                base.execute("INSERT INTO SHARD_NAME VALUES (?)", (target.name,))
        except sqlite3.Error as error:
            raise DataError(f"{target}.db: cannot be written: {error}") from None
        pages.write_header(target.name, fields)
    return {index: target.with_name(index), target.name: target}


def _values(sample: Sample, plan: Plan) -> list[Integers]:
    values: list[Integers] = [sample.ids]
    if plan.masked:
        values.append(sample.labels())
    if plan.packed:
        # MindSpore makes batches of arrays of one length only.
        values.append(np.pad(sample.lengths, (0, max(0, plan.most_records - len(sample.lengths)))))
    return values


def _pack_integers(values: Integers) -> bytes:
    """Return integers in as few bytes as each needs: their count, two bits for the size of each, the bytes."""
    codes = np.zeros(len(values), np.uint8)
    for size in _SIZES[:3]:
        codes += values != values.astype(f"i{size}")
    quads = np.pad(codes, (0, -len(codes) % 4)).reshape(-1, 4)
    bits = (quads << np.array([6, 4, 2, 0], np.uint8)).sum(axis=1, dtype=np.uint8)
    rows = values.view(np.uint8).reshape(len(values), values.itemsize)
    kept = rows[np.arange(values.itemsize) < np.array(_SIZES)[codes][:, None]]
    return _COUNT.pack(len(values)) + bits.tobytes() + kept.tobytes()


def _unpack_integers(data: bytes) -> npt.NDArray[np.int64]:
    (count,) = _COUNT.unpack_from(data)
    bits = np.frombuffer(data, np.uint8, -(-count // 4), _COUNT.size)
    codes = (bits[:, None] >> np.array([6, 4, 2, 0], np.uint8) & 3).ravel()[:count]
    sizes = np.array(_SIZES)[codes]
    rows = np.zeros((count, 8), np.uint8)
    rows[np.arange(8) < sizes[:, None]] = np.frombuffer(data, np.uint8, offset=_COUNT.size + len(bits))
    unused = 8 * (8 - sizes)
    return rows.view("<i8").ravel() << unused >> unused  # with the sign


def _read_header(path: Path) -> bytes:
    """Return the JSON of a file's header; nothing if it has none."""
    with path.open("rb") as stream:
        head = stream.read(_ROW_SIZE.size)
        size = _ROW_SIZE.unpack(head)[0] if len(head) == _ROW_SIZE.size else _HEADER
        return stream.read(size) if size < _HEADER else b""


def _data_file(path: Path) -> Path:
    """Return the file that a path means: also its index, or all parts by the name without their numbers."""
    if path.suffix == ".db" and not path.with_suffix("").is_dir():
        path = path.with_suffix("")
    if path.exists():
        return path
    numbered = (path.with_name(path.name + "0" * digits) for digits in (1, 2, 3))
    return next((each for each in numbered if each.is_file()), path)


def parts(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the parts of a data set that are available, and those that are missing; none of another file.

    MindSpore writes a data set in several files, and reads all of them when it is given one. Each has their names.
    """
    path = _data_file(path)
    if not path.is_file():
        return [], []
    try:
        names = [str(name) for name in json.loads(_read_header(path))["shard_addresses"]]
        files = [path.with_name(Path(name).name) for name in names]
    except (ValueError, TypeError, KeyError):
        return [], []
    if path not in files:  # renamed
        return [path], files if len(files) > 1 else []
    return [file for file in files if file.is_file()], [file for file in files if not file.is_file()]


def read(path: Path) -> Iterator[Sample]:
    """Return the samples of all parts of a data set, also of one that MindSpore wrote.

    Raises:
        DataError: it is not valid, or its rows have no tokens.
    """
    readers = [_read(each) for each in parts(path)[0] or [_data_file(path)]]
    return itertools.chain.from_iterable(readers)


def _read(path: Path) -> Iterator[Sample]:
    """Return the samples of one file, the header of which is checked at once."""
    try:
        header: dict[str, Any] = json.loads(_read_header(path))
        pages = [
            (
                int(header["header_size"] + header["page_size"] * page["page_id"]),
                range(page["start_row_id"], page["end_row_id"]),
            )
            for page in header["page"]
            if page["page_type"] == "BLOB_DATA"
        ]
        fields, schema = header["schema"][0]["blob_fields"], header["schema"][0]["schema"]
        kind = str(schema.get("input_ids", {}).get("type"))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise DataError(f"{path}: not a MindRecord file, or truncated") from None
    if "input_ids" not in fields or not kind.startswith("int"):
        raise DataError(f"{path}: its rows have no input_ids of integers, but {', '.join(schema)}")
    return _samples(path, pages, fields)


def _samples(path: Path, pages: list[tuple[int, range]], names: Sequence[str]) -> Iterator[Sample]:
    whole = path.stat().st_size
    wanted = [names.index(name) if name in names else -1 for name in ("input_ids", "labels", "seq_lengths")]
    with path.open("rb") as stream:
        for start, rows in pages:
            stream.seek(start)
            for row in rows:
                try:
                    body = stream.read(min(_ROW_SIZE.unpack(stream.read(_ROW_SIZE.size))[0], whole))
                    fields = list(_parts(body)) if len(names) > 1 else [body]
                    ids, *others = (
                        _unpack_integers(fields[place]) if place >= 0 else None for place in wanted
                    )
                    assert ids is not None
                    sample = of_labels(ids, *others)
                except (struct.error, ValueError, IndexError):
                    raise DataError(
                        f"{path}: row {row}: damaged or truncated; write the file again"
                    ) from None
                yield sample


def _parts(body: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(body):
        (size,) = _FIELD_SIZE.unpack_from(body, place)
        place += _FIELD_SIZE.size
        yield body[place : place + size]
        place += size
