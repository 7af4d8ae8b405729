"""Megatron's indexed data sets: ``PREFIX.bin`` with the tokens and ``PREFIX.idx`` with their places.

A sample is a document, and the records packed in it are its sequences. Masks are a data set of their own,
``PREFIX_mask``, with one byte for each token.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from isthmus_formats.data.formats import Plan
from isthmus_formats.data.formats import prefix as prefix_of
from isthmus_formats.data.records import DataError, UsageError
from isthmus_formats.data.samples import Sample, to_int32
from isthmus_formats.data.work import Work

_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<9sQBQQ")  # magic, version, dtype, sequences, documents + 1
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_MASK = "_mask"


def write(work: Work, target: Path, plan: Plan) -> dict[str, Path]:
    """Write samples into the folder; return its files and where they belong.

    Raises:
        UsageError: samples are padded, for which the format has no place.
    """
    if plan.length:
        raise UsageError(f"{target}: Megatron pads when it loads; leave out --pad")
    prefix = prefix_of(target)
    # Same choice as Megatron: 65,500 leaves room for padding of the vocabulary.
    code = 8 if plan.vocabulary < 65500 else 4
    files = _write(work, prefix, plan, code, lambda sample: sample.ids)
    if plan.masked:
        masks = prefix.with_name(prefix.name + _MASK)
        files |= _write(work, masks, plan, 1, _mask)
    return files


def _mask(sample: Sample) -> npt.NDArray[np.bool_]:
    assert sample.mask is not None
    return sample.mask


def _write(
    work: Work, prefix: Path, plan: Plan, code: int, values: Callable[[Sample], npt.NDArray[np.generic]]
) -> dict[str, Path]:
    data, index = (f"{prefix.name}{suffix}" for suffix in (".bin", ".idx"))
    lengths, documents = array("i"), array("q", [0])
    with work.create(data) as stream:
        for sample in plan.samples():
            stream.write(values(sample).astype(_DTYPES[code]).tobytes())
            lengths.extend(sample.lengths.tolist())
            documents.append(len(lengths))
    with work.create(index) as stream:
        stream.writelines(_index(np.array(lengths, np.int32), documents, code))
    return {data: prefix.with_name(data), index: prefix.with_name(index)}


def _index(lengths: npt.NDArray[np.int32], documents: Sequence[int], code: int) -> Iterator[bytes]:
    yield _HEAD.pack(_MAGIC, 1, code, len(lengths), len(documents))
    yield lengths.astype("<i4").tobytes()
    ends = np.cumsum(lengths, dtype=np.int64) * np.dtype(_DTYPES[code]).itemsize
    yield np.concatenate([[0], ends[:-1]]).astype("<i8").tobytes() if len(lengths) else b""
    yield np.array(documents, "<i8").tobytes()


def read(path: Path) -> Iterator[Sample]:
    """Return the samples of a data set.

    Raises:
        DataError: the index is not valid, or the data is shorter than it says.
    """
    prefix = prefix_of(path)
    masks = prefix.with_name(prefix.name + _MASK)
    values, lengths, documents = _open(prefix)
    mask = None
    if masks.with_name(masks.name + ".idx").exists():
        mask, mask_lengths, _ = _open(masks)
        if not np.array_equal(lengths, mask_lengths):
            raise DataError(f"{masks}.idx: its lengths are not those of {prefix}.idx; write both again")
    return _samples(path, values, mask, lengths, documents)


def _samples(
    path: Path,
    values: npt.NDArray[np.generic],
    mask: npt.NDArray[np.generic] | None,
    lengths: npt.NDArray[np.int32],
    documents: npt.NDArray[np.int64],
) -> Iterator[Sample]:
    start = 0
    for first, last in itertools.pairwise(documents):
        end = start + int(lengths[first:last].sum(dtype=np.int64))
        some = None if mask is None else mask[start:end].astype(np.bool_)
        try:
            ids = to_int32(values[start:end], "the data set")
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
        yield Sample(ids, some, lengths[first:last])
        start = end


def _open(prefix: Path) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the mapped values, the lengths of sequences and the ends of documents."""
    index, data = prefix.with_name(prefix.name + ".idx"), prefix.with_name(prefix.name + ".bin")
    content = index.read_bytes()
    if len(content) < _HEAD.size or content[:9] != _MAGIC:
        raise DataError(f"{index}: not an index of Megatron (it begins with {content[:9]!r})")
    _, version, code, sequences, ends = _HEAD.unpack_from(content)
    size = _HEAD.size + 12 * sequences + 8 * ends
    if version != 1 or code not in _DTYPES or len(content) not in (size, size + sequences):
        raise DataError(
            f"{index}: damaged: version {version}, dtype {code}, {len(content)} bytes instead of {size}; "
            "write it again"
        )
    lengths = np.frombuffer(content, "<i4", sequences, _HEAD.size)
    documents = np.frombuffer(content, "<i8", ends, _HEAD.size + 12 * sequences)
    dtype = np.dtype(_DTYPES[code])
    total = int(lengths.sum(dtype=np.int64))
    if data.stat().st_size != total * dtype.itemsize:
        raise DataError(
            f"{data}: {data.stat().st_size} bytes, but its index has {total * dtype.itemsize}; write it again"
        )
    values = np.memmap(data, dtype, "r") if total else np.array([], dtype)
    return values, lengths, documents
