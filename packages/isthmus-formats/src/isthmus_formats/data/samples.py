"""Training samples: token numbers, and which of them are trained on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

IGNORED = -100  # the label of a token that is not trained on, as in PyTorch's cross entropy


class Sample(NamedTuple):
    """One sequence of tokens.

    Attributes:
        ids: token numbers, [length], padding included.
        mask: whether each is trained on, [length]; None if all are.
        lengths: of the records packed in it, without the padding; attention does not cross from one to the next.
        stored: the labels of a file, which may be others than those of ids and mask; None if it has none.
    """

    ids: Ids
    mask: Mask | None
    lengths: Ids
    stored: Ids | None = None

    def labels(self) -> Ids:
        """Return the labels of a file; else the token numbers, with -100 where a token is not trained on."""
        if self.stored is not None:
            return self.stored
        return self.ids if self.mask is None else np.where(self.mask, self.ids, np.int32(IGNORED))


def of_labels(ids: npt.ArrayLike, labels: npt.ArrayLike | None, lengths: npt.ArrayLike | None) -> Sample:
    """Return a sample as it is stored: with labels instead of a mask.

    Raises:
        ValueError: a field is not a list of integers of 32 bits, or the records have more tokens than the sample.
    """
    ids = to_int32(ids, "input_ids")
    records = np.array([len(ids)], np.int32) if lengths is None else to_int32(lengths, "seq_lengths")
    if records.min(initial=0) < 0 or records.sum(dtype=np.int64) > len(ids):
        raise ValueError(f"seq_lengths {records.tolist()} of {len(ids)} tokens")
    stored = mask = None
    if labels is not None:
        stored = to_int32(labels, "labels")
        mask = stored != IGNORED if len(stored) == len(ids) else np.zeros(len(ids), np.bool_)
    return Sample(ids, mask, records[records != 0], stored)


def to_int32(values: npt.ArrayLike, name: str) -> Ids:
    """Convert the numbers of a file to int32.

    Raises:
        ValueError: they are not a list of integers, or one does not fit.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} is not a list of integers")
    for value in (array.min(initial=0), array.max(initial=0)):
        if not -(2**31) <= int(value) < 2**31:
            raise ValueError(f"{name} has {value}, which does not fit into 32 bits")
    return array.astype(np.int32)
