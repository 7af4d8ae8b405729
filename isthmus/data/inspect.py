"""``isthmus data inspect``: what a file holds, with samples as text in which the trained tokens are marked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.data import formats, run, sources, templates
from isthmus.data.records import DataError, Record, RowError
from isthmus.data.samples import Sample
from isthmus.data.tokenizers import Tokenizer, load


class Part(NamedTuple):
    """A part of a sample or a record.

    Attributes:
        text: its text, or its token numbers where there is no tokenizer.
        trained: whether a model is trained on it.
    """

    text: str
    trained: bool


class Shown(NamedTuple):
    """A sample or a record.

    Attributes:
        title: what it is.
        parts: its parts in order.
    """

    title: str
    parts: list[Part]


def inspect(
    given: run.Input, limit: int, tokenizer: Path | None, template: str
) -> tuple[dict[str, Any], list[Shown]]:
    """Return statistics of a file and its first samples or records.

    Args:
        given: one file, of samples or records.
        limit: number of samples or records to show.
        tokenizer: decodes tokens, and renders records with its chat template.
        template: another chat template.

    Raises:
        DataError: the file cannot be read.
    """
    path = given.paths[0]
    found = load(tokenizer) if tokenizer else None
    if _has_samples(path):
        return _samples(path, limit, found)
    given = given.resolved()
    style = None
    if found and given.form != "text":
        style = templates.find(template, found.special, list(found.backend.specials), found.chat_template)
    result = run.Result()
    shown: list[Shown] = []
    for chunk in sources.chunks(given.paths):
        for index, record in given.records(chunk, result):
            if len(shown) < limit:
                shown.append(Shown(f"record {index} {record.id}".rstrip(), _of_record(record, style)))
    return {"file": str(path), "form": given.form, "rows": 0, **result.counts}, shown


def _has_samples(path: Path) -> bool:
    """Return whether a file has samples; tables are judged by their first row."""
    if path.suffix not in sources.READERS:
        return not path.is_dir()
    if path.suffix not in (".jsonl", ".parquet") or not path.exists():
        return False
    row, _ = next(sources.READERS[path.suffix].rows(path, 0), ({}, 0))
    return not isinstance(row, RowError) and "input_ids" in row


def _samples(path: Path, limit: int, tokenizer: Tokenizer | None) -> tuple[dict[str, Any], list[Shown]]:
    shown = list[Shown]()
    tokens = trained = padding = records = longest = count = 0
    for count, sample in enumerate(formats.read(path), 1):
        size = len(sample.ids)
        real = int(sample.lengths.sum())
        tokens, padding, longest = tokens + real, padding + size - real, max(longest, real)
        trained += real if sample.mask is None else int(sample.mask.sum())
        records += len(sample.lengths)
        if len(shown) < limit:
            sizes = f" = {' + '.join(map(str, sample.lengths))}" if len(sample.lengths) > 1 else ""
            title = f"sample {count - 1}: {real}{sizes} tokens"
            shown.append(Shown(title, list(_parts(sample, tokenizer))))
    facts = {
        "file": str(path), "format": formats.name_of(path), "samples": count, "records": records, "tokens": tokens,
        "trained tokens": trained, "padding": padding, "longest": longest,
    }  # fmt: skip
    return facts, shown


def _parts(sample: Sample, tokenizer: Tokenizer | None) -> Iterator[Part]:
    """Yield the runs of equal masks, without the padding."""
    real = int(sample.lengths.sum())
    ids = sample.ids[:real].tolist()
    mask = np.ones(real, np.bool_) if sample.mask is None else sample.mask[:real]
    edges = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), real] if real else []
    before = ""
    for start, end in itertools.pairwise(edges):
        if tokenizer is None:
            yield Part(" ".join(map(str, ids[start:end])), bool(mask[start]))
            continue
        # From the beginning, since the text of a token depends on those before it.
        text = tokenizer.backend.decode(ids[:end])
        yield Part(text[len(before) :], bool(mask[start]))
        before = text


def _of_record(record: Record, template: templates.Template | None) -> list[Part]:
    if template is None:
        texts = [f"{turn.role}: {turn.text}\n" for turn in record.turns] or [record.text]
        return [Part(text, False) for text in texts]
    try:
        text, spans = template.render(record.turns)
    except RowError as error:
        raise DataError(f"record {record.id}: {error}") from None
    parts, place = list[Part](), 0
    for begin, end in spans:
        parts += [Part(text[place:begin], False), Part(text[begin:end], True)]
        place = end
    return [part for part in [*parts, Part(text[place:], False)] if part.text]
