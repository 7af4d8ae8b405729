"""Robust upper bounds of a series from its recent values, by median and median absolute deviation (MAD)."""

import math
import statistics
from collections import deque

from isthmus_common.outliers import NORMAL

_LEAST = 10  # values before the first bound
_RECURRENCES = 3


class Bound:
    """The bound of one series.

    A value above the bound is abnormal, and enters the history as the bound: a new level is accepted after a while,
    and one outlier does not raise the bound. If three values of the window were as far above the median, up to
    the factor of `least`, the value recurs and is usual.

    Args:
        deviations: distance of the bound from the median, in standard deviations as the MAD estimates them.
        least: least distance, in units of the median's absolute value.
        window: number of recent values.
    """

    def __init__(self, deviations: float, least: float, window: int = 64) -> None:
        self._deviations, self._least = deviations, least
        self._recent: deque[float] = deque(maxlen=window)
        self._above: deque[float] = deque(maxlen=window)  # values above the bound, and -inf for others

    def median(self) -> float:
        """Return the median; NaN without values."""
        return statistics.median(self._recent) if self._recent else math.nan

    def limit(self) -> float:
        """Return the bound; infinite before ten values, or if most are 0, as for an expert without tokens."""
        if len(self._recent) < _LEAST:
            return math.inf
        usual = self.median()
        spread = NORMAL * statistics.median(abs(value - usual) for value in self._recent)
        distance = max(self._deviations * spread, self._least * abs(usual))
        return usual + distance if distance else math.inf

    def is_exceeded(self, value: float) -> bool:
        """Return whether a finite value is above the bound and does not recur, and add it to the history."""
        limit, usual = self.limit(), self.median()
        is_above = value > limit
        least = usual + (value - usual) / (1 + self._least)
        recurs = is_above and sum(each >= least for each in self._above) >= _RECURRENCES
        self._recent.append(min(value, limit))
        self._above.append(value if is_above else -math.inf)
        return is_above and not recurs
