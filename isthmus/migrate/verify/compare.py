"""Comparison of two runs: losses, parameters, random numbers and printed numbers."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from isthmus.migrate.verify.record import Record
from isthmus.migrate.verify.run import Run

EXACT = 1e-6  # relative, in float32
ROUGH = 2e-2  # relative, with float16 or bfloat16 in the computation
SPREAD = 2e-5  # relative, in float32, if ranks sum in another order than one process
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w]*:\d)|\b[-+]?(?:nan|inf)\b"
)
_DEVICE = re.compile(r"\b(?:cuda|cpu|chip|npu|xpu|mps)(?::\d+)?\b|0x[0-9a-f]+")
_CLOCK = re.compile(
    r"(?i)\b(?:time|elapsed|eta)\b\W{0,3}[\d.:]+(?:\s*\([\d.:]+\))?|[\d.]+ ?(?:s|ms|sec|seconds|it/s)\b"
)
_OF_MACHINE = re.compile(r"(?i)\bmem(?:ory)?\b|\b[KMG]i?B\b")


class Comparison(NamedTuple):
    """One comparison of the original's run with the other.

    Attributes:
        subject: what was compared.
        same: whether they agree.
        compared: number of values.
        difference: largest relative difference.
        tolerance: limit of the relative difference.
        detail: where they differ, or what was left out.
    """

    subject: str
    same: bool
    compared: int
    difference: float
    tolerance: float
    detail: str = ""


def compare(original: Run, other: Run, again: Run | None = None) -> list[Comparison]:
    """Compare two runs over all ranks.

    Args:
        original: run.
        other: run.
        again: a second run of the original; printed numbers that differ between the two are not compared.
    """
    tolerance = _tolerance(original, other, EXACT)
    ranks = list(itertools.zip_longest(original.records, other.records, fillvalue=Record()))
    return [
        _losses(ranks, tolerance),
        _parameters(ranks, tolerance),
        _random(ranks),
        _printed(original, other, again, tolerance),
    ]


def compare_spread(original: Run, other: Run, again: Run | None = None) -> list[Comparison]:
    """Compare one process with the means of ranks that share its batches.

    Random numbers are not compared, because each rank draws its own. Parameters are not compared, because an
    optimizer such as Adam makes a full step even for a gradient of pure rounding error.

    Args:
        original: run, of one process.
        other: run, of several.
        again: as in :func:`compare`.
    """
    tolerance = _tolerance(original, other, SPREAD)
    alone = original.records[0] if original.records else Record()
    mean = Record(losses=[math.fsum(each) / len(each) for each in zip(*_losses_of(other), strict=False)])
    return [_losses([(alone, mean)], tolerance), _printed(original, other, again, tolerance)]


def _losses_of(run: Run) -> list[list[float]]:
    return [record.losses for record in run.records]


def _tolerance(original: Run, other: Run, of_float32: float) -> float:
    low = any(record.low_precision for run in (original, other) for record in run.records)
    return ROUGH if low else of_float32


def relative(first: float, second: float) -> float:
    """Return the relative difference of two numbers; 0 if both are NaN."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    if not (math.isfinite(first) and math.isfinite(second)):
        return math.inf
    return abs(first - second) / max(abs(first), abs(second))


Ranks = Sequence[tuple[Record, Record]]


def _losses(ranks: Ranks, tolerance: float) -> Comparison:
    compared, worst, detail = 0, 0.0, ""
    for mine, theirs in ranks:
        if len(mine.losses) != len(theirs.losses):
            detail = detail or f"{len(mine.losses)} losses against {len(theirs.losses)}{_on(mine, ranks)}"
        for number, (first, second) in enumerate(zip(mine.losses, theirs.losses, strict=False), start=1):
            compared += 1
            difference = relative(first, second)
            if difference > tolerance and not detail:
                detail = f"from number {number}: {first:.9g} against {second:.9g}{_on(mine, ranks)}"
            worst = max(worst, difference)
    return Comparison("losses", not detail, compared, worst, tolerance, detail)


def _parameters(ranks: Ranks, tolerance: float) -> Comparison:
    """Compare parameters by their largest difference, relative to their largest value."""
    compared, worst, detail = 0, 0.0, ""
    for mine, theirs in ranks:
        for name in mine.parameters.keys() | theirs.parameters.keys():
            first, second = mine.parameters.get(name), theirs.parameters.get(name)
            compared += 1
            difference = _array_difference(first, second)
            if difference > max(worst, tolerance):
                detail = f"{name}{_on(mine, ranks)}"
            worst = max(worst, difference)
    return Comparison("parameters", not detail, compared, worst, tolerance, detail)


def _array_difference(first: np.ndarray | None, second: np.ndarray | None) -> float:
    if first is None or second is None or first.shape != second.shape:
        return math.inf
    if np.array_equal(first, second, equal_nan=True):
        return 0.0
    difference = float(np.abs(first - second).max())
    return difference / float(np.abs(first).max()) if math.isfinite(difference) and first.any() else math.inf


def _random(ranks: Ranks) -> Comparison:
    differing = [
        f"{name}{_on(mine, ranks)}"
        for mine, theirs in ranks
        for name in mine.random.keys() | theirs.random.keys()
        if mine.random.get(name) != theirs.random.get(name)
    ]
    detail = f"another number was drawn of {', '.join(sorted(differing))}" if differing else ""
    return Comparison(
        "random numbers", not differing, sum(len(mine.random) for mine, _ in ranks), 0.0, 0.0, detail
    )


def _on(record: Record, ranks: Ranks) -> str:
    return f", rank {record.rank}" if len(ranks) > 1 else ""


# ---- printed numbers -----------------------------------------------------------------------------------------
Place = tuple[int, int]  # line, position in it
Slot = tuple[str, int]  # a line without its numbers, position in it


def _printed(original: Run, other: Run, again: Run | None, tolerance: float) -> Comparison:
    compared, left_out, worst, detail = 0, 0, 0.0, ""
    for rank, mine in enumerate(original.output):
        theirs = other.output[rank] if rank < len(other.output) else []
        changing = _changing(mine, again.output[rank]) if again else set()
        where = f", rank {rank}" if len(original.output) > 1 else ""
        first_lines, second_lines = len(_with_numbers(mine)), len(_with_numbers(theirs))
        if first_lines != second_lines:
            detail = detail or f"{first_lines} lines with numbers against {second_lines}{where}"
        for place, first, second in _pairs(mine, theirs):
            if _slot(mine, place) in changing:
                left_out += 1
                continue
            compared += 1
            difference = _printed_difference(first, second)
            if difference > tolerance and not detail:
                detail = f"line {place[0] + 1}: {first} against {second}{where}"
            worst = max(worst, difference)
    same = not detail
    if left_out:
        differ = f"{left_out} left out that differ between two runs of the original"
        detail = f"{detail}; {differ}" if detail else differ
    return Comparison("printed numbers", same, compared, worst, tolerance, detail)


def _printed_difference(first: str, second: str) -> float:
    """Return the relative difference of two printed numbers; one unit in the last decimal counts as rounding."""
    if first == second:
        return 0.0
    if not (first and second):
        return math.inf
    decimals = [len(text.partition(".")[2]) for text in (first, second)]
    is_rounding = min(decimals) > 0 and abs(float(first) - float(second)) <= 1.001 * 10.0 ** -min(decimals)
    return 0.0 if is_rounding else relative(float(first), float(second))


def _changing(first: list[str], second: list[str]) -> set[Slot]:
    """Return the slots whose numbers differ between two runs of the original."""
    return {_slot(first, place) for place, mine, theirs in _pairs(first, second) if mine != theirs}


def _slot(lines: list[str], place: Place) -> Slot:
    index, position = place
    return _NUMBER.sub("#", lines[index]), position


def _with_numbers(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Return the lines with numbers; times and lines about memory depend on the machine and are skipped."""
    found = (
        (index, _NUMBER.findall(_CLOCK.sub("", _DEVICE.sub("", line))))
        for index, line in enumerate(lines)
        if not _OF_MACHINE.search(line)
    )
    return [(index, numbers) for index, numbers in found if numbers]


def _pairs(mine: list[str], theirs: list[str]) -> Iterator[tuple[Place, str, str]]:
    for (index, first), (_, second) in zip(_with_numbers(mine), _with_numbers(theirs), strict=False):
        for position, (one, two) in enumerate(itertools.zip_longest(first, second, fillvalue="")):
            yield (index, position), one, two
