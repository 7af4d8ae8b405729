"""Rows of input files, read one by one: a file of any size needs the memory of its largest row."""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_formats.data.records import DataError, Row, RowError, kind_of

_READ = 1 << 20  # bytes
_ROWS = 256  # rows that Parquet is decoded in, and of a chunk at most
# Message of json for a value whose end is not there yet, apart from errors at the very end.
_OPEN = "Unterminated string"


class Position(NamedTuple):
    """A place between two rows of the input, to resume from.

    Attributes:
        file: index of the file.
        offset: of the next row: bytes, or rows in Parquet and Arrow files.
        row: number of rows of the file before it.
        total: number of rows of all files before it.
    """

    file: int = 0
    offset: int = 0
    row: int = 0
    total: int = 0


class Chunk(NamedTuple):
    """Successive rows of one file.

    Attributes:
        path: the file.
        start: place of the first row.
        rows: rows; an error in place of a row that cannot be read.
        end: place after the last row.
        done: bytes of the input that have been read.
    """

    path: Path
    start: Position
    rows: list[Row | RowError]
    end: Position
    done: int


Rows = Iterator[tuple[Row | RowError, int]]  # a row, and the offset after it


def inputs(paths: Sequence[Path]) -> list[Path]:
    """Return the files to read; of a folder that Hugging Face ``datasets`` saved, its Arrow files.

    Raises:
        DataError: a path does not exist, or is of an unknown kind.
    """
    found: list[Path] = []
    for path in paths:
        files = sorted(path.glob("*.arrow")) if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path}: a folder without .arrow files; name the files")
        for file in files:
            if not file.exists():
                raise DataError(f"{file}: no such file or directory")
            if file.suffix not in READERS:
                raise DataError(f"{file}: unknown suffix {file.suffix!r}; expected {', '.join(READERS)}")
        found += files
    return found


def chunks(paths: Sequence[Path], start: Position | None = None) -> Iterator[Chunk]:
    """Yield the rows of files in chunks of about 1 MiB, from a place on.

    Raises:
        DataError: a file cannot be read; its text has the file and the place.
    """
    here = start or Position()
    before = sum(path.stat().st_size for path in paths[: here.file])
    for index in range(here.file, len(paths)):
        if index > here.file:
            here = Position(index, total=here.total)
        for chunk in _chunks(paths[index], here, before):
            yield chunk
            here = chunk.end
        before += paths[index].stat().st_size


def _chunks(path: Path, here: Position, before: int) -> Iterator[Chunk]:
    reader = READERS[path.suffix]
    size, count = path.stat().st_size, max(1, reader.count(path))
    first, rows = here, list[Row | RowError]()
    for row, offset in reader.rows(path, here.offset):
        rows.append(row)
        here = Position(here.file, offset, here.row + 1, here.total + 1)
        if len(rows) == _ROWS or (offset - first.offset) * size >= _READ * count:
            yield Chunk(path, first, rows, here, before + size * offset // count)
            first, rows = here, []
    if rows:
        yield Chunk(path, first, rows, here, before + size)


# ---- JSON ----------------------------------------------------------------------------------------------


def json_lines(path: Path, start: int) -> Rows:
    """Yield the rows of a file with a JSON object in each line; empty lines are skipped."""
    with path.open("rb") as stream:
        stream.seek(start)
        offset = start
        for line in stream:
            offset += len(line)
            if line.strip():
                yield _row(line), offset


def _row(line: bytes) -> Row | RowError:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return RowError(f"invalid UTF-8 (byte {line[error.start]:#04x} at {error.start} of the line)")
    except (json.JSONDecodeError, RecursionError) as error:
        return RowError(f"invalid JSON ({error})")
    return value if isinstance(value, dict) else RowError(f"{kind_of(value)}, not an object")


def text_lines(path: Path, start: int) -> Rows:
    """Yield the lines of a text file as rows with the field ``text``; empty lines are skipped."""
    with path.open("rb") as stream:
        stream.seek(start)
        offset = start
        for line in stream:
            offset += len(line)
            if not line.strip():
                continue
            try:
                yield {"text": line.decode("utf-8-sig").rstrip("\r\n")}, offset
            except UnicodeDecodeError as error:
                yield (
                    RowError(f"invalid UTF-8 (byte {line[error.start]:#04x} at {error.start} of the line)"),
                    offset,
                )


def json_rows(path: Path, start: int) -> Rows:
    """Yield the objects of a file: the elements of a JSON array, or one in each line."""
    with path.open("rb") as stream:
        first = stream.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    return json_lines(path, start) if first == b"{" else json_array(path, start)


def json_array(path: Path, start: int) -> Rows:
    """Yield the elements of a JSON array, which is read as far as they need it."""
    text = _Text(path, start)
    if start == 0:
        text.expect("[")
        if text.next() == "]":
            return text.end()
        yield text.object(), text.offset
    while text.next() != "]":
        text.expect(",")
        yield text.object(), text.offset
    return text.end()


class _Text:
    """The text of a file from an offset on, of which only a part is in memory.

    Attributes:
        offset: bytes of the file before the current place.
    """

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._stream = path.open("rb")
        self._stream.seek(start)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._read = start
        self._text = ""
        self._at = 0
        self.offset = start
        if start == 0 and self._read_more(_READ) and self._text[0] == "\ufeff":
            self._take(1)

    def next(self) -> str:
        """Advance to the next character that is no white space; return it, or "" at the end of the file."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._take(1)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more(_READ):
                return ""

    def expect(self, character: str) -> None:
        """Advance past the next character.

        Raises:
            DataError: it is another one.
        """
        found = self.next()
        if found != character:
            what = (
                f"expected {character!r} but found {found!r}" if found else "the file ends inside the array"
            )
            raise self._error(what)
        self._take(1)

    def end(self) -> None:
        """Advance past the end of the array.

        Raises:
            DataError: something follows it.
        """
        self._take(1)
        if found := self.next():
            raise self._error(f"{found!r} after the end of the array")

    def object(self) -> Row | RowError:
        """Return the object at the current place and advance past it."""
        if self.next() != "{":
            self.expect("{")
        size = _READ
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._at)
                break
            except json.JSONDecodeError as error:
                # An escape or a literal that is cut by the end of the text is an error just before it.
                if not error.msg.startswith(_OPEN) and error.pos < len(self._text) - 10:
                    raise self._error(error.msg, error.pos) from None
            except RecursionError:
                raise self._error("an object nested too deeply") from None
            if not self._read_more(size):
                raise self._error("the file ends inside the object that begins here")
            size *= 2  # so that a large object is not parsed many times
        self._take(end - self._at)
        return value

    def _error(self, what: str, at: int | None = None) -> DataError:
        place = self.offset + len(self._text[self._at : at or self._at].encode())
        return DataError(f"{self._path}: byte {place}: {what}; the file is not valid JSON")

    def _take(self, size: int) -> None:
        end = self._at + size
        self.offset += len(self._text[self._at : end].encode())
        self._at = end

    def _read_more(self, size: int) -> bool:
        """Read on; return whether there was more."""
        data = self._stream.read(size)
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            place = self._read + len(data) - len(error.object) + error.start
            what = f"invalid UTF-8 (byte {error.object[error.start]:#04x})"
            raise DataError(f"{self._path}: byte {place}: {what}; convert it with iconv -t utf-8") from None
        self._read += len(data)
        self._text, self._at = self._text[self._at :] + text, 0
        return bool(data)


# ---- Arrow ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _arrow_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise DataError(f"{path}: {error}; pip install 'isthmus-formats[data]'") from None
    except Exception as error:  # pyarrow's are of many types
        what = str(error).partition("\n")[0]
        raise DataError(f"{path}: not a readable {path.suffix[1:]} file: {what}") from None


def parquet_rows(path: Path, start: int) -> Rows:
    """Yield the rows of a Parquet file from a row number on; row groups before it are not read."""
    with _arrow_errors(path):
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            first = number = 0
            while first < file.num_row_groups and number + file.metadata.row_group(first).num_rows <= start:
                number += file.metadata.row_group(first).num_rows
                first += 1
            batches = file.iter_batches(_ROWS, row_groups=range(first, file.num_row_groups))
            yield from _batch_rows(batches, number, start)


def arrow_rows(path: Path, start: int) -> Rows:
    """Yield the rows of an Arrow stream, such as Hugging Face ``datasets`` saves."""
    with _arrow_errors(path):
        import pyarrow

        with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as stream:
            yield from _batch_rows(stream, 0, start)


def _batch_rows(batches: Iterable[Any], number: int, start: int) -> Rows:
    """Yield the rows from row start on of batches, the first of which begins with row number."""
    for batch in batches:
        end = number + batch.num_rows
        number = max(number, min(start, end))
        for row in batch.slice(batch.num_rows - (end - number)).to_pylist():
            number += 1
            yield row, number


def _parquet_count(path: Path) -> int:
    with _arrow_errors(path):
        from pyarrow import parquet

        return parquet.read_metadata(path).num_rows


def _arrow_count(path: Path) -> int:
    with _arrow_errors(path):
        import pyarrow

        with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as stream:
            return sum(batch.num_rows for batch in stream)


class Reader(NamedTuple):
    """The reader of files of a suffix.

    Attributes:
        rows: yields rows from an offset on.
        count: returns the offset at the end of the file.
    """

    rows: Callable[[Path, int], Rows]
    count: Callable[[Path], int]


def _size(path: Path) -> int:
    return path.stat().st_size


READERS = {
    ".json": Reader(json_rows, _size),
    ".jsonl": Reader(json_lines, _size),
    ".txt": Reader(text_lines, _size),
    ".parquet": Reader(parquet_rows, _parquet_count),
    ".arrow": Reader(arrow_rows, _arrow_count),
}
