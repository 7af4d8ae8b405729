"""``isthmus data inspect``: what a file holds, with samples as text in which the trained tokens are marked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus_formats.data import formats, labels, run, sources, templates
from isthmus_formats.data.formats import mindrecord
from isthmus_formats.data.records import DataError, Record, RowError
from isthmus_formats.data.samples import IGNORED, Sample
from isthmus_formats.data.tokenizers import Tokenizer, load


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
    given = given.resolve()
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
    if path.suffix not in sources.READERS and not path.is_dir():
        return True
    file = sources.inputs([path])[0]
    row, _ = next(sources.READERS[file.suffix].rows(file, 0), ({}, 0))
    return not isinstance(row, RowError) and "input_ids" in row


def _samples(path: Path, limit: int, tokenizer: Tokenizer | None) -> tuple[dict[str, Any], list[Shown]]:
    first, found = list[Sample](), labels.Convention()
    tokens = trained = padding = records = longest = count = 0
    for sample in formats.read(path):
        count += 1
        size = len(sample.ids)
        real = int(sample.lengths.sum())
        tokens, padding, longest = tokens + real, padding + size - real, max(longest, real)
        trained += real if sample.mask is None else int((sample.labels() != IGNORED).sum())
        records += len(sample.lengths)
        found.add(sample)
        if len(first) < limit:
            first.append(sample)
    facts = {
        "file": str(path), "format": formats.name_of(path), **_parts_of(path), "samples": count, "records": records,
        "tokens": tokens, "trained tokens": trained, **found.facts(), "padding": padding, "longest": longest,
    }  # fmt: skip
    shown = list[Shown]()
    for index, sample in enumerate(first):
        try:
            shown += _show_sample(f"sample {index}", sample, tokenizer, found.is_input_ids)
        except DataError as error:
            raise DataError(
                f"{path}: sample {index}: {error}; give the tokenizer that wrote the file"
            ) from None
    return facts, shown


def _parts_of(path: Path) -> dict[str, Any]:
    if formats.name_of(path) != "mindrecord":
        return {}
    available, missing = mindrecord.parts(path)
    whole = len(available) + len(missing)
    absent = f"; missing: {', '.join(each.name for each in missing)}" if missing else ""
    return {"parts": f"{len(available)} of {whole}{absent}"} if whole > 1 else {}


def _show_sample(
    title: str, sample: Sample, tokenizer: Tokenizer | None, is_input_ids: bool
) -> Iterator[Shown]:
    """Yield a sample with its trained tokens marked, and the labels by themselves if they are not the tokens."""
    real = int(sample.lengths.sum())
    sizes = f" = {' + '.join(map(str, sample.lengths))}" if len(sample.lengths) > 1 else ""
    marked = sample if is_input_ids else sample._replace(mask=np.zeros(len(sample.ids), np.bool_))
    yield Shown(f"{title}: {real}{sizes} tokens", list(_parts(marked, tokenizer)))
    if not is_input_ids and sample.stored is not None:
        aligned = sample.stored[:real] if len(sample.stored) == len(sample.ids) else sample.stored
        yield Shown(f"{title}: labels", list(_label_parts(aligned.tolist(), tokenizer)))


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
        # Decoded from the beginning, since the text of a token depends on those before it.
        text = tokenizer.decode(ids[:end])
        yield Part(text[len(before) :], bool(mask[start]))
        before = text


def _label_parts(values: list[int], tokenizer: Tokenizer | None) -> Iterator[Part]:
    """Yield labels as text; those that are no tokens, such as -100, as numbers."""

    def is_token(value: int) -> bool:
        return value != IGNORED and (tokenizer is None or tokenizer.backend.has(value))

    for is_text, part in itertools.groupby(values, is_token):
        if is_text:
            numbers = list(part)
            text = " ".join(map(str, numbers)) if tokenizer is None else tokenizer.decode(numbers)
            yield Part(text, True)
            continue
        for value, same in itertools.groupby(part):
            yield Part(f"[{value} x {len(list(same))}]", value != IGNORED)


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
