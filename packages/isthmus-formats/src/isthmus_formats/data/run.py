"""A run over the rows of the input: chunks in several processes, problems of rows, counts, progress."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from isthmus_common.progress import Bar
from isthmus_common.text import count
from isthmus_formats.data import forms, parallel, sources
from isthmus_formats.data.records import DataError, Record, RowError, UsageError
from isthmus_formats.data.work import Work


class Issue(NamedTuple):
    """A record that is not, or not completely, in the output.

    Attributes:
        record: its index in the input.
        id: its identifier; "" if it has none.
        state: ``invalid``, ``cut`` or ``masked``.
        reason: in words.
    """

    record: int
    id: str
    state: str
    reason: str


@dataclass
class Result:
    """The findings in some rows.

    Attributes:
        counts: statistics by name.
        issues: records that are not, or not completely, in the output.
    """

    counts: Counter[str] = field(default_factory=Counter)
    issues: list[Issue] = field(default_factory=list)


Made = TypeVar("Made", bound=Result)


class Input(NamedTuple):
    """The input, and the way to read it.

    Attributes:
        paths: files.
        form: name of the form of their rows; "" to tell it from the first row.
        text_field: field of a plain text.
        skip_invalid: list rows that cannot be read, and continue.
    """

    paths: tuple[Path, ...]
    form: str = ""
    text_field: str = "text"
    skip_invalid: bool = False

    def resolve(self) -> Input:
        """Return this with the files of folders, and the form of the first row.

        Raises:
            DataError: a file does not exist, or the first row has no known form.
        """
        paths = tuple(sources.inputs(self.paths))
        form = self.form
        if not form:
            first = next((row for chunk in sources.chunks(paths) for row in chunk.rows), None)
            try:
                if isinstance(first, RowError):
                    raise first
                form = forms.guess(first, self.text_field) if first else "text"
            except RowError as error:
                raise DataError(f"{paths[0]}: row 1: {error}") from None
        return self._replace(paths=paths, form=form)

    def records(self, chunk: sources.Chunk, result: Result) -> Iterator[tuple[int, Record]]:
        """Yield the records of a chunk with their index; note rows that are invalid.

        Raises:
            DataError: a row is invalid, unless those are skipped.
        """
        form = forms.form(self.form, self.text_field)
        for number, row in enumerate(chunk.rows):
            index = chunk.start.total + number
            result.counts["rows"] += 1
            try:
                if isinstance(row, RowError):
                    raise row
                record = form.read(row, index)
            except RowError as error:
                self.refuse(chunk, number, "", error, result)
                continue
            result.counts.update(f"dropped field {key}" for key in row.keys() - form.keys)
            result.counts["turns"] += len(record.turns)
            result.counts["characters"] += len(record.text) + sum(len(turn.text) for turn in record.turns)
            yield index, record

    def refuse(self, chunk: sources.Chunk, number: int, name: str, error: RowError, result: Result) -> None:
        """Note a row that cannot be used.

        Raises:
            DataError: such rows are not skipped.
        """
        if not self.skip_invalid:
            place = f"{chunk.path}: row {chunk.start.row + number + 1}"
            raise DataError(f"{place}: {error}; correct it, or skip such rows with --skip-invalid")
        result.counts["invalid"] += 1
        result.issues.append(Issue(chunk.start.total + number, name, "invalid", str(error)))


def map_chunks(
    given: Input, function: Callable[[sources.Chunk], Made], workers: int, work: Work
) -> Iterator[Made]:
    """Yield the result of each chunk from the saved place on; save the place after it was used, and list issues.

    Raises:
        DataError: there are no records, or none of their tokens is trained on.
    """
    total = sum(path.stat().st_size for path in given.paths)
    issues = work.grow("issues.jsonl")
    with Bar("input", of_bytes=True) as bar:
        chunks = sources.chunks(given.paths, work.position)
        for chunk, result in parallel.map_in_order(function, chunks, workers):
            yield result
            for issue in result.issues:
                issues.write(json.dumps(issue._asdict(), ensure_ascii=False).encode() + b"\n")
            work.advance(chunk.end, result.counts)
            bar.count(chunk.done, total)
    if reason := _untrainable(work.counts):
        work.forget()
        raise DataError(f"{', '.join(map(str, given.paths))}: {reason}")
    work.save()
    issues.close()


def _untrainable(counts: Mapping[str, int]) -> str:
    """Return why a model cannot be trained on what was read; "" if it can."""
    if not counts["records"]:
        return f"no records in {count(counts['rows'], 'row')}"
    if counts.get("trained tokens", 1):
        return ""
    cut = f", {counts['cut']} of them cut; give a larger --seq-length" if counts["cut"] else ""
    return f"no token is trained on: {count(counts['records'], 'record')}, all masked{cut}"


def publish(work: Work, output: Path, names: Mapping[str, Path]) -> None:
    """Move files to their places, after the list of issues; if it is empty, an earlier run's list is deleted."""
    name = "issues.jsonl"
    listed = output.with_name(f"{output.name}.{name}")
    if (work.folder / name).stat().st_size:
        work.publish({name: listed, **names})
    else:
        listed.unlink(missing_ok=True)
        work.publish(names)


def check_output(output: Path, given: Sequence[Path]) -> None:
    """Check that an output does not replace an input.

    Raises:
        DataError: it would.
    """
    if output.exists() and any(path.samefile(output) for path in given):
        raise UsageError(f"{output}: also an input; give another output")
