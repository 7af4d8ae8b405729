"""Answers of a run's device to queries; where a program prints an answer, two devices print two.

The rule is narrow. A printed token may differ if all of these hold:

- each run printed its own answer to one query: capability, index, number or availability of devices;
- the program's source makes this query;
- the line names a device, or what only devices have ("fused"), or consists of nothing but answers.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.verify.run import Run

SHOWN = "<device>"
_QUERIES = {
    "capability": re.compile(r"\bget_device_(?:capability|properties)\b|\bget_arch_list\b"),
    "index": re.compile(r"\bget_device\(|\.index\b|\bcurrent_device(?:_index)?\b"),
    "count": re.compile(r"\bdevice_count\b"),
    "available": re.compile(r"\bis_available\b|\.is_cuda\b|\bget_device_(?:capability|name)\b"),
    "name": re.compile(r"\bget_device_(?:name|properties)\b"),
}
_NAMES_DEVICE = re.compile(
    rf"(?i)\b(?:devices?|gpus?|cuda|cpu|chip|npu|xpu|accelerators?|capability|compute|fused|index|sm_\d+)\b|{SHOWN}"
)
_TOKEN = re.compile(r"\(\d+, ?\d+\)|<\w+>|\bsm_\d+\b|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[^\W\d]+|\S")
_ON_CPU = frozenset({"-1", "0", "None", SHOWN})  # get_device(), cpu:0, cpu


class Answers(NamedTuple):
    """The answers that may differ between two runs.

    Attributes:
        pairs: an answer of the original and the answer of the other run to the same query.
        names: names of the devices of both runs.
    """

    pairs: frozenset[tuple[str, str]] = frozenset()
    names: tuple[str, ...] = ()

    def hide(self, mine: str, theirs: str) -> tuple[str, str, int]:
        """Replace the answers that differ between two lines; return the lines, and how many were replaced."""
        first, second = list(_TOKEN.finditer(mine)), list(_TOKEN.finditer(theirs))
        if mine == theirs or not self.pairs or len(first) != len(second):
            return mine, theirs, 0
        found = [(one, two) for one, two in zip(first, second, strict=True) if one[0] != two[0]]
        answered = [(one, two) for one, two in found if (one[0], two[0]) in self.pairs]
        alone = len(answered) == len(first)
        if not answered or not (alone or (_NAMES_DEVICE.search(mine) and _NAMES_DEVICE.search(theirs))):
            return mine, theirs, 0
        return (
            _replace_tokens(mine, [one for one, _ in answered]),
            _replace_tokens(theirs, [two for _, two in answered]),
            len(answered),
        )


def answers(original: Run, other: Run, rank: int = 0) -> Answers:
    """Return what the devices of two runs answer to the queries in the executed sources of the original."""
    mine, theirs = _device(original, rank), _device(other, rank)
    source = "\n".join(_texts(original.files))
    asked = {query for query, pattern in _QUERIES.items() if pattern.search(source)}
    pairs = {
        pair
        for query in asked - {"name"}
        for pair in itertools.product(_printed_forms(query, mine), _printed_forms(query, theirs))
        if pair[0] != pair[1]
    }
    names = {device.get("name", "") for device in (mine, theirs)} if "name" in asked else set()
    return Answers(frozenset(pairs), tuple(sorted(names - {""}, key=len, reverse=True)))


def _device(run: Run, rank: int) -> Mapping[str, str]:
    found = [record.device for record in run.processes if record.device]
    return found[min(rank, len(found) - 1)] if found else {}


def _texts(files: Iterable[str]) -> list[str]:
    return [
        Path(file).read_text(errors="replace")
        for file in files
        if file.endswith(".py") and Path(file).is_file()
    ]


def _printed_forms(query: str, device: Mapping[str, str]) -> frozenset[str]:
    """Return the texts in which an answer may be printed."""
    if query not in device:
        return frozenset()
    answer, on_cpu = device[query], device.get("type") == "cpu"
    if query == "capability":
        major, minor = re.findall(r"\d+", answer)
        none = {"None"} if on_cpu else set()
        return frozenset({answer, major, f"{major}.{minor}", f"{major}{minor}", f"sm_{major}{minor}", *none})
    return frozenset({answer, *(_ON_CPU if query == "index" and on_cpu else ())})


def _replace_tokens(line: str, tokens: list[re.Match[str]]) -> str:
    for token in reversed(tokens):
        line = line[: token.start()] + SHOWN + line[token.end() :]
    return line
