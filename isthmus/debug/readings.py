"""The numbers that a program printed, and how far those of two runs are apart."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from isthmus.debug.errors import DebugError

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)\b"
# "lm loss: 5.38E+00", "loss 5.384", "loss=5.38", "{'loss': 5.38}"; not "loss scale: 1.0", which is no loss.
METRIC = rf"(?i)loss\b(?!\s*scale)[^\w\n+-]{{0,12}}(?:is\s+|tensor\()?({_NUMBER})"


@dataclass(frozen=True)
class Readings:
    """What the metric matched in one run.

    Attributes:
        values: in order.
        units: one unit in the last digit printed, of each.
        line: that the last one stands in.
    """

    values: tuple[float, ...] = ()
    units: tuple[float, ...] = ()
    line: str = ""

    def distances(self, other: Readings) -> list[float]:
        """Relative difference of each value; infinity alone where there are not as many."""
        if len(self.values) != len(other.values):
            return [math.inf]
        return [_distance(a, b) for a, b in zip(self.values, other.values, strict=True)]

    def distance(self, other: Readings) -> float:
        """The largest of them."""
        return max(self.distances(other), default=0.0)

    def beside(self, other: Readings) -> tuple[str, str]:
        """The two values that are farthest apart, or how many there are where that is the difference."""
        distances = self.distances(other)
        if len(self.values) != len(other.values):
            return f"{len(self.values)} numbers", f"{len(other.values)} numbers"
        worst = distances.index(max(distances))
        return f"{self.values[worst]:.9g}", f"{other.values[worst]:.9g}"

    def is_rounding(self, other: Readings) -> bool:
        """Whether no value differs by more than one unit in the last digit printed."""
        if len(self.values) != len(other.values):
            return False
        rows = zip(self.values, other.values, self.units, other.units, strict=True)
        return all(_distance(a, b) == 0 or abs(a - b) <= 1.01 * max(u, v) for a, b, u, v in rows)


def read(text: str, metric: str = METRIC) -> Readings:
    """Find the numbers in what a program printed.

    Of the default metric only lines of the most frequent form count, the later one of two that are as frequent: a
    summary at the end, which repeats the first loss, is no step of training.

    Raises:
        DebugError: the metric is no regular expression with one group, or the group is not a number.
    """
    found = list(compiled(metric).finditer(text))
    lines = [_line_at(text, match) for match in found]
    if metric == METRIC and found:
        forms = [_form(line) for line in lines]
        often = Counter(forms)
        chosen = max(reversed(forms), key=lambda form: often[form])
        found = [match for match, form in zip(found, forms, strict=True) if form == chosen]
    try:
        words = [match[match.re.groups] for match in found]
        values = tuple(float(word) for word in words)
    except (ValueError, TypeError):
        raise DebugError(f"--metric {metric!r}: its first group must be a number") from None
    return Readings(values, tuple(map(_unit, words)), _line_at(text, found[-1]) if found else "")


def compiled(metric: str) -> re.Pattern[str]:
    """The metric as a pattern of at most one group.

    Raises:
        DebugError: it is none.
    """
    try:
        pattern = re.compile(metric)
    except re.error as error:
        raise DebugError(f"--metric {metric!r} is no regular expression: {error}") from None
    if pattern.groups > 1:
        raise DebugError(f"--metric {metric!r}: it has {pattern.groups} groups; give one, (?:...) for others")
    return pattern


def _line_at(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()


def _form(line: str) -> str:
    """A line without its numbers."""
    return " ".join(re.sub(r"[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b", "#", line).split())


def _unit(word: str) -> float:
    digits, _, exponent = word.lower().partition("e")
    places = len(digits.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - places) if digits[-1:].isdigit() or digits.endswith(".") else 0.0


def _distance(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    distance = abs(a - b) / max(abs(a), abs(b))
    return distance if math.isfinite(distance) else math.inf
