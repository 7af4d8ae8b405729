"""Robust upper bounds of a series from its recent values, by median and median absolute deviation (MAD)."""

import math
import statistics
from collections import deque

from isthmus._support.robust import NORMAL

_LEAST = 10  # values before the first bound


class Bound:
    """The bound of one series.

    A value above the bound is abnormal, and enters the history as the bound: a new level is accepted after a while,
    and one outlier does not raise the bound.

    Args:
        deviations: distance of the bound from the median, in standard deviations as the MAD estimates them.
        least: least distance, in units of the median's absolute value.
        window: number of recent values.
    """

    def __init__(self, deviations: float, least: float, window: int = 64) -> None:
        self._deviations, self._least = deviations, least
        self._recent: deque[float] = deque(maxlen=window)

    def usual(self) -> float:
        """Return the median; NaN without values."""
        return statistics.median(self._recent) if self._recent else math.nan

    def limit(self) -> float:
        """Return the bound; infinite before there are ten values."""
        if len(self._recent) < _LEAST:
            return math.inf
        usual = self.usual()
        spread = NORMAL * statistics.median(abs(value - usual) for value in self._recent)
        return usual + max(self._deviations * spread, self._least * abs(usual))

    def is_exceeded(self, value: float) -> bool:
        """Return whether a finite value is above the bound, and add it to the history."""
        limit = self.limit()
        self._recent.append(min(value, limit))
        return value > limit
