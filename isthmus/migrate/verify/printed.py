"""Comparison of printed and saved text: line by line, the words exactly and the numbers within their limits."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus.migrate.verify.answers import SHOWN, Answers, answers
from isthmus.migrate.verify.run import Run
from isthmus.migrate.verify.scale import EXACT, MULTIPLE, Reference, relative
from isthmus.migrate.verify.tally import CHANGING, VARYING, Comparison, Tally

_ROUNDING = 1e-2  # relative size of one unit in the last printed digit, up to which it may be rounding
_SHOWN = 60  # characters of a line in a message
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w]*:\d)|[-+]?\b(?:nan|inf)\b"
)
_DEVICES = "cuda|gpu|cpu|chip|npu|xpu|mps|nccl|gloo|hccl|xccl"
_UNIFORM = (
    (re.compile(r", device='[a-z]+(?::\d+)?'"), ""),  # of a tensor
    (re.compile(r"\bdevice\(type='[a-z]+'(?:, index=\d+)?\)"), SHOWN),
    (re.compile(r"\btorch\.(?:cuda|chip|npu|xpu)\.(?=\w+Tensor\b)"), "torch."),
    (re.compile(rf"(?i)\b(?:{_DEVICES})(?::\d+)?\b"), SHOWN),
    (re.compile(r"0x[0-9a-f]+"), "<address>"),
)
_TIME = re.compile(
    r"(?i)\b\d{4}-\d\d-\d\d\b|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    r"|(?<=\btime)\W{0,3}[\d.:]+(?:\s*\([\d.:]+\))?|(?<=\b(?:eta|fps)\b)\W{0,3}[\d.:]+(?:\s*\([\d.:]+\))?"
    r"|(?<=\belapsed)\W{0,3}[\d.:]+(?:\s*\([\d.:]+\))?"
    r"|\b[\d.]+ ?(?:s|ms|us|sec|secs|seconds|minutes|hours|s/it|[a-z]+/(?:s|sec|second))\b"
)
_MEMORY = re.compile(r"(?i)\b[\d.]+(?: ?(?:/|of) ?[\d.]+)? ?[KMGT]i?B\b|(?<=\bmem)(?:ory)?(?:_\w+)?\b.*$")


class Text(NamedTuple):
    """Text of one run.

    Attributes:
        lines: its lines.
        root: folder of the run, which is not compared.
    """

    lines: Sequence[str]
    root: Path


class _Line(NamedTuple):
    """A line, made uniform.

    Attributes:
        pattern: the line without its numbers.
        numbers: its numbers.
    """

    pattern: str
    numbers: list[str]


Slot = tuple[str, int]  # pattern of a line, position in it


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
    return tally.done()


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
    lines = [_uniform(line, mine.root, allowed.names, tally) for line in mine.lines]
    others = [_uniform(line, theirs.root, allowed.names) for line in theirs.lines]
    again = [
        ([_uniform(line, each.root, allowed.names) for line in each.lines], ulps) for each, ulps in references
    ]
    reasons, effects = _of_references(lines, again)
    paired = _paired(lines, others)
    for at, to in paired:
        first, second, hidden = allowed.hide(lines[at], others[to])
        if hidden:
            tally.leave_out("answers of the device itself", where.format(at + 1), hidden)
        if at in reasons:
            tally.leave_out(f"lines {reasons[at]}", where.format(at + 1))
        else:
            _add_line(tally, _line(first), _line(second), effects, where.format(at + 1))
    _add_unpaired(tally, lines, others, paired, reasons, where)


def _add_line(tally: Tally, first: _Line, second: _Line, effects: dict[Slot, float], where: str) -> None:
    if first.pattern != second.pattern:
        tally.differ(f"{where}: {_short(first)} against {_short(second)}")
        return
    if not first.numbers:
        tally.value(0.0, tally.floor, where)
    for position, (one, two) in enumerate(zip(first.numbers, second.numbers, strict=True)):
        effect = effects.get((first.pattern, position), 0.0)
        if effect < 0:
            tally.leave_out(f"numbers {CHANGING}", where)
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
        tally.leave_out(f"lines {next(iter(reasons.values()))}", "", max(len(mine), len(theirs)))
        return
    said = f"{len(lines)} lines against {len(others)}"
    example = lines[mine[0]] if mine else others[theirs[0]]
    side = "the original" if mine else "the other"
    place = where.format((mine or theirs)[0] + 1)
    tally.differ(f'{said}; only in {side}, {place}: "{example.strip()[:_SHOWN]}"')


def _of_references(
    lines: Sequence[str], again: Sequence[tuple[list[str], int]]
) -> tuple[dict[int, str], dict[Slot, float]]:
    """Return which lines vary in their words, and why; and the effect of one ulp on the numbers of each slot.

    The effect is -1 where numbers change without noise. Lines that only a run of the original lacks or adds count as
    varying; the number of lines stands for such an addition.
    """
    reasons: dict[int, str] = {}
    effects: dict[Slot, float] = {}
    for other, ulps in again:
        why = VARYING if ulps else CHANGING
        paired = _paired(lines, other)
        for at in set(range(len(lines))) - {at for at, _ in paired}:
            reasons.setdefault(at, why)
        if len(lines) != len(other):
            reasons.setdefault(len(lines), why)
        for at, to in paired:
            first, second = _line(lines[at]), _line(other[to])
            if first.pattern != second.pattern:
                reasons.setdefault(at, why)
                continue
            for position, (one, two) in enumerate(zip(first.numbers, second.numbers, strict=True)):
                slot = first.pattern, position
                if one != two:
                    effect = relative(float(one), float(two)) / ulps if ulps else -1.0
                    known = effects.get(slot, 0.0)
                    effects[slot] = -1.0 if min(effect, known) < 0 else max(effect, known)
    return reasons, effects


def _paired(lines: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of lines: one to one if both texts have as many, else the common beginning and end."""
    if len(lines) == len(others):
        return [(at, at) for at in range(len(lines))]
    both = min(len(lines), len(others))
    mine, theirs = ([_line(line).pattern for line in text] for text in (lines, others))
    begin = next((at for at in range(both) if mine[at] != theirs[at]), both)
    end = next((at for at in range(both - begin) if mine[-1 - at] != theirs[-1 - at]), both - begin)
    head = [(at, at) for at in range(begin)]
    return head + [(len(lines) - at, len(others) - at) for at in range(end, 0, -1)]


def _uniform(line: str, root: Path, names: Sequence[str], tally: Tally | None = None) -> str:
    """Return a line without what belongs to the run: its folder, devices, addresses, times and memory."""
    line = line.replace(str(root), ".")
    for name in names:
        line = line.replace(name, SHOWN)
    for pattern, shown in _UNIFORM:
        line = pattern.sub(shown, line)
    for pattern, what in ((_TIME, "times"), (_MEMORY, "figures of memory")):
        line, number = pattern.subn(f"<{what.split()[-1]}>", line)
        if number and tally:
            tally.leave_out(what, number=number)
    return line


def _line(line: str) -> _Line:
    return _Line(" ".join(_NUMBER.sub("#", line).split()), _NUMBER.findall(line))


def _short(line: _Line) -> str:
    numbers = itertools.chain(line.numbers, itertools.repeat("#"))
    return f'"{re.sub("#", lambda _: next(numbers), line.pattern)[:_SHOWN]}"'


def _difference(first: str, second: str) -> float:
    """Return the relative difference of two printed numbers; one unit in the last of several digits is rounding."""
    if first == second:
        return 0.0
    found = relative(float(first), float(second))
    decimals = [len(text.partition(".")[2]) for text in (first, second) if "e" not in text.lower()]
    unit = 10.0 ** -min(decimals) if len(decimals) == 2 and min(decimals) > 0 else 0.0
    is_rounding = found <= _ROUNDING and abs(float(first) - float(second)) <= 1.001 * unit
    return 0.0 if is_rounding else found
