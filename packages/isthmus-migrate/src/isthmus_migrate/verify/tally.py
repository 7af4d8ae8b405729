"""Collection of the differences of one compared subject."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from isthmus_common.text import count
from isthmus_migrate.verify.limits import EXACT, MEANINGLESS, Array, common_effect, distance

_DROWNED = "with rounding noise as large as the value"
VARYING = "varying between the original and its run with rounding noise"
CHANGING = "varying between two runs of the original"


class Comparison(NamedTuple):
    """One comparison of the original's run with the other.

    Attributes:
        subject: what was compared.
        same: whether they agree, up to rounding noise.
        compared: number of values.
        difference: the relative difference that is largest compared with its limit.
        tolerance: its limit.
        noisy: number of values that differ within rounding noise.
        detail: where they differ first.
        left_out: what was not compared, and why.
    """

    subject: str
    same: bool
    compared: int
    difference: float
    tolerance: float
    noisy: int = 0
    detail: str = ""
    left_out: tuple[str, ...] = ()


class Tally:
    """Collects the differences of one subject.

    Args:
        subject: what is compared.
        floor: smallest limit of a relative difference.
    """

    def __init__(self, subject: str, floor: float = EXACT) -> None:
        self.floor = floor
        self._subject = subject
        self._compared = self._noisy = 0
        self._difference, self._tolerance = 0.0, floor
        self._detail = ""
        self._left_out: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], str] = {}

    def value(self, difference: float, limit: float, where: str) -> None:
        """Add one compared value; it is left out if its limit admits any value."""
        self._noisy += self.floor < difference <= limit
        if limit > MEANINGLESS:
            self.leave_out("value", _DROWNED, where.partition(":")[0])
            return
        self._compared += 1
        if difference > limit:
            self.differ(where)
        if difference * self._tolerance > self._difference * limit:
            self._difference, self._tolerance = difference, limit

    def differ(self, detail: str) -> None:
        """Note a difference; the first one is shown."""
        self._detail = self._detail or detail

    def leave_out(self, noun: str, reason: str = "", example: str = "", number: int = 1) -> None:
        """Note what cannot be compared: ``number`` of a noun, the reason, and a place as an example."""
        self._left_out[noun, reason] += number
        self._examples.setdefault((noun, reason), example)

    def _example(self, what: tuple[str, str]) -> str:
        return f"({self._examples[what]})" if self._examples[what] else ""

    def comparison(self) -> Comparison:
        """Return the comparison."""
        left = [
            " ".join(filter(None, (count(number, what[0]), what[1], self._example(what))))
            for what, number in self._left_out.items()
        ]
        return Comparison(
            self._subject, not self._detail, self._compared, self._difference, self._tolerance,
            self._noisy, self._detail, tuple(left),
        )  # fmt: skip


def add_arrays(
    tally: Tally,
    mine: dict[str, Array],
    theirs: dict[str, Array],
    references: Sequence[tuple[dict[str, Array], int]],
    where: str,
) -> None:
    """Compare arrays by their names."""
    common = common_effect(
        [
            (array, other[name], unit)
            for other, unit in references
            for name, array in mine.items()
            if name in other and array.dtype.kind == "f"
        ]
    )
    for name in sorted(mine.keys() | theirs.keys()):
        first, second = mine.get(name), theirs.get(name)
        noisy = [(other[name], unit) for other, unit in references if name in other]
        place = f"{name}{where}"
        if first is None or second is None or first.shape != second.shape:
            if any((name in other) != (name in mine) for other, _ in references):
                tally.leave_out("array", VARYING, place)
            else:
                tally.value(math.inf, tally.floor, place)
        elif first.dtype.kind != "f" or second.dtype.kind != "f":
            _add_exact(tally, first, second, [array for array, _ in noisy], place)
        else:
            tally.value(*distance(first, second, noisy, tally.floor, common), place)


def _add_exact(tally: Tally, first: Array, second: Array, noisy: Sequence[Array], place: str) -> None:
    same = bool((first == second).all())
    if not same and any(each.shape != first.shape or (each != first).any() for each in noisy):
        tally.leave_out("array", VARYING, place)
    else:
        tally.value(0.0 if same else math.inf, tally.floor, place)
