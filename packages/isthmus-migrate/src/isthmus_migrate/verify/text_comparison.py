"""Comparison of printed and saved text: line by line, the words exactly and the numbers within their limits."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.verify.answers import Answers, answers
from isthmus_migrate.verify.limits import EXACT, MEANINGLESS, MULTIPLE, Reference, relative_difference
from isthmus_migrate.verify.run import Run
from isthmus_migrate.verify.tally import CHANGING, VARYING, Comparison, Tally
from isthmus_migrate.verify.uniform import Line, split, uniform

_ROUNDING = 1e-2  # relative size of one unit in the last printed digit, up to which it may be rounding
_SHOWN = 60  # characters of a line in a message


class Text(NamedTuple):
    """Text of one run.

    Attributes:
        lines: its lines.
        root: folder of the run, which is not compared.
    """

    lines: Sequence[str]
    root: Path


Slot = tuple[str, int]  # pattern of a line, position in it
_ALWAYS, _SAMPLED = -1.0, -2.0  # effects: changes without noise; whole numbers that noise changes


class _Reference(NamedTuple):
    """The values that the other runs of the original show.

    Attributes:
        reasons: index of a line whose words vary -> why; the number of lines stands for lines that were added.
        effects: slot -> relative effect of one ulp, or one of the constants above.
    """

    reasons: dict[int, str]
    effects: dict[Slot, float]


def compare(original: Run, other: Run, references: Sequence[Reference], floor: float = EXACT) -> Comparison:
    """Compare the standard output of each rank of the original."""
    tally = Tally("printed text", floor)
    for rank, mine in enumerate(original.output):
        theirs = other.output[rank] if rank < len(other.output) else []
        again = [
            (Text(each.run.output[rank], each.run.side.root), each.ulps)
            for each in references
            if rank < len(each.run.output)
        ]
        where = f", rank {rank}" if len(original.output) > 1 else ""
        add_text(
            tally,
            Text(mine, original.side.root),
            Text(theirs, other.side.root),
            again,
            answers(original, other, rank),
            f"line {{}}{where}",
        )
    return tally.comparison()


def add_text(
    tally: Tally,
    mine: Text,
    theirs: Text,
    references: Sequence[tuple[Text, int]],
    allowed: Answers,
    where: str,
) -> None:
    """Compare two texts.

    Args:
        tally: receives the differences.
        mine: text of the original.
        theirs: text of the other run.
        references: texts of other runs of the original, each with the ulps of its noise.
        allowed: answers of the devices that may differ.
        where: place in messages; its braces become the number of the line.
    """
    lines = [uniform(line, mine.root, allowed.names, tally) for line in mine.lines]
    others = [uniform(line, theirs.root, allowed.names) for line in theirs.lines]
    again = [
        ([uniform(line, each.root, allowed.names) for line in each.lines], ulps) for each, ulps in references
    ]
    reasons, effects = _of_references([split(line) for line in lines], again)
    paired = _pair_lines([split(line) for line in lines], [split(line) for line in others])
    for at, to in paired:
        first, second, hidden = allowed.hide(lines[at], others[to])
        if hidden:
            tally.leave_out("answer", "of the device about itself", where.format(at + 1), hidden)
        if at in reasons:
            tally.leave_out("line", reasons[at], where.format(at + 1))
        else:
            _add_line(tally, split(first), split(second), effects, where.format(at + 1))
    _add_unpaired(tally, lines, others, paired, reasons, where)


def _add_line(tally: Tally, first: Line, second: Line, effects: dict[Slot, float], where: str) -> None:
    if first.pattern != second.pattern:
        tally.differ(f"{where}: {_shorten(first)} against {_shorten(second)}")
        return
    if not first.numbers:
        tally.value(0.0, tally.floor, where)
    for position, (one, two) in enumerate(zip(first.numbers, second.numbers, strict=True)):
        effect = effects.get((first.pattern, position), 0.0)
        if effects.get((first.pattern, first.lists[position])) == _SAMPLED and one.isdecimal():
            effect = _SAMPLED
        if effect < 0:
            tally.leave_out("number", VARYING if effect == _SAMPLED else CHANGING, where)
            continue
        tally.value(
            _difference(one, two), max(tally.floor, MULTIPLE * effect), f"{where}: {one} against {two}"
        )


def _add_unpaired(
    tally: Tally,
    lines: Sequence[str],
    others: Sequence[str],
    paired: Sequence[tuple[int, int]],
    reasons: dict[int, str],
    where: str,
) -> None:
    mine = sorted(set(range(len(lines))) - {at for at, _ in paired})
    theirs = sorted(set(range(len(others))) - {to for _, to in paired})
    if not mine and not theirs:
        return
    if reasons and all(at in reasons for at in mine) and (mine or len(lines) in reasons):
        tally.leave_out("line", next(iter(reasons.values())), number=max(len(mine), len(theirs)))
        return
    said = f"{len(lines)} lines against {len(others)}"
    example = lines[mine[0]] if mine else others[theirs[0]]
    side = "the original" if mine else "the other"
    place = where.format((mine or theirs)[0] + 1)
    tally.differ(f'{said}; only in {side}, {place}: "{example.strip()[:_SHOWN]}"')


def _of_references(lines: Sequence[Line], again: Sequence[tuple[list[str], int]]) -> _Reference:
    known = _Reference({}, {})
    for other, ulps in again:
        why = VARYING if ulps else CHANGING
        theirs = [split(line) for line in other]
        paired = _pair_lines(lines, theirs)
        varying = set(range(len(lines))) - {at for at, _ in paired}
        if len(lines) != len(other):
            varying.add(len(lines))
        for at, to in paired:
            if lines[at].pattern != theirs[to].pattern:
                varying.add(at)
            else:
                _add_effects(known.effects, lines[at], theirs[to], ulps)
        known.reasons.update({at: why for at in _blocks(lines, varying) if at not in known.reasons})
    return known


def _add_effects(effects: dict[Slot, float], first: Line, second: Line, ulps: int) -> None:
    for position, (one, two) in enumerate(zip(first.numbers, second.numbers, strict=True)):
        slot = first.pattern, position
        if one == two or effects.get(slot, 0.0) < 0:
            continue
        if not ulps:
            effects[slot] = _ALWAYS
            continue
        found = relative_difference(float(one), float(two))
        if one.isdecimal() and two.isdecimal() and found * MULTIPLE > MEANINGLESS:
            effects[slot] = effects[first.pattern, first.lists[position]] = _SAMPLED
        else:
            effects[slot] = max(found / ulps, effects.get(slot, 0.0))


def _blocks(lines: Sequence[Line], varying: set[int]) -> set[int]:
    """Return varying lines with the lines around them that are no rows of a log, such as those of a sampled text.

    Noise changes a sampled text at one place, and another device at another.
    """
    number = Counter(line.pattern for line in lines)
    found = set(varying)
    for at in varying:
        for step in (-1, 1):
            near = at + step
            while 0 <= near < len(lines) and near not in found and number[lines[near].pattern] == 1:
                found.add(near)
                near += step
    return found


def _pair_lines(lines: Sequence[Line], others: Sequence[Line]) -> list[tuple[int, int]]:
    """Return pairs of lines: one to one if both texts have as many, else the common beginning and end."""
    if len(lines) == len(others):
        return [(at, at) for at in range(len(lines))]
    both = min(len(lines), len(others))
    mine, theirs = ([line.pattern for line in text] for text in (lines, others))
    begin = next((at for at in range(both) if mine[at] != theirs[at]), both)
    end = next((at for at in range(both - begin) if mine[-1 - at] != theirs[-1 - at]), both - begin)
    head = [(at, at) for at in range(begin)]
    return head + [(len(lines) - at, len(others) - at) for at in range(end, 0, -1)]


def _shorten(line: Line) -> str:
    numbers = itertools.chain(line.numbers, itertools.repeat("#"))
    return f'"{re.sub("#", lambda _: next(numbers), line.pattern)[:_SHOWN]}"'


def _difference(first: str, second: str) -> float:
    """Return the relative difference of two printed numbers; one unit in the last of several digits is rounding."""
    if first == second:
        return 0.0
    found = relative_difference(float(first), float(second))
    decimals = [len(text.partition(".")[2]) for text in (first, second) if "e" not in text.lower()]
    unit = 10.0 ** -min(decimals) if len(decimals) == 2 and min(decimals) > 0 else 0.0
    is_rounding = found <= _ROUNDING and abs(float(first) - float(second)) <= 1.001 * unit
    return 0.0 if is_rounding else found
