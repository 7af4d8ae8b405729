"""Compare two dumps: pair their calls, judge each pair, and find the first difference."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from isthmus_diagnostics.accuracy import dumps
from isthmus_diagnostics.accuracy.divergence import Guilty, Search
from isthmus_diagnostics.accuracy.judging import Judged, judge_pairs
from isthmus_diagnostics.accuracy.pairing import pairs


@dataclass(frozen=True)
class Comparison:
    """Two dumps, compared.

    Attributes:
        a, b: their folders.
        ranks: numbers of ranks.
        rows: the pairs of calls in order.
        guilty: the first difference, or None.
    """

    a: Path
    b: Path
    ranks: tuple[int, int]
    rows: list[Judged]
    guilty: Guilty | None

    @property
    def counts(self) -> Counter[str]:
        """Number of pairs by verdict."""
        return Counter(row.verdict for row in self.rows)


def compare(a: Path, b: Path) -> Comparison:
    """Compare two dumps.

    Raises:
        AccuracyError: one cannot be read.
    """
    left, right = dumps.read(a), dumps.read(b)
    rows = judge_pairs(pairs(left, right))
    return Comparison(a, b, (len(left), len(right)), rows, Search(rows).first_difference())
