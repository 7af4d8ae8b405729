"""Uniform lines of text: without what belongs to one run or one device, and with the numbers apart."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.verify.answers import SHOWN
from isthmus_migrate.verify.tally import Tally

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w]*:\d)|[-+]?\b(?:nan|inf)\b"
)
_DEVICES = "cuda|gpu|cpu|chip|npu|xpu|mps|nccl|gloo|hccl|xccl"
_UNIFORM = (
    (re.compile(r", device='[a-z]+(?::\d+)?'"), ""),  # device of a tensor
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


class Line(NamedTuple):
    """A line, made uniform.

    Attributes:
        pattern: the line without its numbers.
        numbers: its numbers.
        lists: for each number, the position of the first number of its list: numbers without words between them.
    """

    pattern: str
    numbers: list[str]
    lists: list[int]


def uniform(line: str, root: Path, names: Sequence[str], tally: Tally | None = None) -> str:
    """Return a line without what belongs to the run: its folder, devices, addresses, times and memory."""
    line = line.replace(str(root), ".")
    for name in names:
        line = re.sub(rf"(?<!\w){re.escape(name)}(?![\w:])", SHOWN, line)
    for pattern, shown in _UNIFORM:
        line = pattern.sub(shown, line)
    for pattern, what in ((_TIME, "time"), (_MEMORY, "memory figure")):
        line, number = pattern.subn(f"<{what}>", line)
        if number and tally:
            tally.leave_out(what, number=number)
    return line


def split(line: str) -> Line:
    """Return a uniform line as its pattern and its numbers."""
    found = list(_NUMBER.finditer(line))
    lists: list[int] = []
    for at, each in enumerate(found):
        joined = at > 0 and not re.search(r"[^\s,;()\[\]-]", line[found[at - 1].end() : each.start()])
        lists.append(lists[-1] if joined else at)
    return Line(" ".join(_NUMBER.sub("#", line).split()), [each[0] for each in found], lists)
