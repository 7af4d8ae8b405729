"""Samples: what a model is trained on."""

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
        mask: whether each token is trained on, [length]; None if all are.
        lengths: of the records packed in it, without the padding; attention does not cross from one to the next.
    """

    ids: Ids
    mask: Mask | None
    lengths: Ids

    def labels(self) -> Ids:
        """Return the token numbers, with -100 where a token is not trained on."""
        return self.ids if self.mask is None else np.where(self.mask, self.ids, np.int32(IGNORED))


def of_labels(ids: Ids, labels: Ids | None, lengths: Ids | None) -> Sample:
    """Return a sample as it is stored: with labels instead of a mask."""
    whole = np.array([len(ids)], np.int32)
    records = whole if lengths is None else lengths[lengths != 0]
    return Sample(ids, None if labels is None else labels != IGNORED, records)
