"""Safetensors: all samples as ``input_ids``, ``labels`` and ``seq_lengths``.

``input_ids`` is [samples, length] if all samples have one length; else it is flat, and ``lengths`` has the length of
each sample. ``seq_counts`` has the number of records of each sample, whose lengths ``seq_lengths`` has in order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isthmus_formats.data.formats import Plan
from isthmus_formats.data.records import DataError
from isthmus_formats.data.samples import Ids, Sample, of_labels
from isthmus_formats.data.work import Work


def write(work: Work, target: Path, plan: Plan) -> dict[str, Path]:
    """Write samples into the folder; return its files and where they belong."""
    records = sum(len(sample.lengths) for sample in plan.samples())
    shape = [plan.size, plan.length] if plan.length else [plan.tokens]
    tensors: dict[str, tuple[list[int], Callable[[Sample], Ids]]] = {
        "input_ids": (shape, lambda each: each.ids)
    }
    if plan.masked:
        tensors["labels"] = shape, Sample.labels
    if not plan.length:
        tensors["lengths"] = [plan.size], lambda each: np.array([len(each.ids)], np.int32)
    if plan.packed:
        tensors["seq_counts"] = [plan.size], lambda each: np.array([len(each.lengths)], np.int32)
        tensors["seq_lengths"] = [records], lambda each: each.lengths
    head, place = dict[str, object](), 0
    for name, (size, _) in tensors.items():
        end = place + 4 * int(np.prod(size))
        head[name] = {"dtype": "I32", "shape": size, "data_offsets": [place, end]}
        place = end
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with work.create(target.name) as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for (
            _,
            values,
        ) in tensors.values():  # each is one after the other in the file, so samples are read again
            stream.writelines(values(sample).astype("<i4").tobytes() for sample in plan.samples())
    return {target.name: target}


def read(path: Path) -> Iterator[Sample]:
    """Return the samples of a file.

    Raises:
        DataError: it is not valid, or has no samples.
    """
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, "numpy")
        small = ("lengths", "seq_counts")
        tensors = {
            name: file.get_tensor(name) if name in small else file.get_slice(name)
            for name in file.keys()  # noqa: SIM118
        }
    except SafetensorError as error:
        raise DataError(f"{path}: not a readable safetensors file: {error}") from None
    if "input_ids" not in tensors or (
        "lengths" not in tensors and len(tensors["input_ids"].get_shape()) != 2
    ):
        raise DataError(f"{path}: no samples; expected input_ids [samples, length], or flat with lengths")
    return _samples(path, tensors)


def _samples(path: Path, tensors: dict[str, Any]) -> Iterator[Sample]:
    """Yield samples; slices of tensors are read when they are needed."""
    from safetensors import SafetensorError

    ids, labels, lengths = (tensors.get(name) for name in ("input_ids", "labels", "seq_lengths"))
    assert ids is not None
    sizes, counts = tensors.get("lengths"), tensors.get("seq_counts")
    place = record = 0
    for index in range(ids.get_shape()[0] if sizes is None else len(sizes)):
        where = index if sizes is None else slice(place, place + int(sizes[index]))
        place += 0 if sizes is None else int(sizes[index])
        some = None
        try:
            if lengths and counts is not None:
                some = lengths[record : record + int(counts[index])]
                record += int(counts[index])
            sample = of_labels(ids[where], labels[where] if labels else None, some)
        except (SafetensorError, OverflowError, ValueError) as error:
            raise DataError(f"{path}: sample {index}: damaged: {error}") from None
        yield sample
