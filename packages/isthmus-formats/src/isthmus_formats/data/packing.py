"""Samples made of tokenized records: order, repetition, packing, padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isthmus_formats.data.samples import Ids, Mask, Sample

_OPEN = 64  # samples that are filled at the same time

Ranges = list[tuple[int, int]]  # ranges of tokens


class Layout(NamedTuple):
    """The layout of samples made of records.

    Attributes:
        seq_length: tokens of a sample at most; 0 for no limit.
        pack: "" for a record in each sample; ``records`` for as many as fit; ``stream`` to cut the records' sequence
            wherever a sample is full.
        pad: token that fills samples up to seq_length; None to leave them short, and drop the last one of a stream.
        seed: of the order; None for the order of the input.
        repeat: how often each record occurs, each time in an order of its own.
    """

    seq_length: int = 0
    pack: str = ""
    pad: int | None = None
    seed: int | None = None
    repeat: int = 1


class Tokens(NamedTuple):
    """Tokenized records, one after the other.

    Attributes:
        ids: token numbers, [tokens].
        mask: whether each is trained on, [tokens]; None if all are.
        ends: place after the last token of each record, [records].
    """

    ids: Ids
    mask: Mask | None
    ends: npt.NDArray[np.int64]


def samples(tokens: Tokens, chosen: npt.NDArray[np.int64], layout: Layout) -> Iterator[Sample]:
    """Yield the samples of the chosen records; the same ones in each call."""
    for ranges in ranges_of(tokens.ends, chosen, layout):
        yield _sample(tokens, ranges, layout)


def ranges_of(ends: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], layout: Layout) -> Iterator[Ranges]:
    """Yield the ranges of tokens that make up each sample."""
    records = _records(ends, chosen, layout)
    if layout.pack == "records":
        return _pack_records(records, layout.seq_length)
    if layout.pack == "stream":
        return _stream(records, layout.seq_length, layout.pad is not None)
    return ([record] for record in records)


def _records(
    ends: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], layout: Layout
) -> Iterator[tuple[int, int]]:
    for epoch in range(layout.repeat):
        order = chosen
        if layout.seed is not None:
            order = np.random.default_rng([layout.seed, epoch]).permutation(chosen)
        for index in order:
            start = int(ends[index - 1]) if index else 0
            if start < ends[index]:
                yield start, int(ends[index])


def _pack_records(records: Iterable[tuple[int, int]], size: int) -> Iterator[Ranges]:
    """Put each record into the sample with the least room for it (best fit among a bounded number)."""
    filling: list[tuple[int, Ranges]] = []  # room, records
    for start, end in records:
        length = end - start
        fits = [index for index, (room, _) in enumerate(filling) if room >= length]
        best = min(fits, key=lambda index: filling[index][0], default=None)
        room, ranges = (size, []) if best is None else filling.pop(best)
        ranges.append((start, end))
        if room == length:
            yield ranges
            continue
        filling.append((room - length, ranges))
        if len(filling) > _OPEN:
            yield filling.pop(min(range(len(filling)), key=lambda index: filling[index][0]))[1]
    yield from (ranges for _, ranges in filling)


def _stream(records: Iterable[tuple[int, int]], size: int, has_short: bool) -> Iterator[Ranges]:
    ranges, room = Ranges(), size
    for start, end in records:
        while start < end:
            stop = min(end, start + room)
            ranges.append((start, stop))
            room -= stop - start
            start = stop  # noqa: PLW2901
            if not room:
                yield ranges
                ranges, room = [], size
    if ranges and has_short:
        yield ranges


def _sample(tokens: Tokens, ranges: Ranges, layout: Layout) -> Sample:
    ids = np.concatenate([tokens.ids[start:end] for start, end in ranges])
    mask = None
    if tokens.mask is not None:
        mask = np.concatenate([tokens.mask[start:end] for start, end in ranges])
    if layout.pad is not None:
        rest = layout.seq_length - len(ids)
        mask = np.pad(np.ones(len(ids), np.bool_) if mask is None else mask, (0, rest))
        ids = np.pad(ids, (0, rest), constant_values=layout.pad)
    return Sample(ids, mask, np.array([end - start for start, end in ranges], np.int32))
