"""The numbers printed by a program, and the difference between two runs."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from isthmus_diagnostics.debug.errors import DebugError

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)\b"
# Matches "lm loss: 5.38E+00", "loss 5.384", "loss=5.38", "{'loss': 5.38}", but not "loss scale: 1.0".
METRIC = rf"(?i)loss\b(?!\s*scale)[^\w\n+-]{{0,12}}(?:is\s+|tensor\()?({_NUMBER})"


@dataclass(frozen=True)
class Readings:
    """The matches of the metric in one run.

    Attributes:
        values: in order of output.
        units: one unit in the last printed digit of each value.
        line: the line of the last value.
    """

    values: tuple[float, ...] = ()
    units: tuple[float, ...] = ()
    line: str = ""

    def distances(self, other: Readings) -> list[float]:
        """Return the relative difference of each value; [inf] if the numbers of values differ."""
        if len(self.values) != len(other.values):
            return [math.inf]
        return [_distance(a, b) for a, b in zip(self.values, other.values, strict=True)]

    def distance(self, other: Readings) -> float:
        """Return the largest relative difference."""
        return max(self.distances(other), default=0.0)

    def most_different_pair(self, other: Readings) -> tuple[str, str]:
        """Return the two values that are farthest apart, or the two counts if these differ."""
        distances = self.distances(other)
        if len(self.values) != len(other.values):
            return f"{len(self.values)} numbers", f"{len(other.values)} numbers"
        worst = distances.index(max(distances))
        return f"{self.values[worst]:.9g}", f"{other.values[worst]:.9g}"

    def is_rounding(self, other: Readings) -> bool:
        """Return whether no value differs by more than one unit in the last printed digit."""
        if len(self.values) != len(other.values):
            return False
        rows = zip(self.values, other.values, self.units, other.units, strict=True)
        return all(_distance(a, b) == 0 or abs(a - b) <= 1.01 * max(u, v) for a, b, u, v in rows)


def read(text: str, metric: str = METRIC) -> Readings:
    """Find the numbers in a program's output.

    With the default metric only lines of the most frequent form count (of two equally frequent forms, the later one):
    a final summary that repeats the first loss is not a training step.

    Raises:
        DebugError: the metric is not a regular expression with one group, or the group is not a number.
    """
    found = list(compile_metric(metric).finditer(text))
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


def compile_metric(metric: str) -> re.Pattern[str]:
    """Compile the metric, a pattern of at most one group.

    Raises:
        DebugError: the metric is invalid.
    """
    try:
        pattern = re.compile(metric)
    except re.error as error:
        raise DebugError(f"--metric {metric!r}: not a regular expression: {error}") from None
    if pattern.groups > 1:
        raise DebugError(
            f"--metric {metric!r}: has {pattern.groups} groups; give one, and use (?:...) for others"
        )
    return pattern


def _line_at(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()


def _form(line: str) -> str:
    """Return a line with its numbers replaced by #."""
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
