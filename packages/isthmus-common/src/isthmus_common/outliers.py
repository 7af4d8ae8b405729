"""Outliers of a group, by median and median absolute deviation (MAD)."""

import statistics
from collections.abc import Mapping
from typing import TypeVar

NORMAL = 1.4826  # a normal distribution's standard deviation, in MADs
_Key = TypeVar("_Key")


def outliers(values: Mapping[_Key, float], deviations: float, least: float) -> dict[_Key, float]:
    """Return the members whose value is far above that of the others, with their ratio to the median.

    Args:
        values: positive value of each member.
        deviations: distance from the median, in standard deviations as the MAD estimates them.
        least: least distance, in units of the median.
    """
    usual = statistics.median(values.values())
    spread = NORMAL * statistics.median(abs(value - usual) for value in values.values())
    limit = usual + max(deviations * spread, least * usual)
    return {key: value / usual for key, value in values.items() if usual > 0 and value > limit}
