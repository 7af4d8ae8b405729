"""Comparison of two runs: losses, parameters, random numbers, printed text and saved files."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from isthmus_migrate.verify import file_comparison, text_comparison
from isthmus_migrate.verify.limits import EXACT, Reference, limits, relative_difference
from isthmus_migrate.verify.record import Record
from isthmus_migrate.verify.run import Run
from isthmus_migrate.verify.tally import VARYING, Comparison, Tally, add_arrays

SPREAD = 2e-5  # relative, in float32, if ranks sum in another order than one process


class Pair(NamedTuple):
    """The records of one rank in both runs and in the references."""

    mine: Record
    theirs: Record
    references: list[tuple[Record, int]]
    where: str


def compare(original: Run, other: Run, references: Sequence[Reference] = ()) -> list[Comparison]:
    """Compare two runs over all ranks.

    Args:
        original: run.
        other: run.
        references: other runs of the original, from which the limits of differences come.
    """
    pairs = list(_pairs(original, other, references))
    return [
        _losses(pairs),
        _parameters(pairs),
        _random(pairs),
        text_comparison.compare(original, other, references),
        file_comparison.compare(original, other, references),
    ]


def compare_spread(original: Run, other: Run, references: Sequence[Reference] = ()) -> list[Comparison]:
    """Compare one process with ranks that share its batches: the means of their losses, and their parameters.

    All parameters of a rank are one array, as some have no gradient but rounding: biases before BatchNorm. Random
    numbers and saved files are not compared, because each rank has its own.

    Args:
        original: run, of one process.
        other: run, of several.
        references: as in :func:`compare`.
    """
    mine = original.records[0] if original.records else Record()
    losses = [record.losses for record in other.records]
    mean = Record(losses=[math.fsum(each) / len(each) for each in zip(*losses, strict=False)])
    again = [(each.run.records[0], each.unit) for each in references if each.run.records]
    whole = [(_merge_parameters(record), unit) for record, unit in again]
    pairs = [
        Pair(_merge_parameters(mine), _merge_parameters(each), whole, f" of rank {each.rank}")
        for each in other.records
    ]
    return [
        _losses([Pair(mine, mean, again, "")], SPREAD),
        _parameters(pairs, SPREAD),
        text_comparison.compare(original, other, references, SPREAD),
    ]


def _merge_parameters(record: Record) -> Record:
    """Return a record's parameters as one array."""
    arrays = [record.parameters[name].ravel() for name in sorted(record.parameters)]
    return Record(parameters={"all parameters": np.concatenate(arrays)} if arrays else {})


def _pairs(original: Run, other: Run, references: Sequence[Reference]) -> Iterator[Pair]:
    several = max(len(original.records), len(other.records)) > 1
    ranks = itertools.zip_longest(original.records, other.records, fillvalue=Record())
    for at, (mine, theirs) in enumerate(ranks):
        again = [(each.run.records[at], each.unit) for each in references if at < len(each.run.records)]
        yield Pair(mine, theirs, again, f", rank {mine.rank}" if several else "")


def _losses(pairs: Sequence[Pair], floor: float = EXACT) -> Comparison:
    tally = Tally("losses", floor)
    for mine, theirs, references, where in pairs:
        number, found = len(mine.losses), len(theirs.losses)
        if number != found:
            if any(len(record.losses) != number for record, _ in references):
                tally.leave_out("loss", VARYING, f"{number} against {found}{where}", abs(number - found))
            else:
                tally.differ(f"{number} losses against {found}{where}")
        bounds = limits(mine.losses, [(record.losses, unit) for record, unit in references], floor)
        values = zip(mine.losses, theirs.losses, bounds, strict=False)
        for at, (first, second, bound) in enumerate(values, start=1):
            where_it_is = f"from number {at}: {first:.9g} against {second:.9g}{where}"
            tally.value(relative_difference(first, second), bound, where_it_is)
    return tally.comparison()


def _parameters(pairs: Sequence[Pair], floor: float = EXACT) -> Comparison:
    tally = Tally("parameters", floor)
    for mine, theirs, references, where in pairs:
        arrays = [(record.parameters, unit) for record, unit in references]
        add_arrays(tally, mine.parameters, theirs.parameters, arrays, where)
    return tally.comparison()


def _random(pairs: Sequence[Pair]) -> Comparison:
    tally = Tally("random numbers", 0.0)
    differing = []
    for mine, theirs, references, where in pairs:
        for name in sorted(mine.random.keys() | theirs.random.keys()):
            state = mine.random.get(name)
            if state == theirs.random.get(name):
                tally.value(0.0, 0.0, name)
            elif any(record.random.get(name) != state for record, _ in references):
                tally.leave_out("generator", VARYING, f"{name}{where}")
            else:
                differing.append(f"{name}{where}")
    if differing:
        tally.differ(f"another number was drawn of {', '.join(differing)}")
    return tally.comparison()
