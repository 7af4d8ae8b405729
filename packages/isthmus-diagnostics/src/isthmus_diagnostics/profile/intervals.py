"""Sets of time as sorted lists of disjoint (start, end), in microseconds."""

from bisect import bisect_left
from collections.abc import Iterable

Intervals = list[tuple[float, float]]


def union(*sets: Iterable[tuple[float, float]]) -> Intervals:
    """Return the time that any set covers; the sets may overlap and be unsorted."""
    merged: Intervals = []
    for start, end in sorted(interval for found in sets for interval in found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def clip(intervals: Intervals, start: float, end: float) -> Intervals:
    """Return the part from start to end."""
    first = max(0, bisect_left(intervals, (start, start)) - 1)
    found: Intervals = []
    for left, right in intervals[first:]:
        if left >= end:
            break
        if right > start:
            found.append((max(left, start), min(right, end)))
    return found


def minus(intervals: Intervals, removed: Intervals) -> Intervals:
    """Return the time that the first set covers and the second does not."""
    found: Intervals = []
    for start, end in intervals:
        done = start
        for left, right in clip(removed, start, end):
            if left > done:
                found.append((done, left))
            done = right
        if end > done:
            found.append((done, end))
    return found


def length(intervals: Intervals) -> float:
    """Return the length in microseconds."""
    return sum(end - start for start, end in intervals)
