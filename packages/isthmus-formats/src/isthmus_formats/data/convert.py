"""``isthmus data convert``: records from one form and file format to another."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus_common.files import fingerprint
from isthmus_formats.data import forms, run
from isthmus_formats.data.records import RowError, UsageError
from isthmus_formats.data.sources import Chunk, json_lines
from isthmus_formats.data.work import Work, work

SUFFIXES = (".json", ".jsonl", ".txt", ".parquet")


@dataclass
class Converted(run.Result):
    """Rows of a chunk, as bytes of the output (for Parquet, as JSON lines)."""

    data: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Conversion:
    """The work on a chunk.

    Attributes:
        given: the input.
        form: name of the form to write.
        suffix: of the file to write.
    """

    given: run.Input
    form: str
    suffix: str

    def __call__(self, chunk: Chunk) -> Converted:
        """Return the rows of a chunk in the other form."""
        form, result = forms.form(self.form), Converted()
        for index, record in self.given.records(chunk, result):
            try:
                result.data.append(self._encode(form.write(record, index)))
                result.counts["records"] += 1
            except RowError as error:
                self.given.refuse(chunk, index - chunk.start.total, record.id, error, result)
        return result

    def _encode(self, row: dict[str, Any]) -> bytes:
        if self.suffix == ".json":  # same text as json.dump(rows, indent=2), which public converters call
            return json.dumps([row], indent=2, ensure_ascii=False)[2:-2].encode()
        if self.suffix == ".txt":
            if "\n" in row["text"] or not row["text"].strip():
                raise RowError("a text that is not one line; write .jsonl")
            return row["text"].encode() + b"\n"
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def convert(given: run.Input, output: Path, form: str, workers: int, dry_run: bool = False) -> dict[str, Any]:
    """Convert files; return statistics.

    Args:
        given: the input.
        output: file to write; the suffix is its format.
        form: name of the form to write; "" for conversations as ShareGPT's, and text as text.
        workers: number of processes.
        dry_run: only read and convert, for the statistics.

    Raises:
        DataError: a row is invalid, there is none, or a file cannot be read or written.
    """
    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output}: unknown suffix {output.suffix!r}; expected {', '.join(SUFFIXES)}")
    given = given.resolve()
    run.check_output(output, given.paths)
    form = form or ("text" if given.form == "text" else "sharegpt")
    if output.suffix == ".txt" and form != "text":
        raise UsageError(f"{output}: a text file has no conversations; write .json, .jsonl or .parquet")
    key = {"verb": "convert", "given": given, "files": fingerprint(given.paths), "form": form}
    with work(output, key, dry_run, [output]) as state:
        _rows(Conversion(given, form, output.suffix), workers, state, dry_run)
        if not dry_run:
            run.publish(state, output, {_finish_file(state, output.suffix, form): output})
        return {"from": given.form, "to": form, **state.counts}


def _rows(conversion: Conversion, workers: int, state: Work, dry_run: bool) -> None:
    with state.grow("rows") as rows:
        for result in run.map_chunks(conversion.given, conversion, workers, state):
            if dry_run:
                continue
            for data in result.data:
                if conversion.suffix == ".json":
                    rows.write(b",\n" if rows.tell() else b"[\n")
                rows.write(data)


def _finish_file(state: Work, suffix: str, form: str) -> str:
    """Complete the file of rows; return its name in the folder."""
    rows = state.folder / "rows"
    if suffix == ".parquet":
        _parquet(state, form)
        return "parquet"
    if suffix == ".json":
        with rows.open("ab") as stream:
            stream.write(b"\n]")
    return "rows"


def _parquet(state: Work, form: str) -> None:
    from isthmus_formats.data.formats.tables import parquet_rows

    rows = (row for row, _ in json_lines(state.folder / "rows", 0))
    with state.create("parquet") as stream:
        parquet_rows(stream, rows, forms.FORMS[form])
