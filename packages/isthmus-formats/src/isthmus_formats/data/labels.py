"""Classify the labels of a file: its tokens, the next tokens, or other values."""

from __future__ import annotations

from collections import Counter

import numpy as np

from isthmus_formats.data.samples import IGNORED, Ids, Sample

_SAME = "input_ids"
_NEXT = "input_ids shifted by one (labels[i] is input_ids[i + 1])"
_LAST = "input_ids shifted back by one (labels[i] is input_ids[i - 1])"


class Convention:
    """Compares the labels of samples with their tokens."""

    def __init__(self) -> None:
        self._stored = self._unaligned = self._trained = 0
        # Labels that each convention foretells, and those of them that are as foretold.
        self._judged, self._met = Counter[str](), Counter[str]()
        self._others = Counter[int]()  # labels that are not the token at their place

    def add(self, sample: Sample) -> None:
        """Compare the labels of a sample."""
        if sample.stored is None:
            return
        ids, labels = sample.ids, sample.stored
        self._stored += 1
        self._trained += int((labels != IGNORED).sum())
        if len(labels) != len(ids):
            self._unaligned += 1
            return
        places = np.flatnonzero(labels != IGNORED)
        self._judge_labels(_SAME, labels[places], ids[places])
        # The label after the end, or before the beginning, is not a token of the sample.
        inner = places[:-1]
        self._judge_labels(_NEXT, labels[inner], ids[inner + 1])
        inner = places[1:]
        self._judge_labels(_LAST, labels[inner], ids[inner - 1])
        values, counts = np.unique(labels[places][labels[places] != ids[places]], return_counts=True)
        self._others.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _judge_labels(self, name: str, labels: Ids, expected: Ids) -> None:
        self._judged[name] += len(labels)
        self._met[name] += int((labels == expected).sum())

    @property
    def is_input_ids(self) -> bool:
        """Whether each label that is not -100 is the token at its place."""
        return not self._unaligned and self._met[_SAME] == self._judged[_SAME]

    def facts(self) -> dict[str, str]:
        """Return a description of the labels; nothing if there are none."""
        if not self._stored:
            return {}
        return {"labels": self._unaligned_text() or self._aligned_text()}

    def _unaligned_text(self) -> str:
        if not self._unaligned:
            return ""
        return f"of another length than input_ids in {self._unaligned:,} of {self._stored:,} samples"

    def _aligned_text(self) -> str:
        if not self._trained:
            return "all -100"
        met = [name for name in (_SAME, _NEXT, _LAST) if 0 < self._judged[name] == self._met[name]]
        if len(met) > 1:
            return f"ambiguous: {', or '.join(met)}"
        if met:
            return met[0]
        (value, often), others = self._others.most_common(1)[0], self._others.total()
        near = ", ".join(
            f"{self._met[name]:,} of {self._judged[name]:,} {words}"
            for name, words in ((_NEXT, "the next token"), (_LAST, "the one before"))
        )
        return (
            f"other values: {others:,} of {self._trained:,} are not the token at their place, "
            f"most often {value} ({often:,}); {near}"
        )
