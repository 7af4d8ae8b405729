"""Tables with a row for each sample: Parquet and JSON lines, as Hugging Face ``datasets`` loads them.

Columns: ``input_ids``; ``labels``, with -100 where a token is not trained on; ``seq_lengths`` of packed records.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from isthmus_formats.data import sources
from isthmus_formats.data.formats import Plan
from isthmus_formats.data.forms import Form
from isthmus_formats.data.records import DataError, RowError
from isthmus_formats.data.samples import Sample, of_labels
from isthmus_formats.data.work import Work

_GROUP = 1000  # rows


def parquet_rows(stream: IO[bytes], rows: Iterable[Any], form: Form) -> None:
    """Write the rows of records as Parquet."""
    import pyarrow

    text = pyarrow.string()
    turns = pyarrow.list_(pyarrow.struct([(key, text) for key in form.turns]))
    plain = sorted(key for key in form.keys if not form.turns)
    columns = {"id": text, **dict.fromkeys(plain, text)}
    if form.turns:
        columns[next(key for key in form.keys if key not in ("id", "system"))] = turns
    _parquet(stream, rows, pyarrow.schema(columns.items()))


def _parquet(stream: IO[bytes], rows: Iterable[Mapping[str, Any]], schema: Any) -> None:
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        left = iter(rows)
        while group := list(itertools.islice(left, _GROUP)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


def _row(sample: Sample, plan: Plan) -> dict[str, Any]:
    row = {"input_ids": sample.ids}
    if plan.masked:
        row["labels"] = sample.labels()
    if plan.packed:
        row["seq_lengths"] = sample.lengths
    return row


def write(work: Work, target: Path, plan: Plan) -> dict[str, Path]:
    """Write samples into the folder; return its files and where they belong."""
    rows = (_row(sample, plan) for sample in plan.samples())
    with work.create(target.name) as stream:
        if target.suffix == ".parquet":
            import pyarrow

            names = ["input_ids"] + ["labels"] * plan.masked + ["seq_lengths"] * plan.packed
            numbers = pyarrow.list_(pyarrow.int32())
            _parquet(stream, rows, pyarrow.schema([(name, numbers) for name in names]))
        else:
            for row in rows:
                plain = {name: values.tolist() for name, values in row.items()}
                stream.write(json.dumps(plain).encode() + b"\n")
    return {target.name: target}


def read(path: Path) -> Iterator[Sample]:
    """Return the samples of a file.

    Raises:
        DataError: a row is not valid.
    """
    return _samples(path, sources.READERS[path.suffix].rows(path, 0))


def _samples(path: Path, rows: sources.Rows) -> Iterator[Sample]:
    for number, (row, _) in enumerate(rows):
        if isinstance(row, RowError):
            raise DataError(f"{path}: row {number + 1}: {row}")
        if row.get("input_ids") is None:
            raise DataError(f"{path}: row {number + 1}: no field 'input_ids'")
        try:
            sample = of_labels(row["input_ids"], row.get("labels"), row.get("seq_lengths"))
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{path}: row {number + 1}: no tokens: {error}") from None
        yield sample
