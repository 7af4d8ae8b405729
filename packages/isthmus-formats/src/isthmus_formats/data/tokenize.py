"""``isthmus data tokenize``: records to samples of token numbers with masks."""

from __future__ import annotations

import bisect
import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isthmus_common.files import fingerprint
from isthmus_common.text import count
from isthmus_formats.data import formats, packing, run, templates, tokenizers
from isthmus_formats.data.records import DataError, Record, RowError, UsageError
from isthmus_formats.data.samples import Ids, Mask
from isthmus_formats.data.sources import Chunk
from isthmus_formats.data.work import Work, work

_GROWING = {"ids": np.int32, "mask": np.bool_, "lengths": np.int32, "hashes": np.uint64}


@dataclass
class Tokenized(run.Result):
    """The tokens of a chunk, in the order of its records.

    Attributes:
        arrays: by name: ``ids``, ``mask``, ``lengths`` of records, and ``hashes`` of their texts.
    """

    arrays: dict[str, list[npt.NDArray[Any]]] = field(default_factory=lambda: {name: [] for name in _GROWING})


@dataclass(frozen=True)
class Tokenization:
    """The work on a chunk.

    Attributes:
        given: the input.
        tokenizer: its file or folder.
        template: name or path of a chat template; "" for the tokenizer's own.
        append_eos: end each plain text with the eos token.
        prepend_bos: begin each plain text with the bos token.
        limit: tokens of a record at most, the others are cut off; 0 for no limit.
    """

    given: run.Input
    tokenizer: Path
    template: str = ""
    append_eos: bool = False
    prepend_bos: bool = False
    limit: int = 0

    @property
    def masked(self) -> bool:
        """Whether only a part of the tokens is trained on."""
        return self.given.form != "text"

    def chat_template(self) -> templates.Template:
        """Return the chat template."""
        found = tokenizers.load(self.tokenizer)
        return templates.find(self.template, found.special, list(found.backend.specials), found.chat_template)

    def __call__(self, chunk: Chunk) -> Tokenized:
        """Return the tokens of a chunk."""
        result = Tokenized()
        records, texts, spans = list[tuple[int, Record]](), list[str](), list[templates.Spans]()
        template = self.chat_template() if self.masked else None
        for index, record in self.given.records(chunk, result):
            try:
                text, places = template.render(record.turns) if template else (record.text, [])
            except RowError as error:
                self.given.refuse(chunk, index - chunk.start.total, record.id, error, result)
                continue
            records.append((index, record))
            texts.append(text)
            spans.append(places)
        encodings = tokenizers.load(self.tokenizer).backend.encode(texts, places=self.masked)
        for (index, record), text, places, encoding in zip(records, texts, spans, encodings, strict=True):
            ids = np.array(encoding.ids, np.int32)
            mask = trained_mask(encoding, places) if self.masked else np.ones(len(ids), np.bool_)
            self._add(result, index, record, *self._add_special_tokens(ids, mask))
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            result.arrays["hashes"].append(np.frombuffer(digest, np.uint64))
        return result

    def _add_special_tokens(self, ids: Ids, mask: Mask) -> tuple[Ids, Mask]:
        id_of = tokenizers.load(self.tokenizer).id_of
        before = [id_of("bos_token") or 0] * self.prepend_bos
        after = [id_of("eos_token") or 0] * self.append_eos
        mask = np.pad(mask, (len(before), len(after)), constant_values=True)
        return np.concatenate([before, ids, after], dtype=np.int32, casting="unsafe"), mask

    def _add(self, result: Tokenized, index: int, record: Record, ids: Ids, mask: Mask) -> None:
        def note(state: str, reason: str) -> None:
            result.counts[state] += 1
            result.issues.append(run.Issue(index, record.id, state, reason))

        size = len(ids)
        if self.limit and size > self.limit:
            note("cut", f"{size} tokens, of which the first {self.limit} are kept")
            ids, mask = ids[: self.limit], mask[: self.limit]
        if not mask.any():
            note("masked", "no token is trained on" if size else "no token")
        result.counts.update({"records": 1, "tokens": len(ids), "trained tokens": int(mask.sum())})
        result.arrays["ids"].append(ids)
        result.arrays["lengths"].append(np.array([len(ids)], np.int32))
        if self.masked:
            result.arrays["mask"].append(mask)


def trained_mask(encoding: tokenizers.Encoding, spans: templates.Spans) -> Mask:
    """Return for each token whether it has a character of one of the spans.

    A token without characters, such as the first bytes of a character, counts where it stands.
    """
    indices = range(len(encoding.ids))
    mask = np.zeros(len(indices), np.bool_)
    for begin, end in spans:

        def ends_inside(index: int, begin: int = begin) -> bool:
            start, stop = encoding.place(index)
            return stop > begin or start == stop == begin

        first = bisect.bisect_left(indices, True, key=ends_inside)
        last = bisect.bisect_left(indices, end, key=lambda index: encoding.place(index)[0])
        mask[first:last] = True
    return mask


def tokenize(
    task: Tokenization,
    output: Path,
    layout: packing.Layout,
    *,
    format: str = "",
    padded: bool = False,
    validation: float = 0.0,
    workers: int = 1,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Tokenize files; return statistics.

    Args:
        task: what is done with each record; its limit is set by the layout.
        output: file to write; for Megatron a prefix.
        layout: how records become samples.
        format: name of a format of samples; "" to tell it from the suffix.
        padded: pad with the tokenizer's pad token, or eos token.
        validation: share of records that go into a second file; the same text always into the same file.
        workers: number of processes.
        dry_run: write nothing, for the statistics.

    Raises:
        DataError: a row is invalid, a file cannot be read or written, there are no records or no trained tokens, or
            options do not fit each other.
    """
    if (padded or layout.pack) and not layout.seq_length:
        raise UsageError("--pad and --pack need --seq-length")
    format = formats.choose_format(output, format)
    given = task.given.resolve()
    run.check_output(output, given.paths)
    limit = 0 if layout.pack == "stream" else layout.seq_length
    task = replace(task, given=given, limit=limit)
    tokenizer = tokenizers.load(task.tokenizer)
    if task.masked:
        task.chat_template()
    for option, is_given, name in (
        ("--append-eos", task.append_eos, "eos_token"), ("--prepend-bos", task.prepend_bos, "bos_token")
    ):  # fmt: skip
        if is_given and tokenizer.id_of(name) is None:
            raise DataError(f"{option}: {task.tokenizer} has no {name}; name it in tokenizer_config.json")
    if padded:
        pad = tokenizer.id_of("pad_token", "eos_token")
        if pad is None:
            raise DataError(f"--pad: {task.tokenizer} has no pad_token and no eos_token; name one")
        layout = layout._replace(pad=pad)
    files = fingerprint([*given.paths, *_files(task)])
    outputs = [path for target in _targets(output, validation) for path in formats.files(target, format)]
    with work(output, {"verb": "tokenize", "task": vars(task), "files": files}, dry_run, outputs) as state:
        _spool(task, workers, state, dry_run)
        parts, names = dict[str, Any](), dict[str, Path]()
        tokens = _tokens(state, task.masked)
        for target, chosen in _parts(state, output, validation).items():
            plan, parts[target.name] = _plan(tokens, chosen, layout, tokenizer.backend.size, task.masked)
            if (dropped := parts[target.name].get("dropped tokens")) and not plan.size:
                state.forget()
                raise DataError(
                    f"{target}: {count(dropped, 'token')}, fewer than a sample of {layout.seq_length}; "
                    "give a lower --seq-length, or --pad"
                )
            if not dry_run:
                names |= formats.module(format).write(state, target, plan)
        if not dry_run:
            run.publish(state, output, names)
        return {"format": format, "from": given.form, **state.counts, "files": parts}


def _files(task: Tokenization) -> list[Path]:
    """Return the files of the tokenizer and the template, a change of which changes the tokens."""
    path = task.tokenizer
    folder = path if path.is_dir() else path.parent
    names = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja")
    files = {path, Path(task.template), *(folder / name for name in names)}
    return sorted(file for file in files if file.is_file())


def _spool(task: Tokenization, workers: int, state: Work, dry_run: bool) -> None:
    """Tokenize into files of the folder."""
    names = [name for name in _GROWING if not dry_run or name in ("lengths", "hashes")]
    streams = {name: state.grow(name) for name in names}
    for result in run.map_chunks(task.given, task, workers, state):
        for name, stream in streams.items():
            stream.writelines(array.tobytes() for array in result.arrays[name])
    for stream in streams.values():
        stream.close()


def _map_tokens(state: Work, name: str) -> npt.NDArray[Any]:
    path = state.folder / name
    return np.memmap(path, _GROWING[name], "r") if path.exists() and path.stat().st_size else np.array([])


def _tokens(state: Work, masked: bool) -> packing.Tokens:
    ends = np.cumsum(_map_tokens(state, "lengths"), dtype=np.int64)
    return packing.Tokens(_map_tokens(state, "ids"), _map_tokens(state, "mask") if masked else None, ends)


def _targets(output: Path, validation: float) -> list[Path]:
    """Return the outputs: for training, and if wanted for validation."""
    return [output, *[output.with_name(f"{output.stem}-validation{output.suffix}")] * (validation > 0)]


def _parts(state: Work, output: Path, validation: float) -> dict[Path, npt.NDArray[np.int64]]:
    """Return the outputs with the numbers of their records."""
    share = _map_tokens(state, "hashes") / 2.0**64
    sides = np.flatnonzero(share >= validation), np.flatnonzero(share < validation)
    return dict(zip(_targets(output, validation), sides, strict=False))


def _plan(
    tokens: packing.Tokens,
    chosen: npt.NDArray[np.int64],
    layout: packing.Layout,
    vocabulary: int,
    masked: bool,
) -> tuple[formats.Plan, dict[str, Any]]:
    """Return what a writer must know, and statistics: samples, tokens without padding, share of full places."""
    ranges = packing.ranges_of(tokens.ends, chosen, layout)
    pairs = ((sum(end - start for start, end in each), len(each)) for each in ranges)
    sizes, records = np.fromiter(pairs, np.dtype((np.int64, 2))).T
    samples, total, padded = len(sizes), int(sizes.sum()), layout.pad is not None
    plan = formats.Plan(
        samples=lambda: packing.samples(tokens, chosen, layout),
        size=samples,
        tokens=samples * layout.seq_length if padded else total,
        length=layout.seq_length if padded else 0,
        vocabulary=vocabulary,
        masked=masked or padded,
        packed=bool(layout.pack) or padded,
        most_records=int(records.max(initial=0)) if padded or layout.pack == "stream" else 0,
    )
    facts: dict[str, Any] = {"samples": samples, "tokens": total, "longest": int(sizes.max(initial=0))}
    if layout.seq_length and samples:
        facts["filled"] = round(total / (samples * layout.seq_length), 4)
    whole = layout.repeat * int(np.diff(tokens.ends, prepend=0)[chosen].sum())
    if whole > total:
        facts["dropped tokens"] = whole - total
    return plan, facts
